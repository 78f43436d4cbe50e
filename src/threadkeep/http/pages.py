"""Pages of lists, which end early where what they have is large: a client that asks for more gets the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.stored import Page
from threadkeep.http.requests import PageQuery

T = TypeVar("T")

MAX_BYTES: Final = 16 * 1024 * 1024  # of a page with more than one object
FIRST: Final = 2  # objects that are read at first …
AT_ONCE: Final = 10  # … and then at once, until one of them is large: what is read has no bound otherwise
_LARGE: Final = 16  # so many such objects fill a page
_GROWTH: Final = 5  # how many times more are read after those of which none was large


class Listed(NamedTuple):
    """The objects of a page, and where the next one begins."""

    data: list[JsonObject]
    next: str | None


async def listed(
    page: PageQuery, read: Callable[[str | None, int], Awaitable[Page[T]]], shown: Callable[[T], JsonObject],
    *, first: int = FIRST, at_once: int = AT_ONCE,
) -> Listed:  # fmt: skip
    """Return a page of objects as they are shown; `read` returns so many after a cursor.

    It ends before the object with which it would have too many bytes, unless that is its first one. The `first` objects
    are read together, later ones `at_once`, and singly after a large one.
    """
    data: list[JsonObject] = []
    left, after, count = MAX_BYTES, page.after, first
    while True:
        found = await read(after, min(count, page.limit - len(data)))
        made = [shown(one) for one in found]
        sizes = [len(dumps(one)) for one in made]
        fitting = _fitting(sizes, left, is_first=not data)
        if fitting < len(made):
            if not fitting:
                return Listed(data, after)
            found = await read(after, fitting)  # again, for the cursor after them
            made = [shown(one) for one in found]
            return Listed([*data, *made], found.next)
        data += made
        left -= sum(sizes)
        after = found.next
        count = 1 if max(sizes, default=0) > MAX_BYTES // _LARGE else min(count * _GROWTH, at_once)
        if after is None or len(data) >= page.limit:
            return Listed(data, after)


def _fitting(sizes: list[int], left: int, *, is_first: bool) -> int:
    """How many objects of these sizes there is room for: in a page that has none yet, at least for one."""
    for count, size in enumerate(sizes):
        left -= size
        if left < 0 and not (is_first and count == 0):
            return count
    return len(sizes)
