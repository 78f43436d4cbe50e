"""Items and the media that was taken out of them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Index, SmallInteger
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db.base import (
    Base,
    BigNumber,
    Count,
    Digest,
    Flag,
    HashKey,
    Key,
    LongBytes,
    LongText,
    Moment,
    Name,
    ShortDigest,
    Tenant,
    partial_index,
    references,
    to_conversation,
)
from threadkeep.db.types import EscapedText


class ItemRow(Base):
    """One item: the JSON text that Open Responses sends, and columns for SQL users."""

    __tablename__ = "items"
    __table_args__ = (
        to_conversation(),
        partial_index("call", "call_hash IS NOT NULL", "tenant_id", "call_hash"),
        partial_index("item", "item_hash IS NOT NULL", "tenant_id", "item_hash"),
    )

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    position: Mapped[Key]  # place in the conversation, from 0; the order of items, never a clock
    branch: Mapped[Count]
    turn: Mapped[BigNumber | None]  # first position of the wire message or response it came in
    seen: Mapped[BigNumber | None]  # on output of a response: last position that its request showed
    item_id: Mapped[str | None] = mapped_column(EscapedText)
    item_hash: Mapped[ShortDigest | None]
    call_id: Mapped[str | None] = mapped_column(EscapedText)
    call_hash: Mapped[ShortDigest | None]
    type: Mapped[Name]
    role: Mapped[Name | None]
    status: Mapped[Name | None]
    name: Mapped[Name | None]
    author_id: Mapped[Name | None]
    origin: Mapped[Name | None]  # the wire format it came in
    model: Mapped[Name | None]  # the model that produced it
    payload: Mapped[LongText | None]
    rest: Mapped[LongText | None]
    codec: Mapped[Flag]
    created_at: Mapped[Moment]


class BlobRow(Base):
    """Base64 media of a conversation's items, decoded, once per content."""

    __tablename__ = "blobs"
    __table_args__ = (references("tenants", tenant_id="id"),)

    tenant_id: Mapped[Tenant]
    hash: Mapped[HashKey]
    content: Mapped[LongBytes]
    created_at: Mapped[Moment]


class ItemBlobRow(Base):
    """Where in an item's text a blob belongs, in bytes from the start of the text as stored."""

    __tablename__ = "item_blobs"
    __table_args__ = (
        references("items", tenant_id="tenant_id", conversation_id="conversation_id", position="position"),
        references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
        Index("hash", "tenant_id", "hash"),
    )

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    position: Mapped[Key]
    part: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)  # 0: payload, 1: rest
    ordinal: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)  # two may share an offset
    splice_at: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[Digest]
