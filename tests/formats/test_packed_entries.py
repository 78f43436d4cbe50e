"""Items whose texts came joined: each text is in memory once, whatever is looked at."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from threadkeep.formats.canonical.entries import PackedEntries, entries_of_joined

COUNT = 100
TEXT = b'{"type":"message","role":"user","content":"%s"}'
LOOKS: dict[str, Callable[[PackedEntries], Any]] = {
    "nothing": lambda _: None,
    "the last": lambda entries: entries[-1].payload,
    "one": lambda entries: entries[7].payload,
    "all": lambda entries: [entry.payload for entry in entries],
    "texts": lambda entries: len(entries.texts),
}


def packed() -> PackedEntries:
    """Messages of 10 kB each."""
    lines = "\n".join(rf"0 message user \ \ \ \ {position} \\"[:-1] for position in range(COUNT))
    entries = entries_of_joined(COUNT, lines, b"\n".join([TEXT % (b"%04d" % n * 2500) for n in range(COUNT)]), None)
    assert isinstance(entries, PackedEntries)
    return entries


@pytest.mark.parametrize("look", LOOKS)
def test_texts_that_came_joined_are_kept_once(look: str) -> None:
    tracemalloc.start()
    try:
        entries = packed()
        LOOKS[look](entries)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size <= 1.2 * len(packed().elements())
    assert entries.elements() == packed().elements() == b",".join(entry.payload or b"" for entry in entries)
