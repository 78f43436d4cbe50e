"""Planning explicit context caches: whether to create one, who creates it, and with what outcome."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection

from threadkeep.domain.context_caches import NEVER, CachePlan, Prefixes, expiry_of, is_due, tokens_outside
from threadkeep.domain.formats import Format, get_format
from threadkeep.domain.objects import mismatch, shown
from threadkeep.domain.rendering import Rendered, RenderOptions
from threadkeep.errors import InvalidOption
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.store.context_caches import claims
from threadkeep.store.context_caches.claims import CacheDecision, CacheRequest, LatestAnswer
from threadkeep.store.handle import Handle
from threadkeep.store.history import HistoryPage, read_history
from threadkeep.store.media.urls import cache_for, takes_urls, with_urls
from threadkeep.store.validation import identifier

TOKEN_BYTES: Final = 16
LONGEST: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """When a cache is worthwhile, and the lifetimes of the cache and of the claim to create it."""

    threshold: int
    ttl: timedelta
    lease: timedelta
    dynamic_tokens: int

    @classmethod
    def of(cls, threshold: object, ttl: object, lease: object, dynamic_tokens: object) -> CachePolicy:
        """Return the policy requested by the caller."""
        return cls(
            _token_count("threshold", threshold, NEVER),
            _duration("ttl", ttl),
            _duration("lease", lease),
            _token_count("dynamic_tokens", dynamic_tokens, 0),
        )

    def is_due(self, latest: LatestAnswer) -> bool:
        """Return whether the uncached tokens of the latest request reach the threshold."""
        if latest.input_tokens is None:
            return False
        tokens = tokens_outside(latest.input_tokens, latest.cached_tokens or 0, self.dynamic_tokens)
        return is_due(tokens + 1, self.threshold)  # which asks for more than so many tokens


def render_with_cache(handle: Handle, wire: Format, options: RenderOptions, snapshot: Snapshot) -> Rendered:
    """Return the next request of a snapshot, which uses the longest cache of its beginning."""
    ref = handle.ref
    prefixes = wire.prefixes(snapshot, options)
    cache = None
    if prefixes is not None and prefixes.found:
        model, candidates = prefixes.model, prefixes.found
        cache = handle.transactions.read_any(
            lambda connection: claims.find_longest_cache(connection, ref, options.account, model, candidates)
        )
    return wire.render(snapshot, replace(options, context_cache=cache))


def plan_context_cache(handle: Handle, format: str, policy: CachePolicy, options: RenderOptions) -> CachePlan:
    """Return what to do about an explicit cache; see `Conversation.plan_context_cache`."""
    wire, ref, configs = get_format(format), handle.ref, handle.resources.configs
    account = "" if options.account == "" else identifier("account", options.account)
    if not wire.has_context_caches:
        raise InvalidOption(f"{format} has no context caches with names.")
    if options.upto is not None:
        raise InvalidOption("is for requests of earlier turns; a cache is for the next ones.", argument="upto")
    cache = cache_for(handle, wire, options)
    conversation, since = cache.conversation, cache.next_position

    def read(connection: Connection) -> tuple[HistoryPage, LatestAnswer]:
        page = read_history(connection, ref, configs, conversation, since, media=cache.media)
        return page, claims.read_latest(connection, ref, page, format)

    page, latest = handle.transactions.read(read)
    snapshot = handle.take_in(cache, page)
    if takes_urls(wire, options):
        snapshot = with_urls(handle, wire, options, snapshot)
    prefixes = wire.prefixes(snapshot, options)
    if prefixes is None:
        return CachePlan("none", account=account)
    request = CacheRequest(
        account=account,
        model=identifier("model", prefixes.model),
        prefixes=() if policy.threshold == NEVER else prefixes.found,
        new_prefix=prefixes.goal if policy.is_due(latest) else None,
        latest=latest,
        token=secrets.token_bytes(TOKEN_BYTES),
        lease=policy.lease,
        ttl=policy.ttl,
    )
    decision = handle.transactions.read(lambda connection: claims.decide(connection, ref, request))
    if decision.needs_writing:
        decision = handle.transactions.write(
            lambda connection: claims.claim(connection, ref, request), is_repeatable=True
        )
    return _plan(decision, request, prefixes)


def record_context_cache(handle: Handle, plan: object, name: object, expires_at: object) -> CachePlan:
    """Record the outcome of a plan; see `Conversation.record_context_cache`."""
    if not isinstance(plan, CachePlan) or plan.key is None or plan.claim is None or plan.expires_at is None:
        raise mismatch(InvalidOption, "a plan to create a cache", plan, "plan")
    if name is not None and not (isinstance(name, str) and name):
        raise mismatch(InvalidOption, "the name of the cache, or None when it was not created", name, "name")
    expiry = plan.expires_at if expires_at is None else expiry_of(expires_at)
    if expiry is None:
        raise mismatch(InvalidOption, "an aware datetime, or its text in ISO 8601", expires_at, "expires_at")
    hash_, token, ref = _from_hex(plan.key), _from_hex(plan.claim), handle.ref
    decision = handle.transactions.write(
        lambda connection: claims.record(connection, ref, plan, hash_, token, name, expiry), is_repeatable=True
    )
    key = plan.key if decision.action == "reuse" else None
    return CachePlan(
        decision.action, key, decision.name, None, decision.delete, decision.until, plan.account, plan.model
    )


def _plan(decision: CacheDecision, request: CacheRequest, prefixes: Prefixes) -> CachePlan:
    is_new = decision.action in {"create", "replace"}
    prefix = request.new_prefix if is_new else None
    return CachePlan(
        action=decision.action,
        key=None if decision.hash is None else decision.hash.hex(),
        name=decision.name,
        body=None if prefix is None else prefixes.body(prefix, request.ttl.total_seconds()),
        delete=decision.delete,
        expires_at=decision.until,
        account=request.account,
        model=request.model,
        claim=request.token.hex() if is_new else None,
    )


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidOption(f"is not from a plan to create a cache: {shown(text)}.", argument="plan") from error


def _token_count(argument: str, value: object, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise mismatch(InvalidOption, f"a number of tokens from {lowest} on", value, argument)
    return value


def _duration(argument: str, value: object) -> timedelta:
    """Return a positive duration: a timedelta, or seconds."""
    duration = value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            duration = timedelta(seconds=value)
        except (ValueError, OverflowError) as error:
            raise mismatch(InvalidOption, "a number of seconds", value, argument) from error
    if not isinstance(duration, timedelta) or not timedelta(0) < duration < LONGEST:
        raise mismatch(InvalidOption, "a number of seconds above 0, or a timedelta", value, argument)
    return duration
