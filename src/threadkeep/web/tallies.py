"""How much each owner has of something that a server has not without end: what all limits by owner count with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Tally(Counter[Hashable]):
    """Numbers by the names of owners; whoever has nothing (any more) is not in it."""

    def add(self, name: Hashable, amount: int) -> None:
        """Add an amount, or with a negative one take it away."""
        self[name] += amount
        if not self[name]:
            del self[name]

    @contextmanager
    def one_more(self, name: Hashable) -> Iterator[None]:
        """Count one while it lasts."""
        self.add(name, 1)
        try:
            yield
        finally:
            self.add(name, -1)
