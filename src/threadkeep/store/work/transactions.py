"""Transactions: a connection for each, BEGIN and COMMIT, and when one is run again.

The work of a transaction is a function of a Connection. It runs in a transaction of its own (`EngineTransactions`) or
inside one that something else ends (`units`). All of this is written as blocking code. Under asyncio it runs in a
greenlet, where SQLAlchemy's drivers switch to the event loop instead of blocking it, or in a worker thread; see `aio`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from threadkeep.db import backends, refusals, replication
from threadkeep.db.engines import Inheritable, is_file, is_in_memory, isolation_levels
from threadkeep.errors import InvalidOption, ThreadkeepError, UnitOfWorkRolledBack
from threadkeep.store.work import connections, units
from threadkeep.store.work.replicas import ReplicaReads

if TYPE_CHECKING:
    from threadkeep.store.changes.watching import Notifier

LOG: Final = logging.getLogger("threadkeep.streams")
T = TypeVar("T")
Work = Callable[[Connection], T]
AtOnce = Callable[[Connection], T | None]

# Set when the task is cancelled for which a worker thread works
TASK_CANCELLED: Final[ContextVar[Event | None]] = ContextVar("threadkeep_cancelled", default=None)


class Endable(Protocol):
    """What goes on until the store is closed."""

    def end(self) -> None:
        """Stop it, from whichever thread."""


class EngineTransactions(Inheritable):
    """Runs work in transactions of its own and repeats it where that is safe."""

    commits_itself = sees_commit = True  # instead of the caller, until whose commit nobody else sees what was written
    uses_history = True  # what the store has read before is true here, too

    def __init__(
        self, engine: Engine, *, is_owned: bool, end_stream: units.StreamEnder, notifier: Notifier | None = None,
        reads: ReplicaReads | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.engine, self.notifier, self.reads = engine, notifier, reads
        self._closed = Event()  # shared with those that `after` returns
        self.watchers: WeakSet[Endable] = WeakSet()  # which end with it
        self._is_owned, self._end_stream = is_owned, end_stream
        reading, writing = isolation_levels(engine, is_owned=is_owned)
        self._queue = connections.WriterQueue() if is_file(engine.url) else None
        keeps = is_owned and backends.backend_of(engine).keeps_connections(engine)
        self._writing = connections.Connections(engine, keeps=keeps, isolation=writing, is_hosts=not is_owned)
        self._reading = self._writing
        if reading != writing:
            self._reading = connections.Connections(engine, keeps=keeps, isolation=reading, is_hosts=not is_owned)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""
        return connections.whole(partial(self._read, work))

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
        session.reads = ReplicaReads(self.reads.replica, needed)
        return session

    @property
    def outside(self) -> EngineTransactions:
        """The same: it is inside of no transaction."""
        return self

    def within(self, connection: Connection, *, has_savepoints: bool = True) -> units.OwnTransactions:
        """The same inside one of its transactions, whose work it is to end it."""
        return units.OwnTransactions(connection, self._end_stream, self, self.reads, has_savepoints=has_savepoints)

    @contextmanager
    def begin(
        self, retries: connections.Retries | None = None, *, has_savepoints: bool = True
    ) -> Iterator[units.OwnTransactions]:
        """Begin a unit of work on a connection of its own; commit it at the end of the `with` statement.

        Raises:
            UnitOfWorkRolledBack: the database rolled it back, so that nothing was written.
        """
        with ExitStack() as stack:
            connection = self._begun(stack, retries or connections.Retries(is_repeatable=True))
            unit = self.within(connection, has_savepoints=has_savepoints)
            with unit.open():
                yield unit
            unit.is_committing = True
            try:
                connection.commit()
            except DBAPIError as error:
                if refusals.is_transient(error):
                    raise UnitOfWorkRolledBack from error
                raise
            finally:
                if self.reads is not None:
                    self.reads.note_write()
        self._end_unit(unit)

    def _end_unit(self, unit: units.OwnTransactions) -> None:
        """Do what follows the commit of a unit of work."""
        unit.is_committed = True
        if self.notifier is not None:
            self.notifier.notify()
        for callback in unit.callbacks:
            callback(self)

    def _begun(self, stack: ExitStack, retries: connections.Retries) -> Connection:
        """Return a connection in a new transaction, which the stack gives back; until it has begun, it is repeated."""
        while True:
            self.check_open()
            _check_cancelled()
            try:
                with ExitStack() as attempt:
                    attempt.enter_context(self._turn())
                    connection = attempt.enter_context(self._writing.lent())
                    connections.begin(connection, is_checked=True)
                    stack.push(attempt.pop_all())
                    return connection
            except DBAPIError as error:
                connections.sleep(retries.pause(error))

    def run_unit(self, work: Callable[[units.OwnTransactions], T]) -> T:
        """Run work in a unit of work, and again after the database has rolled it back, or its COMMIT was not answered.

        It is not run again where the traces of the first one show that it was committed. Its calls have savepoints only
        where it goes on after one of them has failed.
        """
        retries, has_savepoints = connections.Retries(is_repeatable=True), False
        lost: units.OwnTransactions | None = None  # whose COMMIT was not answered
        while True:
            unit = None
            try:
                with self.begin(retries, has_savepoints=has_savepoints) as unit:
                    if lost is None or not lost.has_happened(unit.connection):
                        result, lost = work(unit), None
            except units.SavepointsNeeded:
                has_savepoints = True
            except (connections.LostRace, connections.StreamBlocksWrite, UnitOfWorkRolledBack) as reason:
                self._make_way(retries, reason)
            except DBAPIError as error:
                if unit is None or not unit.is_committing:
                    raise
                lost = lost or unit
                connections.sleep(retries.pause(error))
            else:
                if lost is not None:
                    self._end_unit(lost)
                return result

    def after_commit(self, callback: units.AfterCommit) -> None:
        """Call a function now: all that was written is committed."""
        callback(self)

    def write(self, work: Work[T], *, is_repeatable: bool = False, at_once: AtOnce[T] | None = None) -> T:
        """Run work whole or not at all; `is_repeatable`: it can be run again without happening twice.

        `at_once` does the same in one statement of PostgreSQL. It is tried first, once; None means that it did nothing.
        """
        try:
            return self._write(work, is_repeatable, at_once)
        finally:
            if self.reads is not None:
                self.reads.note_write()

    def _write(self, work: Work[T], is_repeatable: bool, at_once: AtOnce[T] | None) -> T:
        retries = connections.Retries(is_repeatable)
        transaction: Work[T] = partial(connections.run_in_transaction, work, retries)
        if at_once is not None and backends.backend_of(self.engine).writes_together:
            transaction = partial(connections.run_at_once, at_once, transaction, retries)
        while True:
            self.check_open()
            _check_cancelled()
            try:
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
        return nullcontext() if self._queue is None else self._queue.turn()

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
        if self._is_owned:
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
        if is_file(self.engine.url):
            self._close_kept()
            self.engine.dispose()

    def give_up(self) -> None:
        """Let the process that was forked have its connections; they are not even closed here, which it would notice.

        A database in memory was copied with the process.
        """
        if self._queue is not None:
            self._queue = connections.WriterQueue()  # a thread that did not come along may have had its turn
        if not is_in_memory(self.engine.url):
            connections.give_up(self.engine, self._reading.forget(), self._writing.forget())

    def _close_kept(self) -> None:
        self._reading.close()
        self._writing.close()


class ThreadTransactions:
    """Runs the work of a store on SQLite in worker threads, for code in a greenlet that also works with another store.

    After a cancellation, the thread finishes its transaction, and nothing begins another one.
    """

    commits_itself = sees_commit = True
    uses_history = True
    notifier = None

    def __init__(self, inner: Transactions) -> None:
        self._inner = inner

    @property
    def reads(self) -> ReplicaReads | None:
        """None: there is no replica of it."""
        return self._inner.reads

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""
        return connections.run_blocking(self._inner.read, work)

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

    def run_unit(self, work: Callable[[units.OwnTransactions], T]) -> T:
        """Run work in a unit of work."""
        return connections.run_blocking(self._inner.run_unit, work)

    def after_commit(self, callback: units.AfterCommit) -> None:
        """Call a function now: all that was written is committed."""
        callback(self)

    def write(self, work: Work[T], *, is_repeatable: bool = False, at_once: AtOnce[T] | None = None) -> T:
        """Run work whole or not at all."""
        del at_once  # SQLite has no such statement
        return connections.run_blocking(self._inner.write, work, is_repeatable=is_repeatable)

    def end_lost(self, lost: connections.StreamBlocksWrite) -> None:
        """End a response whose recorder is gone, if that can be."""
        connections.run_blocking(self._inner.end_lost, lost)

    def close(self) -> None:
        """The connections are the store's on SQLite."""

    def check_open(self) -> None:
        """Refuse to go on after that store was closed."""
        self._inner.check_open()


Transactions = EngineTransactions | units.UnitTransactions | ThreadTransactions


def _check_cancelled() -> None:
    cancelled = TASK_CANCELLED.get()
    if cancelled is not None and cancelled.is_set():
        raise asyncio.CancelledError
