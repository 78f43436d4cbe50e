"""Explicit context caches: a provider stores the beginning of a request; requests that name the cache omit it.

Caches without names, which providers find by marks or automatically, are not meant. Source: Google's documents on
context caching.
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
    """A cache named by a request, and the position of the last item in it."""

    name: str
    upto: int


class Prefix(NamedTuple):
    """The beginning of a request: the number of turns, the last position, and a hash of its content."""

    turns: int
    upto: int
    hash: bytes


class Prefixes(Protocol):
    """The beginnings of a request that a cache of its `model` can hold; a new cache should hold the `goal`."""

    model: str
    found: Sequence[Prefix]  # the shortest first
    goal: Prefix | None

    def body(self, prefix: Prefix, ttl: float) -> JsonObject:
        """Return the request that creates a cache of a prefix for so many seconds."""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """What to do about the explicit cache of a conversation.

    Attributes:
        action: ``create``, or ``replace`` (create a longer one): send `body`, then call `record_context_cache`.
            ``reuse``: use `name`. ``wait``: another worker is creating it. ``none``: there is nothing to do.
        key: identifies the cached content; the same for all conversations that share it; None for ``none``.
        name: the cache that requests use until the plan is recorded; None if there is none.
        body: the request that creates the cache.
        delete: names of caches that have expired, or will be obsolete once this plan is recorded.
        expires_at: when the cache expires, unless the provider says otherwise; for ``wait``, when the other worker's
            claim expires.
        account: the account at the provider that owns the cache.
        model: the model the cache is for.
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
    """Return the tokens of a request that a cache could have held: neither cached nor dynamic context (never cached).

    >>> tokens_outside(800, 500, 100)
    200
    """
    return max(prompt - cached - dynamic, 0)


def is_due(tokens: int, threshold: int) -> bool:
    """Return whether so many tokens outside a cache are worth a new one; below zero, the threshold means never."""
    return tokens > threshold > NEVER


def is_expired(expires_at: datetime | str | None, now: datetime) -> bool:
    """Return whether a cache with that expiry has ended: after it, not at it, or if it is not a time.

    A time without a zone is UTC.

    >>> is_expired("2026-11-21T20:30:00+09:00", datetime(2026, 11, 21, 12, tzinfo=UTC))
    True
    """
    expiry = expiry_of(expires_at)
    return expiry is None or (now if now.tzinfo else now.replace(tzinfo=UTC)) > expiry


def expiry_of(value: object) -> datetime | None:
    """Return the expiry of a cache as reported by a service, in UTC unless it has a zone; None if it cannot be read."""
    try:
        expiry = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(expiry, datetime):
            return None
        return expiry.replace(tzinfo=UTC) if expiry.tzinfo is None else expiry.astimezone(UTC)
    except (ValueError, OverflowError):  # the first and last hours of the calendar have no UTC
        return None
