"""Rolled-up days: the sums of UTC days that have ended, which reports read instead of the ledger.

Rolling up a day, or writing to the ledger for a day that is not today, locks the row of that day first. So a row that
comes late is either part of the sums or invalidates them. Rows of today lock nothing; whether a day is rolled up does
not change what a report says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache, partial
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, Table, delete, func, insert, literal_column, select, type_coerce
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import NULLTYPE

from threadkeep.db import functions, types
from threadkeep.db.driver import inserting
from threadkeep.db.models import usage_daily, usage_daily_models, usage_daily_sketches, usage_days, usage_records
from threadkeep.db.queries.usage import KEYS, MEASURES, MODEL_KEYS, ledger_sums, rounded
from threadkeep.domain.reports import DAY, SUMS, ReconciliationReport, last_day
from threadkeep.domain.sketches import Sketch
from threadkeep.store.work import connections, refs
from threadkeep.store.work.transactions import Transactions

BATCH_DAYS: Final = 31  # in one transaction
_ALL_USERS: Final = "Days are rolled up over all users", "it"

# A table of sums -> the columns that its rows of a day are told apart by, and those with the sums
KEYS_OF: Final = {usage_daily: KEYS, usage_daily_models: MODEL_KEYS, usage_daily_sketches: KEYS}
SUMS_OF: Final = {usage_daily: SUMS, usage_daily_models: SUMS, usage_daily_sketches: MEASURES}

Key = tuple[str | None, ...]
Sums = dict[Key, tuple[Any, ...]]


def roll_up_days(transactions: Transactions, scope: refs.Scope) -> int:
    """Roll up all days that have ended, a few per transaction; return the number of days."""
    scope.check_all_users(*_ALL_USERS)
    count = 0
    while days := transactions.write(lambda connection: roll_up_batch(connection, scope.tenant), is_repeatable=True):
        count += days
    return count


def reconcile(transactions: Transactions, scope: refs.Scope) -> ReconciliationReport:
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
    inserting.insert_or_replace(connection, usage_days, rows, "filled_at")


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
    inserting.insert_or_replace(connection, usage_days, locks, "filled_at")
    for table, ledger in _sum_ledger(connection, tenant, days).items():
        connection.execute(delete(table).where(table.c.tenant_id == tenant, table.c.day.in_(days)))
        rows = [
            {"tenant_id": tenant, "day": day, "number": number}
            | dict(zip((*KEYS_OF[table], *SUMS_OF[table]), (*key, *ledger[day][key]), strict=True))
            for day in days for number, key in enumerate(sorted(ledger.get(day, ()), key=order_of))
        ]  # fmt: skip
        if rows:
            connection.execute(insert(table), rows)


def different_days(connection: Connection, tenant: int, days: Sequence[date]) -> list[date]:
    """The days whose stored sums differ from the ledger."""
    different: set[date] = set()
    for table, ledger in _sum_ledger(connection, tenant, days).items():
        columns = [table.c[name] for name in ("day", *KEYS_OF[table], *SUMS_OF[table])]
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
    of_days = table.tenant_id == tenant, table.day >= days[0], table.day <= days[-1], table.day.in_(days)
    statement = select(*keys, *ledger_sums()).where(*of_days).group_by(*keys)
    ledger = _by_day(_execute(connection, statement), len(KEYS))
    # nearly as many rows as attempts, with few names: each is read once
    names, names_of = [type_coerce(table[name], NULLTYPE) for name in KEYS], cache(types.name_from)
    sketches: defaultdict[tuple[date, Key, int], Sketch] = defaultdict(Sketch)
    for place, measure in enumerate(MEASURES):
        counted = select(table.day, *names, rounded(table[measure]), func.count())
        counted = counted.where(*of_days, table[measure].is_not(None)).group_by(*keys, literal_column("duration"))
        rows: Iterable[Any] = _execute(connection, counted)
        for day, *raw, duration, count in rows:
            sketches[day, tuple(map(names_of, raw)), place].add(int(duration), count)
    distributed: dict[date, Sums] = {}
    for day, key in dict.fromkeys((day, key) for day, key, _ in sketches):
        both = (sketches.get((day, key, place)) for place in range(len(MEASURES)))
        distributed.setdefault(day, {})[key] = tuple(None if one is None else one.text for one in both)
    models = {day: _by_model(sums) for day, sums in ledger.items()}
    return {usage_daily: ledger, usage_daily_models: models, usage_daily_sketches: distributed}


def _execute(connection: Connection, statement: Select[Any]) -> Iterable[Row[Any]]:
    """Rows as they are now: a snapshot of the caller's transaction may be older than the lock (MySQL)."""
    return connection.execute(functions.as_committed(statement))


def _by_day(rows: Iterable[Sequence[Any]], width: int) -> dict[date, Sums]:
    """Rows of a day, `width` keys, and sums."""
    days: dict[date, Sums] = {}
    for day, *values in rows:
        sums = (value if value is None or isinstance(value, str) else int(value) for value in values[width:])
        days.setdefault(day, {})[tuple(values[:width])] = tuple(sums)
    return days


def _by_model(sums: Sums) -> Sums:
    """The sums of a day by model alone."""
    models: Sums = {}
    for key, figures in sums.items():
        model = (key[KEYS.index("model")],)
        models[model] = tuple(map(add, models[model], figures)) if model in models else figures
    return models


def add(one: int | None, other: int | None) -> int | None:
    """The sum of two figures; None is unknown."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def ordered(rows: Sequence[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    """Rows by their first columns, byte for byte; what is unknown comes last."""
    found = list(rows)
    for key in map(itemgetter, reversed(range(width))):
        is_known = None not in map(key, found)
        found.sort(key=key if is_known else lambda row, key=key: (key(row) is None, key(row)))  # type: ignore[misc]
    return found


def joined(rows: Iterable[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    """Rows with the same keys added up, in order."""
    found: dict[Any, Any] = {}
    for row in rows:
        key, sums = tuple(row[:width]), row[width:]
        found[key] = tuple(map(add, found[key], sums)) if key in found else sums
    return ordered([(*key, *sums) for key, sums in found.items()], width)


def order_of(key: Iterable[Any]) -> list[tuple[bool, Any]]:
    """What rows are sorted by, from their keys: unknown ones come last. So reports find stored rows nearly in order."""
    return [(name is None, name) for name in key]


# ---------------------------------------------------------------------------------------------------------------------
# Rolling up the days of the ledger in small parts, by one process for each tenant and day; see `DayTrigger`

MOST_ATTEMPTS: Final = 25_000  # that are summed up at once, in 0.4 seconds; larger days are left to others


def is_due(connection: Connection, tenant: int, last: date) -> bool:
    """Whether the ledger goes back to that day, and the days until then are unclaimed."""
    ledger, days = usage_records.c, usage_days.c
    first = select(func.min(ledger.day)).where(ledger.tenant_id == tenant).scalar_subquery()
    claims = select(func.count()).where(days.tenant_id == tenant, days.day == last + DAY).scalar_subquery()
    oldest, count = connection.execute(select(first, claims)).one()
    return oldest is not None and oldest <= last and not count


def claim(connection: Connection, tenant: int, day: date) -> date:
    """Insert the row of a day that is not over; return the day to go on after. `Replay`: it exists."""
    try:
        connection.execute(insert(usage_days), {"tenant_id": tenant, "day": day, "filled_at": None})
    except IntegrityError:
        raise connections.Replay(None) from None
    return date.min


def roll_up_some(connection: Connection, tenant: int, after: date) -> date | None:
    """Roll up some days after one, the oldest first, and return the last one; None: there are no more of them.

    A day with more than MOST_ATTEMPTS is passed over.
    """
    now = datetime.now(UTC)
    missing = missing_days(connection, tenant, last_day(now), after)
    if not missing:
        return None
    days = missing
    while (is_large := _is_large(connection, tenant, days[0], days[-1])) and len(days) > 1:
        days = days[: len(days) // 2]
    if not is_large:
        roll_up(connection, tenant, days, now)
    return None if len(days) == len(missing) < BATCH_DAYS else days[-1]


def _is_large(connection: Connection, tenant: int, first: date, last: date) -> bool:
    table: Any = usage_records.c
    within: Select[Any] = select(literal_column("1")).where(
        table.tenant_id == tenant, table.day >= first, table.day <= last
    )
    count = select(func.count()).select_from(within.limit(MOST_ATTEMPTS + 1).subquery())
    return bool(connection.execute(count).scalar_one() > MOST_ATTEMPTS)
