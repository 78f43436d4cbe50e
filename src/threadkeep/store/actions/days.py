"""Filled days: the sums of UTC days that have ended, which reports read instead of the ledger.

Who fills a day, and who writes to the ledger for a day that is not today, locks the row of that day first. So a row
that comes late is either seen by the sums or takes them back. Rows of today lock nothing; whether a day is filled does
not change what a report says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, Table, delete, func, insert, select

from threadkeep.db.dialects import insert_or_replace, is_mysql
from threadkeep.db.queries.usage import KEYS, MODEL_KEYS, ledger_sums
from threadkeep.db.tables import usage_daily, usage_daily_models, usage_days, usage_records
from threadkeep.domain.usage import SUMS

SETTLED: Final = timedelta(hours=1)  # after its end a day is filled: time for transactions that began before
BATCH: Final = 31  # days in one transaction
ONE: Final = timedelta(days=1)

KEYS_OF: Final = {usage_daily: KEYS, usage_daily_models: MODEL_KEYS}

Key = tuple[str | None, ...]
Sums = dict[Key, tuple[int | None, ...]]


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
    for table, ledger in _summed_up(connection, tenant, days).items():
        connection.execute(delete(table).where(table.c.tenant_id == tenant, table.c.day.in_(days)))
        rows = [
            {"tenant_id": tenant, "day": day, "number": number}
            | dict(zip((*KEYS_OF[table], *SUMS), (*key, *ledger[day][key]), strict=True))
            for day in days for number, key in enumerate(sorted(ledger.get(day, ()), key=_order))
        ]  # fmt: skip
        if rows:
            connection.execute(insert(table), rows)


def _differing(connection: Connection, tenant: int, days: Sequence[date]) -> list[date]:
    wrong: set[date] = set()
    for table, ledger in _summed_up(connection, tenant, days).items():
        columns = [table.c[name] for name in ("day", *KEYS_OF[table], *SUMS)]
        statement = select(*columns).where(table.c.tenant_id == tenant, table.c.day.in_(days))
        rows = list(_run(connection, statement))
        kept, counts = _by_day(rows, len(KEYS_OF[table])), Counter(row.day for row in rows)
        wrong.update(day for day in days if ledger.get(day) != kept.get(day) or len(kept.get(day, ())) < counts[day])
    return [day for day in days if day in wrong]


def _summed_up(connection: Connection, tenant: int, days: Sequence[date]) -> dict[Table, dict[date, Sums]]:
    """What each of the tables has to say of these days: the sums of the ledger."""
    table = usage_records.c
    keys = [table.day, *(table[name] for name in KEYS)]
    statement = (
        select(*keys, *ledger_sums(connection.dialect.name))
        .where(table.tenant_id == tenant, table.day >= days[0], table.day <= days[-1], table.day.in_(days))
        .group_by(*keys)
    )
    ledger = _by_day(_run(connection, statement), len(KEYS))
    return {usage_daily: ledger, usage_daily_models: {day: _by_model(sums) for day, sums in ledger.items()}}


def _run(connection: Connection, statement: Select[Any]) -> Iterable[Row[Any]]:
    """Rows as they are now: a snapshot of the caller's transaction may be older than the lock (MySQL)."""
    return connection.execute(statement.with_for_update(read=True) if is_mysql(connection.dialect) else statement)


def _by_day(rows: Iterable[Sequence[Any]], width: int) -> dict[date, Sums]:
    """Rows of a day, keys and sums."""
    found: dict[date, Sums] = {}
    for day, *values in rows:
        sums = (None if value is None else int(value) for value in values[width:])
        found.setdefault(day, {})[tuple(values[:width])] = tuple(sums)
    return found


def _by_model(sums: Sums) -> Sums:
    """The sums of a day by model alone."""
    found: Sums = {}
    for key, figures in sums.items():
        model = (key[KEYS.index("model")],)
        found[model] = tuple(map(_added, found[model], figures)) if model in found else figures
    return found


def _added(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _order(key: Key) -> Any:
    """Reports find their rows nearly in order."""
    return [(name is None, name) for name in key]
