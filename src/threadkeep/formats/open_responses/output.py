"""The output of a response while it is streamed: items as far as they came.

An item is found by its id, else by its place in the output; hosts leave out either, and some give all items one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import json_copy
from threadkeep.errors import CannotParse, InvalidItem

# item type -> what an item begins with when it was not announced
FIRST_KEYS: Final[dict[str, JsonObject]] = {
    "message": {"role": "assistant", "content": []},
    "reasoning": {"summary": []},
    "shell_call": {"action": {"commands": []}},
    "shell_call_output": {"output": []},
}
_EMPTY: Final[tuple[Any, ...]] = (None, "", [])


@dataclass(slots=True)
class StreamedItem:
    """An item as far as it came, with its place in the output."""

    place: int
    item: JsonObject
    is_done: bool = False  # whether it came as a whole


class Output:
    """The items of a response that is being streamed."""

    def __init__(self) -> None:
        self._streamed: list[StreamedItem] = []
        self._growing: tuple[Any, Any, list[str]] | None = None  # the text that grew last: holder, key, pieces
        self._spots: dict[tuple[int, int], tuple[list[Any], int]] = {}  # id of a list and stated place -> where it is

    @property
    def items(self) -> list[JsonObject]:
        """The items, in order."""
        self.settle()
        return [streamed.item for streamed in sorted(self._streamed, key=lambda streamed: streamed.place)]

    def find(self, item_id: Any, index: Any) -> StreamedItem | None:
        """The item of that id, else the newest one at that place."""
        by_id = (streamed for streamed in self._streamed if item_id is not None and streamed.item.get("id") == item_id)
        by_place = (streamed for streamed in reversed(self._streamed) if index is not None and streamed.place == index)
        return next(by_id, None) or next(by_place, None)

    def item(self, event: JsonObject, kind: str) -> JsonObject:
        """The item that an event is about; a new one of that type where there is none."""
        streamed = self.find(event.get("item_id"), event.get("output_index"))
        if streamed is None and event.get("item_id") is None and event.get("output_index") is None and self._streamed:
            streamed = self._streamed[-1] if self._streamed[-1].item.get("type") == kind else None
        if streamed is None:
            item = {"type": kind, **copied(FIRST_KEYS.get(kind, {}))}
            if isinstance(event.get("item_id"), str):
                item["id"] = event["item_id"]
            return self._add(event, item).item
        return streamed.item

    def take(self, event: JsonObject, *, is_done: bool) -> None:
        """Take in an item that is announced, or whole; what a whole one leaves out stays as it was streamed."""
        self.settle()
        item = copied(event["item"])
        known = self.find(item.get("id"), event.get("output_index"))
        if known is None or (known.is_done and known.item.get("id") != item.get("id")):
            self._add(event, item).is_done = is_done
            return
        before = known.item
        known.item = before | {key: value for key, value in item.items() if value not in _EMPTY or key not in before}
        known.is_done = is_done

    def _add(self, event: JsonObject, item: JsonObject) -> StreamedItem:
        index = event.get("output_index")
        last = max((streamed.place for streamed in self._streamed), default=-1)
        streamed = StreamedItem(index if isinstance(index, int) else last + 1, item)
        self._streamed.append(streamed)
        return streamed

    def put(self, elements: list[Any], stated: Any, element: Any) -> None:
        """Put an element at its place of a list."""
        self.settle()
        spot = self.spot(elements, stated)
        elements[spot : spot + 1] = [copied(element)]

    def element(self, elements: list[Any], stated: Any, first: JsonObject) -> JsonObject:
        """The object at a place of a list, a new one where there is none; without a place it is the last one."""
        spot = len(elements) - 1 if stated is None and elements else self.spot(elements, stated)
        if spot == len(elements) or not isinstance(elements[spot], dict):
            elements[spot : spot + 1] = [first]
        element: JsonObject = elements[spot]
        return element

    def spot(self, elements: list[Any], stated: Any) -> int:
        """Where the element of a stated place is in a list: hosts count from 0, from 1, or leave places out."""
        if not isinstance(stated, int):
            return len(elements)
        _, spot = self._spots.setdefault((id(elements), stated), (elements, min(max(stated, 0), len(elements))))
        return min(spot, len(elements))

    def say(self, holder: Any, key: Any, text: Any) -> None:
        """Set a text, whatever had come of it before."""
        if isinstance(text, str):
            self.settle()
            holder[key] = text

    def grow(self, holder: Any, key: Any, delta: Any) -> None:
        """Add to a text; the pieces of one text are joined when another one goes on."""
        if not isinstance(delta, str):
            return
        if self._growing is None or self._growing[0] is not holder or self._growing[1] != key:
            self.settle()
            self._growing = (holder, key, [])
            if isinstance(holder, dict):
                holder.setdefault(key, "")  # the key stands where its text began, whenever the pieces are joined
        self._growing[2].append(delta)

    def settle(self) -> None:
        """Join the pieces of the text that grew last."""
        if self._growing is not None:
            holder, key, pieces = self._growing
            self._growing = None
            before = holder.get(key) if isinstance(holder, dict) else holder[key]
            holder[key] = "".join([before if isinstance(before, str) else "", *pieces])


def copied(value: Any) -> Any:
    """A copy, for events belong to the caller."""
    try:
        return json_copy(value, "The event")
    except InvalidItem as error:
        raise CannotParse(str(error)) from error


def list_in(holder: JsonObject, key: str) -> list[Any]:
    """The list under a key, a new one where there is none."""
    if not isinstance(holder.get(key), list):
        holder[key] = []
    elements: list[Any] = holder[key]
    return elements
