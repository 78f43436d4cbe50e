"""A content that is being written, and a call in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.wire import Entry
from threadkeep.formats.turns import LAYER

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

    def has_in_place(self, position: int) -> bool:
        """Whether the output of that position is here, and nothing that was said before it stands behind it."""
        if position not in self.places:
            return False
        start = self.places.index(position)
        behind = zip(self.places[start:], self.parts[start:], strict=True)
        return all(place >= position or (isinstance(part, dict) and RESPONSE in part) for place, part in behind)


@dataclass(frozen=True, slots=True)
class Made:
    """A call in the last content: its item, and what it is named there."""

    entry: Entry
    name: str
    call_id: str | None
