"""INSERTs of whole rows: one statement for several tables on PostgreSQL, and COPY for many rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, Column, ColumnElement, Connection, Table, bindparam, insert

from threadkeep.db import backends, base
from threadkeep.db.driver import Parameters, Statement, executor_for, executors


class Insertion(NamedTuple):
    """How rows come into a table, where that is not just as they are.

    Attributes:
        table: their table.
        is_missing: those whose keys exist stay as they are: the keys say what is in the rows.
        made: a column whose value the database makes, by which expression, of the parameter of which name.
    """

    table: Table
    is_missing: bool = False
    made: tuple[str, Callable[[str], ColumnElement[Any]], str] | None = None


# Rows by table, in the order in which they are written
TableRows = Sequence[tuple[Table | Insertion, Sequence[Mapping[str, Any]]]]
MAX_ROWS: Final = 9  # in one statement: one is cached for each combination of tables
COPY_ROWS: Final = 20  # of a table, from which on PostgreSQL gets them by COPY


@lru_cache(maxsize=256)
def insert_statement(into: Table | Insertion, nulls: frozenset[str] = frozenset()) -> Statement:
    """An INSERT of whole rows, whose columns of these names are NULL."""
    into = _insertion(into)
    values: dict[Any, Any] = {
        column: expression(*(bindparam(name, type_=BigInteger) for name in parameters))
        for column, (expression, parameters) in _made_columns(into.table)
    }
    if into.made is not None:
        name, expression, parameter = into.made
        values[into.table.c[name]] = expression(parameter)
    statement = insert(into.table).values(values) if values else insert(into.table)
    names = [column.name for column in base.written_columns(into.table) if column.name not in nulls]
    return Statement(statement.inline(), names)


def _insertion(into: Table | Insertion) -> Insertion:
    return into if isinstance(into, Insertion) else Insertion(into)


def _made_columns(table: Table) -> list[tuple[Column[Any], Any]]:
    """The columns whose values the database makes: by which expression, and of which parameters."""
    return [(column, column.info[base.MADE_BY]) for column in table.columns if base.MADE_BY in column.info]


@cache
def missing_insert(backend: backends.Backend, table: Table) -> Statement:
    """An INSERT of rows whose keys say what is in them: those that exist stay as they are."""
    return Statement(backend.insert_missing(table), [column.name for column in base.written_columns(table)])


def insert_missing(connection: Connection, table: Table, rows: Sequence[Parameters]) -> None:
    """Insert such rows."""
    statement = missing_insert(backends.backend_of(connection), table)
    if len(rows) == 1:
        statement.execute(connection, rows[0])
    else:
        statement.execute_many(connection, rows)


@cache
def _replacing_insert(backend: backends.Backend, table: Table, columns: tuple[str, ...]) -> Statement:
    return Statement(
        backend.insert_or_replace(table, *columns), [column.name for column in base.written_columns(table)]
    )


def insert_or_replace(connection: Connection, table: Table, rows: Sequence[Parameters], *columns: str) -> None:
    """Insert rows, or set these columns of those that exist; either way they are locked. Each has all columns."""
    _replacing_insert(backends.backend_of(connection), table, columns).execute_many(connection, rows)


def insert_rows(connection: Connection, table_rows: TableRows) -> None:
    """Insert whole rows, each into its table; on PostgreSQL one statement writes related rows of several tables.

    Each statement is a round trip to the server, and writers of one conversation wait for each other that long. The
    other databases take no INSERT within a statement; SQLite has no round trip, either.
    """
    backend = backends.backend_of(connection)
    if backend.writes_together and 1 < sum(len(rows) for _, rows in table_rows) <= MAX_ROWS:
        each = [(into, row) for into, rows in table_rows for row in rows]
        statement, names = _combined_insert(backend, tuple(_insertion(into) for into, _ in each))
        values = {
            name: row.get(column) for row_names, (_, row) in zip(names, each, strict=True) for name, column in row_names
        }
        statement.execute(connection, values)
        return
    for into, rows in table_rows:
        if isinstance(into, Insertion) and into.is_missing:
            insert_missing(connection, into.table, rows)
        elif len(rows) == 1:
            insert_statement(into).execute(connection, rows[0])
        elif rows:
            insert_many(connection, _insertion(into).table, rows)


def insert_many(connection: Connection, table: Table, rows: Sequence[Parameters]) -> None:
    """Insert whole rows of one table."""
    executor, is_short = executor_for(connection), len(rows) < COPY_ROWS
    statement = insert_statement(table) if is_short else insert_statement(table, _null_columns(table, rows))
    if (
        is_short
        or not isinstance(executor, executors.PsycopgExecutor | executors.AsyncPsycopgExecutor)
        or _made_columns(table)
    ):
        statement.execute_many(connection, rows)
        return
    compiled = statement.compiled(connection.dialect, executor.paramstyle)
    columns = ", ".join(map(connection.dialect.identifier_preparer.quote, compiled.names))
    executor.copy(connection, f"COPY {table.name} ({columns}) FROM STDIN", compiled.bind_many(rows))


def _null_columns(table: Table, rows: Sequence[Parameters]) -> frozenset[str]:
    """The columns in which no row has a value: to bind many NULLs takes drivers longer than to write them."""
    names = [name for name in _nullable_columns(table) if rows[0][name] is None is rows[-1][name]]
    return frozenset(name for name in names if [*map(itemgetter(name), rows)].count(None) == len(rows))


@cache
def _nullable_columns(table: Table) -> Sequence[str]:
    written = base.written_columns(table)
    return [column.name for column in written if column.nullable and base.MADE_BY not in column.info]


@lru_cache(maxsize=256)
def _combined_insert(
    backend: backends.Backend, insertions: tuple[Insertion, ...]
) -> tuple[Statement, list[list[tuple[str, str]]]]:
    """A statement that inserts a row into each table, and the names of its parameters by row and column."""
    inserts, names = [], []
    for number, (table, is_missing, own) in enumerate(insertions):
        made = dict(_made_columns(table))
        plain = [column.name for column in base.written_columns(table) if column not in made]
        parameters = [name for _, used in made.values() for name in used]
        values: dict[Any, Any] = {name: bindparam(f"{name}_{number}") for name in plain}
        for column, (expression, used) in made.items():
            values[column.name] = expression(*(bindparam(f"{name}_{number}", type_=BigInteger) for name in used))
        if own is not None:
            name, expression, parameter = own
            values[name] = expression(f"{parameter}_{number}")
            parameters.append(parameter)
        statement = backend.insert_missing(table) if is_missing else insert(table)
        inserts.append(statement.values(values).inline())
        names.append([(f"{name}_{number}", name) for name in (*plain, *parameters)])
    *others, last = inserts
    ctes = (other.cte(f"row_{number}") for number, other in enumerate(others))
    return Statement(last.add_cte(*ctes)), names
