"""Names and ids that a provider refuses, and what is sent in their place.

A cleaned name is sent where it is unique, else a hash of the original: never a counter, so that the same conversation
gives the same bytes wherever and how often it is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from threadkeep.domain.tool_names import REFUSED_BY_MOST, hashed

_HASH: Final = 33  # a hash and the underscore before it


@dataclass(frozen=True, slots=True)
class NameRule:
    """Which function names a format takes."""

    longest: int = 64  # characters
    valid: re.Pattern[str] = re.compile(r"[A-Za-z0-9_-]+")  # what a name looks like, apart from its length
    refused: re.Pattern[str] = REFUSED_BY_MOST  # characters that no name has
    prefix: str = ""  # what is put before a name that does not begin as names do
    alphabet: str = "A-Z a-z 0-9 _ -"  # the characters, in words
    room: int = 64  # how many characters a name with a hash has at most

    def takes(self, name: object) -> bool:
        """Whether it is a name that is sent as it is."""
        return isinstance(name, str) and len(name) <= self.longest and self.valid.fullmatch(name) is not None

    def cleaned(self, name: str, used: set[str]) -> str:
        """A name that the format takes and that is not among those in use."""
        if self.takes(name):
            return name
        cleaned = self.refused.sub("_", name)
        if not self.valid.match(cleaned):
            cleaned = f"{self.prefix}{cleaned}"
        if cleaned.strip("_") and self.takes(cleaned) and cleaned not in used:
            return cleaned
        start = cleaned[: self.room - _HASH]
        return f"{(start.rstrip('_') if self.prefix else start.strip('_')) or 'tool'}_{hashed(name)}"


OPENAI_NAMES: Final = NameRule()
is_valid_name: Final = OPENAI_NAMES.takes  # whether every provider of the OpenAI family takes this name


class Names:
    """The function names of one request: original -> wire name, one to one; those of tools come first."""

    __slots__ = ("_used", "_wire", "rule")

    def __init__(self, tools: Iterable[object] = (), rule: NameRule = OPENAI_NAMES) -> None:
        self.rule = rule
        names = dict.fromkeys(name for name in tools if isinstance(name, str))
        self._wire = {name: name for name in names if rule.takes(name)}
        self._used = set(self._wire.values())
        for name in names:
            self.wire(name)

    def wire(self, original: object) -> str:
        """The name to send: the original where the provider takes it."""
        text = original if isinstance(original, str) else ""
        name = self._wire.get(text)
        if name is None:
            name = self._wire[text] = self.rule.cleaned(text, self._used)
            self._used.add(name)
        return name
