"""The usage ledger, and its sums of days."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Date, Index, Integer, Table

from threadkeep.db.base import column, key, optional, references, table
from threadkeep.db.types import BigText, Hash, Identifier, UtcDateTime

_KEYS: Final = ("model", "provider", "format", "status")
_FIGURES: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms", "first_token_ms",
)  # fmt: skip

# One provider attempt and its figures, which never change. It outlives its conversation: no foreign key to it.
#
# Nor one to the tenant: PostgreSQL would lock the tenant's row for each of them, and all who append would meet there.
#
# Reports read nothing but the indexes: these hold all that is summed, and what it is summed by. MySQL takes no index of
# more than 16 columns.
usage_records: Final = table(
    "usage_records",
    key("id"),
    column("day", Date),  # of occurred_at, in UTC
    column("occurred_at", UtcDateTime),
    optional("user_id", Identifier),
    column("conversation_id", BigInteger),
    optional("response", Integer),  # None: the attempt gave no response
    optional("tool_set_hash", Hash(32)),
    optional("provider", Identifier),
    optional("model", Identifier),
    column("format", Identifier),
    optional("status", Identifier),
    optional("latency_ms", BigInteger),
    optional("first_token_ms", BigInteger),
    optional("input_tokens", BigInteger),  # all input, cached and cache-writing included
    optional("cached_tokens", BigInteger),
    optional("cache_write_tokens", BigInteger),
    optional("output_tokens", BigInteger),  # all output, reasoning included
    optional("reasoning_tokens", BigInteger),
    optional("total_tokens", BigInteger),
    optional("cost_nano", BigInteger),  # nano-USD
    optional("usage", BigText),  # the provider's own usage object, JSON
    optional("error", BigText),  # the provider's error, JSON
    optional("price", BigText),  # where cost_nano is from, and the prices it was computed with, JSON
    optional("terms", BigText),  # what else the price depends on: tier, URL, searches, images, JSON
    Index("by_day", "tenant_id", "day", *_KEYS, "user_id", *_FIGURES),
    Index("by_user", "tenant_id", "user_id", "day", *_KEYS, *_FIGURES),
    Index("by_conversation", "tenant_id", "conversation_id", "response", "day", "model", *_FIGURES),
)

# A UTC day. Its row is locked by whoever fills it, and by writers who come after its end.
usage_days: Final = table(
    "usage_days",
    key("day", Date),
    optional("filled_at", UtcDateTime),  # None: its sums are not to be read, or it is a claim of the days before
    references("tenants", tenant_id="id"),
)


def _sums_of_day(name: str, *common: Column[Any]) -> Table:
    """Sums over the attempts of a day that have something in common; a figure is NULL where no attempt reported it."""
    return table(
        name,
        key("day", Date),
        key("number", Integer),
        *common,
        column("attempts", BigInteger),
        *[optional(figure, BigInteger) for figure in _FIGURES],
        optional("cache_known_tokens", BigInteger),  # input of the attempts that say what came from the cache
        column("costs", BigInteger),  # attempts whose cost is known
        column("latencies", BigInteger),  # attempts whose latency is known
        column("first_tokens", BigInteger),  # attempts whose time to the first token is known
        references("usage_days", tenant_id="tenant_id", day="day"),  # a day that is gone takes its sums along
    )


# Sums over the attempts of a filled day that have provider, model, format and status in common.
usage_daily: Final = _sums_of_day(
    "usage_daily",
    optional("provider", Identifier),
    optional("model", Identifier),
    column("format", Identifier),
    optional("status", Identifier),
)

# Sums over the attempts of a filled day that have the model in common, so that most reports add nothing up.
usage_daily_models: Final = _sums_of_day("usage_daily_models", optional("model", Identifier))
