"""Statements of the hot paths: built by SQLAlchemy Core, compiled once for each dialect, run on the driver's cursor.

An execution through Core costs about 35 microseconds beside the database's own time, this way about 6 (measured on
SQLite; docs/performance.md). Parameters and results still pass the column types. Where somebody listens to an engine's
events (statement logging, tracing), the statement takes the usual way through Core, so that nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Column, Connection, Executable, Insert, Table, insert
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

from threadkeep.db.dialects import PSYCOPG

Processor = Callable[[Any], Any]
Parameters = Mapping[str, Any]
Row = tuple[Any, ...]


# What listeners to statements listen to
_EVENTS: Final = ("before_cursor_execute", "after_cursor_execute", "before_execute", "after_execute")


_TEXT_OID: Final = 25  # PostgreSQL's number for the type TEXT


class Plan:
    """A statement as one dialect wants it."""

    def __init__(self, statement: Executable, dialect: Dialect, names: Sequence[str] | None) -> None:
        compiled: Any = statement.compile(dialect=dialect, column_keys=names)  # type: ignore[attr-defined]
        if not isinstance(compiled, SQLCompiler):
            raise TypeError(f"{statement} is no statement")
        self.text = str(compiled)
        self.is_positional = compiled.positional
        order = compiled.positiontup if compiled.positional else list(compiled.binds)
        fixed = {} if isinstance(statement, Insert) else compiled.construct_params(_check=False)
        self.names = tuple(order or ())
        self._fixed = {name: value for name, value in fixed.items() if not compiled.binds[name].required}
        self._absent: dict[str, Any] = dict.fromkeys(self.names)  # what stands where nothing is given
        self._pick = _picker(self.names)
        processors = [compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect) for name in self.names]
        self.processors = [(place, found) for place, found in enumerate(processors) if found is not None]

    def arguments(self, parameters: Parameters) -> Any:
        """The parameters as the driver takes them."""
        given = {**self._fixed, **parameters} if self._fixed else parameters
        try:
            found = [*self._pick(given)]
        except KeyError:
            found = [*self._pick({**self._absent, **given})]
        for place, processor in self.processors:
            if (value := found[place]) is not None:
                found[place] = processor(value)
        return tuple(found) if self.is_positional else dict(zip(self.names, found, strict=True))

    def all_arguments(self, rows: Sequence[Parameters]) -> list[Any]:
        """The parameters of many rows, column by column, as the driver takes them."""
        columns = [[row[name] for row in rows] for name in self.names]
        for place, processor in self.processors:
            if columns[place].count(None) < len(rows):
                columns[place] = list(map(processor, columns[place]))  # bind processors take None, too
        found = zip(*columns, strict=True)
        return list(found) if self.is_positional else [dict(zip(self.names, row, strict=True)) for row in found]


def _picker(names: Sequence[str]) -> Callable[[Parameters], tuple[Any, ...]]:
    """Takes values by name, in order; `itemgetter` gives a tuple only for two names and more."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda parameters: tuple([parameters[name] for name in names])


class Prepared:
    """A statement for the hot paths.

    `names` are the columns of an INSERT. `is_binary`: PostgreSQL sends values as it has them; making text of a number
    and a number of the text takes longer than summing it up. `gives_bytes`: the same, and columns of the type TEXT come
    as bytes in UTF-8; making strings of them and bytes again takes as long as all the rest of a long read.
    """

    def __init__(
        self,
        statement: Executable,
        names: Sequence[str] | None = None,
        *,
        is_binary: bool = False,
        gives_bytes: bool = False,
    ) -> None:
        self.statement = statement
        self._names = names
        self._is_binary = is_binary or gives_bytes
        self._gives_bytes = gives_bytes
        self._plans: dict[tuple[str, str], Plan] = {}

    def execute(self, connection: Connection, parameters: Parameters) -> int:
        """Run it; returns how many rows it met."""
        plan = self._plan(connection.dialect)
        arguments = plan.arguments(parameters)
        if _is_watched(connection):
            return connection.exec_driver_sql(plan.text, arguments).rowcount
        cursor = connection.connection.cursor()
        try:
            _run(connection, plan.text, cursor.execute, arguments)
            return cursor.rowcount
        finally:
            cursor.close()

    def execute_many(self, connection: Connection, parameters: Sequence[Parameters]) -> None:
        """Run it once for each of several parameters; each of them names all."""
        plan = self._plan(connection.dialect)
        arguments = plan.all_arguments(parameters)
        if _is_watched(connection):
            connection.exec_driver_sql(plan.text, arguments)
            return
        cursor = connection.connection.cursor()
        try:
            _run(connection, plan.text, cursor.executemany, arguments)
        finally:
            cursor.close()

    def rows(self, connection: Connection, parameters: Parameters) -> Sequence[Row]:
        """Its rows as the driver gives them; a `Reader` knows their types."""
        plan = self._plan(connection.dialect)
        arguments = plan.arguments(parameters)
        is_binary = self._is_binary and connection.dialect.driver in PSYCOPG
        gives_bytes = self._gives_bytes and is_binary
        if _is_watched(connection):
            result = connection.exec_driver_sql(plan.text, arguments)
            texts = _texts_in(result.cursor) if gives_bytes else ()
            return [_with_bytes(row, texts) if texts else tuple(row) for row in result]
        if is_binary and connection.dialect.is_async:
            return _rows_awaited(connection, plan.text, arguments, gives_bytes=gives_bytes)
        cursor: Any = connection.connection.cursor(**({"binary": True} if is_binary else {}))
        try:
            if gives_bytes:
                cursor.adapters.register_loader("text", _bytes_loader())
            _run(connection, plan.text, cursor.execute, arguments)
            found: Sequence[Row] = cursor.fetchall()
            return found
        finally:
            cursor.close()

    def _plan(self, dialect: Dialect) -> Plan:
        key = (dialect.name, dialect.driver)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = Plan(self.statement, dialect, self._names)
        return plan


def _rows_awaited(connection: Connection, text: str, arguments: Any, *, gives_bytes: bool) -> Sequence[Row]:
    """The rows of a statement whose values come in binary form, from psycopg's asyncio connection."""

    async def read(driver: Any) -> Sequence[Row]:
        async with driver.cursor(binary=True) as cursor:
            if gives_bytes:
                cursor.adapters.register_loader("text", _bytes_loader())
            await cursor.execute(text, arguments)
            found: Sequence[Row] = await cursor.fetchall()
            return found

    adapted: Any = connection.connection.dbapi_connection
    found: list[Sequence[Row]] = []
    _run(connection, text, lambda *_: found.append(adapted.run_async(read)), arguments)
    return found[0]


@cache
def _bytes_loader() -> Any:
    from psycopg.types.string import ByteaBinaryLoader  # noqa: PLC0415 - an optional driver

    return ByteaBinaryLoader


def _texts_in(cursor: Any) -> list[int]:
    """The places of columns of the type TEXT."""
    return [place for place, column in enumerate(cursor.description) if column[1] == _TEXT_OID]


def _with_bytes(row: Any, texts: Sequence[int]) -> Row:
    found = list(row)
    for place in texts:
        if found[place] is not None:
            found[place] = found[place].encode()
    return tuple(found)


def insertion(table: Table) -> Prepared:
    """An INSERT of whole rows."""
    return Prepared(insert(table), [column.name for column in table.columns])


class Reader:
    """Reads rows of known columns: makes records of them."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._columns = tuple(columns)
        self._places = {column.name: place for place, column in enumerate(columns)}
        self._processors: dict[tuple[str, str], list[Processor | None]] = {}

    def place(self, name: str) -> int:
        """Where a column stands in a row."""
        return self._places[name]

    def records(self, dialect: Dialect, rows: Sequence[Row]) -> list[Record]:
        """The rows as records."""
        processors = self._of(dialect)
        return [Record(row, self._places, processors) for row in rows]

    def values(self, dialect: Dialect, row: Row) -> list[Any]:
        """All values of a row."""
        return [
            value if processor is None or value is None else processor(value)
            for value, processor in zip(row, self._of(dialect), strict=True)
        ]

    def _of(self, dialect: Dialect) -> list[Processor | None]:
        key = (dialect.name, dialect.driver)
        processors = self._processors.get(key)
        if processors is None:
            processors = self._processors[key] = [
                column.type.dialect_impl(dialect).result_processor(dialect, None) for column in self._columns
            ]
        return processors


class Record:
    """A row whose values pass their column types when they are asked for."""

    __slots__ = ("_places", "_processors", "_row")

    def __init__(self, row: Row, places: Mapping[str, int], processors: Sequence[Processor | None]) -> None:
        self._row = row
        self._places = places
        self._processors = processors

    def __getattr__(self, name: str) -> Any:
        try:
            place = self._places[name]
        except KeyError:
            raise AttributeError(name) from None
        value, processor = self._row[place], self._processors[place]
        return value if processor is None or value is None else processor(value)


def _is_watched(connection: Connection) -> bool:
    """Whether somebody listens to the statements of this connection, or logs them."""
    if getattr(connection, "_echo", True):
        return True
    if not getattr(connection, "_has_events", True) and not getattr(connection.engine, "_has_events", True):
        return False
    # An engine with an isolation level of its own listens to itself, too, but not to statements.
    return any(getattr(connection.dispatch, name) for name in _EVENTS)


def _run(connection: Connection, text: str, call: Callable[..., Any], arguments: Any) -> None:
    """Call the driver; its errors become SQLAlchemy's, and a lost connection is given up."""
    try:
        call(text, arguments)
    except Exception as error:
        dialect = connection.dialect
        driver_error: Any = dialect.loaded_dbapi.Error
        if not isinstance(error, driver_error):
            raise
        pooled = connection.connection
        is_lost = dialect.is_disconnect(error, pooled.dbapi_connection, None)
        if is_lost:
            connection.invalidate(error)
            connection.engine.dispose()  # after a restart of the server the others are lost, too
        raise DBAPIError.instance(
            text, arguments, error, driver_error, hide_parameters=connection.engine.hide_parameters,
            connection_invalidated=is_lost, dialect=dialect,
        ) from error  # fmt: skip
    except BaseException as error:  # interrupted or cancelled: nobody knows what is still on the wire
        connection.invalidate(error)
        raise
