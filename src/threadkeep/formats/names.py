"""Names and ids that a provider refuses, and what is sent in their place.

A cleaned name is sent where it is unique, else a hash of the original: never a counter, so that the same conversation
gives the same bytes wherever and how often it is rendered.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from typing import ClassVar, Final

_VALID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64


def hashed(original: str, position: int | None = None) -> str:
    """32 hexadecimal digits that stand for a text (at a position, where the same text occurs twice)."""
    text = original if position is None else f"{original}\0{position}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_valid_name(name: object) -> bool:
    """Whether every provider of the OpenAI family takes this name."""
    return isinstance(name, str) and _VALID.fullmatch(name) is not None


class Names:
    """The function names of one request: original -> wire name, one to one; `longest` is what the format takes."""

    ALPHABET: ClassVar[str] = "A-Z a-z 0-9 _ -"

    __slots__ = ("_taken", "_wire", "longest")

    def __init__(self, tools: Iterable[object] = (), longest: int = _LONGEST) -> None:
        self.longest = longest
        self._wire: dict[str, str] = {}
        self._taken: set[str] = set()
        if tools:  # an empty list is the usual case
            self._offer(dict.fromkeys(name for name in tools if isinstance(name, str)))

    def _offer(self, names: Collection[str]) -> None:
        self._wire = {name: name for name in names if self._is_valid(name)}
        self._taken = set(self._wire.values())
        for name in names:
            self.wire(name)

    def wire(self, original: object) -> str:
        """The name to send: the original where the provider takes it."""
        text = original if isinstance(original, str) else ""
        found = self._wire.get(text)
        if found is None:
            found = self._wire[text] = self._cleaned(text)
            self._taken.add(found)
        return found

    def _is_valid(self, text: str) -> bool:
        return 0 < len(text) <= self.longest and _REFUSED.search(text) is None

    def _cleaned(self, text: str) -> str:
        if self._is_valid(text):
            return text
        cleaned = _REFUSED.sub("_", text)
        if cleaned.strip("_") and len(cleaned) <= self.longest and cleaned not in self._taken:
            return cleaned
        return f"{cleaned[: _LONGEST - 33].strip('_') or 'tool'}_{hashed(text)}"
