"""What retention has to remove, found out without reading all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Select, case, func, select

from threadkeep.db import months, tables
from threadkeep.db.queries.conversations import DELETED
from threadkeep.store.purging import STATUSES, changes_before
from threadkeep.store.refs import Scope
from threadkeep.store.retaining import Limits, limits_of
from threadkeep.store.transactions import Transactions

COUNTED: Final = 10_000  # rows of a kind that are looked at


@dataclass(frozen=True, slots=True)
class Due:
    """What is due of one kind.

    Attributes:
        count: how many there are; with `is_least`, at least.
        is_least: whether there may be more: at most 10,000 rows of a kind are looked at.
        oldest: since when the oldest of those that were looked at has been there (a conversation: without activity).
            None if nothing is due.
    """

    count: int
    is_least: bool
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What `retain` would have to remove now; None for what no age was given for.

    Attributes:
        raw_bodies: raw response bodies; without partitions of months, those of the conversations that were created
            first are looked at.
        conversations: conversations, with all their content.
        changes: changes in the change feed.
        deleted: how many deleted conversations still have rows, which `retain` removes; 10,000 at most.
    """

    raw_bodies: Due | None
    conversations: Due | None
    changes: Due | None
    deleted: int


def find_backlog(
    transactions: Transactions, scope: Scope, ages: Mapping[str, timedelta | int | None], *, whole_months: bool
) -> Backlog:
    """See `Store.backlog`."""
    scope.check_all_users("What is retained is decided for all users", "backlog()")
    limits = limits_of(ages, whole_months=whole_months)
    return transactions.read(partial(_find, tenant=scope.tenant, limits=limits))


def _find(connection: Connection, tenant: int, limits: Limits) -> Backlog:
    return Backlog(
        None if limits.bodies is None else _bodies(connection, tenant, limits.bodies),
        None if limits.content is None else _conversations(connection, tenant, limits.content),
        None if limits.changes is None else _changes(connection, tenant, limits.key),
        _counted(connection, _with_status(tenant, DELETED))[0],
    )


def _counted(connection: Connection, rows: Select[Any]) -> tuple[int, datetime | None]:
    """Count rows up to a limit, and return the least time in their only column."""
    some = rows.limit(COUNTED).subquery()
    count, oldest = connection.execute(select(func.count(), func.min(some.c[0]))).one()
    return count, oldest


def _due(*counts: tuple[int, datetime | None]) -> Due:
    times = [oldest for _, oldest in counts if oldest is not None]
    return Due(
        sum(count for count, _ in counts), any(count >= COUNTED for count, _ in counts), min(times, default=None)
    )


def _with_status(tenant: int, status: str) -> Select[Any]:
    table = tables.conversations.c
    return select(table.last_activity_at).where(table.tenant_id == tenant, table.status == status)


def _conversations(connection: Connection, tenant: int, before: datetime) -> Due:
    """An index has the longest inactive ones first, of each status."""
    column = tables.conversations.c.last_activity_at
    rows = (_with_status(tenant, status).where(column < before).order_by(column) for status in STATUSES)
    return _due(*(_counted(connection, some) for some in rows))


def _changes(connection: Connection, tenant: int, before: int) -> Due:
    """The primary key has the oldest ones first."""
    table = tables.changes.c
    rows = select(table.created_at).where(*changes_before(connection, tenant, before)).order_by(table.id)
    return _due(_counted(connection, rows))


def _bodies(connection: Connection, tenant: int, before: datetime) -> Due:
    """Partitions of months have old ones only; elsewhere, those with the lowest keys are likely to be the oldest."""
    table = tables.response_bodies.c
    rows = select(table.created_at).where(table.tenant_id == tenant)
    if months.find_months(connection) is not None:
        return _due(_counted(connection, rows.where(table.created_at < before)))
    some = rows.order_by(table.conversation_id, table.number).limit(COUNTED).subquery()
    is_due = some.c.created_at < before
    statement = select(func.count(), func.count(case((is_due, 1))), func.min(some.c.created_at))
    looked_at, count, oldest = connection.execute(statement).one()
    return Due(count, looked_at >= COUNTED, oldest if count else None)
