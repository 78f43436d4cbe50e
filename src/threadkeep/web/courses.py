"""What is known of the request that is being answered: what the limits of a server need of what faces find out."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException

from threadkeep.web.tallies import Tally

_TOO_MANY: Final = 429


class Shares:
    """How many requests of each owner are in flight, of which each may have a part of all."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, Tally()

    def take(self, name: Hashable) -> None:
        """Count a request of an owner.

        Raises:
            HTTPException: this owner has as many as it may.
        """
        if self._taken[name] >= self._most:
            text = f"Too many requests with this key are in flight: {self._most:,}"
            raise HTTPException(_TOO_MANY, text, headers={"retry-after": "1"})
        self._taken.add(name, 1)

    def give_back(self, name: Hashable) -> None:
        """Count a request no more."""
        self._taken.add(name, -1)


@dataclass(slots=True)
class Course:
    """What a request has done so far, and what it is counted by.

    Attributes:
        shares: those of all owners.
        owner: the name of its owner; None as long as nobody is known.
        is_costly: whether it has done what must not be done twice.
        deadline: when its time is over.
        stream: that of the stream with which it is answered, which ends a little earlier.
    """

    shares: Shares
    owner: Hashable | None = None
    is_costly: bool = False
    deadline: asyncio.Timeout | None = None
    stream: asyncio.Timeout | None = None


_course: ContextVar[Course | None] = ContextVar("course", default=None)  # of the request that is being answered


@contextmanager
def running(shares: Shares) -> Iterator[Course]:
    """Note what happens in a request while it is answered."""
    course = Course(shares)
    token = _course.set(course)
    try:
        yield course
    finally:
        _course.reset(token)
        if course.owner is not None:
            shares.give_back(course.owner)


def note_cost() -> None:
    """Note that the current request does what must not be done twice, so that clients do not repeat it after a 504."""
    course = _course.get()
    if course is not None:
        course.is_costly = True


def note_owner(name: Hashable) -> None:
    """Note whose the current request is; the first word counts.

    Raises:
        HTTPException: this owner has too many requests in flight.
    """
    course = _course.get()
    if course is not None and course.owner is None:
        course.shares.take(name)
        course.owner = name


def stream_time(last_seconds: float) -> asyncio.Timeout:
    """Return the time of a stream with which the current request is answered; so long after it, its end can be sent."""
    course = _course.get()
    when = None if course is None or course.deadline is None else course.deadline.when()
    limit = asyncio.timeout_at(when)
    if course is not None and course.deadline is not None and when is not None:
        course.stream = limit
        course.deadline.reschedule(when + last_seconds)
    return limit


def is_late() -> bool:
    """Return whether the time of the stream is over with which the current request is answered."""
    course = _course.get()
    return course is not None and course.stream is not None and course.stream.expired()
