"""INSERTs of whole rows; on PostgreSQL one statement writes related rows of several tables.

Each statement is a round trip to the server, and writers of one conversation wait for each other that long. The other
databases take no INSERT within a statement; SQLite has no round trip, either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, insert

from threadkeep.db.driver.statements import Statement

MAX_ROWS: Final = 8  # in one statement: one is cached for each combination of tables

# Rows by table, in the order in which they are written
TableRows = Sequence[tuple[Table, Sequence[Mapping[str, Any]]]]


@cache
def insert_statement(table: Table) -> Statement:
    """An INSERT of whole rows."""
    return Statement(insert(table), [column.name for column in table.columns])


def insert_rows(connection: Connection, table_rows: TableRows) -> None:
    """Insert whole rows, each into its table."""
    if connection.dialect.name == "postgresql" and 1 < sum(len(rows) for _, rows in table_rows) <= MAX_ROWS:
        each = [(table, row) for table, rows in table_rows for row in rows]
        statement, names = _combined_insert(tuple(table for table, _ in each))
        values = {
            name: row.get(column) for row_names, (_, row) in zip(names, each, strict=True) for name, column in row_names
        }
        statement.execute(connection, values)
        return
    for table, rows in table_rows:
        if len(rows) == 1:
            insert_statement(table).execute(connection, rows[0])
        elif rows:
            insert_statement(table).execute_many(connection, rows)


@cache
def _combined_insert(tables: tuple[Table, ...]) -> tuple[Statement, list[list[tuple[str, str]]]]:
    """A statement that inserts a row into each table, and the names of its parameters by row and column."""
    names = [
        [(f"{column.name}_{number}", column.name) for column in table.columns] for number, table in enumerate(tables)
    ]
    inserts = [
        insert(table).values({column: bindparam(name) for name, column in row_names})
        for table, row_names in zip(tables, names, strict=True)
    ]
    *others, last = inserts
    ctes = (other.cte(f"row_{number}") for number, other in enumerate(others))
    return Statement(last.add_cte(*ctes)), names
