"""Statements of the hot paths: built with SQLAlchemy Core, compiled once per dialect, executed on the driver's cursor.

An execution through Core costs about 35 microseconds on top of the database's own time, this one about 6 (measured on
SQLite; docs/performance.md). Parameters and results still pass through the column types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Executable, Table, bindparam, insert
from sqlalchemy.engine import Dialect

from threadkeep.db.backends import backend_of
from threadkeep.db.base import MADE_BY, written_columns
from threadkeep.db.driver.executors import CompiledStatement, Parameters, RowFormat, Sources, copier_for, executor_for
from threadkeep.db.driver.executors import LazyRow as LazyRow
from threadkeep.db.driver.executors import Row as Row
from threadkeep.db.driver.executors import RowReader as RowReader

# Rows by table, in the order in which they are written
TableRows = Sequence[tuple[Table, Sequence[Mapping[str, Any]]]]
MAX_ROWS: Final = 9  # in one statement: one is cached for each combination of tables
COPY_ROWS: Final = 20  # of a table, from which on PostgreSQL gets them by COPY


class Statement:
    """A statement of the hot paths.

    `column_names` are the columns of an INSERT. With `binary`, PostgreSQL sends values in its binary format: printing
    and parsing numbers takes longer than summing them. `text_as_bytes` implies it and returns TEXT columns as UTF-8
    bytes: decoding and encoding them again takes as long as the rest of a long read.
    """

    def __init__(
        self,
        statement: Executable,
        column_names: Sequence[str] | None = None,
        *,
        binary: bool = False,
        text_as_bytes: bool = False,
    ) -> None:
        self.statement = statement
        self._column_names = column_names
        self._rows = RowFormat(binary or text_as_bytes, text_as_bytes)
        self._compiled: dict[tuple[str, str, str | None, str], CompiledStatement] = {}

    def execute(self, connection: Connection, parameters: Parameters) -> int:
        """Execute it; returns the number of rows it matched."""
        executor = executor_for(connection)
        compiled = self.compiled(connection.dialect, executor.paramstyle)
        count: int = executor.run(connection, compiled.text, compiled.bind(parameters))
        return count

    def execute_many(self, connection: Connection, rows: Sequence[Parameters]) -> None:
        """Execute it once for each of several sets of parameters, which all have the same names."""
        executor = executor_for(connection)
        compiled = self.compiled(connection.dialect, executor.paramstyle)
        executor.run(connection, compiled.text, compiled.bind_many(rows), many=True)

    def fetch_all(self, connection: Connection, parameters: Parameters) -> Sequence[Row]:
        """Its rows as the driver returns them; a `RowReader` knows their types."""
        executor = executor_for(connection)
        compiled = self.compiled(connection.dialect, executor.paramstyle)
        rows: Sequence[Row] = executor.run(connection, compiled.text, compiled.bind(parameters), self._rows)
        return rows

    def compiled(self, dialect: Dialect, paramstyle: str | None = None) -> CompiledStatement:
        """The statement for a dialect; compiled once. Servers quote names in two ways."""
        key = (dialect.name, dialect.driver, paramstyle, dialect.identifier_preparer.initial_quote)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = CompiledStatement(self.statement, dialect, self._column_names, paramstyle)
        return compiled


class RowsStatement(Statement):
    """A statement whose parameters are the values of one or several rows, and some that these share.

    `sources`: parameter -> the number of its row, and the key in that. What a row does not have is NULL.
    """

    def __init__(self, statement: Executable, sources: Sources) -> None:
        super().__init__(statement)
        self._sources = sources
        self._count = len({number for number, _ in sources.values()})

    def arguments(
        self, compiled: CompiledStatement, shared: Parameters, rows: Sequence[Parameters]
    ) -> tuple[Any, bool]:
        """The arguments for these rows, and whether they are several sets: one for each row."""
        if len(rows) == self._count:
            return compiled.bind_rows(self._sources, shared, rows), False
        return [compiled.bind_rows(self._sources, shared, (row,)) for row in rows], True

    def fetch_rows(self, connection: Connection, shared: Parameters, rows: Sequence[Parameters]) -> Sequence[Row]:
        """Execute it for these rows, and return its own."""
        executor = executor_for(connection)
        compiled = self.compiled(connection.dialect, executor.paramstyle)
        values = compiled.bind_rows(self._sources, shared, rows)
        found: Sequence[Row] = executor.run(connection, compiled.text, values, self._rows)
        return found


def execute_rows(
    connection: Connection, shared: Parameters, writes: Iterable[tuple[RowsStatement, Sequence[Parameters]]]
) -> None:
    """Execute statements for rows: each once for all that it takes, or once for each of the rows that it is given."""
    executor, dialect = executor_for(connection), connection.dialect
    for statement, rows in writes:
        compiled = statement.compiled(dialect, executor.paramstyle)
        arguments, many = statement.arguments(compiled, shared, rows)
        executor.run(connection, compiled.text, arguments, many=many)


# INSERTs of whole rows


@cache
def insert_statement(table: Table) -> Statement:
    """An INSERT of whole rows."""
    made = {
        column: expression(*(bindparam(name, type_=BigInteger) for name in parameters))
        for column, (expression, parameters) in _made_columns(table)
    }
    statement = insert(table).values(made) if made else insert(table)
    return Statement(statement.inline(), [column.name for column in written_columns(table)])


def _made_columns(table: Table) -> list[tuple[Column[Any], Any]]:
    """The columns whose values the database makes: by which expression, and of which parameters."""
    return [(column, column.info[MADE_BY]) for column in table.columns if MADE_BY in column.info]


def insert_rows(connection: Connection, table_rows: TableRows) -> None:
    """Insert whole rows, each into its table; on PostgreSQL one statement writes related rows of several tables.

    Each statement is a round trip to the server, and writers of one conversation wait for each other that long. The
    other databases take no INSERT within a statement; SQLite has no round trip, either.
    """
    if backend_of(connection).writes_together and 1 < sum(len(rows) for _, rows in table_rows) <= MAX_ROWS:
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
            insert_many(connection, table, rows)


def insert_many(connection: Connection, table: Table, rows: Sequence[Parameters]) -> None:
    """Insert whole rows of one table."""
    copier, statement = copier_for(connection), insert_statement(table)
    if copier is None or len(rows) < COPY_ROWS or _made_columns(table):
        statement.execute_many(connection, rows)
        return
    compiled = statement.compiled(connection.dialect, copier.paramstyle)
    columns = ", ".join(map(connection.dialect.identifier_preparer.quote, compiled.names))
    copier.copy(connection, f"COPY {table.name} ({columns}) FROM STDIN", compiled.bind_many(rows))


@lru_cache(maxsize=256)
def _combined_insert(tables: tuple[Table, ...]) -> tuple[Statement, list[list[tuple[str, str]]]]:
    """A statement that inserts a row into each table, and the names of its parameters by row and column."""
    inserts, names = [], []
    for number, table in enumerate(tables):
        made = dict(_made_columns(table))
        plain = [column.name for column in written_columns(table) if column not in made]
        parameters = [name for _, used in made.values() for name in used]
        values: dict[Any, Any] = {name: bindparam(f"{name}_{number}") for name in plain}
        for column, (expression, used) in made.items():
            values[column.name] = expression(*(bindparam(f"{name}_{number}", type_=BigInteger) for name in used))
        inserts.append(insert(table).values(values).inline())
        names.append([(f"{name}_{number}", name) for name in (*plain, *parameters)])
    *others, last = inserts
    ctes = (other.cte(f"row_{number}") for number, other in enumerate(others))
    return Statement(last.add_cte(*ctes)), names
