"""Statements of the hot paths: built with SQLAlchemy Core, compiled once per dialect, executed on the driver's cursor.

An execution through Core costs about 35 microseconds on top of the database's own time, this one about 6 (measured on
SQLite; docs/performance.md). Parameters and results still pass through the column types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Executable, Insert, Table, bindparam, insert
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

from threadkeep.db.base import MADE_BY, written_columns
from threadkeep.db.driver.executors import Row as Row
from threadkeep.db.driver.executors import RowFormat, copier_for, executor_for

Processor = Callable[[Any], Any]
Parameters = Mapping[str, Any]
# Rows by table, in the order in which they are written
TableRows = Sequence[tuple[Table, Sequence[Mapping[str, Any]]]]
MAX_ROWS: Final = 9  # in one statement: one is cached for each combination of tables
COPY_ROWS: Final = 20  # of a table, from which on PostgreSQL gets them by COPY


class CompiledStatement:
    """The SQL text of a statement for one dialect, and how its parameters are bound.

    `paramstyle` replaces the dialect's own style of parameters.
    """

    def __init__(
        self,
        statement: Executable,
        dialect: Dialect,
        column_names: Sequence[str] | None = None,
        paramstyle: str | None = None,
    ) -> None:
        dialect_class: Any = type(dialect)
        target = dialect if paramstyle is None else dialect_class(paramstyle=paramstyle)
        compiled: Any = statement.compile(dialect=target, column_keys=column_names)  # type: ignore[attr-defined]
        if not isinstance(compiled, SQLCompiler):
            raise TypeError(f"{statement} is not a statement with parameters")
        self.text = str(compiled)
        self.is_positional = compiled.positional
        order = compiled.positiontup if compiled.positional else list(dict.fromkeys(compiled.bind_names.values()))
        constants = {} if isinstance(statement, Insert) else compiled.construct_params(_check=False)
        self.names = tuple(order or ())
        types = {name: compiled.binds[name].type.dialect_impl(dialect) for name in self.names}
        processors = {name: kind.bind_processor(dialect) for name, kind in types.items()}
        self._constants = {
            name: value if (processor := processors.get(name)) is None else processor(value)
            for name, value in constants.items()
            if not compiled.binds[name].required
        }
        self._nulls: dict[str, Any] = dict.fromkeys(self.names)  # for parameters without a value
        self._pick = _picker(self.names)
        self._processors = [
            (index, processor)
            for index, name in enumerate(self.names)
            if (processor := processors[name]) is not None and name not in self._constants
        ]
        # where `bind_rows` finds each value, and what it passes through
        self._places: list[tuple[int, str, Processor | None]] | None = None

    def bind(self, parameters: Parameters) -> Any:
        """The parameters as the driver takes them; a missing one is NULL."""
        parameters = {**self._constants, **parameters} if self._constants else parameters
        try:
            values = self._pick(parameters)
        except KeyError:
            values = self._pick({**self._nulls, **parameters})
        return self._processed(values)

    def _processed(self, values: Sequence[Any]) -> Any:
        if self._processors:
            values = list(values)
            for index, processor in self._processors:
                if (value := values[index]) is not None:
                    values[index] = processor(value)
        return tuple(values) if self.is_positional else dict(zip(self.names, values, strict=True))

    def bind_rows(self, sources: Mapping[str, tuple[int, str]], shared: Parameters, rows: Sequence[Parameters]) -> Any:
        """The same of several rows and of what these share; `sources` as in `RowsStatement`."""
        if self._places is None:
            processors = {self.names[index]: processor for index, processor in self._processors}
            self._places = [(*sources.get(name, (-1, name)), processors.get(name)) for name in self.names]
        get = [row.get for row in (*rows, {**self._constants, **shared})]  # the last one is number -1
        values = [
            get[number](key) if processor is None else processor(get[number](key))  # bind processors take None, too
            for number, key, processor in self._places
        ]
        return tuple(values) if self.is_positional else dict(zip(self.names, values, strict=True))

    def bind_many(self, rows: Sequence[Parameters]) -> list[Any]:
        """The parameters of many rows as the driver takes them, processed column by column; each row has them all."""
        columns = [[row[name] for row in rows] for name in self.names]
        for index, processor in self._processors:
            if columns[index].count(None) < len(rows):
                columns[index] = list(map(processor, columns[index]))  # bind processors take None, too
        values = zip(*columns, strict=True)
        return list(values) if self.is_positional else [dict(zip(self.names, row, strict=True)) for row in values]


def _picker(names: Sequence[str]) -> Callable[[Parameters], tuple[Any, ...]]:
    """Takes values by name, in order; `itemgetter` returns a tuple only for two names or more."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda parameters: tuple([parameters[name] for name in names])


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
        self._compiled: dict[tuple[str, str, str | None], CompiledStatement] = {}

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
        """The statement for a dialect; compiled once."""
        key = (dialect.name, dialect.driver, paramstyle)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = CompiledStatement(self.statement, dialect, self._column_names, paramstyle)
        return compiled


class RowsStatement(Statement):
    """A statement whose parameters are the values of one or several rows, and some that these share.

    `sources`: parameter -> the number of its row, and the key in that. What a row does not have is NULL.
    """

    def __init__(self, statement: Executable, sources: Mapping[str, tuple[int, str]]) -> None:
        super().__init__(statement)
        self._sources = sources

    def execute_rows(self, connection: Connection, shared: Parameters, rows: Sequence[Parameters]) -> None:
        """Execute it for these rows."""
        executor = executor_for(connection)
        compiled = self.compiled(connection.dialect, executor.paramstyle)
        executor.run(connection, compiled.text, compiled.bind_rows(self._sources, shared, rows))

    def execute_each(self, connection: Connection, shared: Parameters, rows: Sequence[Parameters]) -> None:
        """Execute it once for each of these rows."""
        executor = executor_for(connection)
        compiled = self.compiled(connection.dialect, executor.paramstyle)
        values = [compiled.bind_rows(self._sources, shared, (row,)) for row in rows]
        executor.run(connection, compiled.text, values, many=True)

    def fetch_rows(self, connection: Connection, shared: Parameters, rows: Sequence[Parameters]) -> Sequence[Row]:
        """Execute it for these rows, and return its own."""
        executor = executor_for(connection)
        compiled = self.compiled(connection.dialect, executor.paramstyle)
        values = compiled.bind_rows(self._sources, shared, rows)
        found: Sequence[Row] = executor.run(connection, compiled.text, values, self._rows)
        return found


class RowReader:
    """Reads rows of known columns."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._columns = tuple(columns)
        self._indexes = {column.name: index for index, column in enumerate(columns)}
        self._processors: dict[tuple[str, str], list[Processor | None]] = {}

    def index(self, name: str) -> int:
        """The index of a column in a row."""
        return self._indexes[name]

    def read(self, dialect: Dialect, rows: Sequence[Row]) -> list[LazyRow]:
        """The rows, with their columns as attributes."""
        processors = self._processors_of(dialect)
        return [LazyRow(row, self._indexes, processors) for row in rows]

    def mappings(self, dialect: Dialect, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The rows as dictionaries, in less time than Core takes for its own."""
        names = tuple(self._indexes)
        processors = [
            (name, processor)
            for name, processor in zip(names, self._processors_of(dialect), strict=True)
            if processor is not None
        ]
        found = [dict(zip(names, row, strict=True)) for row in rows]
        for row in found:
            for name, processor in processors:
                if (value := row[name]) is not None:
                    row[name] = processor(value)
        return found

    def values(self, dialect: Dialect, row: Row) -> list[Any]:
        """All values of a row."""
        return [
            value if processor is None or value is None else processor(value)
            for value, processor in zip(row, self._processors_of(dialect), strict=True)
        ]

    def _processors_of(self, dialect: Dialect) -> list[Processor | None]:
        key = (dialect.name, dialect.driver)
        processors = self._processors.get(key)
        if processors is None:
            processors = self._processors[key] = [
                column.type.dialect_impl(dialect).result_processor(dialect, None) for column in self._columns
            ]
        return processors


class LazyRow:
    """A row whose values pass through their column types when they are accessed."""

    __slots__ = ("_indexes", "_processors", "_row")

    def __init__(self, row: Row, indexes: Mapping[str, int], processors: Sequence[Processor | None]) -> None:
        self._row = row
        self._indexes = indexes
        self._processors = processors

    def __getattr__(self, name: str) -> Any:
        try:
            index = self._indexes[name]
        except KeyError:
            raise AttributeError(name) from None
        value, processor = self._row[index], self._processors[index]
        return value if processor is None or value is None else processor(value)


# INSERTs of whole rows


@cache
def insert_statement(table: Table) -> Statement:
    """An INSERT of whole rows."""
    made = {
        column: expression(*(bindparam(name, type_=BigInteger) for name in parameters))
        for column, (expression, parameters) in _made_columns(table)
    }
    return Statement(
        insert(table).values(made) if made else insert(table), [column.name for column in written_columns(table)]
    )


def _made_columns(table: Table) -> list[tuple[Column[Any], Any]]:
    """The columns whose values the database makes: by which expression, and of which parameters."""
    return [(column, column.info[MADE_BY]) for column in table.columns if MADE_BY in column.info]


def insert_rows(connection: Connection, table_rows: TableRows) -> None:
    """Insert whole rows, each into its table; on PostgreSQL one statement writes related rows of several tables.

    Each statement is a round trip to the server, and writers of one conversation wait for each other that long. The
    other databases take no INSERT within a statement; SQLite has no round trip, either.
    """
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
        inserts.append(insert(table).values(values))
        names.append([(f"{name}_{number}", name) for name in (*plain, *parameters)])
    *others, last = inserts
    ctes = (other.cte(f"row_{number}") for number, other in enumerate(others))
    return Statement(last.add_cte(*ctes)), names
