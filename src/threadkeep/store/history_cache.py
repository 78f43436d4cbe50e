"""Bounded caches, such as of the histories of conversations that were read lately.

A web application opens a conversation again for every request. What was read before is true as long as the revision of
the conversation is the same: a handle that begins with it reads the revision and what is new, as one that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from threadkeep.formats.canonical import entries as entry_rows
from threadkeep.formats.canonical import packed
from threadkeep.store.forking import LOCK, Inheritable

if TYPE_CHECKING:
    from threadkeep.formats.canonical.entries import Entry

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

DEFAULT_BYTES: Final = 32 * 1024 * 1024
ENTRY_BYTES: Final = 300  # what an item takes beside its JSON text

# tenant, public id of the conversation, branch, and whether media are marked instead of read
BranchKey = tuple[int, bytes, int, bool]


@dataclass(slots=True)
class CachedHistory:
    """The items of a branch below a position, and what formats remember of them; `entries` is never changed."""

    revision: int
    entries: Sequence[Entry]
    next_position: int
    format_cache: dict[str, Any]
    size: int = 0


def size_of(entries: Collection[Entry]) -> int:
    """About how many bytes items take."""
    if isinstance(entries, packed.PackedEntries):
        return sum(map(len, entries.texts)) + ENTRY_BYTES * len(entries)
    texts = chain.from_iterable(map(_texts(), entries))
    return sum(map(len, filter(None, texts))) + ENTRY_BYTES * len(entries)


@cache
def _texts() -> Callable[[Entry], tuple[bytes | None, bytes | None]]:
    """Return a function that returns the JSON texts of an item."""
    fields = entry_rows.Entry._fields
    return itemgetter(fields.index("payload"), fields.index("rest"))


class BoundedCache(Inheritable, Generic[K, V]):
    """At most so many bytes (0: nothing is kept); what was kept first goes first."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        super().__init__()
        self.limit = limit
        self._values: dict[K, tuple[V, int]] = {}  # with the bytes that each takes
        self._size = 0

    def add(self, key: K, value: V, size: int) -> tuple[V, int]:
        """Keep a value, if it is not too large; returns it with its size."""
        with LOCK:
            _, before = self._values.pop(key, (None, 0))
            self._size -= before
            if size <= self.limit:
                self._values[key] = value, size
                self._size += size
            while self._size > self.limit:
                _, oldest = self._values.pop(next(iter(self._values)))
                self._size -= oldest
        return value, size

    def clear(self) -> None:
        """Forget everything; it is read again when it is needed."""
        with LOCK:
            self._values.clear()
            self._size = 0

    give_up = clear


class HistoryCache(BoundedCache[BranchKey, CachedHistory]):
    """The histories of a store, those used last kept longest."""

    def look_up(self, key: BranchKey) -> CachedHistory | None:
        """What is kept of a branch, at whichever revision of its conversation."""
        history, _ = self._values.get(key, (None, 0))
        return history

    def find(self, key: BranchKey, revision: int) -> CachedHistory | None:
        """What is kept of a branch at that revision of its conversation."""
        history = self.look_up(key)
        if history is None or history.revision != revision:
            return None
        with LOCK:
            if (kept := self._values.pop(key, None)) is not None:
                self._values[key] = kept
        return history

    def keep(self, key: BranchKey, history: CachedHistory, size: int, new: Collection[Entry]) -> int:
        """Keep the history of a branch, of which `size` bytes were kept before `new`; returns its bytes now."""
        if not self.limit:
            return 0
        history.size = size + size_of(new)
        self.add(key, history, history.size)
        return history.size

    def forget(self, tenant: int, conversation: bytes) -> None:
        """Keep nothing of a conversation any more."""
        with LOCK:
            for key in [key for key in self._values if key[:2] == (tenant, conversation)]:
                self._size -= self._values.pop(key)[1]
