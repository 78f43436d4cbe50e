"""Hash partitions on PostgreSQL: which tables have them, by which columns, and how many there are.

Raw bodies may have partitions of months instead, see `months`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from threadkeep.db import models
from threadkeep.errors import InvalidOption, SchemaError

# table -> the columns that say in which partition a row is. All keys of these tables contain them.
#
# What belongs to a conversation is in one partition of each, and so is all that a request is made of. The documents of
# the search are in none: a question would have to be asked of every partition.
PARTITIONED: Final = {
    models.items.name: ("tenant_id", "conversation_id"),
    models.item_blobs.name: ("tenant_id", "conversation_id"),
    models.responses.name: ("tenant_id", "conversation_id"),
    models.response_bodies.name: ("tenant_id", "conversation_id"),
    models.appends.name: ("tenant_id", "conversation_id"),
    models.usage_records.name: ("tenant_id", "id"),
}
MOST: Final = 128  # partitions of a table
COPY_HINT: Final = (
    "Make a new database with them, and copy everything with `threadkeep copy` or Store.copy_to (docs/scaling.md)."
)

_COUNT: Final = text("SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass(:name)")


def partition_names(table: str, count: int) -> Iterator[str]:
    """The names of the partitions of a table."""
    return (f"{table}_p{number}" for number in range(count))


def checked_partitions(partitions: object, dialect: str) -> int | None:
    """Return the number of partitions that tables are to have; None for tables without.

    Raises:
        InvalidOption: it is no number from 2 to 128, or the database is not PostgreSQL.
    """
    if partitions is None:
        return None
    if not isinstance(partitions, int) or isinstance(partitions, bool) or not 2 <= partitions <= MOST:  # noqa: PLR2004
        problem = f"must be a number from 2 to {MOST}, not {partitions!r}."
        raise InvalidOption(problem, argument="partitions", hint="16 is a good number; it cannot be changed later.")
    if dialect != "postgresql":
        raise InvalidOption(
            f"are for PostgreSQL, not for {dialect}.", argument="partitions", hint="Leave them out here."
        )
    return partitions


def partitions_in(connection: Connection) -> int:
    """How many partitions the tables of a database have; 0 for tables without, or no tables."""
    if connection.dialect.name != "postgresql":
        return 0
    count: int = connection.execute(_COUNT, {"name": models.items.name}).scalar_one()
    return count


def refuse_other_number(connection: Connection, partitions: int | None) -> None:
    """Raise SchemaError if the tables that exist have another number of partitions."""
    found = partitions_in(connection)
    if partitions in {None, found}:
        return
    has = f"{found} partitions each" if found else "no partitions"
    raise SchemaError(
        f"The tables of the database exist, and have {has}: an upgrade does not make {partitions} of them.",
        hint=COPY_HINT,
    )


def refuse_months(connection: Connection, first: date | None) -> None:
    """Raise SchemaError if the table of raw bodies exists, and has no partitions of months."""
    if first is not None and find_months(connection) is None:
        raise SchemaError(
            "The table of raw bodies exists, and has no partitions of months: an upgrade does not make them.",
            hint=COPY_HINT,
        )


def missing_months(connection: Connection) -> list[Month]:
    """Return the months from this one on for which raw bodies should have a partition, and have none."""
    found = find_months(connection)
    if found is None:
        return []
    today = datetime.now(UTC).date()
    return [month for month in months_until(today, today) if month not in found]


def make_months(connection: Connection) -> None:
    """Make the partitions of coming months, except of those that have rows in the default one."""
    for month in [month for month in missing_months(connection) if not is_in_default(connection, month)]:
        with suppress(DBAPIError), connection.begin_nested():  # else another time
            create_month(connection, month)


# ---------------------------------------------------------------------------------------------------------------------
# Monthly partitions of raw bodies on PostgreSQL: what they are called, which there are, and how they come and go

BODIES: Final = models.response_bodies.name
DEFAULT: Final = f"{BODIES}_default"
AHEAD: Final = 3  # months that are there before they come
EARLIEST: Final = date(2020, 1, 1)  # months of which partitions can be
LAST: Final = date(2099, 12, 1)
_KNOWN: Final = "threadkeep_has_months"  # in what is remembered of a connection
PATIENCE: Final = "100ms"  # that a statement waits for a lock, and others behind it
LARGE: Final = 16 * 1024 * 1024  # bytes of the default partition that are not looked through in a moment

_FIND: Final = text(
    "SELECT part.relname FROM pg_inherits JOIN pg_class part ON part.oid = inhrelid "
    "JOIN pg_partitioned_table ON partrelid = inhparent AND partstrat = 'r' "
    "WHERE inhparent = to_regclass(:name) ORDER BY part.relname"
)
_LARGER: Final = text("SELECT pg_relation_size(to_regclass(:name)) > :most")
_OWN: Final = text("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(:name)")


class Month(NamedTuple):
    """The partition of a month: its name, its first day, and the first day of the next one."""

    name: str
    first: date
    end: date

    @property
    def ends_at(self) -> datetime:
        """When it is over."""
        return datetime(self.end.year, self.end.month, 1, tzinfo=UTC)


def month_of(day: date) -> Month:
    """The partition of a day's month."""
    first = day.replace(day=1)
    return Month(f"{BODIES}_y{day.year}m{day.month:02}", date(first.year, first.month, 1), _following(first))


def _following(first: date) -> date:
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)


def months_between(first: date, last: date) -> Iterator[Month]:
    """The partitions of all months from one day to another."""
    month = month_of(first)
    while month.first <= last:
        yield month
        month = month_of(month.end)


def months_until(first: date, today: date) -> Iterator[Month]:
    """The partitions from the month of a day on which are there today."""
    last = today.replace(day=1)
    for _ in range(AHEAD):
        last = _following(last)
    return months_between(first, last)


ALL: Final = (DEFAULT, *(month.name for month in months_between(EARLIEST, LAST)))  # names


def checked_month(month: object, dialect: str) -> date | None:
    """Return the first day of the month from which on raw bodies are to have partitions; None for none.

    Raises:
        InvalidOption: it is no date from 2020 on that has come, or the database is not PostgreSQL.
    """
    if month is None:
        return None
    if not isinstance(month, date) or not EARLIEST <= _first_day(month) <= datetime.now(UTC).date():
        given = f"{month:%Y-%m}" if isinstance(month, date) else repr(month)
        problem = f"must be a date of a month from {EARLIEST:%Y-%m} to this one, not {given}."
        hint = "Give the first month with raw bodies: this one, or the month of the oldest to be copied."
        raise InvalidOption(problem, argument="monthly_bodies", hint=hint)
    if dialect != "postgresql":
        problem = f"are for PostgreSQL, not for {dialect}."
        raise InvalidOption(problem, argument="monthly_bodies", hint="Leave them out here.")
    return _first_day(month)


def _first_day(moment: date) -> date:
    day = moment.date() if isinstance(moment, datetime) else moment
    return day.replace(day=1)


def find_months(connection: Connection) -> list[Month] | None:
    """Return the partitions of months, the oldest first; None where raw bodies have none."""
    if connection.dialect.name != "postgresql":
        return None
    names = connection.execute(_FIND, {"name": BODIES}).scalars().all()
    if not names:
        return None
    known = {month.name: month for month in months_between(EARLIEST, LAST)}
    return [known[name] for name in names if name in known]


def has_months(connection: Connection) -> bool:
    """Return whether raw bodies have partitions of months; asked once for each connection."""
    if connection.dialect.name != "postgresql":
        return False
    found: bool | None = connection.info.get(_KNOWN)
    if found is None:
        found = connection.info[_KNOWN] = find_months(connection) is not None
    return found


def may_change(connection: Connection) -> bool:
    """Return whether the user of the database may create and drop partitions, where it can have any."""
    return connection.dialect.name == "postgresql" and bool(connection.execute(_OWN, {"name": BODIES}).scalar())


def creation(month: Month) -> str:
    """The statement that makes the partition of a month."""
    values = f"FROM ('{month.first} 00:00:00+00') TO ('{month.end} 00:00:00+00')"
    return f"CREATE TABLE IF NOT EXISTS {month.name} PARTITION OF {BODIES} FOR VALUES {values}"


def be_impatient(connection: Connection) -> None:
    """Let the statements of this transaction wait for locks only shortly."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE}'")


def is_default_large(connection: Connection) -> bool:
    """Return whether the default partition takes long to look through."""
    return bool(connection.execute(_LARGER, {"name": DEFAULT, "most": LARGE}).scalar())


def is_in_default(connection: Connection, month: Month) -> bool:
    """Return whether the default partition has rows of a month, which then gets no partition; nothing is locked."""
    rows = f"SELECT FROM {DEFAULT} WHERE created_at >= '{month.first} 00:00+00' AND created_at < '{month.end} 00:00+00'"
    return bool(connection.exec_driver_sql(f"SELECT EXISTS ({rows})").scalar_one())


def create_month(connection: Connection, month: Month) -> None:
    """Make the partition of a month, for which raw bodies and responses are locked for some milliseconds.

    And for as long as it takes PostgreSQL to look through the default partition: see `is_default_large`.
    """
    be_impatient(connection)
    connection.exec_driver_sql(creation(month))


def tenants_in(connection: Connection, month: Month) -> set[int]:
    """Return up to two of the tenants that have rows in a partition: the first one and the last one."""
    row = connection.exec_driver_sql(f"SELECT min(tenant_id), max(tenant_id) FROM {month.name}").one()  # noqa: S608 - our names
    return {tenant for tenant in row if tenant is not None}


def count_bodies(connection: Connection, month: Month) -> int:
    """Return how many rows a partition has."""
    count: int = connection.exec_driver_sql(f"SELECT count(*) FROM {month.name}").scalar_one()  # noqa: S608 - our names
    return count


def empty_month(connection: Connection, month: Month, tenant: int) -> bool:
    """Empty a partition, which alone is locked, if all its rows are of a tenant; return whether they were."""
    be_impatient(connection)
    connection.exec_driver_sql(f"LOCK TABLE ONLY {month.name} IN ACCESS EXCLUSIVE MODE")
    if not tenants_in(connection, month) <= {tenant}:
        return False
    connection.exec_driver_sql(f"TRUNCATE {month.name}")
    return True


def drop_month(connection: Connection, month: Month) -> None:
    """Drop an empty partition, for which the whole table is locked for some milliseconds; one with rows is left."""
    be_impatient(connection)
    connection.exec_driver_sql(f"LOCK TABLE {BODIES} IN ACCESS EXCLUSIVE MODE")
    if not tenants_in(connection, month):
        connection.exec_driver_sql(f"DROP TABLE {month.name}")
