"""What a store remembers of conversations that were read lately, so that the next handle reads only what is new.

A web application opens a conversation anew for every request. What was read before is still true as long as the
conversation's revision is the same: a handle that begins with it asks the database for the revision and for what is
new, like any handle that is kept, and throws it away when the revision is another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from threading import Lock
from typing import Any, Final

from threadkeep.domain.wire import Entry

DEFAULT_BYTES: Final = 32 * 1024 * 1024
ENTRY_BYTES: Final = 300  # what an item takes beside its JSON text

# tenant, conversation, branch
Name = tuple[int, int, int]


@dataclass(slots=True)
class Memory:
    """The items of a branch below a position, and what formats remember of them; `entries` is never changed."""

    revision: int
    entries: list[Entry]
    next_position: int
    memo: dict[str, Any]
    size: int = 0


def size_of(entries: Collection[Entry]) -> int:
    """About how many bytes items take."""
    texts = chain(map(_payload, entries), map(_rest, entries))
    return sum(map(len, filter(None, texts))) + ENTRY_BYTES * len(entries)


_payload, _rest = (itemgetter(Entry._fields.index(name)) for name in ("payload", "rest"))


@dataclass(slots=True)
class Memories:
    """The memories of a store, those used last kept longest, within so many bytes of JSON text (0: none are kept)."""

    limit: int = DEFAULT_BYTES
    _kept: OrderedDict[Name, Memory] = field(default_factory=OrderedDict)
    _size: int = 0
    _lock: Lock = field(default_factory=Lock)

    def of(self, name: Name, revision: int) -> Memory | None:
        """What is remembered of a branch at that revision of its conversation."""
        found = self._kept.get(name)
        if found is None or found.revision != revision:
            return None
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
        return found

    def keep(self, name: Name, memory: Memory, size: int, new: Collection[Entry]) -> int:
        """Remember a branch, of which so many bytes were known before these new items; returns its bytes now."""
        if not self.limit:
            return 0
        memory.size = size + size_of(new)
        with self._lock:
            before = self._kept.pop(name, None)
            self._size -= 0 if before is None else before.size
            if memory.size <= self.limit:
                self._kept[name] = memory
                self._size += memory.size
            while self._size > self.limit:
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest.size
        return memory.size

    def clear(self) -> None:
        """Forget all branches."""
        with self._lock:
            self._kept.clear()
            self._size = 0
