"""What transactions share: waiting, savepoints, hidden parameters, worker threads, and when one is run again."""

from __future__ import annotations

import asyncio
import random
import re
import select
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, NestedTransaction
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError, StatementError
from sqlalchemy.util.concurrency import await_only, in_greenlet

from threadkeep.db.backends import backend_of
from threadkeep.db.hosts import invalidate_lost
from threadkeep.db.refusals import is_lost, is_taken_back, is_transient
from threadkeep.errors import Conflict, DamagedRow, DatabaseUnavailable, PoolExhausted
from threadkeep.store.work.refs import BranchRef

if TYPE_CHECKING:
    from threadkeep.store.work import replicas, transactions, units

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[Connection], T]
AtOnce = Callable[[Connection], T | None]

# Raised while the database cannot be used; any other error of SQLAlchemy is treated alike: kept, and tried again
AWAY: Final = (SQLAlchemyError, PoolExhausted, DatabaseUnavailable)

LARGE_BYTES: Final = 256 * 1024  # what is read or made of so many is so in a thread: others would wait for it

# How PostgreSQL shows a row that it rejects
_FAILING_ROW: Final = re.compile(r"(?<=Failing row contains )\(.*\)", re.DOTALL)
_poll: Final = getattr(select, "poll", None)  # not on Windows
_ONE: Final = RLock()  # large value is made at a time: several threads would keep the event loop from its turn
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


def made_alone(make: Callable[[], T]) -> T:
    """Return what is made of something large (blocking), one at a time: the event loop waits for each thread."""
    with _ONE:
        return make()


def made_of(size: int, make: Callable[[], T]) -> T:
    """Return what is made of so many bytes, without blocking the event loop where they are many."""
    return run_blocking(made_alone, make) if size > LARGE_BYTES else make()


async def made_aside(size: int, make: Callable[[], T]) -> T:
    """The same for a coroutine."""
    return await asyncio.to_thread(made_alone, make) if size > LARGE_BYTES else make()


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


def roll_back_commit(connection: Connection) -> None:
    """Roll back a transaction whose COMMIT has failed: SQLAlchemy takes it for ended, and SQLite may not have."""
    transaction = None if connection.invalidated else connection.get_transaction()
    if transaction is not None and not transaction.is_active:
        with suppress(Exception):  # the driver's: it was lost
            connection.connection.rollback()


def set_isolation(connection: Connection, level: IsolationLevel) -> bool:
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
        invalidate_lost(connection, error)
        connection.close()
        return False
    return True


def give_up(engine: Engine, *connections: object) -> None:
    """Forget the connections of the process that this one was forked from, without closing them."""
    _INHERITED.extend((*connections, engine.pool))
    engine.dispose(close=False)


class ThreadTransactions:
    """Runs the work of a store on SQLite in worker threads, for code in a greenlet that also works with another store.

    After a cancellation, the thread finishes its transaction, and nothing begins another one.
    """

    commits_itself = sees_commit = True
    uses_history = True
    notifier = created = None

    def __init__(self, inner: transactions.Transactions) -> None:
        self._inner = inner

    @property
    def reads(self) -> replicas.ReplicaReads | None:
        """None: there is no replica of it."""
        return self._inner.reads

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""
        return run_blocking(self._inner.read, work)

    def read_any(self, work: Callable[[Connection], T]) -> T:
        """The same."""
        return self.read(work)

    def position(self) -> str:
        """SQLite has none."""
        return self._inner.position()

    def after(self, token: object) -> ThreadTransactions:
        """The same: it has no replica."""
        return ThreadTransactions(self._inner.after(token))

    @property
    def outside(self) -> ThreadTransactions:
        """The same: it is inside of no transaction."""
        return self

    def within(self, connection: Connection) -> units.UnitTransactions:
        """The same inside one of its transactions, for work that is in its thread already."""
        return self._inner.within(connection)

    def begin(self) -> AbstractContextManager[units.OwnTransactions]:
        """Begin a unit of work, for work that is in its thread already."""
        return self._inner.begin()

    def run_unit(self, work: units.Work[T], *, is_short: bool = False) -> T:
        """Run work in a unit of work."""
        return run_blocking(self._inner.run_unit, work, is_short=is_short)

    def after_commit(self, callback: units.AfterCommit) -> None:
        """Call a function now: all that was written is committed."""
        callback(self)

    def write(
        self, work: Work[T], *, is_repeatable: bool = False, is_short: bool = False, at_once: AtOnce[T] | None = None
    ) -> T:
        """Run work whole or not at all."""
        del at_once  # SQLite has no such statement
        return run_blocking(self._inner.write, work, is_repeatable=is_repeatable, is_short=is_short)

    def end_lost(self, lost: StreamBlocksWrite) -> None:
        """End a response whose recorder is gone, if that can be."""
        run_blocking(self._inner.end_lost, lost)

    def close(self) -> None:
        """The connections are the store's on SQLite."""

    def check_open(self) -> None:
        """Refuse to go on after that store was closed."""
        self._inner.check_open()


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
                problem = "Responses in progress were ended, and each time another one had begun by then."
                raise Conflict(problem, hint="Try again later.")
        elif self._is_too_often("race"):  # the caller's transaction sees the database as it was before
            problem = "The idempotency key was just used in a transaction that this one does not see."
            hint = "Roll back and try again, or use the isolation level READ COMMITTED."
            raise Conflict(problem, hint=hint) from reason.__cause__

    def _is_too_often(self, reason: str) -> bool:
        count = self.counts[reason] = self.counts.get(reason, 0) + 1
        return count > LIMITS[reason]


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
