"""How a statement reaches the driver, and how its rows come back.

* Most drivers are used through their own cursors.
* psycopg has a separate kind of cursor for numbered parameters. It looks for named ones in the text, which takes
  0.14 ms for an answer; there are 73, and it caches no text that has more than 50.
* Many rows of one table go to PostgreSQL by COPY, which takes half the time of as many INSERTs on either side.
* With listeners for the engine's events, logging of statements, or a cursor factory for psycopg (tracing), statements
  go through Core as usual, so that nothing is hidden.

The text of a statement for one dialect, and how its parameters are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import Column, Connection, Executable, Insert
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

from threadkeep.db import backends, hosts
from threadkeep.db.refusals import PSYCOPG, is_lost
from threadkeep.db.types import escaped_or_none, is_plain

T = TypeVar("T")
Row = tuple[Any, ...]

NUMBERED: Final = "numeric_dollar"  # SQLAlchemy's name for $1, $2 …
# The events of statements
_EVENTS: Final = ("before_cursor_execute", "after_cursor_execute", "before_execute", "after_execute")
_CURSORS: Final = "threadkeep_cursors"  # in what the pool knows of a connection
_KEPT_ROWS: Final = 100  # of the last result of a cursor, which it holds until the next one
_KEPT_BYTES: Final = 64 * 1024  # of their texts
_TEXT_OID: Final = 25  # PostgreSQL's number for the type TEXT


class RowFormat(NamedTuple):
    """In what form PostgreSQL sends rows (see `Statement`)."""

    binary: bool
    text_as_bytes: bool


def executor_for(
    connection: Connection,
) -> _CoreExecutor | _CursorExecutor | _PsycopgExecutor | _AsyncPsycopgExecutor:
    """How statements are executed on a connection."""
    if _is_observed(connection):
        return _CORE
    dialect = connection.dialect
    if dialect.driver not in PSYCOPG:
        return _DRIVER
    driver_connection: Any = connection.connection.driver_connection
    if driver_connection.cursor_factory not in (_psycopg().Cursor, _psycopg().AsyncCursor):
        return _CORE
    return _ASYNC_PSYCOPG if dialect.is_async else _PSYCOPG


def copier_for(connection: Connection) -> _PsycopgExecutor | _AsyncPsycopgExecutor | None:
    """How statements are executed on a connection, if that can copy rows."""
    executor = executor_for(connection)
    return executor if isinstance(executor, _PsycopgExecutor | _AsyncPsycopgExecutor) else None


def _is_observed(connection: Connection) -> bool:
    """Whether this connection has listeners for its statements, or logs them."""
    if getattr(connection, "_echo", True):
        return True
    if not getattr(connection, "_has_events", True) and not getattr(connection.engine, "_has_events", True):
        return False
    # An engine with an isolation level of its own listens to itself, too, but not to statements.
    return any(getattr(connection.dispatch, name) for name in _EVENTS)


class _CoreExecutor:
    """SQLAlchemy's own execution."""

    paramstyle: None = None  # how parameters are written; None: as SQLAlchemy writes them for the driver

    def run(
        self, connection: Connection, text: str, arguments: Any, rows: RowFormat | None = None, *, many: bool = False
    ) -> Any:
        """Execute a statement, with `many` once for each of several sets of parameters.

        Returns its rows as the driver returns them, without `rows` the number of rows it matched.
        """
        del many  # the arguments say it
        result: Any = connection.exec_driver_sql(text, arguments)
        if rows is None:
            return result.rowcount
        if not rows.text_as_bytes or connection.dialect.driver not in PSYCOPG:
            return [tuple(row) for row in result]
        texts = [column[1] == _TEXT_OID for column in result.cursor.description]
        return [
            tuple(
                value.encode() if is_text and value is not None else value
                for value, is_text in zip(row, texts, strict=True)
            )
            for row in result
        ]


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
            _refuse(connection, text, arguments, error)
            raise
        finally:
            cursor.close()


class _PsycopgExecutor:
    """psycopg's cursors for numbered parameters.

    Making a cursor takes a third of the client's time for a short statement, so a connection keeps its cursors. They
    keep their last result: one with many rows, or long texts, is closed.
    """

    paramstyle: str = NUMBERED

    def run(
        self, connection: Connection, text: str, arguments: Any, rows: RowFormat | None = None, *, many: bool = False
    ) -> Any:
        pooled: Any = connection.connection
        kept: dict[RowFormat | None, Any] = pooled.info.setdefault(_CURSORS, {})
        cursor = kept.pop(rows, None)
        if cursor is None or cursor.connection is not pooled.dbapi_connection:
            cursor = _psycopg().RawCursor(pooled.dbapi_connection)
            if rows is not None:
                _configure(cursor, rows)
        try:
            (cursor.executemany if many else cursor.execute)(text, arguments)
            result = cursor.rowcount if rows is None else cursor.fetchall()
        except BaseException as error:
            cursor.close()
            _refuse(connection, text, arguments, error)
            raise
        if many or cursor.rowcount > _KEPT_ROWS or (rows is not None and _text_bytes(result) > _KEPT_BYTES):
            cursor.close()
        else:
            kept[rows] = cursor
        return result

    def copy(self, connection: Connection, text: str, rows: Sequence[Row]) -> None:
        """Run a COPY … FROM STDIN of these rows."""
        driver_connection: Any = connection.connection.driver_connection
        try:
            with driver_connection.cursor() as cursor, cursor.copy(text) as copy:
                for row in rows:
                    copy.write_row(row)
        except BaseException as error:
            _refuse(connection, text, None, error)
            raise


def _text_bytes(rows: Sequence[Row]) -> int:
    """How long the texts of a result are, which may be megabytes in a single row."""
    return sum([len(value) for row in rows for value in row if isinstance(value, bytes | str)])


class _AsyncPsycopgExecutor:
    """psycopg's cursors for numbered parameters, on its asyncio connections."""

    paramstyle: str = NUMBERED

    def run(
        self, connection: Connection, text: str, arguments: Any, rows: RowFormat | None = None, *, many: bool = False
    ) -> Any:
        async def run(driver_connection: Any) -> Any:
            async with _psycopg().AsyncRawCursor(driver_connection) as cursor:
                if rows is not None:
                    _configure(cursor, rows)
                await (cursor.executemany if many else cursor.execute)(text, arguments)
                return cursor.rowcount if rows is None else await cursor.fetchall()

        adapted: Any = connection.connection.dbapi_connection  # awaits in the greenlet in which SQLAlchemy runs
        return _call(connection, text, arguments, partial(adapted.run_async, run))

    def copy(self, connection: Connection, text: str, rows: Sequence[Row]) -> None:
        """Run a COPY … FROM STDIN of these rows."""

        async def run(driver_connection: Any) -> None:
            async with driver_connection.cursor() as cursor, cursor.copy(text) as copy:
                for row in rows:
                    await copy.write_row(row)

        adapted: Any = connection.connection.dbapi_connection
        _call(connection, text, None, partial(adapted.run_async, run))


@cache
def _psycopg() -> Any:
    import psycopg  # noqa: PLC0415 - an optional driver

    return psycopg


_CORE: Final = _CoreExecutor()
_DRIVER: Final = _CursorExecutor()
_PSYCOPG: Final = _PsycopgExecutor()
_ASYNC_PSYCOPG: Final = _AsyncPsycopgExecutor()


def _configure(cursor: Any, rows: RowFormat) -> None:
    if rows.binary:
        cursor.format = _psycopg().pq.Format.BINARY
    if rows.text_as_bytes:
        cursor.adapters.register_loader("text", _psycopg().types.string.ByteaBinaryLoader)


def _call(connection: Connection, text: str, arguments: Any, call: Callable[[], T]) -> T:
    """Call the driver."""
    try:
        return call()
    except BaseException as error:
        _refuse(connection, text, arguments, error)
        raise


def _refuse(connection: Connection, text: str, arguments: Any, error: BaseException) -> None:
    """Raise an error of the driver as SQLAlchemy's; invalidate a connection that is lost, or in an unknown state."""
    dialect = connection.dialect
    if not isinstance(error, Exception):  # interrupted or cancelled
        # Statements of SQLite have ended; a database in memory would end with its connection.
        if backends.backend_of(connection).is_server:
            connection.invalidate(error)
        return
    driver_error: Any = dialect.loaded_dbapi.Error
    if not isinstance(error, driver_error):
        return
    if was_lost := is_lost(connection, error):
        hosts.invalidate_lost(connection, error)
    raise DBAPIError.instance(
        text, arguments, error, driver_error, hide_parameters=connection.engine.hide_parameters,
        connection_invalidated=was_lost, dialect=dialect,
    ) from error  # fmt: skip


Processor = Callable[[Any], Any]
Parameters = Mapping[str, Any]
Sources = Mapping[str, tuple[int, str]]  # parameter -> the number of its row, and the key in that

SHARED = -1  # stands for what rows share


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
        columns = [[row[name] for row in rows] for name in self.names]
        for index, processor in self._processors:
            if columns[index].count(None) < len(rows):
                columns[index] = list(map(processor, columns[index]))  # bind processors take None, too
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
