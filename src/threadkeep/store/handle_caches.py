"""Plans of a conversation about explicit context caches: what is to be done about one, and requests that name one."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from threadkeep.domain.context_caches import CachePlan, Prefixes
from threadkeep.domain.objects import shown
from threadkeep.domain.wire import Format, Rendered, RenderOptions, Snapshot, get_format
from threadkeep.errors import InvalidOption
from threadkeep.formats.gemini.caching import NEVER, expiry_of, is_due, tokens_outside
from threadkeep.formats.wire_format import WITH_CACHES
from threadkeep.store.actions.caching import (
    Goal,
    Made,
    Newest,
    Outcome,
    Surveyed,
    claim,
    longest_cache,
    look,
    settle,
    survey,
)
from threadkeep.store.actions.loading import Loaded, load
from threadkeep.store.handle import Handle
from threadkeep.store.place import identifier
from threadkeep.store.plans import Plan, Steps
from threadkeep.store.requests import View, render_options

THRESHOLD: Final = 20_000  # tokens outside the cache
TTL_SECONDS: Final = 3_600
CLAIM_SECONDS: Final = 120.0
TOKEN_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller says about caches.

    Raises:
        InvalidOption: a value cannot be used.
    """

    threshold: int
    ttl: timedelta
    lease: timedelta
    dynamic_tokens: int

    @classmethod
    def of(cls, threshold: object, ttl: object, lease: object, dynamic_tokens: object) -> Wish:
        """The values of these options."""
        return cls(
            _count("threshold", threshold, NEVER),
            _duration("ttl", ttl),
            _duration("lease", lease),
            _count("dynamic_tokens", dynamic_tokens, 0),
        )

    def is_due(self, newest: Newest) -> bool:
        """Whether the tokens of the newest request that stood outside a cache reach the threshold."""
        if newest.input_tokens is None:
            return False
        tokens = tokens_outside(newest.input_tokens, newest.cached_tokens or 0, self.dynamic_tokens)
        return is_due(tokens + 1, self.threshold)  # which asks for more than so many tokens


class Caches(Handle):
    """Explicit context caches."""

    def _rendering_cached(self, wire: Format, options: RenderOptions) -> Steps[Rendered]:
        """The next request, naming the longest cache that holds its beginning."""
        snapshot = yield self._loading()
        prefixes = wire.prefixes(snapshot, options)
        cache = None
        if prefixes is not None and prefixes.found:
            found = (self._place, options.account, prefixes.model, prefixes.found)
            cache = yield Plan(longest_cache, found)
        return wire.render(snapshot, replace(options, context_cache=cache))

    def _loading(self) -> Plan[Snapshot]:
        state = self._state

        def finish(loaded: Loaded) -> Snapshot:
            return state.absorb(loaded)

        return Plan(load, (self._place, self._contents, state.found, state.next_position), finish)

    def _planning_cache(self, format: str, wish: Wish, view: View) -> Steps[CachePlan]:
        wire, options, state = get_format(format), render_options(view), self._state
        account = "" if options.account == "" else identifier("account", options.account)
        if format not in WITH_CACHES:
            raise InvalidOption(f"{format} has no context caches with names, unlike {', '.join(sorted(WITH_CACHES))}.")
        if options.upto is not None:
            raise InvalidOption("upto is for requests of earlier turns; a cache is for the next ones.")

        def finish(found: Surveyed) -> tuple[Snapshot, Newest]:
            return state.absorb(found.loaded), found.newest

        arguments = (self._place, self._contents, state.found, state.next_position, format)
        snapshot, newest = yield Plan(survey, arguments, finish)
        prefixes: Prefixes | None = wire.prefixes(snapshot, options)
        if prefixes is None:
            return CachePlan("none", account=account)
        goal = Goal(
            account=account,
            model=identifier("model", prefixes.model),
            prefixes=() if wish.threshold == NEVER else prefixes.found,
            wanted=prefixes.goal if wish.is_due(newest) else None,
            newest=newest,
            token=secrets.token_bytes(TOKEN_BYTES),
            lease=wish.lease,
            ttl=wish.ttl,
        )
        outcome: Outcome = yield Plan(look, (self._place, goal))
        if outcome.needs_writing:
            outcome = yield self._writing(claim, goal, is_keyed=True)
        return _plan_of(outcome, goal, prefixes)

    def _recording_cache(self, plan: object, name: object, expires_at: object) -> Plan[CachePlan]:
        if not isinstance(plan, CachePlan) or plan.key is None or plan.claim is None or plan.expires_at is None:
            raise InvalidOption(f"{shown(plan)} is no plan that creates a cache: only these are recorded.")
        if name is not None and not (isinstance(name, str) and name):
            raise InvalidOption(f"name is the name of the cache, or None when it was not created, not {shown(name)}.")
        expiry = plan.expires_at if expires_at is None else expiry_of(expires_at)
        if expiry is None:
            raise InvalidOption(f"expires_at is an aware datetime, or its text in ISO 8601, not {shown(expires_at)}.")
        made = Made(
            account=plan.account,
            model=plan.model or "",
            hash=_bytes(plan.key),
            token=_bytes(plan.claim),
            name=name,
            expires_at=expiry,
            delete=plan.delete,
        )

        def finish(outcome: Outcome) -> CachePlan:
            key = plan.key if outcome.action == "reuse" else None
            return CachePlan(
                outcome.action, key, outcome.name, None, outcome.delete, outcome.until, plan.account, plan.model
            )

        return self._writing(settle, made, finish=finish, is_keyed=True)


def _plan_of(outcome: Outcome, goal: Goal, prefixes: Prefixes) -> CachePlan:
    is_made = outcome.action in {"create", "replace"}
    prefix = goal.wanted if is_made else None
    return CachePlan(
        action=outcome.action,
        key=None if outcome.hash is None else outcome.hash.hex(),
        name=outcome.name,
        body=None if prefix is None else prefixes.body(prefix, goal.ttl.total_seconds()),
        delete=outcome.delete,
        expires_at=outcome.until,
        account=goal.account,
        model=goal.model,
        claim=goal.token.hex() if is_made else None,
    )


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidOption(f"{shown(text)} is not from a plan that creates a cache.") from error


def _count(name: str, value: object, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise InvalidOption(f"{name} is a number of tokens from {lowest} on, not {shown(value)}.")
    return value


def _duration(name: str, value: object) -> timedelta:
    """A length of time: a timedelta, or seconds.

    Raises:
        InvalidOption: it is neither, or not above 0.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (ValueError, OverflowError) as error:
            raise InvalidOption(f"{name} is a number of seconds, not {shown(value)}.") from error
    if not isinstance(value, timedelta) or not timedelta(0) < value < timedelta(days=3650):
        raise InvalidOption(f"{name} is a number of seconds above 0, or a timedelta, not {shown(value)}.")
    return value
