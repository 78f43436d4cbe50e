"""The output of a response while it is streamed: items as far as they came.

An item is found by its id, else by its place in the output; hosts leave out either, and some give all items one place.
"""

from __future__ import annotations

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


class Streamed:
    """An item as far as it came, with its place in the output; `is_done` when it came as a whole."""

    __slots__ = ("is_done", "item", "place")

    def __init__(self, place: int, item: JsonObject, *, is_done: bool = False) -> None:
        self.place, self.item, self.is_done = place, item, is_done


class Output:
    """The items of a response that is being streamed."""

    def __init__(self) -> None:
        self._found: list[Streamed] = []
        self._growing: tuple[Any, Any, list[str]] | None = None  # the text that grew last: holder, key, pieces
        self._spots: dict[tuple[int, int], tuple[list[Any], int]] = {}  # id of a list and stated place -> where it is

    @property
    def items(self) -> list[JsonObject]:
        """The items, in order."""
        self.settle()
        return [one.item for one in sorted(self._found, key=lambda one: one.place)]

    def find(self, item_id: Any, place: Any) -> Streamed | None:
        """The item of that id, else the newest one at that place."""
        by_id = (one for one in self._found if item_id is not None and one.item.get("id") == item_id)
        by_place = (one for one in reversed(self._found) if place is not None and one.place == place)
        return next(by_id, None) or next(by_place, None)

    def item(self, event: JsonObject, kind: str) -> JsonObject:
        """The item that an event is about; a new one of that type where there is none."""
        found = self.find(event.get("item_id"), event.get("output_index"))
        if found is None and event.get("item_id") is None and event.get("output_index") is None and self._found:
            found = self._found[-1] if self._found[-1].item.get("type") == kind else None
        if found is None:
            item = {"type": kind, **copied(FIRST_KEYS.get(kind, {}))}
            if isinstance(event.get("item_id"), str):
                item["id"] = event["item_id"]
            found = self._add(event, item)
        return found.item

    def take(self, event: JsonObject, *, is_done: bool) -> None:
        """Take in an item that is announced, or whole; what a whole one leaves out stays as it was streamed."""
        self.settle()
        item = copied(event["item"])
        found = self.find(item.get("id"), event.get("output_index"))
        if found is None or (found.is_done and found.item.get("id") != item.get("id")):
            self._add(event, item).is_done = is_done
            return
        before = found.item
        found.item = before | {key: value for key, value in item.items() if value not in _EMPTY or key not in before}
        found.is_done = is_done

    def _add(self, event: JsonObject, item: JsonObject) -> Streamed:
        place = event.get("output_index")
        last = max((one.place for one in self._found), default=-1)
        made = Streamed(place if isinstance(place, int) else last + 1, item)
        self._found.append(made)
        return made

    def put(self, elements: list[Any], place: Any, element: Any) -> None:
        """Put an element at its place of a list."""
        self.settle()
        spot = self.spot(elements, place)
        elements[spot : spot + 1] = [copied(element)]

    def element(self, elements: list[Any], place: Any, first: JsonObject) -> JsonObject:
        """The object at a place of a list, a new one where there is none; without a place it is the last one."""
        spot = len(elements) - 1 if place is None and elements else self.spot(elements, place)
        if spot == len(elements) or not isinstance(elements[spot], dict):
            elements[spot : spot + 1] = [first]
        found: JsonObject = elements[spot]
        return found

    def spot(self, elements: list[Any], place: Any) -> int:
        """Where the element of a stated place is in a list: hosts count from 0, from 1, or leave places out."""
        if not isinstance(place, int):
            return len(elements)
        _, spot = self._spots.setdefault((id(elements), place), (elements, min(max(place, 0), len(elements))))
        return min(spot, len(elements))

    def say(self, holder: Any, key: Any, text: Any) -> None:
        """Set a text, which may have grown before."""
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
        self._growing[2].append(delta)

    def settle(self) -> None:
        """Join the pieces of the text that grew last."""
        if self._growing is not None:
            holder, key, pieces = self._growing
            self._growing = None
            before = holder.get(key) if isinstance(holder, dict) else holder[key]
            holder[key] = "".join([before if isinstance(before, str) else "", *pieces])


def copied(value: Any) -> Any:
    """A copy, for events belong to the caller.

    Raises:
        CannotParse: the value is nested too deeply.
    """
    try:
        return json_copy(value, "The event")
    except InvalidItem as error:
        raise CannotParse(str(error)) from error


def list_in(holder: JsonObject, key: str) -> list[Any]:
    """The list under a key, a new one where there is none."""
    if not isinstance(holder.get(key), list):
        holder[key] = []
    found: list[Any] = holder[key]
    return found
