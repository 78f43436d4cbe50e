"""The usage ledger."""

from __future__ import annotations

from datetime import date

from sqlalchemy import Date, ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db.base import Base, BigNumber, Count, Digest, Key, LongText, Moment, Name, Tenant

_FIGURES = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "cost_nano")


class UsageRecordRow(Base):
    """One provider attempt and its figures, which never change. It outlives its conversation: no foreign key to it."""

    __tablename__ = "usage_records"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"], ondelete="CASCADE"),
        Index("ix_usage_records_day", "tenant_id", "day", "model", *_FIGURES),
        Index("ix_usage_records_user", "tenant_id", "user_id", "day", *_FIGURES),
        Index("ix_usage_records_conversation", "tenant_id", "conversation_id"),
    )

    tenant_id: Mapped[Tenant]
    id: Mapped[Key]
    day: Mapped[date] = mapped_column(Date)  # of occurred_at, in UTC
    occurred_at: Mapped[Moment]
    user_id: Mapped[Name | None]
    conversation_id: Mapped[BigNumber]
    response: Mapped[Count | None]  # None: the attempt gave no response
    tool_set_hash: Mapped[Digest | None]
    provider: Mapped[Name | None]
    model: Mapped[Name | None]
    format: Mapped[Name]
    status: Mapped[Name | None]
    latency_ms: Mapped[BigNumber | None]
    input_tokens: Mapped[BigNumber | None]  # all input, cached and cache-writing included
    cached_tokens: Mapped[BigNumber | None]
    cache_write_tokens: Mapped[BigNumber | None]
    output_tokens: Mapped[BigNumber | None]  # all output, reasoning included
    reasoning_tokens: Mapped[BigNumber | None]
    total_tokens: Mapped[BigNumber | None]
    cost_nano: Mapped[BigNumber | None]  # nano-USD
    usage: Mapped[LongText | None]  # the provider's own usage object, JSON
    error: Mapped[LongText | None]  # the provider's error, JSON
