"""Attempts at any time, and reports computed from the rows of the ledger alone, to be compared with the store's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from tests.store.faces import Blocking
from threadkeep.db.types import escaped
from threadkeep.domain.reports import SUMS, UsageRow
from threadkeep.domain.usage import FIGURES, Cost, NormalizedUsage
from threadkeep.store.usage.ledger import Attempt, insert_attempt

SUMMED = (*FIGURES, "cost_nano", "latency_ms", "first_token_ms")


def attempt_at(conversation: Any, *moments: datetime, **about: Any) -> None:
    """Rows of the ledger for these moments, as the store writes them when a transaction takes long or a stream ends."""
    cost, response = about.pop("cost", None), about.pop("response", None)
    attempt = Attempt(
        format=about.pop("format", "open_responses"),
        status=about.pop("status", "completed"),
        figures=NormalizedUsage(**about.pop("figures", None) or {}),
        cost=cost if cost is None or isinstance(cost, Cost) else Cost(cost, "{}"),
        **about,
    )

    def write(connection: Any) -> None:
        for at in moments:
            whose = {"user_id": conversation.user_id, "response": response}
            insert_attempt(connection, conversation.handle.ref, attempt, at, **whose)

    transactions = conversation.handle.transactions
    if isinstance(conversation, Blocking):
        conversation._runner.run(conversation._wrapped.call(transactions.write, write))
    else:
        transactions.write(write)


def expected(
    rows: Iterable[Mapping[str, Any]],
    *,
    by: tuple[str, ...] = (),
    since: date | None = None,
    until: date | None = None,
    tz: str = "UTC",
    order_by: str | None = None,
    limit: int | None = None,
    ids: Mapping[int, str] | None = None,
    **filters: Any,
) -> list[UsageRow]:
    """What a report must say: plain sums over the rows."""
    zone = UTC if tz == "UTC" else ZoneInfo(tz)
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        values = {**row, **times_of(row["occurred_at"], zone), "tool_set": _hex(row["tool_set_hash"])}
        values["conversation_id"] = (ids or {}).get(row["conversation_id"])
        looked = {**values, "day": row["day"]}
        if _is_in(row["occurred_at"], since, until, zone) and all(
            looked[name] in (wanted if isinstance(wanted, list) else [wanted]) for name, wanted in filters.items()
        ):
            groups.setdefault(tuple(values[name] for name in by), []).append(row)
    if not by and not groups:
        return [UsageRow({})]
    found = [UsageRow(dict(zip(by, keys, strict=True)), **_sums(members)) for keys, members in groups.items()]
    return sorted(found, key=lambda row: _rank(row, order_by))[:limit]


def times_of(at: datetime, zone: Any) -> dict[str, Any]:
    """The hour, day, week and month of a moment in a zone."""
    local = at.astimezone(zone)
    passed = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
    return {
        "hour": (local - passed).replace(tzinfo=timezone(local.utcoffset() or timedelta())),
        "day": local.date(),
        "week": local.date() - timedelta(days=local.weekday()),
        "month": local.date().replace(day=1),
    }


def _is_in(at: datetime, since: date | None, until: date | None, zone: Any) -> bool:
    bounds = [
        datetime(bound.year, bound.month, bound.day, tzinfo=zone) if type(bound) is date else bound
        for bound in (since, until)
    ]
    return (bounds[0] is None or at >= bounds[0]) and (bounds[1] is None or at < bounds[1])


def _sums(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    def total(name: str, among: list[Mapping[str, Any]]) -> int | None:
        known = [row[name] for row in among if row[name] is not None]
        return sum(known) if known else None

    figures = [row for row in rows if None not in (row["cached_tokens"], row["input_tokens"])]
    known = [row for row in figures if row["cached_tokens"] <= row["input_tokens"]]
    return {
        "attempts": len(rows),
        **{name: total(name, rows) for name in SUMMED},
        "cached_tokens": total("cached_tokens", known),
        "cache_known_tokens": total("input_tokens", known),
        "costs": sum(row["cost_nano"] is not None for row in rows),
        "latencies": sum(row["latency_ms"] is not None for row in rows),
        "first_tokens": sum(row["first_token_ms"] is not None for row in rows),
    }


def _rank(row: UsageRow, order_by: str | None) -> Any:
    figure = None if order_by is None else getattr(row, order_by)
    keys = [(key is None, escaped(key).encode() if isinstance(key, str) else key) for key in row.keys.values()]
    return (figure is None, 0 if figure is None else -figure, [key if key[1] is not None else (True,) for key in keys])


def _hex(value: Any) -> str | None:
    return None if value is None else bytes(value).hex()


def same(found: list[UsageRow], wanted: list[UsageRow]) -> bool:
    """Whether two reports say the same, in the same order; sums are int everywhere, never decimals or floats."""
    assert all(type(figure) in {int, type(None)} for row in found for figure in (getattr(row, name) for name in SUMS))
    return found == wanted
