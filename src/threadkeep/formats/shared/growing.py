"""Lists that grow while a response is streamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from threadkeep.domain.jsontext import canonical


class GrowingList(list[Any]):
    """A list of JSON values that finds elements without going through all; `note` follows a change of an element."""

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        super().__init__()
        self._last: dict[tuple[str, Any], int] = {}  # key and value -> where the last element is that has it
        self._texts: list[bytes] = []  # of the elements, as far as they were asked for
        self._counts: Counter[bytes] = Counter()
        self._changed: set[int] = set()
        for element in elements:
            self.append(element)

    def append(self, element: Any) -> None:
        """Add an element."""
        super().append(element)
        self.note(len(self) - 1)

    def note(self, place: int) -> None:
        """Take notice of a change of the element at a place."""
        self._changed.add(place)
        if isinstance(self[place], dict):
            for key in ("index", "id"):
                value = self[place].get(key)
                if isinstance(value, str | int):
                    self._last[key, value] = max(place, self._last.get((key, value), 0))

    def find(self, key: str, value: Any) -> int | None:
        """Where the last object is that has an `index` or `id`."""
        place = self._last.get((key, value)) if isinstance(value, str | int) else None
        return place if place is None or self[place].get(key) == value else None

    def holds(self, element: Any) -> bool:
        """Whether there is an equal element."""
        for place in sorted(self._changed):
            text = canonical(self[place])
            if place < len(self._texts):
                self._counts[self._texts[place]] -= 1
                self._texts[place] = text
            else:
                self._texts.append(text)
            self._counts[text] += 1
        self._changed.clear()
        return self._counts[canonical(element)] > 0


def growing(holder: dict[str, Any], key: str) -> GrowingList:
    """The list under a key, as one that grows."""
    known = holder.get(key)
    if not isinstance(known, GrowingList):
        known = holder[key] = GrowingList(known if isinstance(known, list) else ())
    return known
