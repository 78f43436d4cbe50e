"""Statements of the hot paths: built by SQLAlchemy Core, compiled once for each dialect, run on the driver's cursor.

An execution through Core costs about 35 microseconds beside the database's own time, this way about 6 (measured on
SQLite; docs/performance.md). Parameters and results still pass the column types. Where somebody listens to an engine's
events (statement logging, tracing), the statement takes the usual way through Core, so that nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Column, Connection, Executable, Insert, Table, insert
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

Processor = Callable[[Any], Any]
Parameters = Mapping[str, Any]
Row = tuple[Any, ...]


# What listeners to statements listen to
_EVENTS: Final = ("before_cursor_execute", "after_cursor_execute", "before_execute", "after_execute")


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
        self.binds = [
            (name, compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect), fixed.get(name))
            for name in order or ()
        ]

    def arguments(self, parameters: Parameters) -> Any:
        """The parameters as the driver takes them."""
        found = [
            value if processor is None or value is None else processor(value)
            for name, processor, fixed in self.binds
            for value in (parameters.get(name, fixed),)
        ]
        if self.is_positional:
            return tuple(found)
        return {bind[0]: value for bind, value in zip(self.binds, found, strict=True)}


class Prepared:
    """A statement for the hot paths; `names` are the columns of an INSERT."""

    def __init__(self, statement: Executable, names: Sequence[str] | None = None) -> None:
        self.statement = statement
        self._names = names
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
        """Run it once for each of several parameters."""
        plan = self._plan(connection.dialect)
        arguments = [plan.arguments(one) for one in parameters]
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
        if _is_watched(connection):
            return [tuple(row) for row in connection.exec_driver_sql(plan.text, arguments)]
        cursor = connection.connection.cursor()
        try:
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
        key = (dialect.name, dialect.driver)
        processors = self._processors.get(key)
        if processors is None:
            processors = self._processors[key] = [
                column.type.dialect_impl(dialect).result_processor(dialect, None) for column in self._columns
            ]
        return [Record(row, self._places, processors) for row in rows]


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
