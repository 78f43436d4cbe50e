"""What the reference system decides about explicit context caches; the last turn is never cached."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

from threadkeep.domain.context_caches import is_expired


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


def cacheable(turns: int) -> int:
    """How many of so many turns a cache may hold."""
    return max(turns - 1, 0)


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
