"""The histories of conversations that were read lately, so that the next handle reads only what is new.

A web application opens a conversation again for every request. What was read before is still true as long as the
conversation's revision is the same: a handle that begins with it asks the database for the revision and for what is
new, like any handle that is kept, and drops it when the revision is another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from threadkeep.formats.canonical.entries import Entry
from threadkeep.store.forking import LOCK, Inheritable

DEFAULT_BYTES: Final = 32 * 1024 * 1024
ENTRY_BYTES: Final = 300  # what an item takes beside its JSON text

# tenant, conversation, branch
BranchKey = tuple[int, int, int]


@dataclass(slots=True)
class CachedHistory:
    """The items of a branch below a position, and what formats remember of them; `entries` is never changed."""

    revision: int
    entries: list[Entry]
    next_position: int
    format_cache: dict[str, Any]
    size: int = 0


def size_of(entries: Collection[Entry]) -> int:
    """About how many bytes items take."""
    texts = chain(map(_payload, entries), map(_rest, entries))
    return sum(map(len, filter(None, texts))) + ENTRY_BYTES * len(entries)


_payload, _rest = (itemgetter(Entry._fields.index(name)) for name in ("payload", "rest"))


@dataclass(slots=True, eq=False)
class HistoryCache(Inheritable):
    """The histories of a store, those used last kept longest, within so many bytes of JSON text (0: none are kept)."""

    limit: int = DEFAULT_BYTES
    _histories: OrderedDict[BranchKey, CachedHistory] = field(default_factory=OrderedDict)
    _size: int = 0

    def __post_init__(self) -> None:
        Inheritable.__init__(self)

    def find(self, key: BranchKey, revision: int) -> CachedHistory | None:
        """What is kept of a branch at that revision of its conversation."""
        history = self._histories.get(key)
        if history is None or history.revision != revision:
            return None
        with LOCK:
            if key in self._histories:
                self._histories.move_to_end(key)
        return history

    def keep(self, key: BranchKey, history: CachedHistory, size: int, new: Collection[Entry]) -> int:
        """Keep the history of a branch, of which `size` bytes were kept before `new`; returns its bytes now."""
        if not self.limit:
            return 0
        history.size = size + size_of(new)
        with LOCK:
            previous = self._histories.pop(key, None)
            self._size -= 0 if previous is None else previous.size
            if history.size <= self.limit:
                self._histories[key] = history
                self._size += history.size
            while self._size > self.limit:
                _, oldest = self._histories.popitem(last=False)
                self._size -= oldest.size
        return history.size

    def clear(self) -> None:
        """Forget all histories."""
        with LOCK:
            self._histories.clear()
            self._size = 0

    give_up = clear
