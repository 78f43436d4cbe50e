"""Pages of lists, which end early where what they have is large: a client that asks for more gets the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from threadkeep.domain.jsontext import JsonObject, dumps_finite
from threadkeep.domain.stored import Page, StoredItem, bytes_of
from threadkeep.server.requests import PageQuery
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader
from threadkeep.store.work.connections import made_of

T = TypeVar("T")

MAX_BYTES: Final = 16 * 1024 * 1024  # of a page with more than one object


def list_object(data: Sequence[Mapping[str, Any]], *, has_more: bool) -> JsonObject:
    """Return a page of objects with ids, which clients continue after its last one."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0].get("id", "") if data else "",
        "last_id": data[-1].get("id", "") if data else "",
        "has_more": has_more,
    }


class ObjectPage(NamedTuple):
    """The objects of a page, and where the next one begins."""

    data: list[JsonObject]
    next: str | None


async def listed(
    page: PageQuery,
    read: Callable[[str | None, int], Awaitable[Page[T]]],
    shown: Callable[[T], JsonObject],
    at_once: int,
) -> ObjectPage:
    """Return a page of objects as they are shown; `read` returns so many after a cursor, at most `at_once`.

    It ends before the object with which it would have too many bytes, unless that is its first one.
    """
    data: list[JsonObject] = []
    left, after = MAX_BYTES, page.after
    while True:
        found = await read(after, min(at_once, page.limit - len(data)))
        made = [shown(one) for one in found]
        sizes = [len(dumps_finite(one)) for one in made]
        fitting = _fitting(sizes, left, is_first=not data)
        if fitting < len(made):
            if not fitting:
                return ObjectPage(data, after)
            found = await read(after, fitting)  # again, for the cursor after them
            return ObjectPage([*data, *(shown(one) for one in found)], found.next)
        data += made
        left -= sum(sizes)
        after = found.next
        if after is None or len(data) >= page.limit:
            return ObjectPage(data, after)


def listed_items(
    reader: Reader, conversation: Conversation, page: PageQuery, shown: Callable[[StoredItem], JsonObject], **how: Any
) -> bytes:
    """Return a page of the items of a conversation as they are shown, as a JSON text; `how` as for `Reader.items`."""
    found = reader.items(conversation, page.after, page.limit, page.order, MAX_BYTES, **how)
    return made_of(bytes_of(found), partial(_items_text, found, shown))


def item_text(item: StoredItem, shown: Callable[[StoredItem], JsonObject]) -> bytes:
    """Return an item as it is shown, as a JSON text."""
    return made_of(bytes_of([item]), lambda: dumps_finite(shown(item)))


def _items_text(found: Page[StoredItem], shown: Callable[[StoredItem], JsonObject]) -> bytes:
    data = [shown(item) for item in found]
    text = dumps_finite(list_object(data, has_more=found.next is not None))
    if len(text) > MAX_BYTES:
        fitting = _fitting([len(dumps_finite(one)) for one in data], MAX_BYTES, is_first=True)
        if fitting < len(data):
            return dumps_finite(list_object(data[:fitting], has_more=True))
    return text


def _fitting(sizes: list[int], left: int, *, is_first: bool) -> int:
    """How many objects of these sizes there is room for: in a page that has none yet, at least for one."""
    for count, size in enumerate(sizes):
        left -= size
        if left < 0 and not (is_first and count == 0):
            return count
    return len(sizes)
