"""Rows of several tables that belong together: on PostgreSQL one statement writes them all.

Each statement is a round trip to the server, and writers of one conversation wait for each other that long. The other
databases take no INSERT within a statement; SQLite has no way to go, either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, insert

from threadkeep.db.prepared import Prepared, insertion

MOST: Final = 8  # rows in a statement: one for each number of them is kept

# Rows by their tables, in the order in which they are written
Rows = Sequence[tuple[Table, Sequence[Mapping[str, Any]]]]

insertion_into: Final = cache(insertion)


def insert_together(connection: Connection, rows: Rows) -> None:
    """Insert whole rows, each into its table."""
    if connection.dialect.name == "postgresql" and 1 < sum(len(same) for _, same in rows) <= MOST:
        each = [(table, row) for table, same in rows for row in same]
        statement, names = _together(tuple(table for table, _ in each))
        values = {
            name: row.get(column) for of_row, (_, row) in zip(names, each, strict=True) for name, column in of_row
        }
        statement.execute(connection, values)
        return
    for table, same in rows:
        if len(same) == 1:
            insertion_into(table).execute(connection, same[0])
        elif same:
            insertion_into(table).execute_many(connection, same)


@cache
def _together(tables: tuple[Table, ...]) -> tuple[Prepared, list[list[tuple[str, str]]]]:
    """A statement for a row of each table, and the names of its parameters by row and column."""
    names = [
        [(f"{column.name}_{place}", column.name) for column in table.columns] for place, table in enumerate(tables)
    ]
    inserts = [
        insert(table).values({column: bindparam(name) for name, column in of_row})
        for table, of_row in zip(tables, names, strict=True)
    ]
    *others, last = inserts
    return Prepared(last.add_cte(*(other.cte(f"row_{place}") for place, other in enumerate(others)))), names
