"""What an application keeps beside a conversation and its items: states, and feedback."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class State:
    """A small named JSON value beside a conversation.

    Attributes:
        name: its name.
        value: the JSON value.
        version: starts at 1 and grows with every write, also with a deletion; pass it as `expected_version`.
        updated_at: when it was written; aware, in UTC.
    """

    name: str
    value: Any
    version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A state that is only written if nobody else has written it: a value for `states=` of a method that appends.

    Attributes:
        value: the JSON value.
        expected_version: the version that the state must have (0: it must not exist); None for any.
    """

    value: Any
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """What somebody thinks of an item.

    Attributes:
        position: the position of the item.
        user_id: who gave it; None for nobody in particular.
        rating: a number in the application's own scale; None without one.
        comment: a text; None without one.
        updated_at: when it was given, or changed; aware, in UTC.
    """

    position: int
    user_id: str | None
    rating: int | None
    comment: str | None
    updated_at: datetime
