"""What an application that runs a conversation gets: calls to answer, decisions about them, variants, whole turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from threadkeep.domain import items, stored
from threadkeep.domain.response import Response

NextStep = Literal["model", "tools", "user"]
"""Whose turn it is: the model's, the called functions', or the user's."""
Decision = Literal["approved", "denied"]


@dataclass(frozen=True, slots=True)
class Approval:
    """A decision about a call.

    Attributes:
        decision: ``approved`` or ``denied``.
        reason: why it was denied.
        decided_by: the application's id of the person who decided, if given.
        decided_at: when; aware, in UTC.
    """

    decision: Decision
    reason: str | None
    decided_by: str | None
    decided_at: datetime


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call without an output.

    Attributes:
        position: its position in the conversation.
        id: the id of the stored item.
        call_id: the id that its output has to state.
        name: the name of the function; of a built-in tool, the type of the call, such as ``shell_call``.
        arguments: the parsed arguments; the text itself if it is not JSON, and for custom tools.
        approval: the decision about it; None as long as there is none.
        item: the call itself.
    """

    position: int
    id: str
    call_id: str | None
    name: str
    arguments: Any
    approval: Approval | None
    item: items.Item

    @property
    def is_approved(self) -> bool:
        """Whether it was approved; False if it was denied, or nothing was decided."""
        return self.approval is not None and self.approval.decision == "approved"


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the items that follow the same item on different branches.

    Attributes:
        branch: one that has it.
        position: where it is.
        newest: the branch with the newest item of those that have it: where people go on who choose it.
    """

    branch: int
    position: int
    newest: int


@dataclass(frozen=True, slots=True)
class Siblings:
    """The variants at one place of a conversation, in the order in which they were written.

    Attributes:
        variants: the branch and first position of each.
        index: which of them this one is, from 0.
    """

    variants: Sequence[Variant]
    index: int

    @property
    def count(self) -> int:
        """How many there are, at least 1."""
        return len(self.variants)

    @property
    def previous(self) -> Variant | None:
        """The one before this one; None for the first."""
        return self.variants[self.index - 1] if self.index else None

    @property
    def next(self) -> Variant | None:
        """The one after this one; None for the last."""
        return self.variants[self.index + 1] if self.index + 1 < self.count else None

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.variants)


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """What `add_turn` has stored.

    Attributes:
        items: the items of the input.
        response: the provider's response to it.
    """

    items: Sequence[stored.StoredItem]
    response: Response

    @property
    def replayed(self) -> bool:
        """Whether an earlier call with the same idempotency key had stored it."""
        return self.response.replayed
