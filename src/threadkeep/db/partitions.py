"""Hash partitions on PostgreSQL: which tables have them, by which columns, and how many there are.

Raw bodies may have partitions of months instead, see `months`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from threadkeep.db import months, tables
from threadkeep.errors import InvalidOption, SchemaError

# table -> the columns that say in which partition a row is. All keys of these tables contain them.
#
# What belongs to a conversation is in one partition of each, and so is all that a request is made of. The documents of
# the search are in none: a question would have to be asked of every partition.
PARTITIONED: Final = {
    tables.items.name: ("tenant_id", "conversation_id"),
    tables.item_blobs.name: ("tenant_id", "conversation_id"),
    tables.responses.name: ("tenant_id", "conversation_id"),
    tables.response_bodies.name: ("tenant_id", "conversation_id"),
    tables.appends.name: ("tenant_id", "conversation_id"),
    tables.usage_records.name: ("tenant_id", "id"),
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
    count: int = connection.execute(_COUNT, {"name": tables.items.name}).scalar_one()
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
    if first is not None and months.find_months(connection) is None:
        raise SchemaError(
            "The table of raw bodies exists, and has no partitions of months: an upgrade does not make them.",
            hint=COPY_HINT,
        )


def missing_months(connection: Connection) -> list[months.Month]:
    """Return the months from this one on for which raw bodies should have a partition, and have none."""
    found = months.find_months(connection)
    if found is None:
        return []
    today = datetime.now(UTC).date()
    return [month for month in months.months_until(today, today) if month not in found]


def make_months(connection: Connection) -> None:
    """Make the partitions of coming months, except of those that have rows in the default one."""
    for month in [month for month in missing_months(connection) if not months.is_in_default(connection, month)]:
        with suppress(DBAPIError), connection.begin_nested():  # else another time
            months.create_month(connection, month)
