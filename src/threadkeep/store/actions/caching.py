"""Explicit context caches: who makes which, which one a request may name, and what became of it.

A row is claimed before the cache is made: it has a token, a lease and no name. Whoever records the name shows the
token. All planners of a conversation wait for each other, and those of other conversations meet at the row's key, so
that nobody makes what another one is making.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import Connection
from sqlalchemy import RowMapping as Row

from threadkeep.db.dialects import insert_missing
from threadkeep.db.queries.caches import (
    cache_change,
    cache_removal,
    cache_sharing,
    caches_made_by,
    caches_of,
    locked_cache,
    locked_conversation,
    newest_answer,
)
from threadkeep.db.tables import context_caches
from threadkeep.domain.context_caches import ContextCache, Prefix
from threadkeep.formats.gemini.caching import is_expired
from threadkeep.store.actions.loading import Loaded, load
from threadkeep.store.actions.opening import Opened
from threadkeep.store.attempts import Raced
from threadkeep.store.contents import Contents
from threadkeep.store.place import Place

AT_ONCE: Final = 1_000  # hashes that are looked up in one statement


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest answer on a branch: its number (-1: there is none), and what its request used."""

    number: int = -1
    input_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A conversation, and its newest answer in a format."""

    loaded: Loaded
    newest: Newest


@dataclass(frozen=True, slots=True)
class Goal:
    """What a planner wants.

    Attributes:
        prefixes: the beginnings that a cache could hold, the shortest first.
        wanted: the one that a new cache is to hold; None for no new cache.
        token: what shows that a claim is this planner's.
    """

    account: str
    model: str
    prefixes: Sequence[Prefix]
    wanted: Prefix | None
    newest: Newest
    token: bytes
    lease: timedelta
    ttl: timedelta


@dataclass(slots=True)
class Outcome:
    """What a planner is to do, and with which cache.

    Attributes:
        row: the row of a cache that is good enough.
        needs_writing: whether what was found must be written down.
    """

    action: Literal["create", "reuse", "replace", "wait", "none"]
    hash: bytes | None = None
    name: str | None = None
    until: datetime | None = None
    delete: list[str] = field(default_factory=list)
    row: Row | None = None
    needs_writing: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a claim: the name of the cache, or None when it could not be made.

    `delete` are the names that are of no use from now on.
    """

    account: str
    model: str
    hash: bytes
    token: bytes
    name: str | None
    expires_at: datetime
    delete: Sequence[str]


def survey(
    connection: Connection, place: Place, contents: Contents, found: Opened, since: int, format_name: str
) -> Surveyed:
    """Read what is new of a conversation, and what its newest answer in a format used.

    Raises:
        NotFound: it is not there any more.
    """
    loaded = load(connection, place, contents, found, since)
    ranges = loaded.conversation.lineage.ranges(place.branch, -1, loaded.next_position - 1)
    parameters = {"tenant": place.scope.tenant, "key": place.key, "format": format_name}
    row = connection.execute(newest_answer(ranges), parameters).one_or_none()
    return Surveyed(loaded, Newest() if row is None else Newest(*row))


def longest_cache(
    connection: Connection, place: Place, account: str, model: str, prefixes: Sequence[Prefix]
) -> ContextCache | None:
    """The cache that holds most of a request."""
    now = datetime.now(UTC)
    found = _by_hash(connection, place, account, model, prefixes)
    best = _best(found, prefixes, now)
    return None if best is None else ContextCache(found[best.hash]["name"], best.upto)


def look(connection: Connection, place: Place, goal: Goal) -> Outcome:
    """What is to be done about a cache, as things are now; nothing is written."""
    now = datetime.now(UTC)
    found = _by_hash(connection, place, goal.account, goal.model, goal.prefixes)
    outcome = _decided(place, goal, found, now)
    is_news = outcome.row is not None and _is_to_be_shared(place, outcome.row)
    has_expired = any(_is_expired(row, now) for row in _own(connection, place, goal.account))
    outcome.needs_writing = outcome.action == "create" or is_news or has_expired
    return outcome


def claim(connection: Connection, place: Place, goal: Goal) -> Outcome:
    """What is to be done about a cache; whoever is to make one has claimed it, and those that expired are forgotten.

    Raises:
        NotFound: the conversation is not there any more.
        Raced: the cache to be used went away meanwhile.
    """
    _lock(connection, place)
    now = datetime.now(UTC)
    found = _by_hash(connection, place, goal.account, goal.model, goal.prefixes)
    outcome = _decided(place, goal, found, now)
    expired = None
    if outcome.action == "create" and goal.wanted is not None:
        there, is_taken = _take(connection, place, goal, goal.wanted, now)
        if is_taken:
            expired = there["name"]
        else:
            outcome = _decided(place, goal, {**found, goal.wanted.hash: there}, now)
    own = _own(connection, place, goal.account)
    if outcome.action == "create":
        outcome.delete += _superseded(place, goal, own, outcome)
        outcome.delete += [expired] if expired is not None else []
    elif outcome.row is not None and _is_to_be_shared(place, outcome.row):
        _share(connection, outcome.row)
    outcome.delete += [row["name"] for row in own if _is_expired(row, now) and _remove(connection, row)]
    return outcome


def settle(connection: Connection, place: Place, made: Made) -> Outcome:
    """Write down what became of a claim. A cache that was made in vain is to be deleted.

    Raises:
        NotFound: the conversation is not there any more.
    """
    _lock(connection, place)
    key = _names(place, made.account, made.model) | {"cache_hash": made.hash}
    row = connection.execute(locked_cache(), key).mappings().one_or_none()
    if row is None or bytes(row["token"]) != made.token:
        return _in_vain(made, row, datetime.now(UTC))
    own = {row["name"]: row for row in _own(connection, place, made.account)} if made.delete else {}
    if made.name is None:
        if row["name"] is None:
            _remove(connection, row)
        return Outcome("none", delete=[name for name in made.delete if name not in own])  # those that expired
    values = {"name": made.name, "expires_at": made.expires_at, "claim_until": None}
    connection.execute(cache_change().values(**values), key)
    outcome = Outcome("reuse", made.hash, made.name, made.expires_at)
    for name in made.delete:
        if name not in own or _remove(connection, own[name], unshared=True):
            outcome.delete.append(name)
    return outcome


def _in_vain(made: Made, row: Row | None, now: datetime) -> Outcome:
    """Somebody else has made the cache, or is making it, because the lease was over."""
    surplus = [] if made.name is None else [made.name]
    if row is None or row["name"] is None or _is_expired(row, now):
        return Outcome("none", delete=surplus)
    delete = [name for name in surplus if name != row["name"]]
    return Outcome("reuse", made.hash, row["name"], row["expires_at"], delete)


# Decisions


def _decided(place: Place, goal: Goal, found: Mapping[bytes, Row], now: datetime) -> Outcome:
    """What the rows say: a longer cache, if it is worth its making and nobody is at it; else the best that there is."""
    best = _best(found, goal.prefixes, now)
    row = None if best is None else found[best.hash]
    name = None if row is None else row["name"]
    if row is not None and (not _is_longer(goal.wanted, best) or _is_untried(place, goal, row)):
        return Outcome("reuse", bytes(row["hash"]), name, row["expires_at"], row=row)
    if goal.wanted is None:
        return Outcome("none")
    for prefix in goal.prefixes:
        other = found.get(prefix.hash)
        if other is not None and bytes(other["token"]) != goal.token and _is_claimed(other, now):
            return Outcome("wait", prefix.hash, name, other["claim_until"])
    return Outcome("create", goal.wanted.hash, name, now + goal.ttl)


def _best(found: Mapping[bytes, Row], prefixes: Sequence[Prefix], now: datetime) -> Prefix | None:
    """The longest beginning of which there is a cache."""
    for prefix in reversed(prefixes):
        row = found.get(prefix.hash)
        if row is not None and row["name"] is not None and not _is_expired(row, now):
            return prefix
    return None


def _is_expired(row: Row, now: datetime) -> bool:
    return row["name"] is not None and is_expired(row["expires_at"], now)


def _is_longer(wanted: Prefix | None, best: Prefix | None) -> bool:
    return wanted is not None and (best is None or wanted.turns > best.turns)


def _is_claimed(row: Row, now: datetime) -> bool:
    return row["name"] is None and row["claim_until"] >= now


def _is_untried(place: Place, goal: Goal, row: Row) -> bool:
    """Whether the figures are of a request that was made before this cache, so that they say nothing about it."""
    if row["conversation_id"] == place.key:
        return bool(row["answer"] >= goal.newest.number)
    return not goal.newest.cached_tokens


def _is_to_be_shared(place: Place, row: Row) -> bool:
    """Whether a cache was another's alone up to now."""
    return not row["is_shared"] and (row["conversation_id"], row["branch"]) != (place.key, place.branch)


def _superseded(place: Place, goal: Goal, own: Sequence[Row], outcome: Outcome) -> list[str]:
    """The caches of this branch that nobody needs when there is the new one; it replaces the one that was in use."""
    names = [
        row["name"]
        for row in own
        if row["name"] is not None
        and not row["is_shared"]
        and (row["branch"], row["model"]) == (place.branch, goal.model)
        and bytes(row["hash"]) != outcome.hash
        and not _is_expired(row, datetime.now(UTC))
    ]
    if outcome.name in names:
        outcome.action = "replace"
    return names


# Rows


def _lock(connection: Connection, place: Place) -> None:
    """Make the other planners of the conversation wait."""
    scope = place.scope
    if connection.execute(locked_conversation(scoped=scope.is_scoped), scope.bound(key=place.key)).first() is None:
        raise place.missing()


def _take(connection: Connection, place: Place, goal: Goal, prefix: Prefix, now: datetime) -> tuple[Row, bool]:
    """Claim the making of a cache; returns the row that was there, and whether it is taken: else somebody was faster.

    Raises:
        Raced: that row went away again.
    """
    key = _names(place, goal.account, goal.model) | {"cache_hash": prefix.hash}
    values = {
        "conversation_id": place.key, "branch": place.branch, "turns": prefix.turns, "answer": goal.newest.number,
        "token": goal.token, "claim_until": now + goal.lease, "name": None, "expires_at": None, "is_shared": 0,
        "created_at": now,
    }  # fmt: skip
    row = {"tenant_id": place.scope.tenant, "account": goal.account, "model": goal.model, "hash": prefix.hash, **values}
    connection.execute(insert_missing(connection, context_caches), row)
    there = connection.execute(locked_cache(), key).mappings().one_or_none()
    if there is None:
        raise Raced
    is_own = bytes(there["token"]) == goal.token and there["name"] is None
    if not is_own and (_is_claimed(there, now) if there["name"] is None else not _is_expired(there, now)):
        return there, False
    connection.execute(cache_change().values(**values), key)
    return there, True


def _share(connection: Connection, row: Row) -> None:
    """Note that others use a cache: it is not deleted with the next one of its maker.

    Raises:
        Raced: it was, just now.
    """
    if not connection.execute(cache_sharing(), _key(row)).rowcount:
        raise Raced


def _remove(connection: Connection, row: Row, *, unshared: bool = False) -> bool:
    """Forget a cache, unless somebody else has made it theirs meanwhile, or (`unshared`) uses it."""
    return connection.execute(cache_removal(unshared=unshared), _key(row)).rowcount > 0


def _by_hash(
    connection: Connection, place: Place, account: str, model: str, prefixes: Sequence[Prefix]
) -> dict[bytes, Row]:
    """The rows of these beginnings, by hash."""
    hashes, names = [prefix.hash for prefix in prefixes], _names(place, account, model)
    return {
        bytes(row["hash"]): row
        for start in range(0, len(hashes), AT_ONCE)
        for row in connection.execute(caches_of(), {**names, "hashes": hashes[start : start + AT_ONCE]}).mappings()
    }


def _own(connection: Connection, place: Place, account: str) -> Sequence[Row]:
    """The rows that this conversation made, those that end first before the others."""
    parameters = {"tenant": place.scope.tenant, "key": place.key, "cache_account": account}
    return connection.execute(caches_made_by(), parameters).mappings().all()


def _names(place: Place, account: str, model: str) -> dict[str, Any]:
    return {"tenant": place.scope.tenant, "cache_account": account, "cache_model": model}


def _key(row: Row) -> dict[str, Any]:
    return {
        "tenant": row["tenant_id"], "cache_account": row["account"], "cache_model": row["model"],
        "cache_hash": row["hash"], "cache_token": bytes(row["token"]),
    }  # fmt: skip
