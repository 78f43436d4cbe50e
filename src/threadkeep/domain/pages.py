"""Pages of listings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)  # without slots: those break Page[int](...) on Python 3.11
class Page(Generic[T]):
    """One page of a listing. Iterate over it, and pass `next` as ``after=`` to get the next page.

    Attributes:
        items: the items on the page.
        next: where the next page begins; None on the last page.
    """

    items: Sequence[T]
    next: str | None = None

    @classmethod
    def of(cls, rows: Sequence[T], limit: int, name: Callable[[T], str]) -> Page[T]:
        """Return a page of at most `limit` rows, of which one more was read; `name` returns the `next` of a row."""
        return cls(rows[:limit], name(rows[limit - 1]) if len(rows) > limit else None)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
