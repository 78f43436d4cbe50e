"""Connections for transactions, and what goes with them: waiting, hidden parameters, forked processes."""

from __future__ import annotations

import asyncio
import random
import re
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, NestedTransaction
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.util.concurrency import await_only, in_greenlet

from threadkeep.db import poolers, sessions
from threadkeep.db.lost_connections import invalidate_lost
from threadkeep.errors import InvalidOption, PoolExhausted

P = ParamSpec("P")
T = TypeVar("T")

AWAY: Final = (SQLAlchemyError, PoolExhausted)  # what is raised while the database cannot be used
KEPT_SECONDS: Final = 60.0  # how long a connection to a server is not given back to the pool
REFUSED_SECONDS: Final = 10.0  # how long to retry a server that has responded before

# How PostgreSQL shows a row that it rejects
_FAILING_ROW: Final = re.compile(r"(?<=Failing row contains )\(.*\)", re.DOTALL)
_poll: Final = getattr(select, "poll", None)  # not on Windows
# What this process inherited when it was forked: kept, because connections that nobody holds are closed
_INHERITED: Final[list[object]] = []


def sleep(seconds: float) -> None:
    """Wait without blocking the event loop."""
    if in_greenlet():
        await_only(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)


def run_blocking(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that waits for something other than the database, without blocking the event loop."""
    if in_greenlet():
        result: T = await_only(asyncio.to_thread(function, *args, **kwargs))
        return result
    return function(*args, **kwargs)


def error_name(error: BaseException) -> str:
    """Return the class of an error, with a database's code: for logs, as messages may quote what was sent."""
    cause: Any = getattr(error, "orig", None) or error
    first = cause.args[0] if cause.args and isinstance(cause.args[0], int) else None
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None) or first
    return type(cause).__name__ if code is None else f"{type(cause).__name__} ({code})"


def hide_parameters(error: BaseException) -> None:
    """Let an error show no parameters of statements: they are what people wrote. The engine may be the host's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, StatementError):
            cause.hide_parameters = True
            for shown in filter(None, (cause, cause.orig)):
                texts = (_FAILING_ROW.sub("(…)", arg) if isinstance(arg, str) else arg for arg in shown.args)
                shown.args = tuple(texts)
        cause = cause.__cause__ or cause.__context__


def has_unread(connection: Connection) -> bool:
    """Return whether the server has sent something that nobody asked for: mostly, that it ends the connection."""
    driver: Any = connection.connection.driver_connection
    if _poll is None or not hasattr(driver, "fileno"):
        return False
    waiting = _poll()
    waiting.register(driver.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


@contextmanager
def savepoint(connection: Connection) -> Iterator[NestedTransaction]:
    """Let what happens meanwhile happen as a whole or not at all.

    What went wrong is raised even where that cannot be taken back: MySQL forgets all savepoints at a deadlock.
    """
    point = connection.begin_nested()
    try:
        yield point
    except BaseException:
        if point.is_active:
            with suppress(DBAPIError):
                point.rollback()
        raise
    if point.is_active:
        point.commit()


def give_up(engine: Engine, *connections: object) -> None:
    """Forget the connections of the process that this one was forked from, without closing them."""
    _INHERITED.extend((*connections, engine.pool))
    engine.dispose(close=False)


def _end(connection: Connection) -> None:
    """Close a connection for good: the pool that it is from may be given up."""
    connection.invalidate()
    connection.close()


def _set_isolation(connection: Connection, level: IsolationLevel) -> bool:
    """Set the level of a connection; False for one that was lost: the others of its pool are, too."""
    try:
        if connection.in_transaction():  # begun by a listener of the application, such as a ping
            connection.rollback()
        connection.execution_options(isolation_level=level)
    except Exception as error:
        cause: Any = error.orig if isinstance(error, DBAPIError) else error
        dialect = connection.dialect
        driver_error: Any = dialect.loaded_dbapi.Error
        is_lost = isinstance(cause, driver_error) and dialect.is_disconnect(cause, connection.connection, None)
        if is_lost:
            invalidate_lost(connection, error)
        connection.close()
        if not is_lost:
            raise
        return False
    return True


class Connections:
    """A connection for each transaction.

    Taking one from SQLAlchemy's pool and giving it back takes longer than a statement of SQLite, and a third of one of
    PostgreSQL. So `keeps` keeps it; those to a server for a minute, and no more of them than the pool keeps open.
    `waits`: for a server that refuses, but responded before. `is_hosts`: they are an application's, see `db.sessions`.
    """

    def __init__(
        self, engine: Engine, *, keeps: bool, waits: bool = True, isolation: IsolationLevel | None = None,
        is_hosts: bool = False,
    ) -> None:  # fmt: skip
        self._engine, self._isolation, self._is_hosts = engine, isolation, is_hosts
        self._keeps, self._waits = keeps, waits
        self._is_shared = keeps and engine.dialect.name != "sqlite"
        self._free: deque[tuple[Connection, float]] = deque()
        self._has_answered = False
        self._generation = 0  # of connections: those of an earlier one are not kept any more

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run work on a connection that nothing else uses meanwhile."""
        generation = self._generation
        connection, since = self._take()
        try:
            result = work(connection)
            if connection.in_transaction():
                connection.rollback()
        except BaseException as error:
            poolers.learn_from(connection, error)
            is_lost = connection.invalidated
            connection.close()
            if is_lost:  # the others are, too
                self.close()
            hide_parameters(error)
            raise
        if generation != self._generation:
            _end(connection)
        elif self._keeps and not (self._is_shared and self._is_due(since)):
            self._free.append((connection, since))
            if generation != self._generation:  # just now, maybe after all that were kept had been closed
                self._close_kept(_end)
        else:
            connection.close()
        return result

    def _take(self) -> tuple[Connection, float]:
        """A connection and since when it is kept; one that was idle for long goes through the pool, which renews it."""
        try:
            connection, since = self._free.pop()
        except IndexError:
            return self._connect(), time.monotonic()
        if self._is_shared and time.monotonic() - since > KEPT_SECONDS:
            connection.close()
            return self._connect(), time.monotonic()
        return connection, since

    def _is_due(self, since: float) -> bool:
        """Whether the pool is to have a connection back, for which others may wait."""
        pool: Any = self._engine.pool
        return pool.checkedout() > pool.size() or time.monotonic() - since > KEPT_SECONDS

    def close(self) -> None:
        """Close the connections that are kept, and those that are in use as soon as they are not."""
        self._generation += 1
        self._close_kept(Connection.close)

    def _close_kept(self, close: Callable[[Connection], object]) -> None:
        while self._free:
            with suppress(IndexError):  # another thread took it
                close(self._free.pop()[0])

    def forget(self) -> object:
        """Keep no connection any more; return those that were kept, which are not closed."""
        free, self._free = self._free, deque()
        return free

    def _opened(self) -> Connection:
        """A connection of the engine with its isolation level; one that was lost while it was idle is replaced."""
        for _ in range(2):
            connection = self._engine.connect()
            if self._isolation is None or _set_isolation(connection, self._isolation):
                break
        else:
            connection = self._engine.connect().execution_options(isolation_level=self._isolation)
        if self._is_hosts:
            try:
                sessions.check(connection)
            except InvalidOption:
                connection.close()
                raise
        return connection

    def _connect(self) -> Connection:
        """Return a connection. A server that responded before and now refuses is restarting, so it is retried."""
        first = time.monotonic()
        while True:
            try:
                connection = self._opened()
            except PoolTimeout as error:
                raise PoolExhausted from error
            except OperationalError:
                if not self._has_answered or time.monotonic() - first > REFUSED_SECONDS:
                    raise
                sleep(random.uniform(0, 0.25))  # noqa: S311 - jitter, no secret
            else:
                self._has_answered = self._waits and connection.dialect.name != "sqlite"
                return connection
