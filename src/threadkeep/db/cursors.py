"""How a prepared statement reaches the driver, and how its rows come back.

* Most drivers are used through their own cursors.
* psycopg has another kind of cursor for statements whose parameters are numbered. Named ones it looks for in the text,
  which takes 0.14 ms for those of an answer; there are 73, and it remembers no text that has more than 50.
* Where somebody listens to the engine's events, or has cursors of their own for psycopg (logging, tracing), statements
  take the usual way through Core, so that nothing is hidden.
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
# What listeners to statements listen to
_EVENTS: Final = ("before_cursor_execute", "after_cursor_execute", "before_execute", "after_execute")
_TEXT_OID: Final = 25  # PostgreSQL's number for the type TEXT


class Cursors(Protocol):
    """Runs statements.

    `is_binary`: PostgreSQL sends values as it has them; `gives_bytes`: and columns of the type TEXT come as bytes.
    """

    @property
    def style(self) -> str | None:
        """How parameters are written; None: as SQLAlchemy writes them for the driver."""

    def execute(self, connection: Connection, text: str, arguments: Any) -> int:
        """Run a statement; returns how many rows it met."""

    def execute_many(self, connection: Connection, text: str, arguments: Sequence[Any]) -> None:
        """Run a statement for each of several parameters."""

    def rows(
        self, connection: Connection, text: str, arguments: Any, *, is_binary: bool, gives_bytes: bool
    ) -> Sequence[Row]:
        """The rows of a statement, as the driver gives them."""


def cursors_for(connection: Connection) -> Cursors:
    """How statements are run on a connection."""
    if _is_watched(connection):
        return _THROUGH_CORE
    dialect = connection.dialect
    if dialect.driver not in PSYCOPG:
        return _OF_DRIVER
    driver: Any = connection.connection.driver_connection
    if driver.cursor_factory not in _usual_cursors():
        return _THROUGH_CORE
    return _NUMBERED_ASYNC if dialect.is_async else _NUMBERED


def _is_watched(connection: Connection) -> bool:
    """Whether somebody listens to the statements of this connection, or logs them."""
    if getattr(connection, "_echo", True):
        return True
    if not getattr(connection, "_has_events", True) and not getattr(connection.engine, "_has_events", True):
        return False
    # An engine with an isolation level of its own listens to itself, too, but not to statements.
    return any(getattr(connection.dispatch, name) for name in _EVENTS)


class _ThroughCore:
    """SQLAlchemy's own execution."""

    style: None = None

    def execute(self, connection: Connection, text: str, arguments: Any) -> int:
        return connection.exec_driver_sql(text, arguments).rowcount

    def execute_many(self, connection: Connection, text: str, arguments: Sequence[Any]) -> None:
        connection.exec_driver_sql(text, arguments)

    def rows(
        self, connection: Connection, text: str, arguments: Any, *, is_binary: bool, gives_bytes: bool
    ) -> Sequence[Row]:
        del is_binary  # the values are the same
        result: Any = connection.exec_driver_sql(text, arguments)
        if not gives_bytes or connection.dialect.driver not in PSYCOPG:
            return [tuple(row) for row in result]
        texts = [place for place, column in enumerate(result.cursor.description) if column[1] == _TEXT_OID]
        return [_with_bytes(row, texts) for row in result]


def _with_bytes(row: Any, texts: Sequence[int]) -> Row:
    found = list(row)
    for place in texts:
        if found[place] is not None:
            found[place] = found[place].encode()
    return tuple(found)


class _Blocking:
    """Cursors that are waited for; `opened` makes one on a connection."""

    def __init__(self, opened: Callable[[Connection], Any], style: str | None = None) -> None:
        self.style = style
        self._opened = opened

    def execute(self, connection: Connection, text: str, arguments: Any) -> int:
        cursor = self._opened(connection)
        try:
            _run(connection, text, arguments, partial(cursor.execute, text, arguments))
            count: int = cursor.rowcount
            return count
        finally:
            cursor.close()

    def execute_many(self, connection: Connection, text: str, arguments: Sequence[Any]) -> None:
        cursor = self._opened(connection)
        try:
            _run(connection, text, arguments, partial(cursor.executemany, text, arguments))
        finally:
            cursor.close()

    def rows(
        self, connection: Connection, text: str, arguments: Any, *, is_binary: bool, gives_bytes: bool
    ) -> Sequence[Row]:
        cursor = self._opened(connection)
        try:
            if self.style == NUMBERED:
                _set_up(cursor, is_binary=is_binary, gives_bytes=gives_bytes)
            _run(connection, text, arguments, partial(cursor.execute, text, arguments))
            found: Sequence[Row] = cursor.fetchall()
            return found
        finally:
            cursor.close()


def _of_driver(connection: Connection) -> Any:
    return connection.connection.cursor()


def _numbered(connection: Connection) -> Any:
    return _psycopg().RawCursor(connection.connection.dbapi_connection)


class _NumberedAsync:
    """psycopg's cursors for numbered parameters, on its asyncio connections."""

    style: str = NUMBERED

    def execute(self, connection: Connection, text: str, arguments: Any) -> int:
        async def run(cursor: Any) -> int:
            await cursor.execute(text, arguments)
            count: int = cursor.rowcount
            return count

        return _awaited(connection, text, arguments, run)

    def execute_many(self, connection: Connection, text: str, arguments: Sequence[Any]) -> None:
        async def run(cursor: Any) -> None:
            await cursor.executemany(text, arguments)

        _awaited(connection, text, arguments, run)

    def rows(
        self, connection: Connection, text: str, arguments: Any, *, is_binary: bool, gives_bytes: bool
    ) -> Sequence[Row]:
        async def run(cursor: Any) -> Sequence[Row]:
            _set_up(cursor, is_binary=is_binary, gives_bytes=gives_bytes)
            await cursor.execute(text, arguments)
            found: Sequence[Row] = await cursor.fetchall()
            return found

        return _awaited(connection, text, arguments, run)


_THROUGH_CORE: Final = _ThroughCore()
_OF_DRIVER: Final = _Blocking(_of_driver)
_NUMBERED: Final = _Blocking(_numbered, NUMBERED)
_NUMBERED_ASYNC: Final = _NumberedAsync()


def _set_up(cursor: Any, *, is_binary: bool, gives_bytes: bool) -> None:
    if is_binary:
        cursor.format = _psycopg().pq.Format.BINARY
    if gives_bytes:
        cursor.adapters.register_loader("text", _bytes_loader())


def _awaited(connection: Connection, text: str, arguments: Any, run: Callable[[Any], Awaitable[T]]) -> T:
    """What a coroutine makes of a new cursor, from the greenlet in which SQLAlchemy waits for it."""

    async def on_cursor(driver: Any) -> T:
        async with _psycopg().AsyncRawCursor(driver) as cursor:
            return await run(cursor)

    adapted: Any = connection.connection.dbapi_connection
    waited: Callable[[], T] = partial(adapted.run_async, on_cursor)
    return _run(connection, text, arguments, waited)


@cache
def _psycopg() -> Any:
    import psycopg  # noqa: PLC0415 - an optional driver

    return psycopg


@cache
def _usual_cursors() -> frozenset[type]:
    return frozenset({_psycopg().Cursor, _psycopg().AsyncCursor})


@cache
def _bytes_loader() -> Any:
    from psycopg.types.string import ByteaBinaryLoader  # noqa: PLC0415 - as above

    return ByteaBinaryLoader


def _run(connection: Connection, text: str, arguments: Any, call: Callable[[], T]) -> T:
    """Call the driver; its errors become SQLAlchemy's, and a lost connection is given up."""
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
    except BaseException as error:  # interrupted or cancelled: nobody knows what is still on the wire
        connection.invalidate(error)
        raise
