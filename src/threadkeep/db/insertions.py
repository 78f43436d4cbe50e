"""Rows of several tables that belong together: on PostgreSQL one statement writes them all.

Each statement is a round trip to the server, and writers of one conversation wait for each other that long. The other
databases take no INSERT within a statement; SQLite has no way to go, either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby, starmap
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection, Insert, Table, bindparam, insert

from threadkeep.db.prepared import Prepared, insertion

MOST: Final = 8  # rows in a statement: one for each number of them is kept

Rows = Sequence[tuple[Table, Mapping[str, Any]]]

insertion_into: Final = cache(insertion)


def insert_together(connection: Connection, rows: Rows) -> None:
    """Insert whole rows, each into its table."""
    if connection.dialect.name == "postgresql" and 1 < len(rows) <= MOST:
        values = {_name(column, place): row[column] for place, (_, row) in enumerate(rows) for column in row}
        _together(tuple(table for table, _ in rows)).execute(connection, values)
        return
    for table, group in groupby(rows, itemgetter(0)):
        same = [row for _, row in group]
        if len(same) == 1:
            insertion_into(table).execute(connection, same[0])
        else:
            insertion_into(table).execute_many(connection, same)


@cache
def _together(tables: tuple[Table, ...]) -> Prepared:
    *others, last = starmap(_placed, enumerate(tables))
    return Prepared(last.add_cte(*(other.cte(f"row_{place}") for place, other in enumerate(others))))


def _placed(place: int, table: Table) -> Insert:
    return insert(table).values({column.name: bindparam(_name(column.name, place)) for column in table.columns})


def _name(column: str, place: int) -> str:
    return f"{column}_{place}"
