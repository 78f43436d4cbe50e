"""Messages of Converse while they grow, and the rules for what goes into one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.converse.fields import ROLES
from threadkeep.formats.shared.names import hashed

_VALID_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_.:-]")
_LONGEST_ID: Final = 64


@dataclass(slots=True)
class Turn:
    """A message while it grows.

    Attributes:
        turn: the wire message or response of its newest item.
        is_as_came: whether it is one message of the very request that is sent again.
        opened_by: the wire message or response of its oldest item.
        calls: its calls that need a result.
    """

    role: str
    turn: int | None
    is_as_came: bool
    blocks: list[JsonObject] = field(default_factory=list)
    calls: list[Entry] = field(default_factory=list)
    is_settled: bool = False
    opened_by: int | None = None
    position: int | None = None


def is_valid_id(call_id: str) -> bool:
    """Whether the service takes a call id."""
    return _VALID_ID.fullmatch(call_id) is not None


def joins(last: Turn, entry: Entry, *, is_call: bool) -> bool:
    """Whether an item of the same role goes into a message: not where calls of another turn wait for results."""
    if last.role not in ROLES:
        return last.turn is not None and last.turn == entry.turn
    return not last.calls or last.turn == entry.turn or (is_call and entry.turn is None)


def cleaned(original: str, used: set[str]) -> str:
    """A call id that the service takes: the cleaned text where that is unique, else a hash."""
    clean = _REFUSED.sub("_", original)
    if clean.strip("_") and len(clean) <= _LONGEST_ID and clean not in used:
        return clean
    return f"call_{hashed(original)}"


def is_blank(block: JsonObject) -> bool:
    """Whether a block is a text of white space."""
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def results_first(blocks: list[JsonObject]) -> list[JsonObject]:
    """Tool results, each with the cache point behind it, before everything else."""
    results: list[JsonObject] = []
    others: list[JsonObject] = []
    is_first = False
    for block in blocks:
        is_first = "toolResult" in block or ("cachePoint" in block and is_first)
        (results if is_first else others).append(block)
    return results + others
