"""Responses, their raw bodies, and what was appended under which idempotency key."""

from __future__ import annotations

from sqlalchemy import ForeignKeyConstraint
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
    Tenant,
)
from threadkeep.db.types import EscapedText


class ResponseRow(Base):
    """A provider's answer: a range of items, and what the request showed."""

    __tablename__ = "responses"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"], ondelete="CASCADE"
        ),
        ForeignKeyConstraint(["tenant_id", "config_hash"], ["configs.tenant_id", "configs.hash"], ondelete="RESTRICT"),
        ForeignKeyConstraint(
            ["tenant_id", "tool_set_hash"], ["tool_sets.tenant_id", "tool_sets.hash"], ondelete="RESTRICT"
        ),
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


class ResponseBodyRow(Base):
    """The provider's body as it came; expires on its own."""

    __tablename__ = "response_bodies"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "conversation_id", "number"],
            ["responses.tenant_id", "responses.conversation_id", "responses.number"],
            ondelete="CASCADE",
        ),
    )

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    number: Mapped[Number]
    codec: Mapped[Flag]  # 0: as it came, 1: zlib
    body: Mapped[LongBytes]
    created_at: Mapped[Moment]


class AppendRow(Base):
    """What was done under an idempotency key. Conversation 0 stands for the tenant, so there is no foreign key."""

    __tablename__ = "appends"
    __table_args__ = (ForeignKeyConstraint(["tenant_id"], ["tenants.id"], ondelete="CASCADE"),)

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    key: Mapped[NameKey]
    request_hash: Mapped[Digest]
    outcome: Mapped[LongText]  # JSON: what was made (positions, response, branch, ledger row) or which error was raised
    created_at: Mapped[Moment]
