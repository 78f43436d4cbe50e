"""Names of functions as providers get them: most take letters, digits, `_` and `-`, and others are replaced.

A cleaned name is sent where it is unique, else a hash of the original: never a counter, so that the same conversation
gives the same bytes wherever and how often it is rendered.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

# characters of a name that most providers refuse, and those that all do
REFUSED_BY_MOST: Final = re.compile("[^A-Za-z0-9_-]")
REFUSED_BY_ALL: Final = re.compile("[^A-Za-z0-9_.:-]")
_BEGINNING: Final = re.compile("[A-Za-z_]")


def qualified_name(call: Mapping[str, Any]) -> Any:
    """Return the name of a tool, or of the one that a call names, with its namespace before it.

    >>> qualified_name({"name": "find", "namespace": "crm"}), qualified_name({"name": "find"})
    ('crm.find', 'find')
    """
    name, namespace = call.get("name"), call.get("namespace")
    return f"{namespace}.{name}" if namespace and isinstance(namespace, str) and isinstance(name, str) else name


def hashed(original: str, position: int | None = None) -> str:
    """Return 32 hexadecimal digits that stand for a text (at a position, where the same text occurs twice)."""
    text = original if position is None else f"{original}\0{position}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def stands_for(sent: str, name: str) -> bool:
    """Return whether a function was sent under one name because a provider does not take another.

    >>> stands_for("github_search", "github.search"), stands_for("search", "github.search")
    (True, False)
    """
    cleaned = {refused.sub("_", name) for refused in (REFUSED_BY_MOST, REFUSED_BY_ALL)}
    bare = sent.removeprefix("_")  # put before a name that does not begin as names do
    is_bare = bare in cleaned and not _BEGINNING.match(bare)
    return sent in cleaned or is_bare or sent.endswith(f"_{hashed(name)}")


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
    """The function names of one request: original -> wire name, one to one; names of tools come first."""

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
