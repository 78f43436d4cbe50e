"""Rolling up the days of the ledger in small parts, by one process for each tenant and day; see `DayTrigger`."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, func, insert, literal_column, select
from sqlalchemy.exc import IntegrityError

from threadkeep.db.tables import usage_days, usage_records
from threadkeep.store.retries import Replay
from threadkeep.store.rollups import BATCH_DAYS, DAY, last_day, missing_days, roll_up

MOST_ATTEMPTS: Final = 25_000  # that are summed up at once, in 0.2 seconds; larger days are left to others


def is_due(connection: Connection, tenant: int, last: date) -> bool:
    """Whether the ledger goes back to that day, and nobody has claimed the days until then."""
    ledger, days = usage_records.c, usage_days.c
    first = select(func.min(ledger.day)).where(ledger.tenant_id == tenant).scalar_subquery()
    claims = select(func.count()).where(days.tenant_id == tenant, days.day == last + DAY).scalar_subquery()
    oldest, count = connection.execute(select(first, claims)).one()
    return oldest is not None and oldest <= last and not count


def claim(connection: Connection, tenant: int, day: date) -> date:
    """Insert the row of a day that is not over; return the day to go on after. `Replay`: somebody else has done so."""
    try:
        connection.execute(insert(usage_days), {"tenant_id": tenant, "day": day, "filled_at": None})
    except IntegrityError:
        raise Replay(None) from None
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
