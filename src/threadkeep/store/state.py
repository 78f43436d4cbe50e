"""What a conversation handle remembers: the row, options, tools, and the items it has read."""

from __future__ import annotations

from collections.abc import Sequence

from threadkeep.domain.wire import Entry, Snapshot
from threadkeep.store.actions.entries import Known, Loaded
from threadkeep.store.actions.opening import Opened
from threadkeep.store.drafts import Draft


class State:
    """The memory of one handle. Only what is new is read; another revision makes it read everything again."""

    def __init__(self, found: Opened) -> None:
        self.facts = found.facts
        self.settings = found.settings
        self.tools = found.tools
        self.head = found.head
        self.entries: list[Entry] = []
        self.known: Known | None = None

    def absorb(self, loaded: Loaded) -> Snapshot:
        """Take in what was read; returns what a request is rendered from."""
        self.facts, self.settings, self.tools = loaded.facts, loaded.settings, loaded.tools
        if loaded.is_whole:
            self.entries = list(loaded.entries)
        else:
            self.entries.extend(loaded.entries)
        self.head = self.entries[-1].position if self.entries else -1
        self.known = Known(loaded.facts.revision, loaded.facts.next_position)
        return Snapshot(loaded.settings, loaded.tools, self.entries, loaded.state)

    def changed(self, found: Opened) -> None:
        """Take in the row as it is after a change."""
        self.facts, self.settings, self.tools = found.facts, found.settings, found.tools

    def appended(
        self, drafts: Sequence[Draft], first: int, revision: int, *, turn: int | None = None, seen: int | None = None
    ) -> None:
        """Remember items that this handle wrote itself, so that they need not be read."""
        if not drafts:
            return
        self.head = first + len(drafts) - 1
        if self.known == Known(revision, first):
            self.entries.extend(
                draft.entry._replace(position=first + offset, turn=turn, seen=seen)
                for offset, draft in enumerate(drafts)
            )
            self.known = Known(revision, first + len(drafts))
