"""What a conversation handle remembers: the row, options, tools, and the items it has read."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from threadkeep.domain.wire import Entry, Snapshot
from threadkeep.store.actions.loading import Loaded
from threadkeep.store.actions.opening import Opened
from threadkeep.store.drafts import Draft


class State:
    """The memory of one handle. Only what is new is read; another revision makes it read everything again.

    Tasks and threads may share a handle: what one of them reads while another one has read it already is not added
    twice, and a list of items that was handed out never changes.
    """

    def __init__(self, found: Opened, *, remembers: bool) -> None:
        self.found = found
        self.head = found.lineage.head
        self.entries: list[Entry] = []
        self.next_position = 0  # everything below it has been read
        self._memo: dict[str, Any] = {}  # what formats remember of these items; anew when they are read anew
        self._remembers = remembers  # not inside the caller's transaction, which may take items back
        self._lock = Lock()

    def absorb(self, loaded: Loaded) -> Snapshot:
        """Take in what was read; returns what a request is rendered from."""
        with self._lock:
            if loaded.since == 0:
                self._replace(loaded)
            elif loaded.next_position > self.next_position:
                self.entries = [*self.entries, *(e for e in loaded.entries if e.position >= self.next_position)]
                self.next_position = loaded.next_position
            entries = self.entries
            self.head = entries[-1].position if entries else -1
            found, memo = self.found, self._memo
            if not self._remembers:
                self.entries, self.next_position, self._memo = [], 0, {}
        return Snapshot(found.settings, found.tools, entries, loaded.state, found.imported, memo, found.shared)

    def _replace(self, loaded: Loaded) -> None:
        """Take in everything; what another task has read meanwhile is kept, unless it is of another revision."""
        is_older = loaded.next_position < self.next_position
        if is_older and loaded.conversation.facts.revision == self.found.facts.revision:
            return
        self.found, self.entries = loaded.conversation, list(loaded.entries)
        self.next_position = loaded.next_position
        self._memo = {}

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
            if self._remembers and is_next and revision == self.found.facts.revision:
                new = (
                    draft.entry._replace(position=first + offset, turn=turn, seen=seen)
                    for offset, draft in enumerate(drafts)
                )
                self.entries = [*self.entries, *new]
                self.next_position = first + len(drafts)
