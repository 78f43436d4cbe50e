"""How a statement reaches the driver where that is not by a cursor of its own.

* psycopg has a separate kind of cursor for numbered parameters. It looks for named ones in the text, which takes
  0.14 ms for an answer; there are 73, and it caches no text that has more than 50.
* Many rows of one table go to PostgreSQL by COPY, which takes half the time of as many INSERTs on either side.
* With listeners for the engine's events, logging of statements, or a cursor factory for psycopg (tracing), statements
  go through Core as usual, so that nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db import backends, hosts, refusals

T = TypeVar("T")

NUMBERED: Final = "numeric_dollar"  # SQLAlchemy's name for $1, $2 …
_CURSORS: Final = "threadkeep_cursors"  # in what the pool knows of a connection
_KEPT_ROWS: Final = 100  # of the last result of a cursor, which it holds until the next one
_KEPT_BYTES: Final = 64 * 1024  # of their texts
_TEXT_OID: Final = 25  # PostgreSQL's number for the type TEXT


class RowFormat(NamedTuple):
    """In what form PostgreSQL sends rows (see `Statement`)."""

    binary: bool
    text_as_bytes: bool


@cache
def load_psycopg() -> Any:
    """The driver."""
    import psycopg  # noqa: PLC0415 - an optional driver

    return psycopg


class CoreExecutor:
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
        if not rows.text_as_bytes or connection.dialect.driver not in refusals.PSYCOPG:
            return [tuple(row) for row in result]
        texts = [column[1] == _TEXT_OID for column in result.cursor.description]
        return [
            tuple(
                value.encode() if is_text and value is not None else value
                for value, is_text in zip(row, texts, strict=True)
            )
            for row in result
        ]


class PsycopgExecutor:
    """psycopg's cursors for numbered parameters.

    Making a cursor takes a third of the client's time for a short statement, so a connection keeps its cursors. They
    keep their last result: one with many rows, or long texts, is closed.
    """

    paramstyle: str = NUMBERED

    def run(
        self, connection: Connection, text: str, arguments: Any, rows: RowFormat | None = None, *, many: bool = False
    ) -> Any:
        """As `CoreExecutor.run`."""
        pooled: Any = connection.connection
        kept: dict[RowFormat | None, Any] = pooled.info.setdefault(_CURSORS, {})
        cursor = kept.pop(rows, None)
        if cursor is None or cursor.connection is not pooled.dbapi_connection:
            cursor = load_psycopg().RawCursor(pooled.dbapi_connection)
            if rows is not None:
                _configure(cursor, rows)
        try:
            (cursor.executemany if many else cursor.execute)(text, arguments)
            result = cursor.rowcount if rows is None else cursor.fetchall()
        except BaseException as error:
            cursor.close()
            refuse(connection, text, arguments, error)
            raise
        if many or _is_large(cursor, rows, result):
            cursor.close()
        else:
            kept[rows] = cursor
        return result

    def copy(self, connection: Connection, text: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a COPY … FROM STDIN of these rows."""
        driver_connection: Any = connection.connection.driver_connection
        try:
            with driver_connection.cursor() as cursor, cursor.copy(text) as copy:
                for row in rows:
                    copy.write_row(row)
        except BaseException as error:
            refuse(connection, text, None, error)
            raise


class AsyncPsycopgExecutor:
    """psycopg's cursors for numbered parameters, on its asyncio connections."""

    paramstyle: str = NUMBERED

    def run(
        self, connection: Connection, text: str, arguments: Any, rows: RowFormat | None = None, *, many: bool = False
    ) -> Any:
        """As `CoreExecutor.run`."""
        pooled: Any = connection.connection
        kept: dict[RowFormat | None, Any] = pooled.info.setdefault(_CURSORS, {})

        async def run(driver_connection: Any) -> Any:
            cursor = kept.pop(rows, None)
            if cursor is None or cursor.connection is not driver_connection:
                cursor = load_psycopg().AsyncRawCursor(driver_connection)
                if rows is not None:
                    _configure(cursor, rows)
            try:
                await (cursor.executemany if many else cursor.execute)(text, arguments)
                result = cursor.rowcount if rows is None else await cursor.fetchall()
            except BaseException:
                await cursor.close()
                raise
            if many or _is_large(cursor, rows, result):
                await cursor.close()
            else:
                kept[rows] = cursor
            return result

        adapted: Any = pooled.dbapi_connection  # awaits in the greenlet in which SQLAlchemy runs
        return _call(connection, text, arguments, partial(adapted.run_async, run))

    def copy(self, connection: Connection, text: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a COPY … FROM STDIN of these rows."""

        async def run(driver_connection: Any) -> None:
            async with driver_connection.cursor() as cursor, cursor.copy(text) as copy:
                for row in rows:
                    await copy.write_row(row)

        adapted: Any = connection.connection.dbapi_connection
        _call(connection, text, None, partial(adapted.run_async, run))


def _is_large(cursor: Any, rows: RowFormat | None, result: Any) -> bool:
    """Whether a cursor would hold many rows, or long texts: there may be megabytes in a single row."""
    texts = () if rows is None else (value for row in result for value in row if isinstance(value, bytes | str))
    return cursor.rowcount > _KEPT_ROWS or sum(map(len, texts)) > _KEPT_BYTES


def _configure(cursor: Any, rows: RowFormat) -> None:
    if rows.binary:
        cursor.format = load_psycopg().pq.Format.BINARY
    if rows.text_as_bytes:
        cursor.adapters.register_loader("text", load_psycopg().types.string.ByteaBinaryLoader)


def _call(connection: Connection, text: str, arguments: Any, call: Callable[[], T]) -> T:
    """Call the driver."""
    try:
        return call()
    except BaseException as error:
        refuse(connection, text, arguments, error)
        raise


def refuse(connection: Connection, text: str, arguments: Any, error: BaseException) -> None:
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
    if was_lost := refusals.is_lost(connection, error):
        hosts.invalidate_lost(connection, error)
    raise DBAPIError.instance(
        text, arguments, error, driver_error, hide_parameters=connection.engine.hide_parameters,
        connection_invalidated=was_lost, dialect=dialect,
    ) from error  # fmt: skip
