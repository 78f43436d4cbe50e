"""MySQL and MariaDB: no RETURNING of UPDATE, packets with a limit, and locks to see what is committed.

Connections of asyncio drivers that belong to the event loop in which they were made.

asyncmy's do; psycopg's work in any. A store that outlives its event loop, as with two calls of ``asyncio.run``, makes
new ones in the next: connections of the old loop are discarded when one of them is taken from the pool, or the pool is
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import URL, Column, ColumnElement, Connection, Engine, Insert, Select, Table, event, text
from sqlalchemy import tuple_ as values_of
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.exc import DisconnectionError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from threadkeep.db import backends, hosts, refusals, sessions

_PACKET: Final = "threadkeep_packet"
_PACKET_HEADROOM: Final = 64 * 1024
_QUOTED: Final = b"\\'\"\x00\n\r\x1a"  # what the drivers write as two bytes


class _MySQL(backends.Backend):
    """MySQL and MariaDB, through PyMySQL or asyncmy. Every statement sees what is committed, as on PostgreSQL."""

    name = extra = "mysql"
    new_insert = staticmethod(insert)
    drivers = "pymysql", "asyncmy"
    host_isolation = "READ COMMITTED", "READ COMMITTED"
    has_returning = seeks_by_subquery = False
    sees_locked = gives_names_as_bytes = True

    def checked_url(self, url: URL) -> URL:
        if not url.database:
            raise backends.not_a_url("it names no database", f"Write {url.get_backend_name()}://user@host/NAME.")
        return sessions.with_charset(url)

    def engine_options(self, url: URL) -> dict[str, Any]:
        mode = {} if "init_command" in url.query else {"init_command": sessions.SQL_MODE}  # else `watch` sets it
        return super().engine_options(url) | {"isolation_level": "READ COMMITTED", "connect_args": mode}

    def make_engine(self, url: URL, create: Callable[..., Engine]) -> Engine:
        servers, is_writable = hosts.hosts_of(url), True  # a store writes
        if servers:
            url, is_writable = hosts.attributes_of(url)
        engine = create(url, **self.engine_options(url))
        sessions.watch(engine)
        if servers:
            hosts.leave_unusable(engine)
            hosts.try_in_turn(engine, servers, is_writable=is_writable)
        hosts.share_context(engine)
        watch(engine)
        return engine

    def adopt_engine(self, engine: Engine) -> None:
        watch(engine)

    def begin_snapshot(self, connection: Connection) -> None:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    def refuse_writes(self, connection: Connection) -> None:
        connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")

    def insert_missing(self, table: Table) -> Insert:
        return self.insert_or_replace(table, "tenant_id")

    def insert_or_replace(self, table: Table, *columns: str, where: ColumnElement[bool] | None = None) -> Insert:
        del where
        new = self.new_insert(table)
        found: Insert = new.on_duplicate_key_update({name: new.inserted[name] for name in columns})
        return found

    def are_at(self, columns: Sequence[Column[Any]], places: backends.Places) -> ColumnElement[bool] | None:
        return values_of(*columns).in_(places) if len(places) > 1 else None

    def open_writers(self, connection: Connection, rows: Sequence[Select[Any]]) -> frozenset[str]:
        """A read with locks waits for the rows of others; one that waits in vain has a name for them all."""
        try:
            for counted in rows:
                connection.execute(counted.with_for_update(read=True))
                connection.rollback()
        except OperationalError as error:
            if not refusals.is_held(error):
                raise
            return frozenset({"held"})
        return frozenset()

    def row_limit(self, connection: Connection) -> int | None:
        """The server's max_allowed_packet, with room for the statement."""
        if _PACKET not in connection.info:
            size = connection.execute(text("SELECT @@max_allowed_packet")).scalar_one()
            connection.info[_PACKET] = int(size) - _PACKET_HEADROOM
        limit: int = connection.info[_PACKET]
        return limit

    def wire_size(self, row: Mapping[str, Any]) -> int:
        total = 0
        for value in row.values():
            if isinstance(value, str):
                data = value.encode("utf-8", "surrogatepass")  # columns that are escaped later may hold surrogates
                total += len(data) + sum(data.count(byte) for byte in _QUOTED)
            elif isinstance(value, bytes):
                total += 2 * len(value)  # PyMySQL writes bytes in hexadecimal
        return total


BACKEND: Final = _MySQL()

_LOOP: Final = "threadkeep_loop"


class _GivenUp:
    """Stands for a connection that cannot be closed here."""

    def close(self) -> None:
        """Do nothing."""

    def terminate(self) -> None:
        """Do nothing."""


def watch(engine: Engine) -> None:
    """Use each connection of an engine in its own event loop alone, if its driver requires it."""
    if engine.dialect.driver == "asyncmy" and not event.contains(engine, "checkout", _on_checkout):
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "checkout", _on_checkout)
        event.listen(engine, "close", _on_close)


def _on_connect(connection: Any, record: ConnectionPoolEntry) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    record.info[_LOOP] = asyncio.get_running_loop()


def _on_checkout(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    if _is_of_another_loop(record):
        raise DisconnectionError("It belongs to another event loop.")


def _on_close(connection: Any, record: Any) -> None:
    """Let the pool close nothing: that needs the loop of the connection, which is asked to if it still runs."""
    if not _is_of_another_loop(record):
        return
    driver, record.dbapi_connection = connection.driver_connection, _GivenUp()  # which is closed instead
    with suppress(RuntimeError):  # the loop was closed, and its sockets with what held them
        record.info[_LOOP].call_soon_threadsafe(driver.close)


def _is_of_another_loop(record: ConnectionPoolEntry) -> bool:
    loop = record.info.get(_LOOP)
    try:
        return loop is not None and loop is not asyncio.get_running_loop()
    except RuntimeError:  # nothing runs: the pool is collected as garbage
        return False
