"""Pages of lists, which end early where what they have is large: a client that asks for more gets the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.stored import Page
from threadkeep.http.requests import PageQuery

T = TypeVar("T")

MAX_BYTES: Final = 16 * 1024 * 1024  # of a page with more than one object
AT_ONCE: Final = 10  # objects that are read at once: what is read is bounded, too


class Listed(NamedTuple):
    """The objects of a page, and where the next one begins."""

    data: list[JsonObject]
    next: str | None


async def listed(
    page: PageQuery, read: Callable[[str | None, int], Awaitable[Page[T]]], shown: Callable[[T], JsonObject],
    *, at_once: int = AT_ONCE,
) -> Listed:  # fmt: skip
    """Return a page of objects as they are shown; `read` returns so many after a cursor.

    It ends before the object with which it would have too many bytes, unless that is its first one.
    """
    data: list[JsonObject] = []
    left, after = MAX_BYTES, page.after
    while True:
        found = await read(after, min(at_once, page.limit - len(data)))
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
        if after is None or len(data) >= page.limit:
            return Listed(data, after)


def _fitting(sizes: list[int], left: int, *, is_first: bool) -> int:
    """How many objects of these sizes there is room for: in a page that has none yet, at least for one."""
    for count, size in enumerate(sizes):
        left -= size
        if left < 0 and not (is_first and count == 0):
            return count
    return len(sizes)
