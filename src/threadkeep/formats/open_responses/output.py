"""The output of a response while it is streamed: items as far as they came.

An item is found by its id, else by its place in the output; hosts leave out either, and some give all items one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, json_copy
from threadkeep.formats.shared.streams import GrowingTexts

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
    number: int  # in the order in which the items came
    item: JsonObject
    is_done: bool = False  # whether it came as a whole
    ids: list[Any] = field(default_factory=list)  # by which it is found


class Output:
    """The items of a response that is being streamed."""

    def __init__(self) -> None:
        self.is_ordered = True  # whether all items have come in the order of their places
        self._touched: int | None = None  # the first item that was looked for since `take_touched`
        self._streamed: list[StreamedItem] = []
        self._open: dict[int, StreamedItem] = {}  # those that have not come whole
        self._by_id: dict[Any, StreamedItem] = {}
        self._by_place: dict[Any, StreamedItem] = {}  # the newest ones
        self._last_place = -1
        self._texts = GrowingTexts()
        self._spots: dict[tuple[int, int], tuple[list[Any], int]] = {}  # id of a list and stated place -> where it is
        self._whole: dict[int, tuple[list[Any], int]] = {}  # id of a list -> it, and the last place that came whole

    def __len__(self) -> int:
        return len(self._streamed)

    def take_touched(self) -> int:
        """The number of the first item that was looked for since this was asked last."""
        touched, self._touched = self._touched, None
        return len(self) if touched is None else touched

    def is_done(self, number: int) -> bool:
        """Whether an item came as a whole."""
        return self._streamed[number].is_done

    def items(self, first: int = 0, last: int | None = None) -> list[JsonObject]:
        """The items in order, or some of them."""
        self._texts.settle_all()
        streamed = self._streamed if self.is_ordered else sorted(self._streamed, key=lambda one: one.place)
        return [one.item for one in streamed[first:last]]

    @property
    def open_calls(self) -> list[Any]:
        """The call ids of items that have not come whole."""
        return [call_id for one in self._open.values() if (call_id := one.item.get("call_id"))]

    def find(self, item_id: Any, index: Any) -> StreamedItem | None:
        """The item of that id, else the newest one at that place."""
        by_id = self._by_id.get(item_id) if isinstance(item_id, str | int) else None
        found = by_id or (self._by_place.get(index) if isinstance(index, int | float) else None)
        if found is not None:
            self._touched = found.number if self._touched is None else min(self._touched, found.number)
        return found

    def item(self, event: JsonObject, kind: str) -> JsonObject:
        """The item that an event is about; a new one of that type where there is none."""
        streamed = self.find(event.get("item_id"), event.get("output_index"))
        if streamed is None and event.get("item_id") is None and event.get("output_index") is None and self._streamed:
            streamed = self._streamed[-1] if self._streamed[-1].item.get("type") == kind else None
        if streamed is None:
            item = {"type": kind, **json_copy(FIRST_KEYS.get(kind, {}), kind)}
            if isinstance(event.get("item_id"), str):
                item["id"] = event["item_id"]
            return self._add(event, item).item
        return streamed.item

    def take(self, event: JsonObject, *, is_done: bool) -> None:
        """Take in an item that is announced, or whole; what a whole one leaves out stays as it was streamed."""
        item = json_copy(event["item"], "The event")
        known = self.find(item.get("id"), event.get("output_index")) or self._unnamed(event, item, is_done=is_done)
        if known is None or (known.is_done and known.item.get("id") != item.get("id")):
            self._set_done(self._add(event, item), is_done=is_done)
            return
        before = known.item
        for key in before:
            self._texts.settle(before, key)
        known.item = before | {key: value for key, value in item.items() if value not in _EMPTY or key not in before}
        self._set_done(known, is_done=is_done)
        if before.get("id") != known.item.get("id"):
            for key in known.ids:
                del self._by_id[key]
            known.ids.clear()
            self._note_id(known)

    def _set_done(self, streamed: StreamedItem, *, is_done: bool) -> None:
        streamed.is_done = is_done
        if is_done:
            self._open.pop(streamed.number, None)
        else:
            self._open[streamed.number] = streamed

    def _unnamed(self, event: JsonObject, item: JsonObject, *, is_done: bool) -> StreamedItem | None:
        """The last item, where it is the one that comes whole here, though the event does not say so."""
        last = self._streamed[-1] if self._streamed and is_done and event.get("output_index") is None else None
        if last is None or last.is_done or last.item.get("type") != item.get("type"):
            return None
        return None if item.get("id") and last.item.get("id") else last

    def _add(self, event: JsonObject, item: JsonObject) -> StreamedItem:
        index = event.get("output_index")
        place = index if isinstance(index, int) else self._last_place + 1
        streamed = StreamedItem(place, len(self._streamed), item)
        self.is_ordered = self.is_ordered and place >= self._last_place
        self._streamed.append(streamed)
        self._open[streamed.number] = streamed
        self._by_place[streamed.place] = streamed
        self._last_place = max(self._last_place, streamed.place)
        self._note_id(streamed)
        return streamed

    def _note_id(self, streamed: StreamedItem) -> None:
        item_id = streamed.item.get("id")
        if isinstance(item_id, str | int) and item_id not in self._by_id:
            self._by_id[item_id] = streamed
            streamed.ids.append(item_id)

    def put(self, elements: list[Any], stated: Any, element: Any, *, is_whole: bool = False) -> None:
        """Put an element at its place of a list; without a place, one that is whole is the last one that grew."""
        spot = self.spot(elements, stated)
        if is_whole and stated is None and elements and self._whole.get(id(elements), (elements, -1))[1] < spot - 1:
            spot -= 1
        elements[spot : spot + 1] = [json_copy(element, "The event")]
        if is_whole:
            self._whole[id(elements)] = (elements, spot)

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
            self._texts.forget(holder, key)
            holder[key] = text

    def grow(self, holder: Any, key: Any, delta: Any) -> None:
        """Add to a text; its pieces are joined when it is asked for."""
        self._texts.grow(holder, key, delta)
