"""When a part of a conversation goes into an explicit context cache, and how long a cache counts.

* The last turn is never cached: its signatures must be sent.
* A cache pays again once the tokens outside it are more than a threshold; a threshold below zero means never. Tokens of
  the dynamic context do not count: they are never cached.
* A cache is over after its expiry, not at it; what cannot be read as a time is over.

Source: Google's documents on context caching.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

NEVER: Final = -1  # the threshold of conversations that use no caches


class Cache(NamedTuple):
    """A cache that the service has: its name there, when it expires, and how many turns it holds."""

    name: str
    expires_at: datetime | str | None
    turns: int = 0


class Decision(NamedTuple):
    """What to do about caches.

    Attributes:
        action: "create" one, "replace" the one that there is, "reuse" it, or use "none".
        turns: how many turns the cache holds then.
        delete: the name of the cache to delete at the service, if any.
    """

    action: Literal["create", "replace", "reuse", "none"]
    turns: int
    delete: str | None = None


def tokens_outside(prompt: int, cached: int, dynamic: int = 0) -> int:
    """The tokens of a request that a cache could have held: neither cached yet nor dynamic context.

    >>> tokens_outside(800, 500, 100)
    200
    """
    return max(prompt - cached - dynamic, 0)


def is_due(tokens: int, threshold: int) -> bool:
    """Whether so many tokens outside of a cache are worth a new one."""
    return tokens > threshold > NEVER


def cacheable(turns: int) -> int:
    """How many of so many turns a cache may hold."""
    return max(turns - 1, 0)


def is_expired(expires_at: datetime | str | None, now: datetime) -> bool:
    """Whether a cache of that expiry is over; a time without a zone is UTC.

    >>> is_expired("2026-11-21T20:30:00+09:00", datetime(2026, 11, 21, 12, tzinfo=UTC))
    True
    """
    found = expiry_of(expires_at)
    return found is None or (now if now.tzinfo else now.replace(tzinfo=UTC)) > found


def expiry_of(value: object) -> datetime | None:
    """The time at which a service says that a cache expires; None for what cannot be read. Without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(found, datetime):
            return None
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # the first and last hours of the calendar have no UTC
        return None


def decided(turns: int, cache: Cache | None, now: datetime, *, is_due: bool, is_changed: bool = False) -> Decision:
    """What to do for a conversation of so many turns.

    Args:
        turns: how many it has.
        cache: the newest one that was made for it.
        now: the time.
        is_due: whether a new cache pays.
        is_changed: whether the static layer is another than the cache holds, which no longer counts then.
    """
    held = 0 if cache is None or is_changed else cache.turns
    living = None if cache is None or is_expired(cache.expires_at, now) else cache.name
    if is_due and cacheable(turns) > 0:
        return Decision("create" if living is None else "replace", cacheable(turns), living)
    if is_changed:
        return Decision("none", held, living)
    return Decision("none" if living is None else "reuse", held)
