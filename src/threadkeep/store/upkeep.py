"""What an import, or another index of all that there is, does from time to time beside its rows."""

from __future__ import annotations

from typing import Final

from threadkeep.db.planner import analyze_grown
from threadkeep.store.transactions import Transactions

FIRST: Final = 1_000  # rows, after which the database may have to count them for the first time


class Upkeep:
    """Keeps the statistics of the database up with many new rows: after 1,000, and when they have doubled.

    Without, PostgreSQL reads all of a table that was empty when it planned a statement, again and again.

    Not in a host's transaction: the locks would last as long as it does.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._rows, self._next = 0, FIRST

    def add(self, rows: int) -> None:
        """Note that so many rows were written, and committed."""
        self._rows += rows
        if self._rows >= self._next and self._transactions.commits_itself:
            self._next = 2 * self._rows
            self._transactions.write(analyze_grown, is_repeatable=True)
