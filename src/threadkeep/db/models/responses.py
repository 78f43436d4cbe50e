"""Responses, their raw bodies, the parts of those in progress, and what was appended under which idempotency key."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db import base
from threadkeep.db.types import EscapedText


class ResponseRow(base.Base):
    """A provider's response: a range of items, and what the request showed.

    While it is being streamed it has no items; `open_branch` is its branch then, and a branch has one at a time.
    """

    __tablename__ = "responses"
    __table_args__ = (
        base.to_conversation(),
        base.references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        base.references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
        Index("open_branch", "tenant_id", "conversation_id", "open_branch", unique=True),
    )

    tenant_id: Mapped[base.Tenant]
    conversation_id: Mapped[base.Key]
    number: Mapped[base.Number]
    provider_response_id: Mapped[str | None] = mapped_column(EscapedText)
    branch: Mapped[base.Count]
    input_to: Mapped[base.BigNumber]  # last position that the request showed, -1 for none
    from_position: Mapped[base.BigNumber]
    to_position: Mapped[base.BigNumber]  # less than from_position if the response had no items
    view: Mapped[base.LongText | None]  # JSON: format and render options of the request
    config_hash: Mapped[base.Digest]
    tool_set_hash: Mapped[base.Digest | None]
    format: Mapped[base.Name]
    model: Mapped[str | None] = mapped_column(EscapedText)
    status: Mapped[base.Name | None]
    finish_reason: Mapped[str | None] = mapped_column(EscapedText)
    incomplete_details: Mapped[base.LongText | None]
    error: Mapped[base.LongText | None]
    provider_data: Mapped[base.LongText | None]
    created_at: Mapped[base.Moment]
    completed_at: Mapped[base.Moment | None]
    lease_until: Mapped[base.Moment | None]  # from then on another writer may end a response in progress
    lease_token: Mapped[base.ShortDigest | None]  # who may write to a response in progress
    open_branch: Mapped[base.Count | None]  # the branch of a response in progress, NULL for those that have ended


class StreamPartRow(base.Base):
    """A piece of a response in progress, append-only; deleted when its items are written."""

    __tablename__ = "stream_parts"
    __table_args__ = (
        base.references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
    )

    tenant_id: Mapped[base.Tenant]
    conversation_id: Mapped[base.Key]
    number: Mapped[base.Number]
    part: Mapped[base.Number]
    content: Mapped[base.LongText]  # part 0: the recorder's arguments, an object; then pieces of the events, JSON lines
    created_at: Mapped[base.Moment]


class ResponseBodyRow(base.Base):
    """The provider's body as received; expires on its own."""

    __tablename__ = "response_bodies"
    __table_args__ = (
        base.references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
    )

    tenant_id: Mapped[base.Tenant]
    conversation_id: Mapped[base.Key]
    number: Mapped[base.Number]
    codec: Mapped[base.Flag]  # 0: as received, 1: zlib
    body: Mapped[base.LongBytes]
    created_at: Mapped[base.Moment]


class AppendRow(base.Base):
    """What was done under an idempotency key. Conversation 0 stands for the tenant: no foreign key to conversations."""

    __tablename__ = "appends"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    tenant_id: Mapped[base.Tenant]
    conversation_id: Mapped[base.Key]
    key: Mapped[base.NameKey]
    request_hash: Mapped[base.Digest]
    outcome: Mapped[base.LongText]  # JSON: what was created (positions, response, branch, ledger row), or which error
    created_at: Mapped[base.Moment]
