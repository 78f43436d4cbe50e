"""Items, what applications and users say about them, their text for the search, and media of items and uploads."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Computed, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from threadkeep.db.base import (
    HOLDS,
    LOCAL,
    PREFIX,
    Base,
    BigNumber,
    BinaryContent,
    Content,
    Key,
    LongHash,
    LongName,
    Name,
    Number,
    OfConversation,
    OfTenant,
    Owner,
    ShortHash,
    SmallKey,
    SmallNumber,
    Source,
    UserId,
    Word,
    optioned_index,
    partial_index,
    references,
    to_conversation,
    to_item,
)
from threadkeep.db.functions import sql_function
from threadkeep.db.types import BigText, Words

if TYPE_CHECKING:
    from threadkeep.db.models.conversation import ConversationRow


# Items that a request may need from before the part of the history that it shows
MARKS: Final = "type = 'message' AND role IN ('system', 'developer') OR type IN ('compaction', 'compaction_undone')"

# The columns that requests are rendered with, in one text: to return one value takes a database, and its driver, a
# fraction of the time of eight. The first number is 0 for an item that is nothing but a plain payload, with 4 for a
# call id in which something is escaped. NULL is a backslash, which is none of their values: those are escaped.
_PACKED: Final = sql_function(
    "packed",
    sqlite=(
        r"printf('%d %s %s %s %s %s %s %d %s', "
        r"codec * 8 + coalesce(instr(call_id, '\') > 0, 0) * 4 + (payload IS NULL) * 2 + (rest IS NOT NULL), type, "
        r"coalesce(role, '\'), coalesce(origin, '\'), coalesce(maker, '\'), coalesce(turn, '\'), coalesce(seen, '\'), "
        r"position, coalesce(call_id, '\'))"
    ),
    postgresql=(
        r"(codec * 8 + CASE WHEN strpos(call_id, '\'::text) > 0 THEN 4 ELSE 0 END "
        r"+ CASE WHEN payload IS NULL THEN 2 ELSE 0 END + CASE WHEN rest IS NULL THEN 0 ELSE 1 END)::text "
        r"|| ' '::text || type::text || ' '::text || COALESCE(role, '\'::character varying)::text || ' '::text "
        r"|| COALESCE(origin, '\'::character varying)::text || ' '::text "
        r"|| COALESCE(maker, '\'::character varying)::text || ' '::text || COALESCE(turn::text, '\'::text) "
        r"|| ' '::text || COALESCE(seen::text, '\'::text) || ' '::text || position::text || ' '::text "
        r"|| COALESCE(call_id, '\'::text)"
    ),
    mysql="NULL",  # where it is not read
)


class ItemRow(OfConversation, Base):
    """One item: the JSON text that Open Responses sends, and columns for SQL users."""

    __tablename__ = f"{PREFIX}items"
    __table_args__ = (
        to_conversation(),
        partial_index("call", "call_hash IS NOT NULL", "tenant_id", "call_hash"),
        partial_index("item", "item_hash IS NOT NULL", "tenant_id", "item_hash", "conversation_id", "position"),
        partial_index("marks", MARKS, "tenant_id", "conversation_id", "type", "role"),
    )

    position: Mapped[Key]  # place in the conversation, from 0; the order of items, never a clock
    branch: Mapped[Number]  # that it was written on; -1 when it was removed from all
    turn: Mapped[BigNumber | None]  # first position of the wire message or response it came in
    seen: Mapped[BigNumber | None]  # on output of a response: last position that its request showed
    item_id: Mapped[LongName | None]
    item_hash: Mapped[ShortHash | None]
    call_id: Mapped[LongName | None]
    call_hash: Mapped[ShortHash | None]
    type: Mapped[Word]
    role: Mapped[Word | None]
    status: Mapped[Word | None]
    name: Mapped[Name | None]  # of the function that is called
    author_id: Mapped[UserId | None]
    origin: Mapped[Word | None]  # the wire format it came in
    model: Mapped[Source | None]  # the model that produced it
    maker: Mapped[Source | None]  # who gave it, and so may get back what only its maker can read
    packed: Mapped[str | None] = mapped_column(BigText, Computed(_PACKED(), persisted=True), info={HOLDS: "name"})
    payload: Mapped[Content | None]
    rest: Mapped[Content | None]
    given: Mapped[Content | None]  # JSON overlay: what the application gave, where it is not what is read back
    codec: Mapped[SmallNumber]
    created_at: Mapped[datetime]

    conversation: Mapped["ConversationRow"] = relationship(viewonly=True, back_populates="items")
    labels: Mapped[list["ItemLabelRow"]] = relationship(viewonly=True)
    feedback: Mapped[list["ItemFeedbackRow"]] = relationship(viewonly=True)
    approval: Mapped["ApprovalRow | None"] = relationship(viewonly=True)
    media: Mapped[list["ItemBlobRow"]] = relationship(viewonly=True)


class ItemLabelRow(OfConversation, Base):
    """One of the application's own labels of an item; never sent to a provider."""

    __tablename__ = f"{PREFIX}item_labels"
    __table_args__ = (to_item(), Index("value", "tenant_id", "key", "value", "conversation_id", "position"))

    position: Mapped[Key]
    key: Mapped[Name] = mapped_column(primary_key=True)
    value: Mapped[Name]


class ItemFeedbackRow(OfConversation, Base):
    """What a user thinks of an item."""

    __tablename__ = f"{PREFIX}item_feedback"
    __table_args__ = (
        to_item(),
        Index("user_id", "tenant_id", "user_id"),
        Index("rating", "tenant_id", "rating", "conversation_id", "position"),
    )

    position: Mapped[Key]
    user_id: Mapped[Owner] = mapped_column(primary_key=True)  # '' for no user in particular
    rating: Mapped[Number | None]
    comment: Mapped[Content | None]
    updated_at: Mapped[datetime]


class ApprovalRow(OfConversation, Base):
    """Whether a function call may run."""

    __tablename__ = f"{PREFIX}approvals"
    __table_args__ = (to_item(), Index("decided_by", "tenant_id", "decided_by"))

    position: Mapped[Key]
    decision: Mapped[Word]  # approved or denied
    reason: Mapped[Content | None]
    decided_by: Mapped[UserId | None]
    created_at: Mapped[datetime]


_FULLTEXT: Final[dict[str, Any]] = {"mysql_prefix": "FULLTEXT", "mariadb_prefix": "FULLTEXT"}


class SearchDocumentRow(OfTenant, Base):
    """The text of an item, or a conversation's title at position -1."""

    __tablename__ = f"{PREFIX}search_documents"
    __table_args__ = (
        to_conversation(),
        UniqueConstraint("tenant_id", "conversation_id", "position", name="position"),
        # GIN or FULLTEXT; SQLite has a table of its own instead, and this index is empty there
        optioned_index("words", "words", postgresql_using="gin", sqlite_where=text("0"), **_FULLTEXT),
    )

    id: Mapped[Key]
    conversation_id: Mapped[BigNumber]
    position: Mapped[BigNumber]
    branch: Mapped[Number]
    type: Mapped[Word]
    role: Mapped[Word | None]
    created_at: Mapped[datetime]  # of the item
    text: Mapped[Content]
    # SQLite: only where they are not the words of the text
    words: Mapped[str | None] = mapped_column(Words, info={HOLDS: "content"})
    scope: Mapped[UserId | None]  # SQLite: a word of the user under which it is in the index


class BlobRow(OfTenant, Base):
    """The bytes of a picture, a sound or a file, decoded; items and uploads with the same bytes share one row."""

    __tablename__ = f"{PREFIX}blobs"
    __table_args__ = (references("tenants", tenant_id="id"),)

    hash: Mapped[LongHash] = mapped_column(primary_key=True)
    content: Mapped[BinaryContent | None]  # NULL when it is kept elsewhere
    location: Mapped[Name | None] = mapped_column(info={LOCAL: True})  # the name under which it is kept elsewhere
    media_type: Mapped[Word | None]  # as was said when it was first stored
    size: Mapped[BigNumber]  # in bytes
    created_at: Mapped[datetime]


class UploadRow(OfTenant, Base):
    """Media that a user has uploaded, and may refer to for some time."""

    __tablename__ = f"{PREFIX}uploads"
    __table_args__ = (
        references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
        # The condition that all rows meet keeps PostgreSQL from looking up media there, among all of the tenant's.
        optioned_index("expires_at", "tenant_id", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
        Index("user", "user_id", "tenant_id", "hash"),
    )

    hash: Mapped[LongHash] = mapped_column(primary_key=True)
    user_id: Mapped[Owner] = mapped_column(primary_key=True)  # '' for no user in particular
    media_type: Mapped[Word | None]  # as this user said
    expires_at: Mapped[datetime]

    blob: Mapped["BlobRow"] = relationship(viewonly=True)


class ItemBlobRow(OfConversation, Base):
    """Where in an item's text a blob belongs, in bytes from the start of the text as stored."""

    __tablename__ = f"{PREFIX}item_blobs"
    __table_args__ = (
        to_item(),
        references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
        Index("hash", "tenant_id", "hash"),
    )

    position: Mapped[Key]
    part: Mapped[SmallKey]  # 0: payload, 1: rest
    ordinal: Mapped[SmallKey]  # two may share an offset
    splice_at: Mapped[BigNumber]
    hash: Mapped[LongHash]

    blob: Mapped["BlobRow"] = relationship(viewonly=True)
