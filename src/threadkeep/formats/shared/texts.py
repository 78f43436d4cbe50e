"""Texts that are not valid Unicode: kept in the rows as they are, and repaired on their way to a provider.

Lone surrogates stand for bytes that were not UTF-8 (``errors="surrogateescape"``), or came in as JSON escapes. No
provider takes them, and HTTP clients fail over them. What goes back to its own origin goes as it came; ids stay, so
that calls and outputs still match.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain.rendering import Repair
from threadkeep.formats.canonical.entries import Entry, entry_of
from threadkeep.formats.canonical.snapshots import Snapshot

REPLACEMENT: Final = "\ufffd"
_LONE: Final = re.compile("[\ud800-\udfff]")
_IDS: Final = frozenset({"id", "call_id"})


def with_valid_texts(snapshot: Snapshot, format_name: str) -> tuple[Snapshot, list[Repair]]:
    """The snapshot with U+FFFD in place of what is not Unicode, and the repairs."""
    entries = [_repaired(entry, format_name) for entry in snapshot.entries]
    changed = [entry.position for entry, other in zip(snapshot.entries, entries, strict=True) if entry is not other]
    if not changed:
        return snapshot, []
    detail = "Characters that are not Unicode were sent as U+FFFD."
    return replace(snapshot, entries=entries), [Repair("invalid_text", position, "", detail) for position in changed]


def _repaired(entry: Entry, format_name: str) -> Entry:
    if not entry.codec or entry.origin == format_name:
        return entry
    item = entry.item()
    repaired = {key: value if key in _IDS else valid_text(value) for key, value in item.items()}
    return entry if repaired == item else entry_of(repaired, position=entry.position, turn=entry.turn, seen=entry.seen)


def valid_text(value: Any) -> Any:
    r"""A JSON value whose texts are Unicode.

    >>> valid({"a": ["x\udcff", 1]}) == {"a": ["x\ufffd", 1]}
    True
    """
    if isinstance(value, str):
        return _LONE.sub(REPLACEMENT, value)
    if isinstance(value, list):
        return [valid_text(inner) for inner in value]
    return {valid_text(key): valid_text(inner) for key, inner in value.items()} if isinstance(value, dict) else value
