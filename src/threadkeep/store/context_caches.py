"""The rows of explicit context caches: which one a request may name, and who creates which.

A row is claimed before the cache is created: it has a lease, no name, and a token, which is needed to record the name.
Planners of a conversation wait for each other, all others meet at the row's key: no two of them create the same cache.

Planning explicit context caches: whether to create one, who creates it, and with what outcome.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection
from sqlalchemy import RowMapping as Row

from threadkeep.db import backends, functions, models
from threadkeep.db.queries import caches
from threadkeep.domain import context_caches as domain
from threadkeep.domain import formats
from threadkeep.domain.jsontext import mismatch
from threadkeep.domain.rendering import Rendered, RenderOptions
from threadkeep.errors import InvalidOption, shown
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.store.media.urls import cache_for, takes_urls, with_urls
from threadkeep.store.reading.history import HistoryPage, read_history
from threadkeep.store.work import connections, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import BranchRef

AT_ONCE: Final = 1_000  # hashes that are looked up in one statement


class LatestAnswer(NamedTuple):
    """The latest response on a branch: its number (-1 if there is none), and the usage of its request."""

    number: int = -1
    input_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """What a planner requests."""

    account: str
    model: str
    prefixes: Sequence[domain.Prefix]  # the beginnings that a cache could hold, the shortest first
    new_prefix: domain.Prefix | None  # the one that a new cache is to hold; None for no new cache
    latest: LatestAnswer
    token: bytes  # shows that a claim is this planner's
    lease: timedelta
    ttl: timedelta


@dataclass(slots=True)
class CacheDecision:
    """What a planner should do, and with which cache."""

    action: Literal["create", "reuse", "replace", "wait", "none"]
    hash: bytes | None = None
    name: str | None = None
    until: datetime | None = None
    delete: list[str] = field(default_factory=list)
    row: Row | None = None  # of a cache that is good enough
    needs_writing: bool = False  # whether it must be written down


def read_latest(connection: Connection, ref: BranchRef, page: HistoryPage, format: str) -> LatestAnswer:
    """Return the latest response of a history in a format."""
    lineage = page.conversation.lineage
    spans, keeps = lineage.spans(ref.branch, -1, page.next_position - 1), lineage.keeps()
    statement = caches.newest_answers([span[:3] for span in spans], 1 + sum(span.surplus for span in spans))
    for *answer, position in connection.execute(statement, ref.parameters(format=format)):
        if keeps(position):
            return LatestAnswer(*answer)
    return LatestAnswer()


def find_longest_cache(
    connection: Connection, ref: BranchRef, account: str, model: str, prefixes: Sequence[domain.Prefix]
) -> domain.ContextCache | None:
    """Return the cache that holds most of a request."""
    rows = _rows_by_hash(connection, ref, account, model, prefixes)
    now = max((row["now"] for row in rows.values()), default=None)
    best = None if now is None else _longest(rows, prefixes, now)
    return None if best is None else domain.ContextCache(rows[best.hash]["name"], best.upto)


def decide(connection: Connection, ref: BranchRef, request: CacheRequest) -> CacheDecision:
    """Return what to do about a cache as things are now; nothing is written."""
    now = functions.read_clock(connection)
    rows = _rows_by_hash(connection, ref, request.account, request.model, request.prefixes)
    decision = _decide(ref, request, rows, now)
    becomes_shared = decision.row is not None and _becomes_shared(ref, decision.row)
    has_expired = any(_is_expired(row, now) for row in _own_rows(connection, ref, request.account))
    decision.needs_writing = decision.action == "create" or becomes_shared or has_expired
    return decision


def claim(connection: Connection, ref: BranchRef, request: CacheRequest) -> CacheDecision:
    """Return what to do about a cache; claim it if it should be created, and delete expired ones."""
    _lock(connection, ref)
    now = functions.read_clock(connection)
    rows = _rows_by_hash(connection, ref, request.account, request.model, request.prefixes)
    decision = _decide(ref, request, rows, now)
    expired = None
    if decision.action == "create" and request.new_prefix is not None:
        row, is_claimed = _claim(connection, ref, request, request.new_prefix, now)
        if is_claimed:
            expired = row["name"]
        else:
            decision = _decide(ref, request, {**rows, request.new_prefix.hash: row}, now)
    own = _own_rows(connection, ref, request.account)
    if decision.action == "create":
        decision.delete += _superseded(ref, request, own, decision, now)
        decision.delete += [expired] if expired is not None else []
    elif decision.row is not None and _becomes_shared(ref, decision.row):
        shared = connection.execute(caches.cache_sharing(), _row_key(decision.row))
        if not shared.rowcount:
            raise connections.LostRace  # it went away just now
    decision.delete += [row["name"] for row in own if _is_expired(row, now) and _remove(connection, row)]
    return decision


def record(
    connection: Connection,
    ref: BranchRef,
    plan: domain.CachePlan,
    hash_: bytes,
    token: bytes,
    name: str | None,
    end: datetime,
) -> CacheDecision:
    """Record the outcome of a claim: the name of the cache and its expiry, or None if it could not be created.

    A cache that was created in vain is to be deleted.
    """
    _lock(connection, ref)
    key = _model_key(ref, plan.account, plan.model or "") | {"cache_hash": hash_}
    row = connection.execute(caches.locked_cache(), key).mappings().one_or_none()
    if row is None or bytes(row["token"]) != token:
        return _created_in_vain(name, hash_, row, functions.read_clock(connection))
    own = {row["name"]: row for row in _own_rows(connection, ref, plan.account)} if plan.delete else {}
    if name is None:
        if row["name"] is None:
            _remove(connection, row)
        return CacheDecision("none", delete=[old for old in plan.delete if old not in own])  # those that expired
    connection.execute(caches.cache_change().values(name=name, expires_at=end, claim_until=None), key)
    delete = [old for old in plan.delete if old not in own or _remove(connection, own[old], unshared=True)]
    return CacheDecision("reuse", hash_, name, end, delete)


def _created_in_vain(name: str | None, hash_: bytes, row: Row | None, now: datetime) -> CacheDecision:
    """Return the plan if another planner has created the cache, or is creating it, because the lease had expired."""
    surplus = [] if name is None else [name]
    if row is None or row["name"] is None or _is_expired(row, now):
        return CacheDecision("none", delete=surplus)
    delete = [name for name in surplus if name != row["name"]]
    return CacheDecision("reuse", hash_, row["name"], row["expires_at"], delete)


# Decisions


def _decide(ref: BranchRef, request: CacheRequest, rows: Mapping[bytes, Row], now: datetime) -> CacheDecision:
    """Return what the rows say: a longer cache if it is worthwhile and not being created; else the best one."""
    best = _longest(rows, request.prefixes, now)
    row = None if best is None else rows[best.hash]
    name = None if row is None else row["name"]
    new = request.new_prefix
    if row is not None and (not _is_longer(new, best) or _is_untried(ref, request, row)):
        return CacheDecision("reuse", bytes(row["hash"]), name, row["expires_at"], row=row)
    if new is None:
        return CacheDecision("none")
    for prefix in request.prefixes:
        other = rows.get(prefix.hash)
        if other is not None and bytes(other["token"]) != request.token and _is_claimed(other, now):
            return CacheDecision("wait", prefix.hash, name, other["claim_until"])
    return CacheDecision("create", new.hash, name, now + request.ttl)


def _longest(rows: Mapping[bytes, Row], prefixes: Sequence[domain.Prefix], now: datetime) -> domain.Prefix | None:
    for prefix in reversed(prefixes):
        row = rows.get(prefix.hash)
        if row is not None and row["name"] is not None and not _is_expired(row, now):
            return prefix
    return None


def _is_expired(row: Row, now: datetime) -> bool:
    return row["name"] is not None and domain.is_expired(row["expires_at"], now)


def _is_longer(prefix: domain.Prefix | None, best: domain.Prefix | None) -> bool:
    return prefix is not None and (best is None or prefix.turns > best.turns)


def _is_claimed(row: Row, now: datetime) -> bool:
    return row["name"] is None and row["claim_until"] >= now


def _is_untried(ref: BranchRef, request: CacheRequest, row: Row) -> bool:
    """Return whether the figures belong to a request before this cache, and say nothing about it."""
    if row["conversation_id"] == ref.key:
        return bool(row["answer"] >= request.latest.number)
    return not request.latest.cached_tokens


def _becomes_shared(ref: BranchRef, row: Row) -> bool:
    """Return whether a cache has only been used by another branch so far."""
    return not row["is_shared"] and (row["conversation_id"], row["branch"]) != (ref.key, ref.branch)


def _superseded(
    ref: BranchRef, request: CacheRequest, own: Sequence[Row], decision: CacheDecision, now: datetime
) -> list[str]:
    """Return the caches of this branch that the new one makes obsolete, including the one in use."""
    names = [
        row["name"]
        for row in own
        if row["name"] is not None
        and not row["is_shared"]
        and (row["branch"], row["model"]) == (ref.branch, request.model)
        and bytes(row["hash"]) != decision.hash
        and not _is_expired(row, now)
    ]
    if decision.name in names:
        decision.action = "replace"
    return names


# Rows


def _lock(connection: Connection, ref: BranchRef) -> None:
    """Make the other planners of the conversation wait."""
    statement = caches.locked_conversation(scoped=ref.scope.user is not None)
    if connection.execute(statement, ref.scope.parameters(key=ref.key)).first() is None:
        raise ref.not_found()


def _claim(
    connection: Connection, ref: BranchRef, request: CacheRequest, prefix: domain.Prefix, now: datetime
) -> tuple[Row, bool]:
    """Claim the creation of a cache; return the previous row, and whether the cache is claimed now."""
    key = _model_key(ref, request.account, request.model) | {"cache_hash": prefix.hash}
    values = {
        "conversation_id": ref.key, "branch": ref.branch, "turns": prefix.turns, "answer": request.latest.number,
        "token": request.token, "claim_until": now + request.lease, "name": None, "expires_at": None, "is_shared": 0,
        "created_at": now,
    }  # fmt: skip
    key_columns = {
        "tenant_id": ref.scope.tenant, "account": request.account, "model": request.model, "hash": prefix.hash,
    }  # fmt: skip
    connection.execute(backends.backend_of(connection).insert_missing(models.context_caches), key_columns | values)
    row = connection.execute(caches.locked_cache(), key).mappings().one_or_none()
    if row is None:
        raise connections.LostRace
    is_own = bytes(row["token"]) == request.token and row["name"] is None
    if not is_own and (_is_claimed(row, now) if row["name"] is None else not _is_expired(row, now)):
        return row, False
    connection.execute(caches.cache_change().values(**values), key)
    return row, True


def _remove(connection: Connection, row: Row, *, unshared: bool = False) -> bool:
    """Delete the row of a cache, unless another planner has claimed it or, with `unshared`, uses it."""
    return connection.execute(caches.cache_removal(unshared=unshared), _row_key(row)).rowcount > 0


def _rows_by_hash(
    connection: Connection, ref: BranchRef, account: str, model: str, prefixes: Sequence[domain.Prefix]
) -> dict[bytes, Row]:
    hashes, key = [prefix.hash for prefix in prefixes], _model_key(ref, account, model)
    return {
        bytes(row["hash"]): row
        for start in range(0, len(hashes), AT_ONCE)
        for row in connection.execute(caches.caches_of(), {**key, "hashes": hashes[start : start + AT_ONCE]}).mappings()
    }


def _own_rows(connection: Connection, ref: BranchRef, account: str) -> Sequence[Row]:
    """Return the rows of the caches created by this conversation, in order of expiry."""
    return connection.execute(caches.caches_made_by(), ref.parameters(cache_account=account)).mappings().all()


def _model_key(ref: BranchRef, account: str, model: str) -> dict[str, Any]:
    return {"tenant": ref.scope.tenant, "cache_account": account, "cache_model": model}


def _row_key(row: Row) -> dict[str, Any]:
    return {
        "tenant": row["tenant_id"], "cache_account": row["account"], "cache_model": row["model"],
        "cache_hash": row["hash"], "cache_token": bytes(row["token"]),
    }  # fmt: skip


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
            _token_count("threshold", threshold, domain.NEVER),
            _duration("ttl", ttl),
            _duration("lease", lease),
            _token_count("dynamic_tokens", dynamic_tokens, 0),
        )

    def is_due(self, latest: LatestAnswer) -> bool:
        """Return whether the uncached tokens of the latest request reach the threshold."""
        if latest.input_tokens is None:
            return False
        tokens = domain.tokens_outside(latest.input_tokens, latest.cached_tokens or 0, self.dynamic_tokens)
        return domain.is_due(tokens + 1, self.threshold)  # which asks for more than so many tokens


def render_with_cache(handle: Handle, wire: formats.Format, options: RenderOptions, snapshot: Snapshot) -> Rendered:
    """Return the next request of a snapshot, which uses the longest cache of its beginning."""
    ref = handle.ref
    prefixes = wire.prefixes(snapshot, options)
    cache = None
    if prefixes is not None and prefixes.found:
        model, candidates = prefixes.model, prefixes.found
        cache = handle.transactions.read_any(
            lambda connection: find_longest_cache(connection, ref, options.account, model, candidates)
        )
    return wire.render(snapshot, replace(options, context_cache=cache))


def plan_context_cache(handle: Handle, format: str, policy: CachePolicy, options: RenderOptions) -> domain.CachePlan:
    """Return what to do about an explicit cache; see `Conversation.plan_context_cache`."""
    wire, ref, configs = formats.get_format(format), handle.ref, handle.resources.configs
    account = "" if options.account == "" else validation.identifier("account", options.account)
    if not wire.has_context_caches:
        raise InvalidOption(f"{format} has no context caches with names.")
    if options.upto is not None:
        raise InvalidOption("is for requests of earlier turns; a cache is for the next ones.", argument="upto")
    cache = cache_for(handle, wire, options)
    conversation, since = cache.conversation, cache.next_position

    def read(connection: Connection) -> tuple[HistoryPage, LatestAnswer]:
        page = read_history(connection, ref, configs, conversation, since, media=cache.media)
        return page, read_latest(connection, ref, page, format)

    page, latest = handle.transactions.read(read)
    snapshot = handle.take_in(cache, page)
    if takes_urls(wire, options):
        snapshot = with_urls(handle, wire, options, snapshot)
    prefixes = wire.prefixes(snapshot, options)
    if prefixes is None:
        return domain.CachePlan("none", account=account)
    request = CacheRequest(
        account=account,
        model=validation.identifier("model", prefixes.model),
        prefixes=() if policy.threshold == domain.NEVER else prefixes.found,
        new_prefix=prefixes.goal if policy.is_due(latest) else None,
        latest=latest,
        token=secrets.token_bytes(TOKEN_BYTES),
        lease=policy.lease,
        ttl=policy.ttl,
    )
    decision = handle.transactions.read(lambda connection: decide(connection, ref, request))
    if decision.needs_writing:
        decision = handle.transactions.write(lambda connection: claim(connection, ref, request), is_repeatable=True)
    return _plan(decision, request, prefixes)


def record_context_cache(handle: Handle, plan: object, name: object, expires_at: object) -> domain.CachePlan:
    """Record the outcome of a plan; see `Conversation.record_context_cache`."""
    if not isinstance(plan, domain.CachePlan) or plan.key is None or plan.claim is None or plan.expires_at is None:
        raise mismatch(InvalidOption, "a plan to create a cache", plan, "plan")
    if name is not None and not (isinstance(name, str) and name):
        raise mismatch(InvalidOption, "the name of the cache, or None when it was not created", name, "name")
    expiry = plan.expires_at if expires_at is None else domain.expiry_of(expires_at)
    if expiry is None:
        raise mismatch(InvalidOption, "an aware datetime, or its text in ISO 8601", expires_at, "expires_at")
    hash_, token, ref = _from_hex(plan.key), _from_hex(plan.claim), handle.ref
    decision = handle.transactions.write(
        lambda connection: record(connection, ref, plan, hash_, token, name, expiry), is_repeatable=True
    )
    key = plan.key if decision.action == "reuse" else None
    return domain.CachePlan(
        decision.action, key, decision.name, None, decision.delete, decision.until, plan.account, plan.model
    )


def _plan(decision: CacheDecision, request: CacheRequest, prefixes: domain.Prefixes) -> domain.CachePlan:
    is_new = decision.action in {"create", "replace"}
    prefix = request.new_prefix if is_new else None
    return domain.CachePlan(
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
