"""What the dashboard shows: sums and latencies by day, and the users and conversations that cost most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection

from threadkeep.db import types
from threadkeep.db.queries import overviews as statements
from threadkeep.domain import reports
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.sketches import percentiles_of
from threadkeep.errors import NotFound
from threadkeep.store.reading import lists
from threadkeep.store.store import Store
from threadkeep.store.usage.reports import UsageReport, query_of


class Top(NamedTuple):
    """A user or a conversation among those that cost most.

    Attributes:
        user_id: the user; None without one.
        conversation_id: the id of the conversation; None for a user, and for one that was deleted.
        title: its title, or its newest text.
        calls, total_tokens, cost_nano: sums of the calls; the cost is in nano-USD.
    """

    user_id: str | None
    conversation_id: str | None
    title: str | None
    calls: int
    total_tokens: int | None
    cost_nano: int | None


def top_users(store: Store, first: date, last: date, filters: Mapping[str, Any], limit: int) -> list[Top]:
    """Return the users whose calls cost most in some days (UTC); `filters` as of `Store.usage`, of one value each."""
    query = _top_query(store, first, last, filters, limit)
    rows = store.handle.transactions.read_any(
        lambda connection: connection.execute(statements.top(query, "user_id")).all()
    )
    return [Top(types.name_from(row.key), None, None, *_figures(row)) for row in rows]


def top_conversations(store: Store, first: date, last: date, filters: Mapping[str, Any], limit: int) -> list[Top]:
    """Return the conversations whose calls cost most; see `top_users`."""
    query = _top_query(store, first, last, filters, limit)

    def read(connection: Connection) -> list[Top]:
        rows: Any = connection.execute(statements.top_conversations(query)).all()
        untitled = [row for row in rows if row.public_id is not None and row.title is None]
        found = lists.previews_of(connection, store.handle.scope, untitled, lists.REACHES[:1])
        tops: list[Top] = []
        for row in rows:
            names: tuple[str | None, str | None, str | None] = (None, None, None)
            if row.public_id is not None:
                names = row.user_id, public_id_text(bytes(row.public_id)), row.title or found.get(row.id)
            tops.append(Top(*names, *_figures(row)))
        return tops

    return store.handle.transactions.read_any(read)


def _top_query(store: Store, first: date, last: date, filters: Mapping[str, Any], limit: int) -> statements.TopQuery:
    scope = store.handle.scope
    return statements.TopQuery(scope.tenant, scope.user, first, last, filters, limit)


def _figures(row: Any) -> tuple[int, int | None, int | None]:
    tokens, cost = (None if value is None else int(value) for value in (row.total_tokens, row.cost_nano))
    return row.calls, tokens, cost


Latencies: TypeAlias = Mapping[Any, Mapping[str, float | None]]


class DayUsage(NamedTuple):
    """What was used in some days.

    Attributes:
        rows: sums by day, model and status.
        by_day, by_model: percentiles of latencies and times to the first token, by their names in a `UsageRow`.
            Both are made of the same counts, which are read once.
    """

    rows: Sequence[reports.UsageRow]
    by_day: Latencies
    by_model: Latencies


def day_usage(store: Store, since: date, until: date, tz: str, filters: Mapping[str, Any]) -> DayUsage:
    """Return what was used from a day until (exclusive) another; arguments as for `Store.usage`."""
    query = query_of(("day", "model", "status"), filters, since, until, tz, None, None, percentiles=True)
    scope = store.handle.scope
    rows, counted = store.handle.transactions.read_any(
        lambda connection: UsageReport.of_query(connection, scope, query).rows_and_durations(connection)
    )
    return DayUsage(rows, _percentiles(counted, 0), _percentiles(counted, 1))


def _percentiles(counted: Mapping[str, Sequence[Sequence[Any]]], place: int) -> Latencies:
    """The percentiles by one of the keys."""
    by_key = {name: [(row[place], *row[3:]) for row in rows] for name, rows in counted.items()}
    keys = list({row[0] for rows in by_key.values() for row in rows})
    return dict(zip(keys, percentiles_of(by_key, [(key,) for key in keys]), strict=True))


class ActiveCount(NamedTuple):
    """How many conversations and users called models."""

    conversations: int
    users: int


def active_by_day(
    store: Store, first: date, last: date, filters: Mapping[str, Any]
) -> tuple[ActiveCount, dict[date, ActiveCount]]:
    """Return how many conversations and users called models in some days (UTC), and on each; see `top_users`."""
    query = _top_query(store, first, last, filters, 0)
    rows = store.handle.transactions.read_any(lambda connection: connection.execute(statements.active_of(query)).all())
    counts = {row.day and types.date_of(row.day): ActiveCount(row.conversations, row.users) for row in rows}
    return counts.pop(None), counts


class TenantSums(NamedTuple):
    """What a tenant, or all of them on a day, used; the cost is in nano-USD, the latency a sum of `latencies`."""

    key: Any
    calls: int
    failed: int
    total_tokens: int | None
    cost_nano: int | None
    latency_ms: int | None
    latencies: int
    tenants: int = 1

    @property
    def mean_latency_ms(self) -> float | None:
        """The mean latency in milliseconds."""
        return None if self.latency_ms is None or not self.latencies else self.latency_ms / self.latencies


def check_all_tenants(store: Store) -> None:
    """Refuse a store that is limited to a tenant or a user, or has no tenants.

    Raises:
        NotFound: it is.
    """
    if not store.handle.needs_tenant or store.handle.user is not None:
        raise NotFound("There are no other tenants here.")


def all_tenants(store: Store, first: date, last: date, limit: int) -> tuple[list[TenantSums], list[TenantSums]]:
    """Return what the tenants used whose calls cost most in some days (UTC), and what all of them did on each day.

    Raises:
        NotFound: the store is not one for all tenants.
    """
    check_all_tenants(store)
    handle = store.handle
    handle.root.open(handle.transactions)

    def read(connection: Connection) -> tuple[list[TenantSums], list[TenantSums]]:
        tenants = connection.execute(statements.tenants_of(first, last, limit)).all()
        days = connection.execute(statements.tenant_days(first, last)).all()
        return [_tenant_sums(types.name_from(row.name), row) for row in tenants], [
            _tenant_sums(types.date_of(row.day), row, row.tenants) for row in days
        ]

    return handle.transactions.read_any(read)


def _tenant_sums(key: Any, row: Any, tenants: int = 1) -> TenantSums:
    tokens, cost, latency = (
        None if value is None else int(value) for value in (row.total_tokens, row.cost_nano, row.latency_ms)
    )
    return TenantSums(key, int(row.attempts), int(row.failed), tokens, cost, latency, int(row.latencies), tenants)
