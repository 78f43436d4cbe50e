"""Filled days: the sums of UTC days that have ended, which reports read instead of the ledger.

Who fills a day, and who writes to the ledger for a day that is not today, locks the row of that day first. So a row
that comes late is either seen by the sums or takes them back. Rows of today lock nothing; whether a day is filled does
not change what a report says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, delete, func, insert, select

from threadkeep.db.dialects import insert_or_replace, is_mysql
from threadkeep.db.queries.usage import KEYS, SUMS, ledger_sums
from threadkeep.db.tables import usage_daily, usage_days, usage_records

SETTLED: Final = timedelta(hours=1)  # after its end a day is filled: time for transactions that began before
BATCH: Final = 31  # days in one transaction
ONE: Final = timedelta(days=1)

Sums = Mapping[tuple[Any, ...], tuple[Any, ...]]


def unfill(connection: Connection, tenant: int, day: date) -> None:
    """Take the sums of a day back; its row stays locked until the transaction ends."""
    connection.execute(
        insert_or_replace(connection, usage_days, "filled_at"), {"tenant_id": tenant, "day": day, "filled_at": None}
    )


def last_day(now: datetime) -> date:
    """The last day that can be filled."""
    return (now - SETTLED).astimezone(UTC).date() - ONE


def fill_batch(connection: Connection, tenant: int) -> int:
    """Fill the oldest days that are not; returns how many, 0 when there are none left."""
    now = datetime.now(UTC)
    days = _missing(connection, tenant, last_day(now))
    if days:
        _fill(connection, tenant, days, now)
    return len(days)


def mend_batch(connection: Connection, tenant: int, after: date | None) -> tuple[date | None, int]:
    """Compare filled days with the ledger, the oldest after a day, and fill those anew that differ.

    Returns the last day that was looked at (None: there are no more), and how many were mended.
    """
    table = usage_days.c
    statement = select(table.day).where(table.tenant_id == tenant, table.filled_at.is_not(None))
    if after is not None:
        statement = statement.where(table.day > after)
    days = list(connection.execute(statement.order_by(table.day).limit(BATCH)).scalars())
    if not days:
        return None, 0
    wrong = _differing(connection, tenant, days)
    if wrong:
        _fill(connection, tenant, wrong, datetime.now(UTC))
    return days[-1], len(wrong)


def _missing(connection: Connection, tenant: int, last: date) -> list[date]:
    first = connection.execute(
        select(func.min(usage_records.c.day)).where(usage_records.c.tenant_id == tenant)
    ).scalar()
    if first is None or first > last:
        return []
    table = usage_days.c
    known = select(table.day).where(table.tenant_id == tenant, table.filled_at.is_not(None), table.day <= last)
    filled = set(connection.execute(known).scalars())
    found: list[date] = []
    for number in range(first.toordinal(), last.toordinal() + 1):
        day = date.fromordinal(number)
        if day not in filled:
            found.append(day)
            if len(found) == BATCH:
                break
    return found


def _fill(connection: Connection, tenant: int, days: Sequence[date], now: datetime) -> None:
    """Lock the days, in order, and write their sums."""
    locked = [{"tenant_id": tenant, "day": day, "filled_at": now} for day in days]
    connection.execute(insert_or_replace(connection, usage_days, "filled_at"), locked)
    connection.execute(delete(usage_daily).where(usage_daily.c.tenant_id == tenant, usage_daily.c.day.in_(days)))
    numbers = dict.fromkeys(days, 0)
    rows = []
    for row in _run(connection, _ledger_sums(connection.dialect.name, tenant, days)):
        rows.append({"tenant_id": tenant, "number": numbers[row.day], **_values(row)})
        numbers[row.day] += 1
    if rows:
        connection.execute(insert(usage_daily), rows)


def _differing(connection: Connection, tenant: int, days: Sequence[date]) -> list[date]:
    table = usage_daily.c
    kept = select(table.day, *(table[name] for name in (*KEYS, *SUMS)))
    kept = kept.where(table.tenant_id == tenant, table.day.in_(days))
    ledger, daily = (
        _by_day(_run(connection, statement))
        for statement in (_ledger_sums(connection.dialect.name, tenant, days), kept)
    )
    return [day for day in days if ledger.get(day) != daily.get(day)]


def _ledger_sums(dialect: str, tenant: int, days: Sequence[date]) -> Select[Any]:
    table = usage_records.c
    keys = [table.day, *(table[name] for name in KEYS)]
    return (
        select(*keys, *ledger_sums(dialect))
        .where(table.tenant_id == tenant, table.day >= days[0], table.day <= days[-1], table.day.in_(days))
        .group_by(*keys)
    )


def _run(connection: Connection, statement: Select[Any]) -> Iterable[Row[Any]]:
    """Rows as they are now: a snapshot of the caller's transaction may be older than the lock (MySQL)."""
    return connection.execute(statement.with_for_update(read=True) if is_mysql(connection.dialect) else statement)


def _values(row: Row[Any]) -> dict[str, Any]:
    sums = {name: None if (found := getattr(row, name)) is None else int(found) for name in SUMS}
    return {"day": row.day, **{name: getattr(row, name) for name in KEYS}, **sums}


def _by_day(rows: Iterable[Row[Any]]) -> dict[date, Sums]:
    found: dict[date, dict[tuple[Any, ...], tuple[Any, ...]]] = {}
    for row in rows:
        values = _values(row)
        key = tuple(values[name] for name in KEYS)
        found.setdefault(row.day, {})[key] = tuple(values[name] for name in SUMS)
    return dict(found)
