"""How many rows one transaction removes, the breaks between two, and transactions that a thread commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db.backends import backend_of
from threadkeep.errors import UnitOfWorkRolledBack
from threadkeep.store.work import connections
from threadkeep.store.work.transactions import EngineTransactions, Transactions

FIRST: Final = 100  # rows
MOST: Final = 1_000
FEWEST: Final = 1
TARGET: Final = 0.05  # seconds that a transaction is to take
SLICES: Final = 4  # statements that share the rows of a transaction: it can end after each of them
FIRST_STATISTICS: Final = 1_000  # rows, after which the database may have to count them for the first time
LONGEST_BREAK: Final = 0.1  # seconds
UNNOTICED: Final = 0.05  # seconds that all transactions may take before there are breaks

R = TypeVar("R")


class Done(NamedTuple):
    """What a transaction has done: how many of the rows it was given it has looked at, and how many it has changed."""

    rows: int = 0
    changed: int = 0


# (connection, tenant=…, limit=…, …) -> keys of rows
Find = Callable[..., Sequence[Any]]
# (connection, tenant=…, pace=…, keys=…, …) -> what was done with how many of these
Change = Callable[..., Done]


class Pace:
    """How many rows a transaction may change, in proportion to how long the last one took, and when it has to end.

    What a row costs differs by a factor of a hundred: with its size, with what refers to it, with the load. So a
    transaction changes its rows in slices, and ends after the slice that takes it beyond the time that it may take.
    A transaction of the caller's keeps its locks until the caller ends it: it changes all rows, in large slices.
    """

    def __init__(self, *, can_end: bool = True) -> None:
        self.rows, self._can_end = FIRST if can_end else MOST, can_end
        self._begun, self._done = monotonic(), 0

    @property
    def slice(self) -> int:
        """How many rows the next statement may change."""
        return max(1, min(self.rows // SLICES, self.rows - self._done)) if self._can_end else self.rows // SLICES

    @property
    def is_over(self) -> bool:
        """Whether the transaction has to end; not before it has changed a row, however slow everything is."""
        is_due = self._done >= self.rows or monotonic() - self._begun >= TARGET
        return self._can_end and self._done > 0 and is_due

    def begin(self) -> None:
        """A transaction begins, or begins again."""
        self._begun, self._done = monotonic(), 0

    def note(self, rows: int) -> None:
        """Rows have been changed."""
        self._done += rows

    def end(self) -> None:
        """The transaction has ended, and the next one may have at most twice the rows."""
        seconds = max(monotonic() - self._begun, 1e-6)
        if self._can_end and (seconds >= TARGET or self._done >= self.rows):  # else it tells nothing about more rows
            wanted = int(max(self._done, 1) * TARGET / seconds)
            self.rows = max(FEWEST, min(MOST, 2 * self.rows, wanted))

    def change(self, rows: Sequence[R], change: Callable[[Sequence[R]], int], *, size: int | None = None) -> Done:
        """Change some rows slice by slice, as many of them as there is time for; `size`: of a slice."""
        looked_at = changed = 0
        while looked_at < len(rows):
            some = rows[looked_at : looked_at + (size or self.slice)]
            changed += change(some)
            looked_at += len(some)
            self.note(len(some))
            if self.is_over:
                break
        return Done(looked_at, changed)


class Breaks:
    """The breaks between transactions, each as long as the transaction before it.

    Who waits for SQLite's only writer looks up to ten times a second whether it has finished. Without breaks, it
    would always find the next transaction. Servers have one disk for all, which the removal of many rows keeps busy:
    with breaks, 99 of 100 appends to a large store took at most 14 ms, and 163 ms without.
    """

    def __init__(self) -> None:
        self._busy = 0.0

    def after(self, seconds: float) -> float:
        """Return how many seconds to wait after a transaction that took so many."""
        self._busy += seconds
        return min(seconds, LONGEST_BREAK) if self._busy > UNNOTICED else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Rows of many conversations, named by their conversation and number: finding them, and changing just these

# The key of a conversation, and the number of a response or the position of an item there
Place = tuple[int, int]


class Upkeep:
    """Keeps the statistics of the database up with many new rows: after 1,000, and when they have doubled.

    Without, PostgreSQL reads all of a table that was empty when it planned a statement, again and again.

    Not in a host's transaction: the locks would last as long as it does.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._rows, self._next = 0, FIRST_STATISTICS

    def add(self, rows: int) -> None:
        """Note that so many rows were written, and committed."""
        self._rows += rows
        if self._rows >= self._next and self._transactions.commits_itself:
            self._next = 2 * self._rows
            self._transactions.write(
                lambda connection: backend_of(connection).analyze_grown(connection), is_repeatable=True
            )


# ---------------------------------------------------------------------------------------------------------------------
# Transactions in a row, of which one is committed while the next one is prepared

_TRIED_AGAIN: Final = (DBAPIError, UnitOfWorkRolledBack, connections.LostRace, connections.StreamBlocksWrite)


class FailedBehind(Exception):
    """What was written before could not be committed, or what was called then has failed: see the cause."""


class CommitsBehind:
    """Transactions whose COMMIT a thread does, one at a time, while the caller prepares the next one.

    A COMMIT takes a tenth of an import, in which Python has nothing to do. This is for SQLite files that the store has
    opened, and inside of `open`; everything else is committed at once.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._thread: ThreadPoolExecutor | None = None
        self._pending: tuple[Future[None], list[Callable[[], object]]] | None = None
        self._callbacks: list[Callable[[], object]] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        """Commit behind inside a `with` statement, whose end waits for the last COMMIT, and raises its error."""
        given = self._transactions
        if not isinstance(given, EngineTransactions) or given.writers is None or not given.is_owned:
            yield
            return
        with ThreadPoolExecutor(1, "threadkeep-commit") as thread:
            self._thread = thread
            try:
                yield
                self.settle()
            except FailedBehind as failed:
                raise failed.__cause__ or failed from None
            finally:
                self._thread = None

    def write(self, work: Callable[[Connection], R], again: Callable[[], object]) -> R:
        """Run work in a transaction; `again` does all of it once more where the COMMIT fails.

        Raises:
            FailedBehind: the one before has failed, and once more.
        """
        self.settle()
        with suppress(*_TRIED_AGAIN):  # by what follows
            if self._thread is not None:
                with ExitStack() as stack:
                    unit = stack.enter_context(self._transactions.begin())
                    result = work(unit.connection)
                    self._pending = self._thread.submit(_end, stack.pop_all(), kept := [again]), kept
                return result
        return self._transactions.write(work, is_repeatable=True, is_short=True)

    def settle(self) -> None:
        """Wait until everything is committed.

        Raises:
            FailedBehind: it was not, and could not be written once more.
        """
        callbacks, self._callbacks = self._callbacks, []
        try:
            if self._pending is not None:
                (ending, kept), self._pending = self._pending, None
                self._wait(ending, kept)
            for callback in callbacks:
                callback()
        except Exception as error:
            raise FailedBehind from error

    def _wait(self, ending: Future[None], kept: Sequence[Callable[[], object]]) -> None:
        try:
            ending.result()
        except _TRIED_AGAIN:
            thread, self._thread = self._thread, None  # and wait for it
            for again in kept:
                again()
            self._thread = thread

    def after_commit(self, callback: Callable[[], object]) -> None:
        """Call a function once everything is committed: now, or in the next `settle`."""
        if self._pending is None:
            callback()
        else:
            self._callbacks.append(callback)


def _end(transaction: ExitStack, kept: list[Any]) -> None:
    """Commit, and let go of what would be needed otherwise."""
    transaction.close()
    kept.clear()
