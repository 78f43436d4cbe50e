"""The usage ledger, and its sums of days."""

from __future__ import annotations

from datetime import date

from sqlalchemy import Date, ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, declared_attr, mapped_column

from threadkeep.db.base import Base, BigNumber, Count, Digest, Key, LongText, Moment, Name, Number, Tenant, references

_FIGURES = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms",
)  # fmt: skip


class UsageRecordRow(Base):
    """One provider attempt and its figures, which never change. It outlives its conversation: no foreign key to it.

    Nor one to the tenant: PostgreSQL would lock the tenant's row for each of them, and all who append would meet there.

    Reports read nothing but the indexes: these hold all that is summed, and what it is summed by.
    """

    __tablename__ = "usage_records"
    __table_args__ = (
        Index(
            "by_day",
            "tenant_id", "day", "model", "provider", "format", "status", "user_id", "conversation_id", *_FIGURES,
        ),
        Index(
            "by_user",
            "tenant_id", "user_id", "day", "model", "provider", "format", "status", *_FIGURES,
        ),
        Index(
            "by_conversation", "tenant_id", "conversation_id", "response", "day", "model", *_FIGURES
        ),
    )  # fmt: skip

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
    price: Mapped[LongText | None]  # where cost_nano is from, and the prices it was computed with, JSON


class UsageDayRow(Base):
    """A UTC day. Its row is locked by whoever fills it, and by writers who come after its end."""

    __tablename__ = "usage_days"
    __table_args__ = (references("tenants", tenant_id="id"),)

    tenant_id: Mapped[Tenant]
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    filled_at: Mapped[Moment | None]  # None: its sums are not to be read


class _SumsOfDay:
    """Sums over attempts of a day that have something in common; a figure is NULL where no attempt reported it."""

    @declared_attr.directive
    @classmethod
    def __table_args__(cls) -> tuple[ForeignKeyConstraint]:
        """A day that is gone takes its sums along."""
        return (references("usage_days", tenant_id="tenant_id", day="day"),)

    # before what the attempts have in common, the sums after it
    tenant_id: Mapped[Tenant] = mapped_column(sort_order=-1)
    day: Mapped[date] = mapped_column(Date, primary_key=True, sort_order=-1)
    number: Mapped[Number] = mapped_column(sort_order=-1)
    attempts: Mapped[BigNumber]
    input_tokens: Mapped[BigNumber | None]
    cached_tokens: Mapped[BigNumber | None]
    cache_write_tokens: Mapped[BigNumber | None]
    output_tokens: Mapped[BigNumber | None]
    reasoning_tokens: Mapped[BigNumber | None]
    total_tokens: Mapped[BigNumber | None]
    cost_nano: Mapped[BigNumber | None]
    latency_ms: Mapped[BigNumber | None]
    cache_known_tokens: Mapped[BigNumber | None]  # input of the attempts that say what came from the cache
    costs: Mapped[BigNumber]  # attempts whose cost is known
    latencies: Mapped[BigNumber]  # attempts whose latency is known


class UsageDailyRow(_SumsOfDay, Base):
    """Sums over the attempts of a filled day that have provider, model, format and status in common."""

    __tablename__ = "usage_daily"

    provider: Mapped[Name | None]
    model: Mapped[Name | None]
    format: Mapped[Name]
    status: Mapped[Name | None]


class UsageDailyModelRow(_SumsOfDay, Base):
    """Sums over the attempts of a filled day that have the model in common, so that most reports add nothing up."""

    __tablename__ = "usage_daily_models"

    model: Mapped[Name | None]
