"""When an explicit context cache pays, and how long it counts.

* A cache pays again once the tokens outside it are more than a threshold; a threshold below zero means never. Tokens of
  the dynamic context do not count: they are never cached.
* A cache is over after its expiry, not at it; what cannot be read as a time is over.

Source: Google's documents on context caching.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

NEVER: Final = -1  # the threshold of conversations that use no caches


def tokens_outside(prompt: int, cached: int, dynamic: int = 0) -> int:
    """The tokens of a request that a cache could have held: neither cached yet nor dynamic context.

    >>> tokens_outside(800, 500, 100)
    200
    """
    return max(prompt - cached - dynamic, 0)


def is_due(tokens: int, threshold: int) -> bool:
    """Whether so many tokens outside of a cache are worth a new one."""
    return tokens > threshold > NEVER


def is_expired(expires_at: datetime | str | None, now: datetime) -> bool:
    """Whether a cache of that expiry is over; a time without a zone is UTC.

    >>> is_expired("2026-11-21T20:30:00+09:00", datetime(2026, 11, 21, 12, tzinfo=UTC))
    True
    """
    expiry = expiry_of(expires_at)
    return expiry is None or (now if now.tzinfo else now.replace(tzinfo=UTC)) > expiry


def expiry_of(value: object) -> datetime | None:
    """The time at which a service says that a cache expires; None for what cannot be read. Without a zone it is UTC."""
    try:
        expiry = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(expiry, datetime):
            return None
        return expiry.replace(tzinfo=UTC) if expiry.tzinfo is None else expiry.astimezone(UTC)
    except (ValueError, OverflowError):  # the first and last hours of the calendar have no UTC
        return None
