"""How many rows one transaction removes, and the breaks between two, so that others hardly wait for its locks."""

from __future__ import annotations

from typing import Final

FIRST: Final = 250  # rows
MOST: Final = 1_000
FEWEST: Final = 10
QUICK: Final = 0.025  # seconds
SLOW: Final = 0.1
UNNOTICED: Final = 0.05  # seconds that all transactions may take before there are breaks


class Pace:
    """The rows of the next transaction: half as many after a slow one, twice as many after a quick one.

    What a row costs differs by a factor of a hundred: with its size, with what refers to it, with the load.
    """

    def __init__(self) -> None:
        self.rows = FIRST

    def after(self, seconds: float) -> None:
        """Learn how long a transaction took."""
        if seconds > SLOW:
            self.rows = max(FEWEST, self.rows // 2)
        elif seconds < QUICK:
            self.rows = min(MOST, 2 * self.rows)


class Breaks:
    """The breaks between transactions on SQLite, each as long as the transaction before it.

    Whoever waits for SQLite's only writer looks up to ten times a second whether it has finished. Without breaks, it
    would always find the next transaction.
    """

    def __init__(self) -> None:
        self._busy = 0.0

    def after(self, seconds: float) -> float:
        """Return how many seconds to wait after a transaction that took so many."""
        self._busy += seconds
        return min(seconds, SLOW) if self._busy > UNNOTICED else 0.0
