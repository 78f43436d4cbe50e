"""A content that is being written, and a call in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.shared.pairing import LAYER

RESPONSE: Final = "functionResponse"


@dataclass(slots=True)
class Content:
    """A content that is being written.

    Attributes:
        places: for each part the position of its item.
        turn: the turn of this API that it came in; None when others may join it.
        whole: a content that goes back as it came, instead of role and parts.
    """

    role: str
    turn: int | None = None
    parts: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    whole: Any = None

    def takes(self, role: str, turn: int | None) -> bool:
        """Whether parts of that role and turn belong here."""
        if self.role != role or self.whole is not None or LAYER in (self.turn, turn):
            return False
        return None in (self.turn, turn) or self.turn == turn

    def put(self, parts: Sequence[Any], position: int, turn: int | None) -> None:
        """Add the parts of an item: at its place among items of the same turn, else at the end."""
        is_own = turn is not None and turn == self.turn
        index = bisect_right(self.places, position) if is_own else len(self.parts)
        self.turn = turn if self.turn is None else self.turn
        self.parts[index:index] = parts
        self.places[index:index] = [position] * len(parts)

    def has_in_place(self, position: int) -> bool:
        """Whether the output of that position is here, and nothing that was said before it stands behind it."""
        if position not in self.places:
            return False
        start = self.places.index(position)
        behind = zip(self.places[start:], self.parts[start:], strict=True)
        return all(other >= position or (isinstance(part, dict) and RESPONSE in part) for other, part in behind)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call in the last content: its item, and what it is named there."""

    entry: Entry
    name: str
    call_id: str | None
