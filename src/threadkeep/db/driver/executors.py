"""How a statement reaches the driver, and how its rows come back.

* Most drivers are used through their own cursors.
* psycopg has a separate kind of cursor for numbered parameters. It looks for named ones in the text, which takes
  0.14 ms for an answer; there are 73, and it caches no text that has more than 50.
* Where somebody listens to the engine's events, logs statements, or has set a cursor factory for psycopg (tracing),
  statements go through Core as usual, so that nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db.dialects import PSYCOPG

T = TypeVar("T")
Row = tuple[Any, ...]

NUMBERED: Final = "numeric_dollar"  # SQLAlchemy's name for $1, $2 …
# The events of statements
_EVENTS: Final = ("before_cursor_execute", "after_cursor_execute", "before_execute", "after_execute")
_TEXT_OID: Final = 25  # PostgreSQL's number for the type TEXT


class Executor(Protocol):
    """Executes statements."""

    @property
    def paramstyle(self) -> str | None:
        """How parameters are written; None: as SQLAlchemy writes them for the driver."""

    def execute(self, connection: Connection, text: str, arguments: Any) -> int:
        """Execute a statement; returns the number of rows it matched."""

    def execute_many(self, connection: Connection, text: str, arguments: Sequence[Any]) -> None:
        """Execute a statement once for each of several sets of parameters."""

    def fetch_all(
        self, connection: Connection, text: str, arguments: Any, *, binary: bool, text_as_bytes: bool
    ) -> Sequence[Row]:
        """The rows of a statement as the driver returns them; the options are PostgreSQL's (see `Statement`)."""


def executor_for(connection: Connection) -> Executor:
    """How statements are executed on a connection."""
    if _is_observed(connection):
        return _CORE
    dialect = connection.dialect
    if dialect.driver not in PSYCOPG:
        return _DRIVER
    driver_connection: Any = connection.connection.driver_connection
    if driver_connection.cursor_factory not in _default_cursor_factories():
        return _CORE
    return _ASYNC_PSYCOPG if dialect.is_async else _PSYCOPG


def _is_observed(connection: Connection) -> bool:
    """Whether somebody listens to the statements of this connection, or logs them."""
    if getattr(connection, "_echo", True):
        return True
    if not getattr(connection, "_has_events", True) and not getattr(connection.engine, "_has_events", True):
        return False
    # An engine with an isolation level of its own listens to itself, too, but not to statements.
    return any(getattr(connection.dispatch, name) for name in _EVENTS)


class _CoreExecutor:
    """SQLAlchemy's own execution."""

    paramstyle: None = None

    def execute(self, connection: Connection, text: str, arguments: Any) -> int:
        return connection.exec_driver_sql(text, arguments).rowcount

    def execute_many(self, connection: Connection, text: str, arguments: Sequence[Any]) -> None:
        connection.exec_driver_sql(text, arguments)

    def fetch_all(
        self, connection: Connection, text: str, arguments: Any, *, binary: bool, text_as_bytes: bool
    ) -> Sequence[Row]:
        del binary  # the values are the same
        result: Any = connection.exec_driver_sql(text, arguments)
        if not text_as_bytes or connection.dialect.driver not in PSYCOPG:
            return [tuple(row) for row in result]
        indexes = [index for index, column in enumerate(result.cursor.description) if column[1] == _TEXT_OID]
        return [_encode(row, indexes) for row in result]


def _encode(row: Any, indexes: Sequence[int]) -> Row:
    values = list(row)
    for index in indexes:
        if values[index] is not None:
            values[index] = values[index].encode()
    return tuple(values)


class _CursorExecutor:
    """The driver's cursors; `open_cursor` makes one on a connection."""

    def __init__(self, open_cursor: Callable[[Connection], Any], paramstyle: str | None = None) -> None:
        self.paramstyle = paramstyle
        self._open_cursor = open_cursor

    def execute(self, connection: Connection, text: str, arguments: Any) -> int:
        cursor = self._open_cursor(connection)
        try:
            _call(connection, text, arguments, partial(cursor.execute, text, arguments))
            count: int = cursor.rowcount
            return count
        finally:
            cursor.close()

    def execute_many(self, connection: Connection, text: str, arguments: Sequence[Any]) -> None:
        cursor = self._open_cursor(connection)
        try:
            _call(connection, text, arguments, partial(cursor.executemany, text, arguments))
        finally:
            cursor.close()

    def fetch_all(
        self, connection: Connection, text: str, arguments: Any, *, binary: bool, text_as_bytes: bool
    ) -> Sequence[Row]:
        cursor = self._open_cursor(connection)
        try:
            if self.paramstyle == NUMBERED:
                _configure(cursor, binary=binary, text_as_bytes=text_as_bytes)
            _call(connection, text, arguments, partial(cursor.execute, text, arguments))
            rows: Sequence[Row] = cursor.fetchall()
            return rows
        finally:
            cursor.close()


def _driver_cursor(connection: Connection) -> Any:
    return connection.connection.cursor()


def _psycopg_cursor(connection: Connection) -> Any:
    return _psycopg().RawCursor(connection.connection.dbapi_connection)


class _AsyncPsycopgExecutor:
    """psycopg's cursors for numbered parameters, on its asyncio connections."""

    paramstyle: str = NUMBERED

    def execute(self, connection: Connection, text: str, arguments: Any) -> int:
        async def run(cursor: Any) -> int:
            await cursor.execute(text, arguments)
            count: int = cursor.rowcount
            return count

        return _await(connection, text, arguments, run)

    def execute_many(self, connection: Connection, text: str, arguments: Sequence[Any]) -> None:
        async def run(cursor: Any) -> None:
            await cursor.executemany(text, arguments)

        _await(connection, text, arguments, run)

    def fetch_all(
        self, connection: Connection, text: str, arguments: Any, *, binary: bool, text_as_bytes: bool
    ) -> Sequence[Row]:
        async def run(cursor: Any) -> Sequence[Row]:
            _configure(cursor, binary=binary, text_as_bytes=text_as_bytes)
            await cursor.execute(text, arguments)
            rows: Sequence[Row] = await cursor.fetchall()
            return rows

        return _await(connection, text, arguments, run)


_CORE: Final = _CoreExecutor()
_DRIVER: Final = _CursorExecutor(_driver_cursor)
_PSYCOPG: Final = _CursorExecutor(_psycopg_cursor, NUMBERED)
_ASYNC_PSYCOPG: Final = _AsyncPsycopgExecutor()


def _configure(cursor: Any, *, binary: bool, text_as_bytes: bool) -> None:
    if binary:
        cursor.format = _psycopg().pq.Format.BINARY
    if text_as_bytes:
        cursor.adapters.register_loader("text", _bytes_loader())


def _await(connection: Connection, text: str, arguments: Any, run: Callable[[Any], Awaitable[T]]) -> T:
    """The result of a coroutine on a new cursor, awaited from the greenlet in which SQLAlchemy runs."""

    async def run_on_cursor(driver_connection: Any) -> T:
        async with _psycopg().AsyncRawCursor(driver_connection) as cursor:
            return await run(cursor)

    adapted: Any = connection.connection.dbapi_connection
    call: Callable[[], T] = partial(adapted.run_async, run_on_cursor)
    return _call(connection, text, arguments, call)


@cache
def _psycopg() -> Any:
    import psycopg  # noqa: PLC0415 - an optional driver

    return psycopg


@cache
def _default_cursor_factories() -> frozenset[type]:
    return frozenset({_psycopg().Cursor, _psycopg().AsyncCursor})


@cache
def _bytes_loader() -> Any:
    from psycopg.types.string import ByteaBinaryLoader  # noqa: PLC0415 - as above

    return ByteaBinaryLoader


def _call(connection: Connection, text: str, arguments: Any, call: Callable[[], T]) -> T:
    """Call the driver; its errors become SQLAlchemy's, and a lost connection is invalidated."""
    try:
        return call()
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
    except BaseException as error:  # interrupted or cancelled: the state of the connection is unknown
        connection.invalidate(error)
        raise
