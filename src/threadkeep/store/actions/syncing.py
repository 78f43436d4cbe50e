"""Bringing a conversation up to a history that a client holds: what is new is appended, what differs branches off."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from sqlalchemy import Connection, select

from threadkeep.db.tables import branches, responses
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.stored import StoredItem
from threadkeep.domain.wire import Entry
from threadkeep.errors import Conflict
from threadkeep.store.actions.entries import Lineage, facts_at, held, read_entries
from threadkeep.store.actions.inputs import Incoming, Known, history, put, stored_range
from threadkeep.store.actions.keys import outcome_of, record
from threadkeep.store.actions.numbers import ANYWHERE, NONE, Guard, Unfinished, fork, take
from threadkeep.store.attempts import Replayed
from threadkeep.store.contents import Contents
from threadkeep.store.place import Once, Place


@dataclass(frozen=True, slots=True)
class News:
    """How a held history continues a stored one.

    `kept` counts the stored items that it has, `matched` its own items that are stored; `is_all`: it has all of them.
    """

    kept: int
    matched: int
    is_all: bool
    new: Incoming


class Compare(Protocol):
    """Compares the held history with a stored one."""

    def __call__(self, entries: Sequence[Entry], cut: Collection[int], *, is_aligned: bool = True) -> News:
        """What is new; `cut` are the positions where answers broke off.

        `is_aligned`: the held history may have only the end of the stored one.
        """


@dataclass(frozen=True, slots=True)
class Sync:
    """A history that a client holds.

    `previous_response_id` and `is_in_conversation` say that it only has what follows what the provider holds.
    """

    compare: Compare
    known: Known
    previous_response_id: str | None = None
    is_in_conversation: bool = False
    once: Once | None = None
    guard: Guard = ANYWHERE


@dataclass(frozen=True, slots=True)
class Synced:
    """What was done."""

    first: int
    branch: int
    revision: int
    matched: int
    branched_at: int | None
    new: Incoming
    stored: Sequence[StoredItem] | None = None  # of a replay


def sync(connection: Connection, place: Place, what: Sync, contents: Contents) -> Synced:
    """Append what is new in a held history; the conversation is locked first, so that two of them take turns.

    Raises:
        NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict, TooLarge: nothing was written.
        Unfinished: a response in progress must be ended first.
    """
    now = datetime.now(UTC)
    try:
        locked = take(connection, place, what.guard, now, NONE)
    except (Conflict, Unfinished):
        _check_key(connection, place, what.once)
        raise
    _check_key(connection, place, what.once)
    place = replace(place, branch=locked.branch)
    entries = history(connection, place, what.known, contents)
    start, cut = _start(connection, place, what, entries), _cut(connection, place)
    news = what.compare(entries[start:], cut, is_aligned=not start)
    if what.is_in_conversation and not news.is_all:  # the provider holds the history: all that is sent is new
        start, news = len(entries), what.compare((), cut, is_aligned=False)
    branched_at = None
    if not news.is_all:
        kept = [*entries[:start], *entries[start : start + news.kept]]
        place, news, branched_at = _elsewhere(connection, place, partial(what.compare, cut=cut), kept, news, now)
    found = put(connection, place, news.new, now)
    made: JsonObject = {"first": found.first, "count": found.count, "branch": place.branch}
    told = {"matched": news.matched, "branched_at": branched_at}
    record(connection, place.scope.tenant, place.key, what.once, now, kind="sync", **made, **told)
    return Synced(found.first, place.branch, found.revision, news.matched, branched_at, news.new)


def _elsewhere(
    connection: Connection,
    place: Place,
    compare: Callable[[Sequence[Entry]], News],
    kept: Sequence[Entry],
    news: News,
    now: datetime,
) -> tuple[Place, News, int | None]:
    """The branch on which a differing history goes on: one that it has all of, else a new one where it differs."""
    at = kept[-1].position if kept else -1
    for number, entries in _siblings(connection, place, at):
        found = compare([*kept, *entries])
        if found.is_all:
            return replace(place, branch=number), found, None
    return replace(place, branch=fork(connection, place, at, now)), news, at


def _siblings(connection: Connection, place: Place, at: int) -> Iterator[tuple[int, list[Entry]]]:
    """The other branches that share the items up to a position, newest first, with the items that follow there."""
    lineages = {
        row.number: Lineage(tuple((number, end) for number, end in loads(row.lineage)), row.head_position)
        for row in connection.execute(
            select(branches.c.number, branches.c.lineage, branches.c.head_position)
            .where(branches.c.tenant_id == place.scope.tenant, branches.c.conversation_id == place.key)
            .order_by(branches.c.number.desc())
        )
    }
    lineages[0] = Lineage((), facts_at(connection, place).head_position)
    shared = lineages[place.branch].ranges(place.branch, -1, at)
    for number, lineage in lineages.items():
        if number != place.branch and lineage.ranges(number, -1, at) == shared:
            parts = lineage.ranges(number, at, lineage.head)
            yield number, [entry for part in parts for entry in read_entries(connection, place, *part, is_latest=True)]


def _cut(connection: Connection, place: Place) -> set[int]:
    """The last positions of answers that broke off: of these a client may have seen a little more or less."""
    table = responses.c
    statement = select(table.to_position).where(
        table.tenant_id == place.scope.tenant,
        table.conversation_id == place.key,
        table.status.in_(("incomplete", "cancelled", "failed")),
    )
    return set(connection.execute(statement).scalars())


def _start(connection: Connection, place: Place, what: Sync, entries: Sequence[Entry]) -> int:
    """How many of the stored items come before those that the held history has."""
    previous = what.previous_response_id
    if previous is None and not what.is_in_conversation:
        return 0
    boundary = _boundary(connection, place, entries, previous)
    if boundary is not None:
        return sum(entry.position <= boundary for entry in entries)
    is_beginning = previous is None or previous == what.known.found.settings.get("previous_response_id")
    return 0 if is_beginning else len(entries)


def _boundary(connection: Connection, place: Place, entries: Sequence[Entry], previous: str | None) -> int | None:
    """Where the answer of that id ends on this branch; without an id, the newest answer."""
    table = responses.c
    statement = (
        select(table.provider_response_id, table.from_position, table.to_position)
        .where(table.tenant_id == place.scope.tenant, table.conversation_id == place.key, *held(table))
        .order_by(table.number.desc())
    )
    there = {entry.position for entry in entries}
    for row in connection.execute(statement):
        is_wanted = previous is None or row.provider_response_id == previous
        if is_wanted and (row.to_position in there or row.to_position < row.from_position):
            boundary: int = row.to_position
            return boundary
    return None


def _check_key(connection: Connection, place: Place, once: Once | None) -> None:
    """Hand over what was done under the key before, if anything was."""
    outcome: Any = outcome_of(connection, place.scope.tenant, place.key, once)
    if outcome is not None:
        stored = stored_range(connection, place, outcome)
        told = (outcome["matched"], outcome["branched_at"])
        raise Replayed(Synced(outcome["first"], outcome["branch"], -1, *told, Incoming((), (), ()), stored))
