"""How an action reaches a database: transactions, repetition, and the sync and async ways.

An action is a plain function of a Connection and positional arguments. The same action runs in a transaction of its
own (`Database`), under asyncio (`AsyncDatabase`), in a worker thread (`ThreadedDatabase`), or inside the caller's
transaction (`HostDatabase`, `AsyncHostDatabase`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session as OrmSession
from sqlalchemy.util import greenlet_spawn

from threadkeep.db.dialects import PSYCOPG, is_mysql
from threadkeep.db.prepared import Prepared
from threadkeep.errors import InvalidOption
from threadkeep.store.attempts import Attempts, Raced, Replayed
from threadkeep.store.engines import host_of, is_sqlite_file
from threadkeep.store.upkeep import Kept, Upkeep

T = TypeVar("T")
C = TypeVar("C", Connection, AsyncConnection)

# Takes the write lock at once: a read transaction that wants to write later is refused as "locked".
BEGIN_IMMEDIATE: Final = Prepared(text("BEGIN IMMEDIATE"))
BEGIN: Final = Prepared(text("BEGIN ISOLATION LEVEL READ COMMITTED"))


def _transact(connection: Connection, attempts: Attempts, action: Callable[..., T], *arguments: Any) -> T:
    """Run an action in a transaction of its own."""
    attempts.is_committing = False
    connection.begin()
    if connection.dialect.name == "sqlite":
        BEGIN_IMMEDIATE.execute(connection, {})
    elif _commits_by_itself(connection):
        BEGIN.execute(connection, {})
    try:
        result = action(connection, *arguments)
    except Replayed as replayed:
        connection.rollback()
        found: T = replayed.result
        return found
    attempts.is_committing = True
    connection.commit()
    return result


def _commits_by_itself(connection: Connection) -> bool:
    """Whether it is psycopg's, in autocommit mode; what it is told to commit, it commits there, too."""
    driver: Any = connection.connection.dbapi_connection
    return connection.dialect.driver in PSYCOPG and bool(driver.autocommit)


def _look(connection: Connection, action: Callable[..., T], *arguments: Any) -> T:
    """Run an action that only reads inside the caller's transaction, which begins with it if it has not yet."""
    if not connection.in_transaction():
        connection.begin()
    return action(connection, *arguments)


def _nest(connection: Connection, action: Callable[..., T], *arguments: Any) -> T:
    """Run an action inside the caller's transaction, whole or not at all."""
    attempts = Attempts(is_repeatable=False)
    while True:
        try:
            return _nest_once(connection, action, *arguments)
        except Raced as raced:
            attempts.begin_anew(raced)


def _nest_once(connection: Connection, action: Callable[..., T], *arguments: Any) -> T:
    if _commits_by_itself(connection):
        raise InvalidOption("within needs a transaction, and this connection is in AUTOCOMMIT mode, which has none.")
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite" and not driver.in_transaction:
        # The driver has not begun the caller's transaction yet, and releasing an outermost savepoint would commit.
        BEGIN_IMMEDIATE.execute(connection, {})
    savepoint = connection.begin_nested()
    try:
        result = action(connection, *arguments)
    except Replayed as replayed:
        savepoint.rollback()
        found: T = replayed.result
        return found
    except BaseException:
        if savepoint.is_active:
            savepoint.rollback()
        raise
    savepoint.commit()
    return result


class SyncRunner(Protocol):
    """Runs actions and returns their results; `remembers`: what was read cannot be taken back by a caller."""

    remembers: bool
    upkeep: Upkeep | None

    def read(self, action: Callable[..., T], *arguments: Any) -> T:
        """Run an action that only reads."""

    def write(self, action: Callable[..., T], *arguments: Any, is_keyed: bool = False) -> T:
        """Run an action whole or not at all; `is_keyed`: it can be repeated without happening twice."""

    def close(self) -> None:
        """Close the connections that were opened."""


class AsyncRunner(Protocol):
    """Like `SyncRunner`, without blocking the event loop."""

    remembers: bool
    upkeep: Upkeep | None

    async def read(self, action: Callable[..., T], *arguments: Any) -> T:
        """See `SyncRunner.read`."""

    async def write(self, action: Callable[..., T], *arguments: Any, is_keyed: bool = False) -> T:
        """See `SyncRunner.write`."""

    async def close(self) -> None:
        """See `SyncRunner.close`."""


class Connections:
    """A connection for each use case.

    On SQLite taking one from SQLAlchemy's pool and giving it back takes longer than a statement: `keeps` keeps it.
    """

    def __init__(self, engine: Engine, *, keeps: bool) -> None:
        self._engine = engine
        self._keeps = keeps
        self._kept: deque[Connection] = deque()

    def run(self, action: Callable[..., T], *arguments: Any) -> T:
        """Run an action on a connection that nobody else uses meanwhile."""
        connection = self._taken()
        try:
            result = action(connection, *arguments)
            if connection.in_transaction():
                connection.rollback()
        except BaseException:
            connection.close()
            raise
        if self._keeps:
            self._kept.append(connection)
        else:
            connection.close()
        return result

    def _taken(self) -> Connection:
        try:
            return self._kept.pop()
        except IndexError:
            return self._engine.connect()

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._kept:
            self._kept.pop().close()


class Database(Kept):
    """Runs actions in transactions of their own and repeats them where that is safe."""

    remembers = True

    def __init__(self, engine: Engine, *, is_owned: bool) -> None:
        self.engine = engine
        self._is_owned = is_owned
        reading, writing = _levels(engine.dialect, is_owned=is_owned)
        keeps = is_owned and is_sqlite_file(engine.url)
        reader = engine.execution_options(isolation_level=reading) if reading else engine
        writer = engine.execution_options(isolation_level=writing) if writing else engine
        self._writing = Connections(writer, keeps=keeps)
        self._reading = self._writing if reader is writer else Connections(reader, keeps=keeps)

    def read(self, action: Callable[..., T], *arguments: Any) -> T:
        """See `SyncRunner.read`."""
        attempts: Attempts | None = None
        while True:
            try:
                return self._reading.run(action, *arguments)
            except DBAPIError as error:
                attempts = attempts or Attempts(is_repeatable=True)
                time.sleep(attempts.pause(error))

    def write(self, action: Callable[..., T], *arguments: Any, is_keyed: bool = False) -> T:
        """See `SyncRunner.write`."""
        attempts = Attempts(is_repeatable=is_keyed)
        transact: Callable[..., T] = _transact
        while True:
            try:
                return self._writing.run(transact, attempts, action, *arguments)
            except Raced as raced:
                attempts.begin_anew(raced)
            except DBAPIError as error:
                time.sleep(attempts.pause(error))

    def close(self) -> None:
        """See `SyncRunner.close`."""
        self._reading.close()
        self._writing.close()
        if self._is_owned:
            self.engine.dispose()


def _still_open(connection: C) -> C:
    """A caller's connection.

    Raises:
        InvalidOption: it is closed.
    """
    if connection.closed:
        raise InvalidOption(
            "The connection that within was given is closed. Open the conversation anew from the store."
        )
    return connection


class HostDatabase(Kept):
    """Runs actions inside a transaction that the caller began and will end: no commit, no repetition."""

    remembers = False

    def __init__(self, host: object) -> None:
        self._host: Connection | OrmSession = host_of(host, Connection, OrmSession)

    def _connection(self) -> Connection:
        return self._host.connection() if isinstance(self._host, OrmSession) else _still_open(self._host)

    def read(self, action: Callable[..., T], *arguments: Any) -> T:
        """See `SyncRunner.read`."""
        return _look(self._connection(), action, *arguments)

    def write(self, action: Callable[..., T], *arguments: Any, is_keyed: bool = False) -> T:  # noqa: ARG002 - never repeated
        """See `SyncRunner.write`."""
        return _nest(self._connection(), action, *arguments)

    def close(self) -> None:
        """The caller's connection is the caller's."""


class AsyncDatabase(Kept):
    """Like `Database`, each use case as a whole in a greenlet, as AsyncConnection.run_sync does it.

    An AsyncConnection takes one greenlet to be opened, one for each call, and a task to be closed.
    """

    remembers = True

    def __init__(self, engine: AsyncEngine, *, is_owned: bool) -> None:
        self.engine = engine
        self._is_owned = is_owned
        reading, writing = _levels(engine.dialect, is_owned=is_owned)
        sync = engine.sync_engine
        self._reading = Connections(sync.execution_options(isolation_level=reading) if reading else sync, keeps=False)
        self._writing = Connections(sync.execution_options(isolation_level=writing) if writing else sync, keeps=False)

    async def read(self, action: Callable[..., T], *arguments: Any) -> T:
        """See `SyncRunner.read`."""
        attempts = Attempts(is_repeatable=True)
        while True:
            try:
                return await greenlet_spawn(self._reading.run, action, *arguments)
            except DBAPIError as error:
                await asyncio.sleep(attempts.pause(error))

    async def write(self, action: Callable[..., T], *arguments: Any, is_keyed: bool = False) -> T:
        """See `SyncRunner.write`."""
        attempts = Attempts(is_repeatable=is_keyed)
        transact: Callable[..., T] = _transact
        while True:
            try:
                return await greenlet_spawn(self._writing.run, transact, attempts, action, *arguments)
            except Raced as raced:
                attempts.begin_anew(raced)
            except DBAPIError as error:
                await asyncio.sleep(attempts.pause(error))

    async def close(self) -> None:
        """See `SyncRunner.close`."""
        if self._is_owned:
            await self.engine.dispose()


class ThreadedDatabase(Kept):
    """SQLite under asyncio: each use case as a whole in a worker thread, which is faster than a hop per statement."""

    remembers = True

    def __init__(self, database: Database) -> None:
        self.database = database

    async def read(self, action: Callable[..., T], *arguments: Any) -> T:
        """See `SyncRunner.read`."""
        return await asyncio.to_thread(self.database.read, action, *arguments)

    async def write(self, action: Callable[..., T], *arguments: Any, is_keyed: bool = False) -> T:
        """See `SyncRunner.write`."""
        return await asyncio.to_thread(self.database.write, action, *arguments, is_keyed=is_keyed)

    async def close(self) -> None:
        """See `SyncRunner.close`."""
        self.database.close()


class AsyncHostDatabase(Kept):
    """Runs actions inside the caller's async transaction: no commit, no repetition."""

    remembers = False

    def __init__(self, host: object) -> None:
        self._host: AsyncConnection | AsyncSession = host_of(host, AsyncConnection, AsyncSession)

    async def _connection(self) -> AsyncConnection:
        return await self._host.connection() if isinstance(self._host, AsyncSession) else _still_open(self._host)

    async def read(self, action: Callable[..., T], *arguments: Any) -> T:
        """See `SyncRunner.read`."""
        look: Callable[..., T] = _look
        return await (await self._connection()).run_sync(look, action, *arguments)

    async def write(self, action: Callable[..., T], *arguments: Any, is_keyed: bool = False) -> T:  # noqa: ARG002 - never repeated
        """See `SyncRunner.write`."""
        nest: Callable[..., T] = _nest
        return await (await self._connection()).run_sync(nest, action, *arguments)

    async def close(self) -> None:
        """The caller's connection is the caller's."""


def _levels(dialect: Dialect, *, is_owned: bool) -> tuple[IsolationLevel | None, IsolationLevel | None]:
    """The isolation levels of reading and writing, where they are not what the engine does anyway.

    Single statements need no transaction: on PostgreSQL autocommit saves BEGIN and ROLLBACK. On MySQL every statement
    must see what is committed. Engines that we make are set up so already, because switching takes time.
    """
    if is_owned:
        return None, None
    if dialect.name == "postgresql":
        return "AUTOCOMMIT", None
    return ("READ COMMITTED", "READ COMMITTED") if is_mysql(dialect) else (None, None)
