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
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, NestedTransaction
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.util.concurrency import await_only, in_greenlet

from threadkeep.db import hosts, sessions
from threadkeep.db.backends import backend_of
from threadkeep.db.refusals import is_lost, is_taken_back, is_transient
from threadkeep.errors import Conflict, DamagedRow, InvalidOption, PoolExhausted
from threadkeep.store.work.refs import BranchRef

P = ParamSpec("P")
T = TypeVar("T")

# Raised while the database cannot be used; any other error of SQLAlchemy is treated alike: kept, and tried again
AWAY: Final = (SQLAlchemyError, PoolExhausted)
KEPT_SECONDS: Final = 60.0  # how long a connection to a server is not given back to the pool
REFUSED_SECONDS: Final = 10.0  # how long to retry a server that has responded before
TURN_SECONDS: Final = 5.0  # how long a writer to SQLite waits for its turn before it tries the database's own lock

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
    """Return whether the server has sent something unasked: mostly, that it ends the connection."""
    driver: Any = connection.connection.driver_connection
    if _poll is None or not hasattr(driver, "fileno"):
        return False
    waiting = _poll()
    waiting.register(driver.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


@contextmanager
def savepoint(connection: Connection) -> Iterator[NestedTransaction]:
    """Let what happens inside happen as a whole or not at all.

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
        if not is_lost(connection, cause):
            connection.close()
            raise
        hosts.invalidate_lost(connection, error)
        connection.close()
        return False
    return True


class WriterQueue:
    """Lets the threads of a process write to a SQLite database one after the other.

    SQLite's own lock is polled, ever less often, so that a writer sleeps while the database is free. Others that have
    this lock for long, such as a unit of work that stays open, are waited for as other processes are: by SQLite.
    """

    def __init__(self) -> None:
        self._lock = Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until the others have written."""
        has_turn = self._lock.acquire(timeout=TURN_SECONDS)
        try:
            yield
        finally:
            if has_turn:
                self._lock.release()


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
        self._is_shared = keeps and backend_of(engine).is_server
        self._free: deque[tuple[Connection, float]] = deque()
        self._has_answered = False
        self._generation = 0  # of connections: those of an earlier one are not kept any more

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run work on a connection that nothing else uses."""
        with self.lent() as connection:
            return work(connection)

    @contextmanager
    def lent(self) -> Iterator[Connection]:
        """A connection that nothing else uses inside the `with` statement."""
        generation = self._generation
        connection, since = self._take()
        try:
            yield connection
            if connection.in_transaction():
                connection.rollback()
        except BaseException as error:
            sessions.learn_from(connection, error)
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
                self._has_answered = self._waits and backend_of(connection).is_server
                return connection


# ---------------------------------------------------------------------------------------------------------------------
# When a transaction is run again: the exceptions that end one early, and how often, and after which pause

_HELD: Final = (
    "What this needs, on SQLite the file, is locked. In a transaction of your own, use store.within(connection)."
)
REPEAT_SECONDS: Final = 60.0  # how long work is repeated after deadlocks and busy databases
LIMITS: Final = {
    "loss": 5,  # how often after a lost connection
    "race": 5,  # how often after a lost race for an idempotency key
    "clash": 10,  # how often after a broken constraint: media that was collected while it was linked, say
    "stream": 10,  # how often after having ended a response in progress
}


def whole(read: Callable[[], T]) -> T:
    """Return what is read whole, though others may remove it, such as an item before its media were read.

    What seems to be damaged is read once more. If it was removed, it is not found then, or is read as it is now;
    what is damaged still, is damaged.
    """
    with suppress(DamagedRow):
        return read()
    return read()


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
        elif error.connection_invalidated and (self.is_repeatable or not self.is_committing or is_taken_back(error)):
            is_over = self._is_too_often("loss")
        else:
            is_over = self._is_too_often("clash") or not isinstance(error, IntegrityError)
        if is_over:
            if is_transient(error):
                error.add_note(_HELD)
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


# ---------------------------------------------------------------------------------------------------------------------
# Where a transaction begins and ends on a connection: BEGIN and COMMIT, a savepoint, or a single statement


def begin(connection: Connection, *, is_checked: bool = False) -> None:
    """Begin a transaction that writes; `is_checked`: with a statement in any case, which a lost connection fails."""
    connection.begin()
    backend_of(connection).begin(connection, is_checked=is_checked)


def run_in_transaction(work: Callable[[Connection], T], retries: Retries, connection: Connection) -> T:
    """Run work from BEGIN to COMMIT."""
    retries.is_committing = False
    begin(connection)
    try:
        result = work(connection)
    except Replay as replay:
        connection.rollback()
        earlier: T = replay.result
        return earlier
    retries.is_committing = True
    connection.commit()
    return result


def run_at_once(
    at_once: Callable[[Connection], T | None],
    transaction: Callable[[Connection], T],
    retries: Retries,
    connection: Connection,
) -> T:
    """Run a statement that commits itself; the transaction where it did nothing, or was refused before.

    The transaction, too, on a connection that the server has since ended: it notices that before it writes.
    """
    if not retries.failures and backend_of(connection).is_autocommitting(connection) and not has_unread(connection):
        retries.is_committing = True
        result = at_once(connection)
        if result is not None:
            return result
        if connection.in_transaction():  # SQLAlchemy's own, which it begins where an application listens to its events
            connection.rollback()
    return transaction(connection)


def run_in_savepoint(connection: Connection, work: Callable[[Connection], T]) -> T:
    """Run work inside the caller's transaction, whole or not at all."""
    backend_of(connection).begin_savepoint(connection)
    with savepoint(connection) as point:
        try:
            return work(connection)
        except Replay as replay:
            point.rollback()
            earlier: T = replay.result
            return earlier
