"""Listings that are read to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from threadkeep import Page

T = TypeVar("T")
PAGE: Final = 500  # rows read at once


def every(listed: Callable[..., Page[T]]) -> Iterator[T]:
    """All that a listing of the library gives, read page by page."""
    after: str | None = None
    while True:
        page = listed(after=after, limit=PAGE)
        yield from page
        if page.next is None:
            return
        after = page.next
