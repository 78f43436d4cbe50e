"""Transactions: a connection for each, BEGIN and COMMIT, and when one is run again.

The work of a transaction is a function of a Connection. It runs in a transaction of its own (`EngineTransactions`) or
inside the caller's (`HostTransactions`). All of this is written as blocking code. Under asyncio it runs in a greenlet,
where SQLAlchemy's drivers switch to the event loop instead of blocking it, or in a worker thread; see `aio`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from threadkeep.db import sessions
from threadkeep.db.replication import parse_position, read_position
from threadkeep.errors import InvalidOption, ThreadkeepError
from threadkeep.store.connections import Connections, error_name, give_up, hide_parameters, run_blocking, sleep
from threadkeep.store.engines import is_sqlite_file, isolation_levels, keeps_connections
from threadkeep.store.forking import Inheritable
from threadkeep.store.replicas import ReplicaReads
from threadkeep.store.retries import LostRace, Retries, StreamBlocksWrite, whole
from threadkeep.store.transaction_bounds import run_at_once, run_in_savepoint, run_in_transaction

if TYPE_CHECKING:
    from sqlalchemy.orm import Session as OrmSession

    from threadkeep.store.changes.notify import Notifier

LOG: Final = logging.getLogger("threadkeep.streams")
T = TypeVar("T")
Work = Callable[[Connection], T]
AtOnce = Callable[[Connection], T | None]

# Set when the task is cancelled for which a worker thread works
CANCELLED: Final[ContextVar[Event | None]] = ContextVar("threadkeep_cancelled", default=None)


# Ends the response in progress that blocks a write
StreamEnder = Callable[[StreamBlocksWrite, Connection], None]


class Endable(Protocol):
    """What goes on until the store is closed."""

    def end(self) -> None:
        """Stop it, from whichever thread."""


class EngineTransactions(Inheritable):
    """Runs work in transactions of its own and repeats it where that is safe."""

    commits_itself = True  # instead of the caller, until whose commit nobody else sees what was written
    uses_history = True  # what the store has read before is true here, too

    def __init__(
        self, engine: Engine, *, is_owned: bool, end_stream: StreamEnder, notifier: Notifier | None = None,
        reads: ReplicaReads | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.engine, self.notifier, self.reads = engine, notifier, reads
        self._closed = Event()  # shared with those that `after` returns
        self.watchers: WeakSet[Endable] = WeakSet()  # which end with it
        self._is_owned, self._end_stream = is_owned, end_stream
        reading, writing = isolation_levels(engine.dialect, is_owned=is_owned)
        keeps = is_owned and keeps_connections(engine)
        self._writing = Connections(engine, keeps=keeps, isolation=writing, is_hosts=not is_owned)
        self._reading = self._writing
        if reading != writing:
            self._reading = Connections(engine, keeps=keeps, isolation=reading, is_hosts=not is_owned)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""
        return whole(partial(self._read, work))

    def _read(self, work: Callable[[Connection], T]) -> T:
        retries: Retries | None = None
        while True:
            self.check_open()
            _check_cancelled()
            try:
                return self._reading.run(work)
            except DBAPIError as error:
                retries = retries or Retries(is_repeatable=True)
                sleep(retries.pause(error))

    def read_any(self, work: Callable[[Connection], T]) -> T:
        """Run work that only shows something: on the replica, if there is one and it has what must be seen."""
        if self.reads is None:
            return self.read(work)
        self.check_open()
        _check_cancelled()
        return self.reads.read(work, self.read)

    def position(self) -> str:
        """Up to where others must see what was written; see `Store.position`."""
        return str(self.read(read_position) if self.reads is None else self.reads.find_position(self.read))

    def after(self, token: object) -> EngineTransactions:
        """The same, for a session whose reads see at least what was written up to a position, and its own writes."""
        needed = parse_position(token, self.engine.dialect)
        if self.reads is None:
            return self
        session = copy(self)
        session.reads = ReplicaReads(self.reads.replica, needed)
        return session

    def within(self, connection: Connection) -> HostTransactions:
        """The same inside one of its transactions, whose work it is to end it."""
        return HostTransactions(connection, end_stream=self._end_stream, reads=self.reads, is_own=True)

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
        retries = Retries(is_repeatable)
        transaction: Work[T] = partial(run_in_transaction, work, retries)
        if at_once is not None and self.engine.dialect.name == "postgresql":
            transaction = partial(run_at_once, at_once, transaction, retries)
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

    def end_lost(self, lost: StreamBlocksWrite) -> None:
        """End a response whose recorder is gone; where nothing can be written, it stays as it is."""
        try:
            self.write(partial(self._end_stream, lost), is_repeatable=True)
        except (DBAPIError, ThreadkeepError) as error:
            LOG.warning("A response whose recorder is gone could not be ended: %s", error_name(error))

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
    """Runs work inside a transaction that the caller began and will end: no commit, no repetition.

    `is_own`: the caller is the store itself, so that the transaction sees no older data than the store has read.
    """

    commits_itself = False
    notifier = None  # the commit is the caller's

    def __init__(
        self, host: Connection | OrmSession, *, end_stream: StreamEnder, reads: ReplicaReads | None = None,
        is_own: bool = False,
    ) -> None:  # fmt: skip
        self._host, self._end_stream = host, end_stream
        self.reads = reads  # of the store whose data is written
        self.uses_history = is_own

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads; the caller's transaction begins with it if it has not yet."""
        connection = self._connection()
        if not connection.in_transaction():
            connection.begin()
        try:
            return whole(partial(work, connection))
        except Exception as error:
            hide_parameters(error)
            raise

    def read_any(self, work: Callable[[Connection], T]) -> T:
        """Like `read`: nothing but the caller's transaction has what was written in it."""
        return self.read(work)

    def position(self) -> str:
        """Refused: nothing is committed yet."""
        hint = "After the commit, call position() on the store that within() was called on."
        raise InvalidOption("What a transaction writes has no position before it is committed.", hint=hint)

    def after(self, token: object) -> HostTransactions:
        """The same: everything is read in the caller's transaction."""
        parse_position(token, self._connection().dialect)
        return self

    def within(self, connection: Connection) -> HostTransactions:
        """The same: it is inside one already."""
        del connection
        return self

    def write(self, work: Work[T], *, is_repeatable: bool = False, at_once: AtOnce[T] | None = None) -> T:
        """Run work whole or not at all, in a savepoint."""
        del is_repeatable, at_once  # nothing is repeated that the caller's transaction may have lost
        if self.reads is not None:
            self.reads.note_write()
        retries = Retries(is_repeatable=False)
        while True:
            try:
                return run_in_savepoint(self._connection(), work)
            except LostRace as race:
                retries.count(race)
            except StreamBlocksWrite as blocked:
                retries.count(blocked)
                self.write(partial(self._end_stream, blocked))
            except Exception as error:
                hide_parameters(error)
                raise

    def end_lost(self, lost: StreamBlocksWrite) -> None:
        """Nothing: what only reads writes nothing in the caller's transaction."""

    def close(self) -> None:
        """The caller's connection is the caller's."""

    def check_open(self) -> None:
        """It is the caller's, too, to say when it is over."""

    def _connection(self) -> Connection:
        connection = self._host if isinstance(self._host, Connection) else self._host.connection()
        if connection.closed:
            hint = "Open the conversation again from the store."
            raise InvalidOption("The connection that `within` was given is closed.", hint=hint)
        sessions.check(connection)
        return connection


class ThreadTransactions:
    """Runs the work of a store on SQLite in worker threads, for code in a greenlet that also works with another store.

    After a cancellation, the thread finishes its transaction, and nothing begins another one.
    """

    commits_itself = True
    uses_history = True
    notifier = None

    def __init__(self, inner: EngineTransactions | HostTransactions | ThreadTransactions) -> None:
        self._inner = inner

    @property
    def reads(self) -> ReplicaReads | None:
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

    def within(self, connection: Connection) -> HostTransactions:
        """The same inside one of its transactions, for work that is in its thread already."""
        return self._inner.within(connection)

    def write(self, work: Work[T], *, is_repeatable: bool = False, at_once: AtOnce[T] | None = None) -> T:
        """Run work whole or not at all."""
        del at_once  # SQLite has no such statement
        return run_blocking(self._inner.write, work, is_repeatable=is_repeatable)

    def end_lost(self, lost: StreamBlocksWrite) -> None:
        """End a response whose recorder is gone, if that can be."""
        run_blocking(self._inner.end_lost, lost)

    def close(self) -> None:
        """The connections are those of the store on SQLite."""

    def check_open(self) -> None:
        """Refuse to go on after that store was closed."""
        self._inner.check_open()


Transactions = EngineTransactions | HostTransactions | ThreadTransactions


def _check_cancelled() -> None:
    cancelled = CANCELLED.get()
    if cancelled is not None and cancelled.is_set():
        raise asyncio.CancelledError
