"""Explicit context caches: copies of the beginning of a request that a provider keeps under a name.

A request that names such a cache leaves out what the cache holds. Caches without names, which providers find by marks
or by themselves, are not meant here.

* A cache pays again once the tokens outside it are more than a threshold; a threshold below zero means never. Tokens of
  the dynamic context do not count: they are never cached.
* A cache is over after its expiry, not at it; what cannot be read as a time is over.

Source: Google's documents on context caching.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, Protocol

from threadkeep.domain.jsontext import JsonObject

NEVER: Final = -1  # the threshold of conversations that use no caches


@dataclass(frozen=True, slots=True)
class ContextCache:
    """A cache that a request names, and the position of the last item that is in it."""

    name: str
    upto: int


class Prefix(NamedTuple):
    """The beginning of a request: how many turns, up to which position, and the hash of all that is in it."""

    turns: int
    upto: int
    hash: bytes


class Prefixes(Protocol):
    """Which beginnings of a request a cache of its `model` can hold; the `goal` is what a new one should hold."""

    model: str
    found: Sequence[Prefix]  # the shortest first
    goal: Prefix | None

    def body(self, prefix: Prefix, ttl: float) -> JsonObject:
        """The request that creates a cache of a beginning, for so many seconds."""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """What to do about the explicit cache of a conversation.

    Attributes:
        action: ``create``, or ``replace`` (create a longer one): send `body`, then call `record_context_cache`.
            ``reuse``: use `name`. ``wait``: another worker is creating it. ``none``: there is nothing to do.
        key: identifies what is cached: the same text for all conversations that share it; None for ``none``.
        name: the cache that requests use until the plan is recorded; None when there is none.
        body: the request that creates the cache.
        delete: names of caches that have expired, or that are not needed once this plan is recorded.
        expires_at: when the cache expires, unless the provider says otherwise; with ``wait``: when the claim of the
            other worker does.
        account: the account at the provider that has the cache.
        model: the model that it is for.
        claim: the claim to create it, to be recorded.
    """

    action: Literal["create", "reuse", "replace", "wait", "none"]
    key: str | None = None
    name: str | None = None
    body: JsonObject | None = None
    delete: list[str] = field(default_factory=list)
    expires_at: datetime | None = None
    account: str = ""
    model: str | None = None
    claim: str | None = None


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
