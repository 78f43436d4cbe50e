"""Rolled-up days: the sums of UTC days that have ended, which reports read instead of the ledger.

Whoever rolls up a day, or writes to the ledger for a day that is not today, locks the row of that day first. So a row
that comes late is either part of the sums or invalidates them. Rows of today lock nothing; whether a day is rolled up
does not change what a report says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, Table, delete, func, insert, select

from threadkeep.db.dialects import insert_or_replace, is_mysql
from threadkeep.db.queries.usage import KEYS, MODEL_KEYS, ledger_sums
from threadkeep.db.tables import usage_daily, usage_daily_models, usage_days, usage_records
from threadkeep.domain.reports import SUMS, ReconciliationReport
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions

GRACE: Final = timedelta(hours=1)  # after its end a day is rolled up: time for transactions that began before
BATCH_DAYS: Final = 31  # in one transaction
DAY: Final = timedelta(days=1)
_ALL_USERS: Final = "Days are rolled up over all users", "it"

# A table of sums -> the columns that its rows of a day are told apart by
KEYS_OF: Final = {usage_daily: KEYS, usage_daily_models: MODEL_KEYS}

Key = tuple[str | None, ...]
Sums = dict[Key, tuple[int | None, ...]]


def roll_up_days(transactions: Transactions, scope: Scope) -> int:
    """Roll up all days that have ended, a few per transaction; return the number of days."""
    scope.check_all_users(*_ALL_USERS)
    count = 0
    while days := transactions.write(lambda connection: roll_up_batch(connection, scope.tenant), is_repeatable=True):
        count += days
    return count


def reconcile(transactions: Transactions, scope: Scope) -> ReconciliationReport:
    """Compare the sums of rolled-up days with the ledger, repair differences, and roll up the other days."""
    scope.check_all_users(*_ALL_USERS)
    after: date | None = None
    repaired = 0
    while True:
        after, count = transactions.write(partial(repair_batch, tenant=scope.tenant, after=after), is_repeatable=True)
        if after is None:
            return ReconciliationReport(roll_up_days(transactions, scope), repaired)
        repaired += count


def invalidate(connection: Connection, tenant: int, *days: date) -> None:
    """Make reports read the ledger of some days again; their rows stay locked until the transaction ends."""
    rows = [{"tenant_id": tenant, "day": day, "filled_at": None} for day in sorted(days)]
    connection.execute(insert_or_replace(connection, usage_days, "filled_at"), rows)


def last_day(now: datetime) -> date:
    """The last day that can be rolled up."""
    return (now - GRACE).astimezone(UTC).date() - DAY


def roll_up_batch(connection: Connection, tenant: int) -> int:
    """Roll up the oldest days that are not rolled up yet; return how many."""
    now = datetime.now(UTC)
    days = missing_days(connection, tenant, last_day(now))
    if days:
        roll_up(connection, tenant, days, now)
    return len(days)


def repair_batch(connection: Connection, tenant: int, after: date | None) -> tuple[date | None, int]:
    """Compare rolled-up days with the ledger, the oldest after a day, and roll up again those that differ.

    Returns the last day that was compared (None: there are no more), and how many differed.
    """
    last, different = compare_batch(connection, tenant, after)
    if different:
        roll_up(connection, tenant, different, datetime.now(UTC))
    return last, len(different)


def compare_batch(connection: Connection, tenant: int, after: date | None) -> tuple[date | None, list[date]]:
    """Compare rolled-up days with the ledger as above; return the last one, and those that differ."""
    table = usage_days.c
    statement = select(table.day).where(table.tenant_id == tenant, table.filled_at.is_not(None))
    if after is not None:
        statement = statement.where(table.day > after)
    days = list(connection.execute(statement.order_by(table.day).limit(BATCH_DAYS)).scalars())
    return (days[-1], different_days(connection, tenant, days)) if days else (None, [])


def missing_days(connection: Connection, tenant: int, last: date, after: date = date.min) -> list[date]:
    """The oldest days of the ledger after one that are not rolled up, at most a batch of them."""
    ledger = usage_records.c
    first = connection.execute(select(func.min(ledger.day)).where(ledger.tenant_id == tenant)).scalar()
    if first is None or max(first, after) > last:
        return []
    first = max(first, after + DAY)
    table = usage_days.c
    statement = select(table.day).where(table.tenant_id == tenant, table.filled_at.is_not(None))
    rolled_up = set(connection.execute(statement.where(table.day >= first, table.day <= last)).scalars())
    days = map(date.fromordinal, range(first.toordinal(), last.toordinal() + 1))
    return list(islice((day for day in days if day not in rolled_up), BATCH_DAYS))


def roll_up(connection: Connection, tenant: int, days: Sequence[date], now: datetime) -> None:
    """Lock the days, in order, and write their sums."""
    locks = [{"tenant_id": tenant, "day": day, "filled_at": now} for day in days]
    connection.execute(insert_or_replace(connection, usage_days, "filled_at"), locks)
    for table, ledger in _sum_ledger(connection, tenant, days).items():
        connection.execute(delete(table).where(table.c.tenant_id == tenant, table.c.day.in_(days)))
        rows = [
            {"tenant_id": tenant, "day": day, "number": number}
            | dict(zip((*KEYS_OF[table], *SUMS), (*key, *ledger[day][key]), strict=True))
            for day in days for number, key in enumerate(sorted(ledger.get(day, ()), key=_order))
        ]  # fmt: skip
        if rows:
            connection.execute(insert(table), rows)


def different_days(connection: Connection, tenant: int, days: Sequence[date]) -> list[date]:
    """The days whose stored sums are not those of the ledger."""
    different: set[date] = set()
    for table, ledger in _sum_ledger(connection, tenant, days).items():
        columns = [table.c[name] for name in ("day", *KEYS_OF[table], *SUMS)]
        statement = select(*columns).where(table.c.tenant_id == tenant, table.c.day.in_(days))
        rows = list(_execute(connection, statement))
        stored, counts = _by_day(rows, len(KEYS_OF[table])), Counter(row.day for row in rows)
        different.update(
            day for day in days if ledger.get(day) != stored.get(day) or len(stored.get(day, ())) < counts[day]
        )
    return [day for day in days if day in different]


def _sum_ledger(connection: Connection, tenant: int, days: Sequence[date]) -> Mapping[Table, Mapping[date, Sums]]:
    """Return what each table of sums should contain for these days."""
    table = usage_records.c
    keys = [table.day, *(table[name] for name in KEYS)]
    statement = (
        select(*keys, *ledger_sums(connection.dialect.name))
        .where(table.tenant_id == tenant, table.day >= days[0], table.day <= days[-1], table.day.in_(days))
        .group_by(*keys)
    )
    ledger = _by_day(_execute(connection, statement), len(KEYS))
    return {usage_daily: ledger, usage_daily_models: {day: _by_model(sums) for day, sums in ledger.items()}}


def _execute(connection: Connection, statement: Select[Any]) -> Iterable[Row[Any]]:
    """Rows as they are now: a snapshot of the caller's transaction may be older than the lock (MySQL)."""
    return connection.execute(statement.with_for_update(read=True) if is_mysql(connection.dialect) else statement)


def _by_day(rows: Iterable[Sequence[Any]], width: int) -> dict[date, Sums]:
    """Rows of a day, `width` keys, and sums."""
    days: dict[date, Sums] = {}
    for day, *values in rows:
        sums = (None if value is None else int(value) for value in values[width:])
        days.setdefault(day, {})[tuple(values[:width])] = tuple(sums)
    return days


def _by_model(sums: Sums) -> Sums:
    """The sums of a day by model alone."""
    models: Sums = {}
    for key, figures in sums.items():
        model = (key[KEYS.index("model")],)
        models[model] = tuple(map(_add, models[model], figures)) if model in models else figures
    return models


def _add(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _order(key: Key) -> list[tuple[bool, str | None]]:
    """Sort rows so that reports find them nearly in order."""
    return [(name is None, name) for name in key]
