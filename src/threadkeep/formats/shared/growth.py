"""What grows while a stream is put together: texts, which come in pieces, and lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import canonical

_MARKS: Final = ("index", "id", "type")  # keys by which elements that grow are told apart


@dataclass(slots=True)
class _Pieces:
    """A text that has not been joined yet: where it belongs, its pieces, and how many characters they have."""

    holder: Any
    key: Any
    join: Callable[[Iterable[str]], str]
    pieces: list[str] = field(default_factory=list)
    length: int = 0


class GrowingTexts:
    """Texts in objects and lists that come piece by piece, and are joined when they are read.

    Until then, what their holder has under their key is only the beginning of the text.
    """

    def __init__(self) -> None:
        self._growing: dict[tuple[int, Any], _Pieces] = {}  # by the id of the holder, which is kept alive here

    def grow(self, holder: Any, key: Any, piece: Any, join: Callable[[Iterable[str]], str] = "".join) -> None:
        """Add to a text; what is no text is ignored. `join` makes the text of its pieces."""
        if not isinstance(piece, str):
            return
        growing = self._growing.get((id(holder), key))
        if growing is None:
            growing = self._growing[id(holder), key] = _Pieces(holder, key, join)
            if isinstance(holder, dict):
                holder.setdefault(key, "")  # the key stands where its text began, whenever the pieces are joined
        growing.pieces.append(piece)
        growing.length += len(piece)

    def length(self, holder: Any, key: Any) -> int:
        """How many characters a text has: those of its pieces, before they are joined."""
        growing, text = self._growing.get((id(holder), key)), holder[key]
        return (len(text) if isinstance(text, str) else 0) + (0 if growing is None else growing.length)

    def settle(self, holder: Any, key: Any) -> Any:
        """Join the pieces of a text, if it has any; return what the holder has under the key."""
        growing = self._growing.pop((id(holder), key), None)
        if growing is not None:
            before = holder.get(key) if isinstance(holder, dict) else holder[key]
            pieces = [before, *growing.pieces] if isinstance(before, str) and before else growing.pieces
            holder[key] = growing.join(pieces)
        return holder.get(key) if isinstance(holder, dict) else holder[key]

    def forget(self, holder: Any, key: Any) -> None:
        """Drop the pieces of a text, because another one takes its place."""
        self._growing.pop((id(holder), key), None)

    def settle_all(self) -> None:
        """Join the pieces of all texts."""
        for growing in [*self._growing.values()]:
            self.settle(growing.holder, growing.key)


class GrowingList(list[Any]):
    """A list of JSON values that finds elements without going through all; `note` follows a change of an element."""

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        super().__init__()
        self._last: dict[tuple[str, Any], int] = {}  # key and value -> where the last element is that has it
        self._counts: Counter[bytes] = Counter()  # of the elements that have not grown, as far as they were asked for
        self._texts: list[bytes] = []
        self._grown: dict[tuple[Any, ...], dict[int, None]] = {}  # the places of those that have, by their marks
        for element in elements:
            self.append(element)

    def append(self, element: Any) -> None:
        """Add an element."""
        super().append(element)
        self._find_by(len(self) - 1)

    def note(self, place: int) -> None:
        """Take notice of a change of the element at a place."""
        self._find_by(place)
        self._count_texts()
        if self._texts[place]:
            self._counts[self._texts[place]] -= 1
            self._texts[place] = b""
        self._grown.setdefault(_marks(self[place]), {})[place] = None

    def _find_by(self, place: int) -> None:
        if isinstance(self[place], dict):
            for key in ("index", "id"):
                value = self[place].get(key)
                if isinstance(value, str | int):
                    self._last[key, value] = max(place, self._last.get((key, value), 0))

    def find(self, key: str, value: Any) -> int | None:
        """Where the last object is that has an `index` or `id`."""
        place = self._last.get((key, value)) if isinstance(value, str | int) else None
        return place if place is None or self[place].get(key) == value else None

    def holds(self, element: Any, texts: GrowingTexts | None = None) -> bool:
        """Whether there is an equal element; `texts` has the pieces of texts in those that have grown."""
        self._count_texts()
        if self._counts[canonical(element)] > 0:
            return True
        return any(_is_equal(self[place], element, texts) for place in self._grown.get(_marks(element), ()))

    def _count_texts(self) -> None:
        for place in range(len(self._texts), len(self)):
            self._texts.append(canonical(self[place]))
            self._counts[self._texts[place]] += 1


def _marks(element: Any) -> tuple[Any, ...]:
    values = (element.get(key) for key in _MARKS) if isinstance(element, dict) else ()
    return tuple(value if isinstance(value, str | int | float) else None for value in values)


def _is_equal(grown: Any, element: Any, texts: GrowingTexts | None) -> bool:
    """Whether an element that has grown equals another one; texts of another length are not joined for it."""
    if not isinstance(grown, dict) or not isinstance(element, dict) or grown.keys() != element.keys():
        return bool(grown == element)
    if texts is None:
        return grown == element
    strings = [key for key, value in element.items() if isinstance(value, str)]
    lengths = (isinstance(grown[key], str) and texts.length(grown, key) == len(element[key]) for key in strings)
    if not all(lengths):
        return False
    texts.settle_all()
    return grown == element


def growing(holder: dict[str, Any], key: str) -> GrowingList:
    """The list under a key, as one that grows."""
    known = holder.get(key)
    if not isinstance(known, GrowingList):
        known = holder[key] = GrowingList(known if isinstance(known, list) else ())
    return known
