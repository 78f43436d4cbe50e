"""Transactions: a connection for each, BEGIN and COMMIT, and when one is run again.

The work of a transaction is a function of a Connection. It runs in a transaction of its own (`EngineTransactions`) or
inside the caller's (`HostTransactions`). All of this is written as blocking code. Under asyncio it runs in a greenlet,
where SQLAlchemy's drivers switch to the event loop instead of blocking it, or in a worker thread; see `aio`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from threadkeep.db import poolers
from threadkeep.db.dialects import PSYCOPG, is_transient
from threadkeep.db.driver import Statement
from threadkeep.errors import Conflict, InvalidOption, PoolExhausted
from threadkeep.store.changes.notify import Notifier
from threadkeep.store.connections import give_up, hide_parameters, sleep
from threadkeep.store.engines import is_sqlite_file, isolation_levels
from threadkeep.store.forking import Inheritable
from threadkeep.store.refs import BranchRef

if TYPE_CHECKING:
    from sqlalchemy.orm import Session as OrmSession

T = TypeVar("T")

REFUSED_SECONDS: Final = 10.0  # how long to retry a server that has responded before
REPEAT_SECONDS: Final = 60.0  # how long work is repeated after deadlocks and busy databases
LIMITS: Final = {
    "loss": 5,  # how often after a lost connection
    "race": 5,  # how often after a lost race for an idempotency key
    "clash": 10,  # how often after a broken constraint: media that was collected while it was linked, say
    "stream": 10,  # how often after having ended a response in progress
}

# Takes the write lock at once: a read transaction that wants to write later is refused as "locked".
BEGIN_IMMEDIATE: Final = Statement(text("BEGIN IMMEDIATE"))
BEGIN: Final = Statement(text("BEGIN ISOLATION LEVEL READ COMMITTED"))

# Set when the task is cancelled for which a worker thread works
CANCELLED: Final[ContextVar[Event | None]] = ContextVar("threadkeep_cancelled", default=None)


class Replay(Exception):
    """Ends a transaction that has nothing to do, because it was done before: rolled back, `result` is returned."""

    def __init__(self, result: Any) -> None:
        self.result = result


class LostRace(Exception):
    """Ends a transaction that lost a race for an idempotency key: it is run again and finds what was done."""


class StreamBlocksWrite(Exception):
    """Ends a transaction that must wait for the end of a response in progress.

    That response is ended in a transaction of its own, and the work run again: were it ended in the same transaction,
    work that fails afterwards would take the end back. `status` is the one it is to end with.
    """

    def __init__(self, ref: BranchRef, number: int, status: str) -> None:
        self.ref, self.number, self.status = ref, number, status


# Ends the response in progress that blocks a write
StreamEnder = Callable[[StreamBlocksWrite, Connection], None]


@dataclass(slots=True)
class Retries:
    """Decides whether failed work may be repeated, and after which pause.

    A transaction that the server took back left nothing, so it can be repeated. After a lost connection that holds
    too, unless it was lost during COMMIT: then only a read, or a write with an idempotency key, can be repeated.
    """

    is_repeatable: bool
    is_committing: bool = False
    failed_at: float | None = None  # first
    failures: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # by reason, as in LIMITS

    def pause(self, error: DBAPIError) -> float:
        """Seconds to wait before the next attempt; `error` is raised where there should be none."""
        self.failures += 1
        self.failed_at = self.failed_at or time.monotonic()
        if is_transient(error):
            is_over = time.monotonic() - self.failed_at > REPEAT_SECONDS
        elif error.connection_invalidated and (self.is_repeatable or not self.is_committing):
            is_over = self._is_too_often("loss")
        else:
            is_over = self._is_too_often("clash") or not isinstance(error, IntegrityError)
        if is_over:
            raise error
        return random.uniform(0, min(0.002 * 2**self.failures, 0.25))  # noqa: S311 - jitter, no secret

    def count(self, reason: LostRace | StreamBlocksWrite) -> None:
        """Count a lost race, or a response that is to be ended first; Conflict is raised after the last attempt."""
        if isinstance(reason, StreamBlocksWrite):
            if self._is_too_often("stream"):
                problem = "Responses in progress were ended, and each time another one had begun meanwhile."
                raise Conflict(problem, hint="Try again later.")
        elif self._is_too_often("race"):  # the caller's transaction sees the database as it was before
            problem = "The idempotency key was used meanwhile, in a transaction that this one does not see."
            hint = "Roll back and try again, or use the isolation level READ COMMITTED."
            raise Conflict(problem, hint=hint) from reason.__cause__

    def _is_too_often(self, reason: str) -> bool:
        count = self.counts[reason] = self.counts.get(reason, 0) + 1
        return count > LIMITS[reason]


class Connections:
    """A connection for each transaction.

    On SQLite taking one from SQLAlchemy's pool and giving it back takes longer than a statement: `keeps` keeps it.
    """

    def __init__(self, engine: Engine, *, keeps: bool) -> None:
        self._engine = engine
        self._keeps = keeps
        self._free: deque[Connection] = deque()
        self._has_answered = False

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run work on a connection that nothing else uses meanwhile."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connect()
        try:
            result = work(connection)
            if connection.in_transaction():
                connection.rollback()
        except BaseException as error:
            poolers.learn_from(connection, error)
            connection.close()
            hide_parameters(error)
            raise
        if self._keeps:
            self._free.append(connection)
        else:
            connection.close()
        return result

    def close(self) -> None:
        """Close the pooled connections."""
        while self._free:
            self._free.pop().close()

    def forget(self) -> object:
        """Keep no connection any more; return those that were kept, which are not closed."""
        free, self._free = self._free, deque()
        return free

    def _connect(self) -> Connection:
        """Return a connection. A server that responded before and now refuses is restarting, so it is retried."""
        first = time.monotonic()
        while True:
            try:
                connection = self._engine.connect()
            except PoolTimeout as error:
                raise PoolExhausted from error
            except OperationalError:
                if not self._has_answered or time.monotonic() - first > REFUSED_SECONDS:
                    raise
                sleep(random.uniform(0, 0.25))  # noqa: S311 - jitter, no secret
            else:
                self._has_answered = connection.dialect.name != "sqlite"
                return connection


class Endable(Protocol):
    """What goes on until the store is closed."""

    def end(self) -> None:
        """Stop it, from whichever thread."""


class EngineTransactions(Inheritable):
    """Runs work in transactions of its own and repeats it where that is safe."""

    keeps_history = True  # what was read cannot be taken back by the caller

    def __init__(
        self, engine: Engine, *, is_owned: bool, end_stream: StreamEnder, notifier: Notifier | None = None
    ) -> None:
        super().__init__()
        self.engine, self.is_closed, self.notifier = engine, False, notifier
        self.watchers: WeakSet[Endable] = WeakSet()  # which end with it
        self._is_owned, self._end_stream = is_owned, end_stream
        reading, writing = isolation_levels(engine.dialect, is_owned=is_owned)
        keeps = is_owned and is_sqlite_file(engine.url)
        reader = engine.execution_options(isolation_level=reading) if reading else engine
        writer = engine.execution_options(isolation_level=writing) if writing else engine
        self._writing = Connections(writer, keeps=keeps)
        self._reading = self._writing if reader is writer else Connections(reader, keeps=keeps)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""
        retries: Retries | None = None
        while True:
            self.check_open()
            _check_cancelled()
            try:
                return self._reading.run(work)
            except DBAPIError as error:
                retries = retries or Retries(is_repeatable=True)
                sleep(retries.pause(error))

    def write(self, work: Callable[[Connection], T], *, is_repeatable: bool = False) -> T:
        """Run work whole or not at all; `is_repeatable`: it can be run again without happening twice."""
        retries = Retries(is_repeatable)
        transaction: Callable[[Connection], T] = partial(_run_in_transaction, work, retries)
        while True:
            self.check_open()
            _check_cancelled()
            try:
                result = self._writing.run(transaction)
            except LostRace as race:
                retries.count(race)
            except StreamBlocksWrite as blocked:
                retries.count(blocked)
                self.write(partial(self._end_stream, blocked), is_repeatable=True)
            except DBAPIError as error:
                sleep(retries.pause(error))
            else:
                if self.notifier is not None:
                    self.notifier.notify()
                return result

    def close(self) -> None:
        """Close the connections that were opened."""
        self.is_closed = True
        for watcher in list(self.watchers):
            watcher.end()
        if self.notifier is not None:
            self.notifier.close()
        self._close_kept()
        if self._is_owned:
            self.engine.dispose()

    def check_open(self) -> None:
        """Refuse to go on after `close`."""
        if self.is_closed:
            raise InvalidOption("This store is closed.", hint="Open a new one.")

    def before_fork(self) -> None:
        """Close connections to SQLite files: its locks are a process's, and a child that has them locks nothing."""
        if is_sqlite_file(self.engine.url):
            self._close_kept()
            self.engine.dispose()

    def give_up(self) -> None:
        """Let the process that was forked have its connections; they are not even closed here, which it would notice.

        A database in memory was copied with the process.
        """
        if self.engine.dialect.name != "sqlite" or is_sqlite_file(self.engine.url):
            give_up(self.engine, self._reading.forget(), self._writing.forget())

    def _close_kept(self) -> None:
        self._reading.close()
        self._writing.close()


class HostTransactions:
    """Runs work inside a transaction that the caller began and will end: no commit, no repetition."""

    keeps_history = False
    notifier = None  # the commit is the caller's

    def __init__(self, host: Connection | OrmSession, *, end_stream: StreamEnder) -> None:
        self._host, self._end_stream = host, end_stream

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads; the caller's transaction begins with it if it has not yet."""
        connection = self._connection()
        if not connection.in_transaction():
            connection.begin()
        try:
            return work(connection)
        except Exception as error:
            hide_parameters(error)
            raise

    def write(self, work: Callable[[Connection], T], *, is_repeatable: bool = False) -> T:
        """Run work whole or not at all, in a savepoint."""
        del is_repeatable  # nothing is repeated that the caller's transaction may have lost
        retries = Retries(is_repeatable=False)
        while True:
            try:
                return _run_in_savepoint(self._connection(), work)
            except LostRace as race:
                retries.count(race)
            except StreamBlocksWrite as blocked:
                retries.count(blocked)
                self.write(partial(self._end_stream, blocked))
            except Exception as error:
                hide_parameters(error)
                raise

    def close(self) -> None:
        """The caller's connection is the caller's."""

    def check_open(self) -> None:
        """It is the caller's, too, to say when it is over."""

    def _connection(self) -> Connection:
        if not isinstance(self._host, Connection):
            return self._host.connection()
        if self._host.closed:
            hint = "Open the conversation again from the store."
            raise InvalidOption("The connection that `within` was given is closed.", hint=hint)
        return self._host


Transactions = EngineTransactions | HostTransactions


def _run_in_transaction(work: Callable[[Connection], T], retries: Retries, connection: Connection) -> T:
    retries.is_committing = False
    connection.begin()
    if connection.dialect.name == "sqlite":
        BEGIN_IMMEDIATE.execute(connection, {})
    elif _is_autocommitting(connection):
        BEGIN.execute(connection, {})
    try:
        result = work(connection)
    except Replay as replay:
        connection.rollback()
        earlier: T = replay.result
        return earlier
    retries.is_committing = True
    connection.commit()
    return result


def _run_in_savepoint(connection: Connection, work: Callable[[Connection], T]) -> T:
    if _is_autocommitting(connection):
        raise InvalidOption("`within` needs a transaction; this connection is in AUTOCOMMIT mode, which has none.")
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite" and not driver.in_transaction:
        # The driver has not begun the caller's transaction yet, and releasing an outermost savepoint would commit.
        BEGIN_IMMEDIATE.execute(connection, {})
    savepoint = connection.begin_nested()
    try:
        result = work(connection)
    except Replay as replay:
        savepoint.rollback()
        earlier: T = replay.result
        return earlier
    except BaseException:
        if savepoint.is_active:
            savepoint.rollback()
        raise
    savepoint.commit()
    return result


def _is_autocommitting(connection: Connection) -> bool:
    """Whether it is psycopg's, in autocommit mode; what it is told to commit, it commits there, too."""
    if connection.dialect.driver not in PSYCOPG:
        return False
    driver: Any = connection.connection.dbapi_connection
    return bool(driver.autocommit)


def _check_cancelled() -> None:
    cancelled = CANCELLED.get()
    if cancelled is not None and cancelled.is_set():
        raise asyncio.CancelledError
