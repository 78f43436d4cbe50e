"""Texts that are no valid Unicode: kept in the rows as they are, and mended on their way to a provider.

Lone surrogates stand for bytes that were no UTF-8 (``errors="surrogateescape"``), or came in as JSON escapes. No
provider takes them, and HTTP clients fail over them. What goes back to its own origin goes as it came; ids stay, so
that calls and outputs still match.
"""

from __future__ import annotations

import re
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final

from threadkeep.domain.wire import Entry, Repair, Snapshot
from threadkeep.formats.entries import entry_of

REPLACEMENT: Final = "\ufffd"
CHECKED: Final = "texts"  # the place in a snapshot's memo: how many entries hold valid text alone
_LONE: Final = re.compile("[\ud800-\udfff]")
_IDS: Final = frozenset({"id", "call_id"})
_codec: Final = itemgetter(Entry._fields.index("codec"))


def with_valid_texts(snapshot: Snapshot, format_name: str) -> tuple[Snapshot, list[Repair]]:
    """The snapshot with U+FFFD in place of what is no Unicode, and the repairs."""
    entries, memo = snapshot.entries, snapshot.memo
    count: int = 0 if memo is None else memo.get(CHECKED, 0)
    new = entries[count:] if 0 < count <= len(entries) else entries
    if not any(map(_codec, new)):  # most stored text was read by a library that takes no lone surrogates
        if memo is not None:
            memo[CHECKED] = len(entries)
        return snapshot, []
    mended = [_mended(entry, format_name) for entry in entries]
    changed = [entry.position for entry, other in zip(entries, mended, strict=True) if entry is not other]
    if not changed:
        return snapshot, []
    detail = "Characters that are no Unicode were sent as U+FFFD."
    return replace(snapshot, entries=mended), [Repair("invalid_text", position, "", detail) for position in changed]


def _mended(entry: Entry, format_name: str) -> Entry:
    if not entry.codec or entry.origin == format_name:
        return entry
    item = entry.item()
    found = {key: value if key in _IDS else valid(value) for key, value in item.items()}
    return entry if found == item else entry_of(found, position=entry.position, turn=entry.turn, seen=entry.seen)


def valid(value: Any) -> Any:
    r"""A JSON value whose texts are Unicode.

    >>> valid({"a": ["x\udcff", 1]}) == {"a": ["x\ufffd", 1]}
    True
    """
    if isinstance(value, str):
        return _LONE.sub(REPLACEMENT, value)
    if isinstance(value, list):
        return [valid(one) for one in value]
    return {valid(key): valid(one) for key, one in value.items()} if isinstance(value, dict) else value
