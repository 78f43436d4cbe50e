"""Rows of several tables that belong together: on PostgreSQL one statement writes them all.

Each statement is a round trip to the server, and writers of one conversation wait for each other that long. The other
databases take no INSERT within a statement; SQLite has no way to go, either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import starmap
from typing import Any, Final

from sqlalchemy import Connection, Insert, Table, bindparam, insert

from threadkeep.db.prepared import Prepared, insertion

MOST: Final = 8  # rows in a statement: one for each number of them is kept

# Rows by their tables, in the order in which they are written
Rows = Sequence[tuple[Table, Sequence[Mapping[str, Any]]]]

insertion_into: Final = cache(insertion)


def insert_together(connection: Connection, rows: Rows) -> None:
    """Insert whole rows, each into its table."""
    if connection.dialect.name == "postgresql" and 1 < sum(len(same) for _, same in rows) <= MOST:
        each = [(table, row) for table, same in rows for row in same]
        values = {_name(column, place): row[column] for place, (_, row) in enumerate(each) for column in row}
        _together(tuple(table for table, _ in each)).execute(connection, values)
        return
    for table, same in rows:
        if len(same) == 1:
            insertion_into(table).execute(connection, same[0])
        elif same:
            insertion_into(table).execute_many(connection, same)


@cache
def _together(tables: tuple[Table, ...]) -> Prepared:
    *others, last = starmap(_placed, enumerate(tables))
    return Prepared(last.add_cte(*(other.cte(f"row_{place}") for place, other in enumerate(others))))


def _placed(place: int, table: Table) -> Insert:
    return insert(table).values({column.name: bindparam(_name(column.name, place)) for column in table.columns})


def _name(column: str, place: int) -> str:
    return f"{column}_{place}"
