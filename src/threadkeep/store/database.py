"""How an action reaches a database: transactions, repetition, and the sync and async ways.

An action is a plain function of a Connection. The same action runs in a transaction of its own (`Database`), under
asyncio (`AsyncDatabase`), in a worker thread (`ThreadedDatabase`), or inside the caller's transaction (`Host…`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session as OrmSession

from threadkeep.db.dialects import MYSQL, is_transient

P = ParamSpec("P")
T = TypeVar("T")

Action = Callable[Concatenate[Connection, P], T]

REPEAT_SECONDS: Final = 60.0  # how long a use case is repeated after deadlocks and busy databases
LOST_LIMIT: Final = 5  # how often after a lost connection


class Replayed(Exception):  # noqa: N818 - not an error: it takes back what an action did and hands over a result
    """Raised inside an action that has nothing to do: its transaction is taken back and `result` is returned."""

    def __init__(self, result: Any) -> None:
        self.result = result


class Raced(Exception):  # noqa: N818 - as above
    """Raised inside an action that lost a race for an idempotency key: it begins anew, and finds what was done."""


@dataclass
class Attempts:
    """Decides whether a failed use case may be repeated, and after which pause.

    A transaction that the server took back left nothing, so it can be repeated. After a lost connection that holds
    too, unless it was lost during COMMIT: then only a use case with an idempotency key can be repeated.
    """

    is_keyed: bool
    started: float = field(default_factory=time.monotonic)
    lost: int = 0
    count: int = 0
    is_committing: bool = False

    def pause(self, error: DBAPIError) -> float | None:
        """Seconds to wait before the next attempt; None when there should be none."""
        self.count += 1
        if is_transient(error):
            if time.monotonic() - self.started > REPEAT_SECONDS:
                return None
        elif error.connection_invalidated and (self.is_keyed or not self.is_committing):
            self.lost += 1
            if self.lost > LOST_LIMIT:
                return None
        else:
            return None
        return random.uniform(0, min(0.002 * 2**self.count, 0.25))  # noqa: S311 - jitter, no secret


def _reader(engine: Engine) -> Engine:
    """Single statements need no transaction; on PostgreSQL autocommit saves BEGIN and ROLLBACK."""
    return engine.execution_options(isolation_level="AUTOCOMMIT") if engine.dialect.name == "postgresql" else engine


def _writer(engine: Engine) -> Engine:
    """On MySQL every statement must see what is committed; engines that we make are set up so already."""
    return engine.execution_options(isolation_level="READ COMMITTED") if engine.dialect.name in MYSQL else engine


def _transact(connection: Connection, attempts: Attempts, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run an action in a transaction of its own."""
    attempts.is_committing = False
    if connection.dialect.name == "sqlite":
        # Takes the write lock at once: a read transaction that wants to write later is refused as "locked".
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        result = action(connection, *args, **kwargs)
    except Replayed as replayed:
        connection.rollback()
        found: T = replayed.result
        return found
    attempts.is_committing = True
    connection.commit()
    return result


def _nest(connection: Connection, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run an action inside the caller's transaction, whole or not at all."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite" and not driver.in_transaction:
        # The driver has not begun the caller's transaction yet, and releasing an outermost savepoint would commit.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    savepoint = connection.begin_nested()
    try:
        result = action(connection, *args, **kwargs)
    except Replayed as replayed:
        savepoint.rollback()
        found: T = replayed.result
        return found
    except Raced:
        savepoint.rollback()
        return _nest(connection, action, *args, **kwargs)
    except BaseException:
        if savepoint.is_active:
            savepoint.rollback()
        raise
    savepoint.commit()
    return result


class SyncRunner(Protocol):
    """Runs actions and returns their results."""

    def read(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    def write(self, is_keyed: bool, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...  # noqa: FBT001 - kwargs belong to the action
    def close(self) -> None: ...


class AsyncRunner(Protocol):
    """Runs actions without blocking the event loop."""

    async def read(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def write(self, is_keyed: bool, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...  # noqa: FBT001 - as above
    async def close(self) -> None: ...


class Database:
    """Runs actions in transactions of their own and repeats them where that is safe."""

    def __init__(self, engine: Engine, *, is_owned: bool) -> None:
        self.engine = engine
        self._is_owned = is_owned
        self._reading = _reader(engine)
        self._writing = engine if is_owned else _writer(engine)

    def read(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        attempts = Attempts(is_keyed=True)
        while True:
            try:
                with self._reading.connect() as connection:
                    return action(connection, *args, **kwargs)
            except DBAPIError as error:
                pause = attempts.pause(error)
                if pause is None:
                    raise
                time.sleep(pause)

    def write(self, is_keyed: bool, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: FBT001 - see SyncRunner
        attempts = Attempts(is_keyed=is_keyed)
        while True:
            try:
                with self._writing.connect() as connection:
                    return _transact(connection, attempts, action, *args, **kwargs)
            except Raced:
                continue
            except DBAPIError as error:
                pause = attempts.pause(error)
                if pause is None:
                    raise
                time.sleep(pause)

    def close(self) -> None:
        if self._is_owned:
            self.engine.dispose()


class HostDatabase:
    """Runs actions inside a transaction that the caller began and will end: no commit, no repetition."""

    def __init__(self, host: Connection | OrmSession) -> None:
        self._host = host

    def _connection(self) -> Connection:
        return self._host.connection() if isinstance(self._host, OrmSession) else self._host

    def read(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return action(self._connection(), *args, **kwargs)

    def write(self, is_keyed: bool, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: ARG002, FBT001 - see SyncRunner
        return _nest(self._connection(), action, *args, **kwargs)

    def close(self) -> None:
        """The caller's connection is the caller's."""


class AsyncDatabase:
    """Like `Database`, through AsyncConnection.run_sync."""

    def __init__(self, engine: AsyncEngine, *, is_owned: bool) -> None:
        self.engine = engine
        self._is_owned = is_owned
        dialect = engine.dialect.name
        self._reading = engine.execution_options(isolation_level="AUTOCOMMIT") if dialect == "postgresql" else engine
        is_guest = not is_owned and dialect in MYSQL
        self._writing = engine.execution_options(isolation_level="READ COMMITTED") if is_guest else engine

    async def read(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        attempts = Attempts(is_keyed=True)
        while True:
            try:
                async with self._reading.connect() as connection:
                    return await connection.run_sync(action, *args, **kwargs)
            except DBAPIError as error:
                await self._wait(attempts, error)

    async def write(self, is_keyed: bool, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: FBT001 - see SyncRunner
        attempts = Attempts(is_keyed=is_keyed)
        while True:
            try:
                async with self._writing.connect() as connection:
                    return await connection.run_sync(_transact, attempts, action, *args, **kwargs)
            except Raced:
                continue
            except DBAPIError as error:
                await self._wait(attempts, error)

    @staticmethod
    async def _wait(attempts: Attempts, error: DBAPIError) -> None:
        pause = attempts.pause(error)
        if pause is None:
            raise error
        await asyncio.sleep(pause)

    async def close(self) -> None:
        if self._is_owned:
            await self.engine.dispose()


class ThreadedDatabase:
    """SQLite under asyncio: each use case as a whole in a worker thread, which is faster than a hop per statement."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def engine(self) -> Engine:
        return self._database.engine

    async def read(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(self._database.read, action, *args, **kwargs)

    async def write(self, is_keyed: bool, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: FBT001 - see SyncRunner
        return await asyncio.to_thread(self._database.write, is_keyed, action, *args, **kwargs)

    async def close(self) -> None:
        self._database.close()


class AsyncHostDatabase:
    """Runs actions inside the caller's async transaction: no commit, no repetition."""

    def __init__(self, host: AsyncConnection | AsyncSession) -> None:
        self._host = host

    async def _connection(self) -> AsyncConnection:
        return await self._host.connection() if isinstance(self._host, AsyncSession) else self._host

    async def read(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await (await self._connection()).run_sync(action, *args, **kwargs)

    async def write(self, is_keyed: bool, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: ARG002, FBT001 - see SyncRunner
        return await (await self._connection()).run_sync(_nest, action, *args, **kwargs)

    async def close(self) -> None:
        """The caller's connection is the caller's."""


