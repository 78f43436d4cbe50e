"""Messages of front ends, in which a model's answer has everything that happened until its end, calls and outputs too.

Such a message is several entries: what a model said, what tools returned, what it said then. The last one that a model
said has the message's usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby

from threadkeep.contrib.importers.records import Answer, Entry
from threadkeep.contrib.importers.shapes import text_of
from threadkeep.domain.jsontext import JsonObject


def is_made(item: JsonObject | None) -> bool:
    """Whether a model made an item: its messages, calls and reasoning, not the outputs of calls."""
    if item is None:
        return False
    kind = text_of(item, "type") or "message"
    return item.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")


@dataclass(slots=True)
class Rounds:
    """The entries of messages, in the order in which they are added.

    Attributes:
        ends: the last entry of each message, by the message's id.
        model: the model that answered last, if it is named.
    """

    ends: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    _entries: list[tuple[Entry, bool]] = field(default_factory=list)  # with whether its parent is a message

    def add(
        self, id_: str, parent: str | None, items: Sequence[JsonObject], at: datetime | None = None,
        answer: Answer | None = None, revision: str = "",
    ) -> None:  # fmt: skip
        """Add a message, which follows another one; what of it a model said is `answer`."""
        runs = [(made, list(run)) for made, run in groupby(items, is_made)] or [(False, [])]
        last = max((number for number, (made, _) in enumerate(runs) if made), default=None)
        name = id_
        for number, (made, run) in enumerate(runs):
            given = None
            if made and answer is not None:
                given = answer if number == last else replace(answer, usage=None, latency_ms=None, status="completed")
            before, name = name, f"{id_}#{number}" if number else id_
            entry = Entry(name, before if number else parent, run, at, given, revision)
            self._entries.append((entry, number == 0))
        self.ends[id_] = name
        self.model = (None if answer is None else answer.model) or self.model

    def entries(self) -> list[Entry]:
        """The entries, each behind the last one of the message that it follows."""
        return [
            replace(entry, parent=self.ends.get(entry.parent or "", entry.parent)) if is_first else entry
            for entry, is_first in self._entries
        ]
