"""Items, the media that was taken out of them, and their text for the search."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Index, SmallInteger, Text, UniqueConstraint, text
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db import base
from threadkeep.db.types import MYSQL, EscapedText


class ItemRow(base.Base):
    """One item: the JSON text that Open Responses sends, and columns for SQL users."""

    __tablename__ = "items"
    __table_args__ = (
        base.to_conversation(),
        base.partial_index("call", "call_hash IS NOT NULL", "tenant_id", "call_hash"),
        base.partial_index("item", "item_hash IS NOT NULL", "tenant_id", "item_hash"),
    )

    tenant_id: Mapped[base.Tenant]
    conversation_id: Mapped[base.Key]
    position: Mapped[base.Key]  # place in the conversation, from 0; the order of items, never a clock
    branch: Mapped[base.Count]
    turn: Mapped[base.BigNumber | None]  # first position of the wire message or response it came in
    seen: Mapped[base.BigNumber | None]  # on output of a response: last position that its request showed
    item_id: Mapped[str | None] = mapped_column(EscapedText)
    item_hash: Mapped[base.ShortDigest | None]
    call_id: Mapped[str | None] = mapped_column(EscapedText)
    call_hash: Mapped[base.ShortDigest | None]
    type: Mapped[base.Name]
    role: Mapped[base.Name | None]
    status: Mapped[base.Name | None]
    name: Mapped[base.Name | None]
    author_id: Mapped[base.Name | None]
    origin: Mapped[base.Name | None]  # the wire format it came in
    model: Mapped[base.Name | None]  # the model that produced it
    payload: Mapped[base.LongText | None]
    rest: Mapped[base.LongText | None]
    codec: Mapped[base.Flag]
    created_at: Mapped[base.Moment]


class BlobRow(base.Base):
    """Base64 media of a conversation's items, decoded, once per content."""

    __tablename__ = "blobs"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    tenant_id: Mapped[base.Tenant]
    hash: Mapped[base.HashKey]
    content: Mapped[base.LongBytes]
    created_at: Mapped[base.Moment]


class ItemBlobRow(base.Base):
    """Where in an item's text a blob belongs, in bytes from the start of the text as stored."""

    __tablename__ = "item_blobs"
    __table_args__ = (
        base.references("items", tenant_id="tenant_id", conversation_id="conversation_id", position="position"),
        base.references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
        Index("hash", "tenant_id", "hash"),
    )

    tenant_id: Mapped[base.Tenant]
    conversation_id: Mapped[base.Key]
    position: Mapped[base.Key]
    part: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)  # 0: payload, 1: rest
    ordinal: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)  # two may share an offset
    splice_at: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[base.Digest]


# The words of a text as the database's index takes them: folded already, so that MySQL compares them byte for byte.
Words: Final = (
    Text()
    .with_variant(TSVECTOR(), "postgresql")
    .with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)
)


class SearchDocumentRow(base.Base):
    """The text of an item, or a conversation's title at position -1."""

    __tablename__ = "search_documents"
    __table_args__ = (
        base.to_conversation(),
        UniqueConstraint("tenant_id", "conversation_id", "position", name="position"),
        # GIN or FULLTEXT; SQLite has a table of its own instead, and this index is empty there
        Index(
            "words",
            "words",
            postgresql_using="gin",
            mysql_prefix="FULLTEXT",
            mariadb_prefix="FULLTEXT",
            sqlite_where=text("0"),
        ),
    )

    tenant_id: Mapped[base.Tenant]
    id: Mapped[base.Key]
    conversation_id: Mapped[base.BigNumber]
    position: Mapped[base.BigNumber]
    branch: Mapped[base.Count]
    type: Mapped[base.Name]
    role: Mapped[base.Name | None]
    created_at: Mapped[base.Moment]  # of the item
    text: Mapped[base.LongText]
    words: Mapped[str | None] = mapped_column(Words)  # SQLite: only where they are not those of the text
