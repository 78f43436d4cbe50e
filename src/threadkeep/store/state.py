"""What a conversation handle remembers: the row, options, tools, and the items it has read."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from threadkeep.domain.wire import Entry, Snapshot
from threadkeep.store.actions.loading import Loaded
from threadkeep.store.actions.opening import Opened
from threadkeep.store.drafts import Draft
from threadkeep.store.memory import Memories, Memory, size_of


class State:
    """The memory of one handle. Only what is new is read; another revision makes it read everything again.

    Tasks and threads may share a handle: what one of them reads while another one has read it already is not added
    twice, and a list of items that was handed out never changes.
    """

    def __init__(self, found: Opened, memories: Memories | None) -> None:
        self.found = found
        self.head = found.lineage.head
        self._name = (found.scope.tenant, found.facts.id, found.branch)
        self._memories = memories  # none inside the caller's transaction, which may take items back
        self._lock = Lock()
        known = None if memories is None else memories.of(self._name, found.facts.revision)
        self._size = 0 if known is None else known.size
        self._entries: list[Entry] = [] if known is None else known.entries
        self._new: list[Entry] = []  # behind these: written by this handle since they were last looked at
        self.next_position = 0 if known is None else known.next_position  # everything below it has been read
        # what formats remember of these items; anew when they are read anew
        self._memo: dict[str, Any] = {} if known is None else known.memo

    def known(self) -> tuple[Opened, list[Entry], int]:
        """The conversation, its items that were read, and the position below which all of them are."""
        with self._lock:
            return self.found, self._all(), self.next_position

    def _all(self) -> list[Entry]:
        """The items below `next_position`; a new list where there are new ones."""
        if self._new:
            self._entries, self._new = [*self._entries, *self._new], []
        return self._entries

    def absorb(self, loaded: Loaded) -> Snapshot:
        """Take in what was read; returns what a request is rendered from."""
        with self._lock:
            before = self.next_position
            if loaded.since == 0:
                self._replace(loaded)
            elif loaded.next_position > before:
                self._new += [entry for entry in loaded.entries if entry.position >= before]
                self.next_position = loaded.next_position
            entries = self._all()
            self.head = entries[-1].position if entries else -1
            found, memo = self.found, self._memo
            if self._memories is None:
                self._entries, self.next_position, self._memo = [], 0, {}
            elif self._memories.limit and (self.next_position != before or not self._size):
                self._size = self._memories.keep(self._name, self._memory(), self._size, loaded.entries)
        return Snapshot(found.settings, found.tools, entries, loaded.state, found.imported, memo, found.shared)

    def _memory(self) -> Memory:
        return Memory(self.found.facts.revision, self._all(), self.next_position, self._memo)

    def _replace(self, loaded: Loaded) -> None:
        """Take in everything; what another task has read meanwhile is kept, unless it is of another revision."""
        is_older = loaded.next_position < self.next_position
        if is_older and loaded.conversation.facts.revision == self.found.facts.revision:
            return
        self.found = loaded.conversation
        self._entries, self._new = list(loaded.entries), []
        self.next_position = loaded.next_position
        self._memo = {}
        self._size = 0

    def changed(self, found: Opened) -> None:
        """Take in the row as it is after a change."""
        with self._lock:
            self.found = found
            self._memo = {}

    def appended(
        self, drafts: Sequence[Draft], first: int, revision: int, *, turn: int | None = None, seen: int | None = None
    ) -> None:
        """Remember items that this handle wrote itself, so that they need not be read."""
        if not drafts:
            return
        with self._lock:
            self.head = first + len(drafts) - 1
            is_next = first == self.next_position and first > 0
            if self._memories is not None and is_next and revision == self.found.facts.revision:
                added = [draft.entry(first + offset, turn, seen) for offset, draft in enumerate(drafts)]
                self._new += added
                self.next_position = first + len(drafts)
                if self._size:  # it is kept already; these count when it is kept again
                    self._size += size_of(added)
