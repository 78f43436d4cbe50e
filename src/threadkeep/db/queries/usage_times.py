"""The hours, days, weeks and months that usage is grouped by, in any time zone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Date, Table, bindparam, case, cast, func, literal_column

from threadkeep.db.types import MYSQL

TIMES: Final = ("hour", "day", "week", "month")


def time_keys(name: str, offsets: Sequence[int] | None, table: Table, dialect: str) -> list[Any]:
    """The columns to group by; an hour takes two where clocks change, the second is how far local time is ahead.

    `offsets`: seconds by which local time is ahead of UTC, one more than there are changes (the parameters ``change_0``
    …); None: times are UTC.
    """
    if name != "hour" and offsets is None:
        return [table.c.day if name == "day" else _bucket(name, table.c.day, dialect)]
    offset = _offset(offsets or (0,), table)
    columns = [_bucket(name, _local(table.c.occurred_at, offset, dialect), dialect)]
    return [*columns, offset] if name == "hour" and has_changes(offsets) else columns


def has_changes(offsets: Sequence[int] | None) -> bool:
    """Whether clocks change."""
    return offsets is not None and len(offsets) > 1


def _offset(offsets: Sequence[int], table: Table) -> Any:
    changes: list[Any] = [
        (table.c.occurred_at < bindparam(f"change_{number}"), literal_column(str(offset)))
        for number, offset in enumerate(offsets[:-1])
    ]
    last: Any = literal_column(str(offsets[-1]))
    return case(*changes, else_=last) if changes else last


def _local(column: Any, offset: Any, dialect: str) -> Any:
    """Local time without a zone. SQLite would round half a millisecond up, into the next day."""
    if dialect == "sqlite":
        return func.datetime(func.substr(column, 1, 19), offset.op("||")(literal_column("' seconds'")))
    if dialect == "postgresql":
        return func.timezone(literal_column("'UTC'"), column) + offset * literal_column("interval '1 second'")
    return func.timestampadd(literal_column("SECOND"), offset, column)


def _bucket(name: str, column: Any, dialect: str) -> Any:
    """The hour, or the first day of a week or month, that a local time or a day lies in."""
    if dialect == "postgresql":
        start: Any = func.date_trunc(literal_column(f"'{name}'"), column)
        return start if name == "hour" else cast(start, Date)
    if dialect in MYSQL:
        if name == "week":
            return func.subdate(func.date(column), func.weekday(column))
        patterns = {"hour": "'%Y-%m-%d %H:00:00'", "month": "'%Y-%m-01'"}
        return func.date_format(column, literal_column(patterns[name])) if name in patterns else func.date(column)
    if name == "week":
        return func.date(column, literal_column("'weekday 0'"), literal_column("'-6 days'"))
    patterns = {"hour": "'%Y-%m-%d %H:00:00'", "day": "'%Y-%m-%d'", "month": "'%Y-%m-01'"}
    return func.strftime(literal_column(patterns[name]), column)
