"""How many rows one transaction removes, and the breaks between two, so that others hardly wait for its locks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from threadkeep.db.backends import backend_of
from threadkeep.store.work.transactions import Transactions

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
