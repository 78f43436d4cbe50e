"""The usage ledger, and its sums of days."""

from __future__ import annotations

from datetime import date

from sqlalchemy import Date, ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, declared_attr, mapped_column

from threadkeep.db import base

_KEYS = ("model", "provider", "format", "status")
_FIGURES = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms",
)  # fmt: skip


class UsageRecordRow(base.Base):
    """One provider attempt and its figures, which never change. It outlives its conversation: no foreign key to it.

    Nor one to the tenant: PostgreSQL would lock the tenant's row for each of them, and all who append would meet there.

    Reports read nothing but the indexes: these hold all that is summed, and what it is summed by.
    """

    __tablename__ = "usage_records"
    __table_args__ = (
        Index("by_day", "tenant_id", "day", *_KEYS, "user_id", "conversation_id", *_FIGURES),
        Index("by_user", "tenant_id", "user_id", "day", *_KEYS, *_FIGURES),
        Index("by_conversation", "tenant_id", "conversation_id", "response", "day", "model", *_FIGURES),
    )

    tenant_id: Mapped[base.Tenant]
    id: Mapped[base.Key]
    day: Mapped[date] = mapped_column(Date)  # of occurred_at, in UTC
    occurred_at: Mapped[base.Moment]
    user_id: Mapped[base.Name | None]
    conversation_id: Mapped[base.BigNumber]
    response: Mapped[base.Count | None]  # None: the attempt gave no response
    tool_set_hash: Mapped[base.Digest | None]
    provider: Mapped[base.Name | None]
    model: Mapped[base.Name | None]
    format: Mapped[base.Name]
    status: Mapped[base.Name | None]
    latency_ms: Mapped[base.BigNumber | None]
    input_tokens: Mapped[base.BigNumber | None]  # all input, cached and cache-writing included
    cached_tokens: Mapped[base.BigNumber | None]
    cache_write_tokens: Mapped[base.BigNumber | None]
    output_tokens: Mapped[base.BigNumber | None]  # all output, reasoning included
    reasoning_tokens: Mapped[base.BigNumber | None]
    total_tokens: Mapped[base.BigNumber | None]
    cost_nano: Mapped[base.BigNumber | None]  # nano-USD
    usage: Mapped[base.LongText | None]  # the provider's own usage object, JSON
    error: Mapped[base.LongText | None]  # the provider's error, JSON
    price: Mapped[base.LongText | None]  # where cost_nano is from, and the prices it was computed with, JSON


class UsageDayRow(base.Base):
    """A UTC day. Its row is locked by the process that rolls it up, and by writers after its end."""

    __tablename__ = "usage_days"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    tenant_id: Mapped[base.Tenant]
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    filled_at: Mapped[base.Moment | None]  # None: its sums are not to be read


class _SumsOfDay:
    """Sums over attempts of a day that have something in common; a figure is NULL where no attempt reported it."""

    @declared_attr.directive
    @classmethod
    def __table_args__(cls) -> tuple[ForeignKeyConstraint]:
        """A day that is gone takes its sums along."""
        return (base.references("usage_days", tenant_id="tenant_id", day="day"),)

    # before what the attempts have in common, the sums after it
    tenant_id: Mapped[base.Tenant] = mapped_column(sort_order=-1)
    day: Mapped[date] = mapped_column(Date, primary_key=True, sort_order=-1)
    number: Mapped[base.Number] = mapped_column(sort_order=-1)
    attempts: Mapped[base.BigNumber]
    input_tokens: Mapped[base.BigNumber | None]
    cached_tokens: Mapped[base.BigNumber | None]
    cache_write_tokens: Mapped[base.BigNumber | None]
    output_tokens: Mapped[base.BigNumber | None]
    reasoning_tokens: Mapped[base.BigNumber | None]
    total_tokens: Mapped[base.BigNumber | None]
    cost_nano: Mapped[base.BigNumber | None]
    latency_ms: Mapped[base.BigNumber | None]
    cache_known_tokens: Mapped[base.BigNumber | None]  # input of the attempts that say what came from the cache
    costs: Mapped[base.BigNumber]  # attempts whose cost is known
    latencies: Mapped[base.BigNumber]  # attempts whose latency is known


class UsageDailyRow(_SumsOfDay, base.Base):
    """Sums over the attempts of a filled day that have provider, model, format and status in common."""

    __tablename__ = "usage_daily"

    provider: Mapped[base.Name | None]
    model: Mapped[base.Name | None]
    format: Mapped[base.Name]
    status: Mapped[base.Name | None]


class UsageDailyModelRow(_SumsOfDay, base.Base):
    """Sums over the attempts of a filled day that have the model in common, so that most reports add nothing up."""

    __tablename__ = "usage_daily_models"

    model: Mapped[base.Name | None]
