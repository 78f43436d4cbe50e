"""Changes of conversations, as the change feed tells them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal

ChangeKind = Literal["appended", "changed", "deleted"]
APPENDED: Final = "appended"
CHANGED: Final = "changed"
DELETED: Final = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a conversation.

    Attributes:
        id: a number that tells changes apart; the same one if a change comes again.
        kind: ``appended`` for a new conversation, items, or a response without items; ``deleted``; ``changed`` for
            everything else.
        conversation_id: the id of the conversation, which may not exist any more.
        branch: the branch of what was appended, or of a new branch; else None.
        from_position, to_position: the range of what was appended, else None; without items, `to_position` is less than
            `from_position`.
        created_at: when it was written, by the clock of the writer; aware, in UTC. Not in the order of the feed.
        cursor: for `Store.changes`: continues after this change.
    """

    id: int
    kind: ChangeKind
    conversation_id: str
    branch: int | None
    from_position: int | None
    to_position: int | None
    created_at: datetime
    cursor: str

    def to_dict(self) -> dict[str, Any]:
        """Return the change as a dict."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Some changes, in order, and where to continue.

    Attributes:
        changes: the changes; empty if there is nothing new.
        cursor: for the next call; also given if there are no changes.
    """

    changes: Sequence[Change]
    cursor: str

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)
