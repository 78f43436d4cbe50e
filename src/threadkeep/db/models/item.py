"""Items, what applications and users say about them, their text for the search, and media of items and uploads."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Computed, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from threadkeep.db import base, functions
from threadkeep.db.types import BigText, Words

if TYPE_CHECKING:
    from threadkeep.db.models.conversation import ConversationRow


# Items that a request may need from before the part of the history that it shows
MARKS: Final = "type = 'message' AND role IN ('system', 'developer') OR type IN ('compaction', 'compaction_undone')"

# The columns that requests are rendered with, in one text: to return one value takes a database, and its driver, a
# fraction of the time of eight. The first number is 0 for an item that is nothing but a plain payload, with 4 for a
# call id in which something is escaped. NULL is a backslash, which is none of their values: those are escaped.
_PACKED: Final = functions.sql_function(
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


class ItemRow(base.OfConversation, base.Base):
    """One item: the JSON text that Open Responses sends, and columns for SQL users."""

    __tablename__ = f"{base.PREFIX}items"
    __table_args__ = (
        base.to_conversation(),
        base.partial_index("call", "call_hash IS NOT NULL", "tenant_id", "call_hash"),
        base.partial_index("item", "item_hash IS NOT NULL", "tenant_id", "item_hash", "conversation_id", "position"),
        base.partial_index("marks", MARKS, "tenant_id", "conversation_id", "type", "role"),
    )

    position: Mapped[base.Key]  # place in the conversation, from 0; the order of items, never a clock
    branch: Mapped[base.Number]  # that it was written on; -1 when it was removed from all
    turn: Mapped[base.BigNumber | None]  # first position of the wire message or response it came in
    seen: Mapped[base.BigNumber | None]  # on output of a response: last position that its request showed
    item_id: Mapped[base.LongName | None]
    item_hash: Mapped[base.ShortHash | None]
    call_id: Mapped[base.LongName | None]
    call_hash: Mapped[base.ShortHash | None]
    type: Mapped[base.Word]
    role: Mapped[base.Word | None]
    status: Mapped[base.Word | None]
    name: Mapped[base.Name | None]  # of the function that is called
    author_id: Mapped[base.UserId | None]
    origin: Mapped[base.Word | None]  # the wire format it came in
    model: Mapped[base.Source | None]  # the model that produced it
    maker: Mapped[base.Source | None]  # who gave it, and so may get back what only its maker can read
    packed: Mapped[str | None] = mapped_column(BigText, Computed(_PACKED(), persisted=True), info={base.HOLDS: "name"})
    payload: Mapped[base.Content | None]
    rest: Mapped[base.Content | None]
    given: Mapped[base.Content | None]  # JSON overlay: what the application gave, where it is not what is read back
    codec: Mapped[base.SmallNumber]
    created_at: Mapped[datetime]

    conversation: Mapped["ConversationRow"] = relationship(viewonly=True, back_populates="items")
    labels: Mapped[list["ItemLabelRow"]] = relationship(viewonly=True)
    feedback: Mapped[list["ItemFeedbackRow"]] = relationship(viewonly=True)
    approval: Mapped["ApprovalRow | None"] = relationship(viewonly=True)
    media: Mapped[list["ItemBlobRow"]] = relationship(viewonly=True)


class ItemLabelRow(base.OfConversation, base.Base):
    """One of the application's own labels of an item; never sent to a provider."""

    __tablename__ = f"{base.PREFIX}item_labels"
    __table_args__ = (base.to_item(), Index("value", "tenant_id", "key", "value", "conversation_id", "position"))

    position: Mapped[base.Key]
    key: Mapped[base.Name] = mapped_column(primary_key=True)
    value: Mapped[base.Name]


class ItemFeedbackRow(base.OfConversation, base.Base):
    """What a user thinks of an item."""

    __tablename__ = f"{base.PREFIX}item_feedback"
    __table_args__ = (
        base.to_item(),
        Index("user_id", "tenant_id", "user_id"),
        Index("rating", "tenant_id", "rating", "conversation_id", "position"),
    )

    position: Mapped[base.Key]
    user_id: Mapped[base.Owner] = mapped_column(primary_key=True)  # '' for no user in particular
    rating: Mapped[base.Number | None]
    comment: Mapped[base.Content | None]
    updated_at: Mapped[datetime]


class ApprovalRow(base.OfConversation, base.Base):
    """Whether a function call may run."""

    __tablename__ = f"{base.PREFIX}approvals"
    __table_args__ = (base.to_item(), Index("decided_by", "tenant_id", "decided_by"))

    position: Mapped[base.Key]
    decision: Mapped[base.Word]  # approved or denied
    reason: Mapped[base.Content | None]
    decided_by: Mapped[base.UserId | None]
    created_at: Mapped[datetime]


_FULLTEXT: Final[dict[str, Any]] = {"mysql_prefix": "FULLTEXT", "mariadb_prefix": "FULLTEXT"}


class SearchDocumentRow(base.OfTenant, base.Base):
    """The text of an item, or a conversation's title at position -1."""

    __tablename__ = f"{base.PREFIX}search_documents"
    __table_args__ = (
        base.to_conversation(),
        UniqueConstraint("tenant_id", "conversation_id", "position", name="position"),
        # GIN or FULLTEXT; SQLite has a table of its own instead, and this index is empty there
        base.optioned_index("words", "words", postgresql_using="gin", sqlite_where=text("0"), **_FULLTEXT),
    )

    id: Mapped[base.Key]
    conversation_id: Mapped[base.BigNumber]
    position: Mapped[base.BigNumber]
    branch: Mapped[base.Number]
    type: Mapped[base.Word]
    role: Mapped[base.Word | None]
    created_at: Mapped[datetime]  # of the item
    text: Mapped[base.Content]
    # SQLite: only where they are not the words of the text
    words: Mapped[str | None] = mapped_column(Words, info={base.HOLDS: "content"})
    scope: Mapped[base.UserId | None]  # SQLite: a word of the user under which it is in the index


class BlobRow(base.OfTenant, base.Base):
    """The bytes of a picture, a sound or a file, decoded; items and uploads with the same bytes share one row."""

    __tablename__ = f"{base.PREFIX}blobs"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    hash: Mapped[base.LongHash] = mapped_column(primary_key=True)
    content: Mapped[base.BinaryContent | None]  # NULL when it is kept elsewhere
    location: Mapped[base.Name | None] = mapped_column(
        info={base.LOCAL: True}
    )  # the name under which it is kept elsewhere
    media_type: Mapped[base.Word | None]  # as was said when it was first stored
    size: Mapped[base.BigNumber]  # in bytes
    created_at: Mapped[datetime]


class UploadRow(base.OfTenant, base.Base):
    """Media that a user has uploaded, and may refer to for some time."""

    __tablename__ = f"{base.PREFIX}uploads"
    __table_args__ = (
        base.references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
        # The condition that all rows meet keeps PostgreSQL from looking up media there, among all of the tenant's.
        base.optioned_index("expires_at", "tenant_id", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
        Index("user", "user_id", "tenant_id", "hash"),
    )

    hash: Mapped[base.LongHash] = mapped_column(primary_key=True)
    user_id: Mapped[base.Owner] = mapped_column(primary_key=True)  # '' for no user in particular
    media_type: Mapped[base.Word | None]  # as this user said
    expires_at: Mapped[datetime]

    blob: Mapped["BlobRow"] = relationship(viewonly=True)


class ItemBlobRow(base.OfConversation, base.Base):
    """Where in an item's text a blob belongs, in bytes from the start of the text as stored."""

    __tablename__ = f"{base.PREFIX}item_blobs"
    __table_args__ = (
        base.to_item(),
        base.references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
        Index("hash", "tenant_id", "hash"),
    )

    position: Mapped[base.Key]
    part: Mapped[base.SmallKey]  # 0: payload, 1: rest
    ordinal: Mapped[base.SmallKey]  # two may share an offset
    splice_at: Mapped[base.BigNumber]
    hash: Mapped[base.LongHash]

    blob: Mapped["BlobRow"] = relationship(viewonly=True)
