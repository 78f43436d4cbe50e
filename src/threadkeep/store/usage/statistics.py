"""How much is stored (sizes are measured: every row is looked at), and how often tools were called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, tzinfo
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, func, select

from threadkeep.db import types
from threadkeep.db.functions import byte_size
from threadkeep.db.models import blobs, branches, conversations, items, response_bodies, responses, usage_records
from threadkeep.db.queries import responses as tool_calls
from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED, DELETED
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.reports import LargeConversation, Statistics, ToolUsage, changes_of
from threadkeep.domain.sketches import percentiles_of
from threadkeep.errors import InvalidOption, shown
from threadkeep.store.work.refs import Scope
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.work.validation import label_filter, optional_identifier, page_size, span_of, time_zone

PERIODS: Final = ("day", "week", "month")
_FIRST: Final = datetime(2000, 1, 1, tzinfo=UTC)  # before that, clocks are taken to have been as then
MAX_CONVERSATIONS: Final = 100_000  # that can be asked for, where calls of some are counted


def statistics(transactions: Transactions, scope: Scope, largest: int) -> Statistics:
    """What the tenant, or one user of it, holds, and its `largest` conversations."""
    count = page_size(largest, "largest")
    return transactions.read_any(lambda connection: _measure(connection, scope, count))


def _measure(connection: Connection, scope: Scope, largest: int) -> Statistics:
    table = conversations.c
    # the statuses are named, because the index that has all conversations begins with them
    shown = [*_visible(scope), table.status.in_((ACTIVE, ARCHIVED))]
    counts = connection.execute(select(table.status, func.count()).where(*shown).group_by(table.status)).all()
    by_status = {row[0]: row[1] for row in counts}
    items_stored, item_bytes, found = _sizes(connection, scope, largest)
    ledger = select(func.count()).select_from(usage_records).where(usage_records.c.tenant_id == scope.tenant)
    if scope.user is not None:
        ledger = ledger.where(usage_records.c.user_id == scope.user)
    media: Any = (None, None)
    if scope.user is None:
        size = func.coalesce(func.sum(blobs.c.size), 0)
        media = connection.execute(select(func.count(), size).where(blobs.c.tenant_id == scope.tenant)).one()
    return Statistics(
        active=by_status.get(ACTIVE, 0),
        archived=by_status.get(ARCHIVED, 0),
        branches=_integer(connection, _owned(scope, branches, func.count())),
        items=items_stored,
        item_bytes=item_bytes,
        responses=_integer(connection, _owned(scope, responses, func.count())),
        body_bytes=_integer(connection, _owned(scope, response_bodies, func.sum(func.length(response_bodies.c.body)))),
        media=media[0],
        media_bytes=None if media[1] is None else int(media[1]),
        attempts=_integer(connection, ledger),
        largest=found,
    )


def _visible(scope: Scope) -> list[ColumnElement[bool]]:
    table = conversations.c
    conditions = [table.tenant_id == scope.tenant, table.status != DELETED]
    return conditions if scope.user is None else [*conditions, table.user_id == scope.user]


def _owned(scope: Scope, table: Any, *columns: Any) -> Select[Any]:
    """Columns of rows that belong to conversations which are not deleted."""
    found = conversations.c
    if scope.user is not None:  # not joined: SQLite would begin with the rows of all users
        keys = select(found.id).where(*_visible(scope))
        return select(*columns).where(table.c.tenant_id == scope.tenant, table.c.conversation_id.in_(keys))
    is_of = (found.tenant_id == table.c.tenant_id) & (found.id == table.c.conversation_id)
    return select(*columns).select_from(table.join(conversations, is_of)).where(*_visible(scope))


def _sizes(connection: Connection, scope: Scope, limit: int) -> tuple[int, int, list[LargeConversation]]:
    """How many items there are, the bytes of them all, and the largest conversations, from reading them once."""
    key, count = items.c.conversation_id, func.count()
    payload, rest, given = (func.coalesce(byte_size(items.c[name]), 0) for name in ("payload", "rest", "given"))
    total = func.sum(payload + rest + given)
    sums = [func.sum(count).over().label("all_items"), func.sum(total).over().label("all_bytes")]
    statement = _owned(scope, items, key, count.label("count"), total.label("bytes"), *sums).group_by(key)
    sizes = statement.order_by(total.desc(), key).limit(limit).subquery("sizes")
    table = conversations.c
    rows = connection.execute(
        select(table.public_id, table.user_id, table.title, *sizes.c)
        .where(table.tenant_id == scope.tenant, table.id == sizes.c.conversation_id)
        .order_by(sizes.c.bytes.desc(), table.id)
    ).all()
    largest = [
        LargeConversation(public_id_text(bytes(row.public_id)), row.user_id, row.title, row[4], int(row.bytes))
        for row in rows
    ]
    return (int(rows[0].all_items), int(rows[0].all_bytes), largest) if rows else (0, 0, [])


def _integer(connection: Connection, statement: Select[Any]) -> int:
    return int(connection.execute(statement).scalar() or 0)


def tool_usage(
    transactions: Transactions, scope: Scope, *, by: str | None, since: date | None, until: date | None, tz: str,
    user_id: str | None, limit: int | None, conversations: int | None, percentiles: bool,
    labels: Mapping[str, str] | None = None, model: str | None = None,
) -> list[ToolUsage]:  # fmt: skip
    """Calls by tool, the most called first; deleted conversations do not count. See `Store.tool_usage`.

    With `labels` and `model`, only conversations count that have these labels, and in which this model was called.
    """
    zone = time_zone(tz)
    first, end = span_of(since, until, zone)
    changes, offsets = _offsets(by, zone, first)
    filters: dict[str, Any] = {
        "since": first,
        "until": end,
        "user_id": optional_identifier("user_id", user_id),
        "limit": None if limit is None else page_size(limit),
    }
    if conversations is not None:
        filters["conversations"] = page_size(conversations, "conversations", most=MAX_CONVERSATIONS)
    among: tool_calls.Among = "newest" if end is None or end > datetime.now(UTC) else "oldest"
    parameters = scope.parameters(**{name: value for name, value in filters.items() if value is not None})
    parameters |= changes | ({} if model is None else {"model": model})
    pairs = sorted(label_filter(labels).items())
    for number, (name, value) in enumerate(pairs):
        parameters |= {f"key_{number}": name, f"value_{number}": value}

    def rows(connection: Connection, *, durations: bool) -> Sequence[Any]:
        statement = tool_calls.tool_usage(
            scoped=scope.user is not None, since="since" in parameters, until="until" in parameters,
            of_user="user_id" in parameters, limited="limit" in parameters and not durations,
            among=among if "conversations" in parameters else None, by=by, offsets=offsets, durations=durations,
            labels=len(pairs), of_model=model is not None,
        )  # fmt: skip
        return connection.execute(statement, parameters).all()

    def read(connection: Connection) -> tuple[Sequence[Any], Sequence[Any]]:
        return rows(connection, durations=False), rows(connection, durations=True) if percentiles else ()

    counts, durations = transactions.read_any(read)
    width = 1 if by is None else 2
    keys = [tuple(row[:width]) for row in counts]
    found = percentiles_of({"latency_ms": durations}, keys) if percentiles else [{} for _ in keys]
    periods = [None if by is None else types.date_of(row.period) for row in counts]
    return [
        ToolUsage(row.name, row.calls, row.unanswered, row.failed, period, **figures)
        for row, period, figures in zip(counts, periods, found, strict=True)
    ]


def _offsets(by: str | None, zone: tzinfo, first: datetime | None) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Parameters of the moments at which clocks change, and how far local time is ahead before, between and after."""
    if by not in (None, *PERIODS):
        raise InvalidOption(f"must be one of {', '.join(PERIODS)}, not {shown(by)}.", argument="by")
    if by is None or zone is UTC:
        return {}, (0,)
    changes, offsets = changes_of(zone, max(first or _FIRST, _FIRST), datetime.now(UTC))
    return {f"change_{number}": change for number, change in enumerate(changes)}, offsets
