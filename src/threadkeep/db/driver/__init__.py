"""Statements of the hot paths: built with SQLAlchemy Core, compiled once per dialect, executed on the driver's cursor.

An execution through Core costs about 35 microseconds on top of the database's own time, this one about 6 (measured on
SQLite). Parameters and results still pass through the column types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Column, Connection, Executable, Insert
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

from threadkeep.db.driver import executors
from threadkeep.db.driver.executors import RowFormat
from threadkeep.db.refusals import PSYCOPG
from threadkeep.db.types import escaped_or_none, is_plain

Row = tuple[Any, ...]
Processor = Callable[[Any], Any]
Parameters = Mapping[str, Any]
Sources = Mapping[str, tuple[int, str]]  # parameter -> the number of its row, and the key in that

SHARED: Final = -1  # stands for what rows share
# The events of statements
_EVENTS: Final = ("before_cursor_execute", "after_cursor_execute", "before_execute", "after_execute")


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


# ---------------------------------------------------------------------------------------------------------------------
# How a statement reaches the driver


class _CursorExecutor:
    """The driver's cursors."""

    paramstyle: str | None = None

    def run(
        self, connection: Connection, text: str, arguments: Any, rows: RowFormat | None = None, *, many: bool = False
    ) -> Any:
        pooled: Any = connection.connection
        cursor = pooled.dbapi_connection.cursor()
        try:
            (cursor.executemany if many else cursor.execute)(text, arguments)
            return cursor.rowcount if rows is None else cursor.fetchall()
        except BaseException as error:
            executors.refuse(connection, text, arguments, error)
            raise
        finally:
            cursor.close()


_CORE: Final = executors.CoreExecutor()
_DRIVER: Final = _CursorExecutor()
_PSYCOPG: Final = executors.PsycopgExecutor()
_ASYNC_PSYCOPG: Final = executors.AsyncPsycopgExecutor()


def executor_for(
    connection: Connection,
) -> executors.CoreExecutor | _CursorExecutor | executors.PsycopgExecutor | executors.AsyncPsycopgExecutor:
    """How statements are executed on a connection."""
    if _is_observed(connection):
        return _CORE
    dialect = connection.dialect
    if dialect.driver not in PSYCOPG:
        return _DRIVER
    driver_connection: Any = connection.connection.driver_connection
    if driver_connection.cursor_factory not in (executors.load_psycopg().Cursor, executors.load_psycopg().AsyncCursor):
        return _CORE
    return _ASYNC_PSYCOPG if dialect.is_async else _PSYCOPG


def _is_observed(connection: Connection) -> bool:
    """Whether this connection has listeners for its statements, or logs them."""
    if getattr(connection, "_echo", True):
        return True
    if not getattr(connection, "_has_events", True) and not getattr(connection.engine, "_has_events", True):
        return False
    # An engine with an isolation level of its own listens to itself, too, but not to statements.
    return any(getattr(connection.dispatch, name) for name in _EVENTS)


# ---------------------------------------------------------------------------------------------------------------------
# Its text for one dialect, and how its parameters are bound


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
        texts = [index for index, processor in self._processors if processor is escaped_or_none]
        self._pick_texts = _picker(texts)
        self._others = [pair for pair in self._processors if pair[0] not in texts]
        self._layout: _Layout | None = None

    def bind(self, parameters: Parameters) -> Any:
        """The parameters as the driver takes them; a missing one is NULL."""
        parameters = {**self._constants, **parameters} if self._constants else parameters
        try:
            values = self._pick(parameters)
        except KeyError:
            values = self._pick({**self._nulls, **parameters})
        return self._processed(values)

    def bind_rows(self, sources: Sources, shared: Parameters, rows: Sequence[Parameters]) -> Any:
        """The same of several rows and of what these share; `sources` as in `RowsStatement`."""
        if self._layout is None:
            self._layout = _Layout([sources.get(name, (SHARED, name)) for name in self.names], self._constants)
        return self._processed(self._layout.values(shared, rows))

    def bind_many(self, rows: Sequence[Parameters]) -> list[Any]:
        """The parameters of many rows as the driver takes them, processed column by column; each row has them all."""
        columns: list[Sequence[Any]] = [*zip(*map(self._pick, rows), strict=True)] if rows else [()] * len(self.names)
        for index, processor in self._processors:
            column = columns[index]
            is_as_it_is = processor is escaped_or_none and is_plain("".join(filter(None, column)))
            if not is_as_it_is and column.count(None) < len(rows):
                columns[index] = list(map(processor, column))  # bind processors take None, too
        values = zip(*columns, strict=True)
        return list(values) if self.is_positional else [dict(zip(self.names, row, strict=True)) for row in values]

    def _processed(self, values: Sequence[Any]) -> Any:
        """Values as the driver takes them. Hardly any text has to be escaped, so they are looked at together."""
        processors = self._others if is_plain("".join(filter(None, self._pick_texts(values)))) else self._processors
        if processors:
            values = list(values)
            for index, processor in processors:
                if (value := values[index]) is not None:
                    values[index] = processor(value)
        return tuple(values) if self.is_positional else dict(zip(self.names, values, strict=True))


class _Layout:
    """Where a statement finds its values: in some rows, and in what these share."""

    def __init__(self, places: Sequence[tuple[int, str]], constants: Mapping[str, Any]) -> None:
        self._constants = constants
        numbers = sorted({number for number, _ in places} - {SHARED})
        keys = {number: [key for one, key in places if one == number] for number in (SHARED, *numbers)}
        self._shared = _picker(keys[SHARED])
        # of each row: NULLs for what it does not have, and what picks its values
        self._rows = [(dict.fromkeys(keys[number]), _picker(keys[number])) for number in numbers]
        picked = [(number, key) for number, some in keys.items() for key in some]
        self._order = _picker([picked.index(place) for place in places])

    def values(self, shared: Parameters, rows: Sequence[Parameters]) -> tuple[Any, ...]:
        """The values in the order of the parameters. All of this is done in calls of C."""
        picked = [*self._shared({**self._constants, **shared})]
        for (nulls, pick), row in zip(self._rows, rows, strict=True):
            picked += pick({**nulls, **row})
        return self._order(picked)


def _picker(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes values by name or index, in order; `itemgetter` returns a tuple only for two keys or more."""
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda values: tuple([values[key] for key in keys])


# ---------------------------------------------------------------------------------------------------------------------
# Reading the rows of statements that went around SQLAlchemy's results: their values pass through the column types


class LazyRow(tuple[Any, ...]):
    """A row whose columns are attributes; a value passes through its column type when it is accessed."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class RowReader:
    """Reads rows of known columns; what a row has behind these is left alone."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._columns = tuple(columns)
        self._indexes = {column.name: index for index, column in enumerate(columns)}
        self._forms: dict[tuple[str, str], _RowForm] = {}

    def index(self, name: str) -> int:
        """The index of a column in a row."""
        return self._indexes[name]

    def read(self, connection: Connection, rows: Sequence[Row]) -> list[LazyRow]:
        """The rows, with their columns as attributes."""
        return list(map(self._form(connection.dialect).kind, rows))

    @cached_property
    def _written(self) -> type[LazyRow]:
        return _RowForm(list(self._indexes), [None] * len(self._indexes)).kind

    def written(self, values: Mapping[str, Any]) -> LazyRow:
        """A row that was just written, of its values by column name: it need not be read back."""
        return self._written(values[name] for name in self._indexes)

    def mappings(self, connection: Connection, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The rows as dictionaries, in less time than Core takes for its own."""
        names, processors = tuple(self._indexes), self._form(connection.dialect).processors
        found = [dict(zip(names, row, strict=True)) for row in rows]
        for row in found:
            for index, processor in processors:
                if (value := row[names[index]]) is not None:
                    row[names[index]] = processor(value)
        return found

    def values(self, connection: Connection, row: Row) -> list[Any]:
        """All values of a row."""
        values = list(row)
        for index, processor in self._form(connection.dialect).processors:
            if (value := values[index]) is not None:
                values[index] = processor(value)
        return values

    def _form(self, dialect: Dialect) -> _RowForm:
        key = (dialect.name, dialect.driver)
        form = self._forms.get(key)
        if form is None:
            types = [column.type.dialect_impl(dialect) for column in self._columns]
            form = self._forms[key] = _RowForm(
                list(self._indexes), [kind.result_processor(dialect, None) for kind in types]
            )
        return form


class _RowForm:
    """How rows come from a driver: what the values of some columns pass through, and the class of the rows."""

    def __init__(self, names: Sequence[str], processors: Sequence[Processor | None]) -> None:
        self.processors = [(index, processor) for index, processor in enumerate(processors) if processor is not None]
        columns = zip(names, map(_attribute, range(len(names)), processors), strict=True)
        self.kind: type[LazyRow] = type("Row", (LazyRow,), {"__slots__": (), **dict(columns)})


def _attribute(index: int, processor: Processor | None) -> property:
    if processor is None:
        return property(itemgetter(index))

    def processed(row: Row) -> Any:
        value = row[index]
        return None if value is None else processor(value)

    return property(processed)
