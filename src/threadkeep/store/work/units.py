"""Units of work: several calls in one transaction, which the store (`begin`) or the application (`within`) ends.

What came out of a unit of work belongs to its transaction. After its end, everything that would read or write raises
UnitOfWorkEnded: another transaction may have begun on the same connection, which would never be committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db import backends, refusals, replication, sessions
from threadkeep.errors import InvalidOption, UnitOfWorkEnded, UnitOfWorkRolledBack
from threadkeep.store.work import connections

if TYPE_CHECKING:
    from sqlalchemy.orm import Session as OrmSession

    from threadkeep.store.reading.history import HistoryPage
    from threadkeep.store.work.connections import ThreadTransactions
    from threadkeep.store.work.positions import UnwrittenConversation
    from threadkeep.store.work.replicas import ReplicaReads
    from threadkeep.store.work.transactions import EngineTransactions

T = TypeVar("T")
Outside: TypeAlias = "EngineTransactions | ThreadTransactions"
AfterCommit: TypeAlias = "Callable[[EngineTransactions | ThreadTransactions], object]"

Work: TypeAlias = "Callable[[OwnTransactions], T]"
Result: TypeAlias = "tuple[OwnTransactions, T]"  # a unit of work that has ended, with what came of it
# Ends the response in progress that blocks a write
StreamEnder = Callable[[connections.StreamBlocksWrite, Connection], None]


class SavepointsNeeded(BaseException):
    """Ends a function that goes on after a failed call, in a transaction without savepoints: it is called again.

    No Exception, which the function may catch.
    """


class UnitTransactions(ABC):
    """Runs work inside one transaction that something else ends: each call in a savepoint, without repeating it.

    `outside` are transactions of the same store, for what goes on after the end.
    """

    commits_itself = False
    sees_commit = False  # so that `after_commit` calls
    uses_history = False  # what the store has read before may be newer than what this transaction sees
    notifier = None  # called after the commit, by what commits
    created: HistoryPage | None = None  # the conversation that was just created here, if nothing was written since

    def __init__(self, end_stream: StreamEnder, outside: Outside, reads: ReplicaReads | None) -> None:
        self.end_stream, self.outside, self.reads = end_stream, outside, reads

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """The connection of the transaction; UnitOfWorkEnded after its end."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the transaction has ended."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""
        try:
            return connections.whole(partial(work, self.connection))
        except Exception as error:
            self._check_failure(error)
            raise

    def read_any(self, work: Callable[[Connection], T]) -> T:
        """Like `read`: only this transaction has what was written in it."""
        return self.read(work)

    def position(self) -> str:
        """Refused: nothing is committed yet."""
        hint = "After the commit, call position() on the store itself."
        raise InvalidOption("What a transaction writes has no position before it is committed.", hint=hint)

    def after(self, token: object) -> Self:
        """The same: everything is read in this transaction."""
        replication.parse_position(token, self.connection)
        return self

    def within(self, connection: Connection) -> Self:
        """The same: it is inside one already."""
        del connection
        return self

    def write(
        self, work: Callable[[Connection], T], *, is_repeatable: bool = False, is_short: bool = False,
        at_once: object = None,
    ) -> T:  # fmt: skip
        """Run work whole or not at all, in a savepoint."""
        del is_repeatable, is_short, at_once  # nothing is repeated that the transaction may have lost
        if self.reads is not None:
            self.reads.note_write()
        retries = connections.Retries(is_repeatable=False)
        while True:
            try:
                return connections.run_in_savepoint(self.connection, work)
            except connections.LostRace as race:
                retries.count(race)
            except connections.StreamBlocksWrite as blocked:
                retries.count(blocked)
                self.write(partial(self.end_stream, blocked))
            except Exception as error:
                self._check_failure(error)
                raise

    @contextmanager
    def begin(self) -> Iterator[OwnTransactions]:
        """Begin a unit of work in a savepoint of this transaction."""
        self.created = None
        backends.backend_of(self.connection).begin_savepoint(self.connection)
        inner = OwnTransactions(self.connection, self.end_stream, self.outside, self.reads, parent=self)
        with connections.savepoint(self.connection), inner.open():
            yield inner
        inner.is_committed = True
        for callback in inner.callbacks:
            self.after_commit(callback)

    def run_unit(self, work: Work[T], *, is_short: bool = False) -> T:
        """Run work in a unit of work, once."""
        del is_short
        with self.begin() as unit:
            return work(unit)

    def after_commit(self, callback: AfterCommit) -> None:  # noqa: B027 - not for every kind
        """Have a function called after the commit; here it is not known when that is, so it is not called."""

    @abstractmethod
    def successor(self) -> Outside | UnitTransactions:
        """What goes on after the end: outside of all transactions, or in the one around a savepoint.

        Raises:
            UnitOfWorkEnded: it was rolled back.
        """

    def end_lost(self, lost: connections.StreamBlocksWrite) -> None:  # noqa: B027 - the same for all kinds
        """Do nothing: what only reads does not write in this transaction."""

    def close(self) -> None:  # noqa: B027 - the same for all kinds
        """Do nothing: the connection is not the store's to close."""

    def check_open(self) -> None:
        """Raise UnitOfWorkEnded after the end of the transaction."""
        if self.is_over:
            raise UnitOfWorkEnded

    def _check_failure(self, error: Exception) -> None:
        """Let an error show no parameters of statements."""
        connections.hide_parameters(error)


class HostTransactions(UnitTransactions):
    """Runs work inside a transaction of the application: the one that its connection or session is in.

    It is the one that is open when the store is made, or else the first one that is begun afterwards.
    """

    def __init__(
        self, host: Connection | OrmSession, end_stream: StreamEnder, outside: Outside, reads: ReplicaReads | None
    ) -> None:
        super().__init__(end_stream, outside, reads)
        self._host = host
        self._transaction: Any = host.get_transaction()

    @property
    def connection(self) -> Connection:
        """The application's connection, in the transaction that this unit of work belongs to."""
        self.check_open()
        connection = self._host if isinstance(self._host, Connection) else self._host.connection()
        if connection.closed:
            raise UnitOfWorkEnded
        sessions.check(connection)
        if self._transaction is None:
            if not connection.in_transaction():
                connection.begin()
            self._transaction = self._host.get_transaction()
        return connection

    @property
    def is_over(self) -> bool:
        """Whether the application has ended the transaction: by commit, rollback or close."""
        return self._transaction is not None and self._host.get_transaction() is not self._transaction

    def successor(self) -> Outside:
        """Outside of all transactions; whether it was rolled back is not known."""
        return self.outside


class OwnTransactions(UnitTransactions):
    """Runs work inside a transaction that the store has begun, and ends with a `with` statement.

    `parent`: it is a savepoint of that one. Unless it `has_savepoints`, calls have none of their own, which saves two
    statements each. Then nothing can go on after a failed call: SavepointsNeeded is raised by the next one, and by
    `open` at its end. Then, too, it `puts_off` BEGIN and the rows of a new conversation until something else is done in
    the database: where nothing is, one statement of PostgreSQL can be the whole transaction.
    """

    uses_history = sees_commit = True

    def __init__(
        self, connection: Connection, end_stream: StreamEnder, outside: Outside, reads: ReplicaReads | None,
        parent: UnitTransactions | None = None, *, has_savepoints: bool = True,
        begin: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """`begin`: begins the transaction, where that is put off."""
        super().__init__(end_stream, outside, reads)
        self._connection, self._parent, self._has_savepoints = connection, parent, has_savepoints
        self._begin = begin
        self.puts_off = not has_savepoints
        self.unwritten: UnwrittenConversation | None = None  # what is put off
        self._is_torn = False  # whether a call has failed that had no savepoint
        self._has_ended = self._is_rolled_back = False
        self.is_committed = False
        self._endings: list[Callable[[], object]] = []
        self.callbacks: list[AfterCommit] = []
        self.traces: list[Callable[[Connection], bool]] = []  # each finds out whether the commit has happened
        if parent is not None:
            self.uses_history, self.sees_commit = parent.uses_history, parent.sees_commit

    @property
    def connection(self) -> Connection:
        """The connection of the transaction; UnitOfWorkEnded after its end."""
        if self._is_rolled_back or self.is_over:
            raise UnitOfWorkEnded
        self.check_whole()
        if self._begin is not None or self.unwritten is not None:
            self._write_unwritten()
        return self._connection

    def _write_unwritten(self) -> None:
        """Do what was put off."""
        begin, self._begin = self._begin, None
        try:
            if begin is not None:
                begin()
            self.write_last()
        except DBAPIError as error:
            self._is_torn = True
            self._check_failure(error)
            raise SavepointsNeeded from error

    def put_off(self, new: UnwrittenConversation) -> None:
        """Have a conversation written with what follows."""
        if self.unwritten is not None:
            self._write_unwritten()
        self.unwritten, self.created = new, None

    def write_last(self) -> None:
        """Write what was put off; after the end, in one statement that commits itself."""
        if (unwritten := self.unwritten) is not None:
            self.unwritten = None
            unwritten.write(self._connection)

    @property
    def is_over(self) -> bool:
        """Whether its `with` statement, or the one around it, has ended."""
        return self._has_ended or (self._parent is not None and self._parent.is_over)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let it be open inside a `with` statement, at whose end what was put off is written."""
        try:
            yield
            while self._endings:
                self._endings.pop(0)()
            if self.unwritten is not None and (self._begin is None or not self.unwritten.is_statement):
                self._write_unwritten()
            if self._is_rolled_back:
                raise UnitOfWorkRolledBack
            self.check_whole()
        finally:
            self._has_ended = True

    def write(
        self, work: Callable[[Connection], T], *, is_repeatable: bool = False, is_short: bool = False,
        at_once: object = None,
    ) -> T:  # fmt: skip
        """Run work whole or not at all: in a savepoint, or as a part of the whole transaction."""
        self.created = None
        if self._has_savepoints:
            return super().write(work, is_repeatable=is_repeatable, is_short=is_short, at_once=at_once)
        connection = self.connection
        try:
            return work(connection)
        except connections.Replay as replay:
            raise SavepointsNeeded from replay
        except BaseException as error:
            self._is_torn = True
            if isinstance(error, Exception):
                self._check_failure(error)
            raise

    def note_created(self, page: HistoryPage) -> None:
        """Keep what a conversation has that was created just now: nothing changes it until more is written here."""
        self.created = page if self._parent is None else None

    def check_whole(self) -> None:
        """Raise SavepointsNeeded after a failed call that had no savepoint."""
        if self._is_torn:
            raise SavepointsNeeded

    def before_commit(self, callback: Callable[[], object]) -> None:
        """Have a function called at the end, still inside the transaction."""
        self._endings.append(callback)

    def after_commit(self, callback: AfterCommit) -> None:
        """Have a function called after the commit, with the transactions of the store."""
        self.callbacks.append(callback)

    def successor(self) -> Outside | UnitTransactions:
        """What goes on after the end."""
        if not self.is_committed:
            raise UnitOfWorkEnded
        if self._parent is None:
            return self.outside
        return self._parent.successor() if self._parent.is_over else self._parent

    def has_happened(self, connection: Connection) -> bool:
        """Whether its commit, which was not answered, has left a trace."""
        return any(is_there(connection) for is_there in self.traces)

    def lose(self) -> None:
        """Note that the database has rolled everything back."""
        self._is_rolled_back = True
        if isinstance(self._parent, OwnTransactions):
            self._parent.lose()

    def _check_failure(self, error: Exception) -> None:
        """Raise UnitOfWorkRolledBack where the database has given up the whole transaction."""
        connections.hide_parameters(error)
        if isinstance(error, DBAPIError) and (refusals.is_transient(error) or error.connection_invalidated):
            self.lose()
            raise UnitOfWorkRolledBack from error
