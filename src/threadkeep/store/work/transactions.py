"""Transactions: a connection for each, BEGIN and COMMIT, and when one is run again.

The work of a transaction is a function of a Connection. It runs in a transaction of its own (`EngineTransactions`) or
inside one that something else ends (`units`). All of this is written as blocking code. Under asyncio it runs in a
greenlet, where SQLAlchemy's drivers switch to the event loop instead of blocking it, or in a worker thread; see `aio`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from copy import copy
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from threadkeep.db import backends, engines, refusals, replication, sessions
from threadkeep.errors import DamagedRow, InvalidOption, PoolExhausted, ThreadkeepError, UnitOfWorkRolledBack
from threadkeep.store.work import connections, groups, units
from threadkeep.store.work.connections import AtOnce, Work

if TYPE_CHECKING:
    from threadkeep.store.changes.watching import Notifier
    from threadkeep.store.work.replicas import ReplicaReads

LOG: Final = logging.getLogger("threadkeep.streams")
T = TypeVar("T")

KEPT_SECONDS: Final = 60.0  # how long a connection to a server is not given back to the pool
REFUSED_SECONDS: Final = 10.0  # how long to retry a server that has responded before

# Set when the task is cancelled for which a worker thread works
TASK_CANCELLED: Final[ContextVar[Event | None]] = ContextVar("threadkeep_cancelled", default=None)


class Endable(Protocol):
    """What goes on until the store is closed."""

    def end(self) -> None:
        """Stop it, from whichever thread."""


class EngineTransactions(engines.Inheritable):
    """Runs work in transactions of its own and repeats it where that is safe."""

    commits_itself = sees_commit = True  # instead of the caller, until whose commit nobody else sees what was written
    uses_history = True  # what the store has read before is true here, too
    created = None  # what others may have changed is read

    def __init__(
        self, engine: Engine, *, is_owned: bool, end_stream: units.StreamEnder, notifier: Notifier | None = None,
        reads: ReplicaReads | None = None, group_commit: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.engine, self.notifier, self.reads = engine, notifier, reads
        self._closed = Event()  # shared with those that `after` returns
        self.watchers: WeakSet[Endable] = WeakSet()  # which end with it
        self.is_owned, self._end_stream = is_owned, end_stream
        reading, writing = engines.isolation_levels(engine, is_owned=is_owned)
        self.writers = groups.WriterQueue() if engines.is_file(engine.url) else None
        self.is_grouping = group_commit and self.writers is not None
        self._backend = backends.backend_of(engine)
        keeps = is_owned and self._backend.keeps_connections(engine)
        self._writing = Connections(engine, keeps=keeps, isolation=writing, is_hosts=not is_owned)
        self._reading = self._writing
        if reading != writing:
            self._reading = Connections(engine, keeps=keeps, isolation=reading, is_hosts=not is_owned)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads; once more where it seems damaged: others may remove things at the same time."""
        with suppress(DamagedRow):
            return self._read(work)
        return self._read(work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        retries: connections.Retries | None = None
        while True:
            self.check_open()
            _check_cancelled()
            try:
                return self._reading.run(work)
            except DBAPIError as error:
                retries = retries or connections.Retries(is_repeatable=True)
                connections.sleep(retries.pause(error))

    def read_any(self, work: Callable[[Connection], T]) -> T:
        """Run work that only shows something: on the replica, if there is one and it has what must be seen."""
        if self.reads is None:
            return self.read(work)
        self.check_open()
        _check_cancelled()
        return self.reads.read(work, self.read)

    def position(self) -> str:
        """Up to where others must see what was written; see `Store.position`."""
        return str(self.read(replication.read_position) if self.reads is None else self.reads.find_position(self.read))

    def after(self, token: object) -> EngineTransactions:
        """The same, for a session whose reads see at least what was written up to a position, and its own writes."""
        needed = replication.parse_position(token, self.engine)
        if self.reads is None:
            return self
        session = copy(self)
        session.reads = self.reads.from_position(needed)
        return session

    @property
    def outside(self) -> EngineTransactions:
        """The same: it is inside of no transaction."""
        return self

    def within(
        self, connection: Connection, *, has_savepoints: bool = True, begin: Callable[[], None] | None = None
    ) -> units.OwnTransactions:
        """The same inside one of its transactions, whose work it is to end it; arguments as for `OwnTransactions`."""
        return units.OwnTransactions(
            connection, self._end_stream, self, self.reads, has_savepoints=has_savepoints, begin=begin
        )

    @contextmanager
    def begin(self) -> Iterator[units.OwnTransactions]:
        """Begin a unit of work on a connection of its own; commit it at the end of the `with` statement.

        Raises:
            UnitOfWorkRolledBack: the database rolled it back, so that nothing was written.
        """
        with ExitStack() as stack:
            connection = self._begun(stack, connections.Retries(is_repeatable=True))
            unit = self.within(connection)
            with unit.open():
                yield unit
            self._commit(connection)
        self.end_unit(unit)

    def _commit(self, connection: Connection, unit: units.OwnTransactions | None = None) -> None:
        """Commit a transaction; or write what a unit of work has put off, where none was begun."""
        try:
            if unit is not None:
                unit.write_last()
            connection.commit()
        except DBAPIError as error:
            if refusals.is_transient(error):
                raise UnitOfWorkRolledBack from error
            raise
        finally:
            if self.reads is not None:
                self.reads.note_write()

    def end_unit(self, unit: units.OwnTransactions) -> None:
        """Do what follows the commit of a unit of work."""
        unit.is_committed = True
        if self.notifier is not None:
            self.notifier.notify()
        for callback in unit.callbacks:
            callback(self)

    def _begun(self, stack: ExitStack, retries: connections.Retries, *, puts_off: bool = False) -> Connection:
        """Return a connection in a new transaction, which the stack gives back; until it has begun, it is repeated.

        `puts_off`: where statements commit themselves, it is not begun yet.
        """
        while True:
            self.check_open()
            _check_cancelled()
            try:
                with ExitStack() as attempt:
                    attempt.enter_context(self._turn())
                    connection = attempt.enter_context(self._writing.lent())
                    if not (puts_off and self._backend.is_autocommitting(connection)):
                        self._begin(connection)
                    stack.push(attempt.pop_all())
                    return connection
            except DBAPIError as error:
                connections.sleep(retries.pause(error))

    def _begin(self, connection: Connection) -> None:
        connection.begin()
        self._backend.begin(connection, is_checked=True)

    def run_unit(self, work: units.Work[T], *, is_short: bool = False, tried: Iterable[units.Result[T]] = ()) -> T:
        """Run work in a unit of work, and again after the database has rolled it back, or its COMMIT was not answered.

        It is not run again where the traces of an earlier one, or one that was `tried`, show that it was committed. Its
        calls have savepoints only where it goes on after one of them has failed. `is_short`: as for `write`.
        """
        retries, has_savepoints = connections.Retries(is_repeatable=True), False
        begun = [*tried]  # those that may have been committed

        def run(connection: Connection) -> units.Result[T]:
            if (earlier := next((one for one in begun if one[0].has_happened(connection)), None)) is not None:
                return earlier
            begin = None if connection.in_transaction() else partial(self._begin, connection)
            unit = self.within(connection, has_savepoints=has_savepoints, begin=begin)
            with unit.open():
                result = work(unit)
            begun.append((unit, result))
            return begun[-1]

        while True:
            retries.is_committing = False
            try:
                if is_short and self.is_grouping:
                    unit, result = self.write_together(run, retries)
                else:
                    unit, result = self._alone(run, retries, puts_off=not (begun or has_savepoints))
            except units.SavepointsNeeded:
                has_savepoints = True
            except (connections.LostRace, connections.StreamBlocksWrite, UnitOfWorkRolledBack) as reason:
                self._make_way(retries, reason)
            except DBAPIError as error:
                if not retries.is_committing:
                    raise
                connections.sleep(retries.pause(error))
            else:
                self.end_unit(unit)
                return result

    def _alone(self, run: Work[units.Result[T]], retries: connections.Retries, *, puts_off: bool) -> units.Result[T]:
        """Run a unit of work in a transaction of its own."""
        with ExitStack() as stack:
            connection = self._begun(stack, retries, puts_off=puts_off)
            unit, result = run(connection)
            retries.is_committing = True
            self._commit(connection, unit)
        return unit, result

    def after_commit(self, callback: units.AfterCommit) -> None:
        """Call a function now: all that was written is committed."""
        callback(self)

    def write(
        self, work: Work[T], *, is_repeatable: bool = False, is_short: bool = False, at_once: AtOnce[T] | None = None
    ) -> T:
        """Run work whole or not at all; `is_repeatable`: it can be run again without happening twice.

        `is_short`: others can wait for it, so that it is committed together with what they write (`groups`). `at_once`
        does the same in one statement of PostgreSQL. It is tried first, once; None means that it did nothing.
        """
        try:
            return self._write(work, is_repeatable, is_short, at_once)
        finally:
            if self.reads is not None:
                self.reads.note_write()

    def _write(self, work: Work[T], is_repeatable: bool, is_short: bool, at_once: AtOnce[T] | None) -> T:
        retries = connections.Retries(is_repeatable)
        transaction: Work[T] = partial(self._run_in_transaction, work, retries)
        if at_once is not None and self._backend.writes_together:
            transaction = partial(connections.run_at_once, at_once, transaction, retries)
        while True:
            self.check_open()
            _check_cancelled()
            try:
                if is_short and self.is_grouping:
                    result = self.write_together(work, retries)
                else:
                    with self._turn():
                        result = self._writing.run(transaction)
            except (connections.LostRace, connections.StreamBlocksWrite, UnitOfWorkRolledBack) as reason:
                self._make_way(retries, reason)
            except DBAPIError as error:
                connections.sleep(retries.pause(error))
            else:
                if self.notifier is not None:
                    self.notifier.notify()
                return result

    def write_together(self, work: Work[T], retries: connections.Retries) -> T:
        """Run work in a transaction that it may share with others."""
        assert self.writers is not None  # noqa: S101 - for type checkers
        self.check_open()
        return self.writers.write(work, self._writing.lent, retries)

    def _run_in_transaction(self, work: Work[T], retries: connections.Retries, connection: Connection) -> T:
        """Run work from BEGIN to COMMIT."""
        retries.is_committing = False
        connection.begin()
        self._backend.begin(connection, is_checked=False)
        try:
            result = work(connection)
        except connections.Replay as replay:
            connection.rollback()
            earlier: T = replay.result
            return earlier
        retries.is_committing = True
        connection.commit()
        return result

    def _make_way(
        self,
        retries: connections.Retries,
        reason: connections.LostRace | connections.StreamBlocksWrite | UnitOfWorkRolledBack,
    ) -> None:
        """Do what must be done before a transaction is run again."""
        if isinstance(reason, UnitOfWorkRolledBack):  # by the database, in a call of a store
            connections.sleep(retries.pause(reason.__cause__))  # type: ignore[arg-type]  # an error of the database
            return
        retries.count(reason)
        if isinstance(reason, connections.StreamBlocksWrite):
            self.write(partial(self._end_stream, reason), is_repeatable=True)

    def _turn(self) -> AbstractContextManager[None]:
        return nullcontext() if self.writers is None else self.writers.turn()

    def end_lost(self, lost: connections.StreamBlocksWrite) -> None:
        """End a response whose recorder is gone; where nothing can be written, it stays as it is."""
        try:
            self.write(partial(self._end_stream, lost), is_repeatable=True)
        except (DBAPIError, ThreadkeepError) as error:
            LOG.warning("A response whose recorder is gone could not be ended: %s", connections.error_name(error))

    def close(self) -> None:
        """Close the connections that were opened."""
        self._closed.set()
        for watcher in list(self.watchers):
            watcher.end()
        if self.notifier is not None:
            self.notifier.close()
        self._close_kept()
        if self.is_owned:
            self.engine.dispose()
        if self.reads is not None:
            self.reads.replica.close()

    @property
    def is_closed(self) -> bool:
        """Whether it is over."""
        return self._closed.is_set()

    def check_open(self) -> None:
        """Refuse to go on after `close`."""
        if self.is_closed:
            raise InvalidOption("This store is closed.", hint="Open a new one.")

    def before_fork(self) -> None:
        """Close connections to files: their locks are a process's, and a child that has them locks nothing."""
        if engines.is_file(self.engine.url):
            self._close_kept()
            self.engine.dispose()

    def give_up(self) -> None:
        """Let the process that was forked have its connections; they are not even closed here, which it would notice.

        A database in memory was copied with the process.
        """
        if self.writers is not None:
            self.writers = groups.WriterQueue()  # a thread that did not come along may have had its turn
        if not engines.is_in_memory(self.engine.url):
            connections.give_up(self.engine, self._reading.forget(), self._writing.forget())

    def _close_kept(self) -> None:
        self._reading.close()
        self._writing.close()


Transactions = EngineTransactions | units.UnitTransactions | connections.ThreadTransactions


def _check_cancelled() -> None:
    cancelled = TASK_CANCELLED.get()
    if cancelled is not None and cancelled.is_set():
        raise asyncio.CancelledError


# ---------------------------------------------------------------------------------------------------------------------
# Connections for transactions


def _end(connection: Connection) -> None:
    """Close a connection for good: the pool that it is from may be given up."""
    connection.invalidate()
    connection.close()


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
        self._is_server = backends.backend_of(engine).is_server
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
            connections.roll_back_commit(connection)
            connection.close()
            if is_lost:  # the others are, too
                self.close()
            connections.hide_parameters(error)
            raise
        if generation != self._generation:
            _end(connection)
        elif self._keeps and not (self._is_server and self._is_due(since)):
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
        if self._is_server and time.monotonic() - since > KEPT_SECONDS:
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
            if self._isolation is None or connections.set_isolation(connection, self._isolation):
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
                connections.sleep(random.uniform(0, 0.25))  # noqa: S311 - jitter, no secret
            else:
                self._has_answered = self._waits and self._is_server
                return connection
