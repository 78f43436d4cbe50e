"""Responses, their raw bodies, the parts of those in progress, and what was appended under which idempotency key."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db.base import (
    Base,
    BigNumber,
    Count,
    Digest,
    Flag,
    Key,
    LongBytes,
    LongText,
    Moment,
    Name,
    NameKey,
    Number,
    ShortDigest,
    Tenant,
    references,
    to_conversation,
)
from threadkeep.db.types import EscapedText


class ResponseRow(Base):
    """A provider's answer: a range of items, and what the request showed.

    While it is being streamed it has no items; `open_branch` is its branch then, and a branch has one at a time.
    """

    __tablename__ = "responses"
    __table_args__ = (
        to_conversation(),
        references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
        Index("open_branch", "tenant_id", "conversation_id", "open_branch", unique=True),
    )

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    number: Mapped[Number]
    provider_response_id: Mapped[str | None] = mapped_column(EscapedText)
    branch: Mapped[Count]
    input_to: Mapped[BigNumber]  # last position that the request showed, -1 for none
    from_position: Mapped[BigNumber]
    to_position: Mapped[BigNumber]  # before from_position when the answer had no items
    view: Mapped[LongText | None]  # JSON: format and render options of the request
    config_hash: Mapped[Digest]
    tool_set_hash: Mapped[Digest | None]
    format: Mapped[Name]
    model: Mapped[str | None] = mapped_column(EscapedText)
    status: Mapped[Name | None]
    finish_reason: Mapped[str | None] = mapped_column(EscapedText)
    incomplete_details: Mapped[LongText | None]
    error: Mapped[LongText | None]
    provider_data: Mapped[LongText | None]
    created_at: Mapped[Moment]
    completed_at: Mapped[Moment | None]
    lease_until: Mapped[Moment | None]  # from then on another writer may end a response in progress
    lease_token: Mapped[ShortDigest | None]  # who may write to a response in progress
    open_branch: Mapped[Count | None]  # the branch of a response in progress, NULL for those that have ended


class StreamPartRow(Base):
    """A piece of a response in progress, append-only; deleted when its items are written."""

    __tablename__ = "stream_parts"
    __table_args__ = (
        references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
    )

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    number: Mapped[Number]
    part: Mapped[Number]
    content: Mapped[LongText]  # part 0: an object with the recorder's arguments; then pieces of the events, JSON lines
    created_at: Mapped[Moment]


class ResponseBodyRow(Base):
    """The provider's body as received; expires on its own."""

    __tablename__ = "response_bodies"
    __table_args__ = (
        references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
    )

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    number: Mapped[Number]
    codec: Mapped[Flag]  # 0: as received, 1: zlib
    body: Mapped[LongBytes]
    created_at: Mapped[Moment]


class AppendRow(Base):
    """What was done under an idempotency key. Conversation 0 stands for the tenant: no foreign key to conversations."""

    __tablename__ = "appends"
    __table_args__ = (references("tenants", tenant_id="id"),)

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    key: Mapped[NameKey]
    request_hash: Mapped[Digest]
    outcome: Mapped[LongText]  # JSON: what was created (positions, response, branch, ledger row), or which error
    created_at: Mapped[Moment]
