"""The usage ledger: one row per provider attempt, written once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, update

from threadkeep.db.dialects import check_sizes
from threadkeep.db.insertions import insertion_into
from threadkeep.db.tables import usage_records
from threadkeep.domain.cost import Cost
from threadkeep.domain.ids import new_key
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.usage import NormalizedUsage
from threadkeep.store.actions.days import unfill
from threadkeep.store.place import Place

UNKNOWN: Final = NormalizedUsage()
MAX_FIGURE: Final = 10**12  # no request has more tokens or takes so long, and sums of millions fit into 64 bits


@dataclass(slots=True)
class Attempt:
    """What is known of one call to a provider."""

    format: str
    status: str | None
    model: str | None = None
    provider: str | None = None
    latency_ms: int | None = None
    figures: NormalizedUsage = UNKNOWN
    usage: JsonObject | None = None
    error: JsonObject | None = None
    cost: Cost | None = None


def insert_attempt(
    connection: Connection,
    place: Place,
    attempt: Attempt,
    now: datetime,
    *,
    user_id: str | None,
    response: int | None = None,
    tool_set_hash: bytes | None = None,
) -> int:
    """Write the ledger row of an attempt; returns its id."""
    row = attempt_row(connection, place, attempt, now, user_id=user_id, response=response, tool_set_hash=tool_set_hash)
    insertion_into(usage_records).execute(connection, row)
    key: int = row["id"]
    return key


def attempt_row(
    connection: Connection,
    place: Place,
    attempt: Attempt,
    now: datetime,
    *,
    user_id: str | None,
    response: int | None,
    tool_set_hash: bytes | None,
) -> dict[str, Any]:
    """The ledger row of an attempt, to be written in this transaction.

    One for another day than today, by the same clock, takes the sums of that day back.
    """
    if now.date() != datetime.now(UTC).date():
        unfill(connection, place.scope.tenant, now.date())
    figures = attempt.figures
    row = {
        "tenant_id": place.scope.tenant,
        "id": new_key(),
        "day": now.date(),
        "occurred_at": now,
        "user_id": user_id,
        "conversation_id": place.key,
        "response": response,
        "tool_set_hash": tool_set_hash,
        "provider": attempt.provider,
        "model": attempt.model,
        "format": attempt.format,
        "status": attempt.status,
        "latency_ms": _figure(attempt.latency_ms),
        "input_tokens": _figure(figures.input_tokens),
        "cached_tokens": _figure(figures.cached_tokens),
        "cache_write_tokens": _figure(figures.cache_write_tokens),
        "output_tokens": _figure(figures.output_tokens),
        "reasoning_tokens": _figure(figures.reasoning_tokens),
        "total_tokens": _figure(figures.total_tokens),
        "cost_nano": None if attempt.cost is None else attempt.cost.nano,
        "usage": _json(attempt.usage),
        "error": _json(attempt.error),
        "price": None if attempt.cost is None else attempt.cost.price,
    }
    check_sizes(connection, [row], "the usage ledger", ("usage", "error", "price"))
    return row


def name_response(connection: Connection, place: Place, usage: int, response: int) -> None:
    """Say which response an attempt gave after all; its figures stay as they are."""
    table = usage_records.c
    connection.execute(
        update(usage_records).where(table.tenant_id == place.scope.tenant, table.id == usage).values(response=response)
    )


def _figure(value: int | None) -> int | None:
    """A figure that can be summed; one beyond any provider's is unknown here, and stands in the provider's object."""
    return value if value is not None and 0 <= value < MAX_FIGURE else None


def _json(value: Any) -> str | None:
    return None if value is None else dumps(value).decode()
