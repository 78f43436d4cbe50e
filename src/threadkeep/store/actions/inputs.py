"""Appending what depends on the history: it is read, and what is new appended, while other writers wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import StoredItem
from threadkeep.domain.wire import Entry
from threadkeep.errors import Conflict
from threadkeep.store.actions.items import Window, insert_items, stored_items
from threadkeep.store.actions.keys import outcome_of, record
from threadkeep.store.actions.loading import load
from threadkeep.store.actions.numbers import ANYWHERE, NONE, Amounts, Guard, Taken, Unfinished, take
from threadkeep.store.actions.opening import Opened, get
from threadkeep.store.attempts import Replayed
from threadkeep.store.contents import Contents
from threadkeep.store.drafts import Draft
from threadkeep.store.place import Once, Place


@dataclass(frozen=True, slots=True)
class Incoming:
    """Items on their way into rows; `turns` are offsets from the first of them, as positions of turns are."""

    items: Sequence[Item]
    drafts: Sequence[Draft]
    turns: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Known:
    """What a handle remembers of its branch: everything below `next_position`."""

    found: Opened
    entries: Sequence[Entry]
    next_position: int


@dataclass(frozen=True, slots=True)
class Input:
    """What is appended once the history is known."""

    read: Callable[[Sequence[Entry]], Incoming]
    known: Known
    once: Once | None = None
    guard: Guard = ANYWHERE


@dataclass(frozen=True, slots=True)
class Put:
    """What was appended, and where; of a replay only the stored items are known."""

    first: int
    branch: int
    revision: int
    new: Incoming
    stored: Sequence[StoredItem] | None = None


def append_input(connection: Connection, place: Place, what: Input, contents: Contents) -> Put:
    """Append what a provider's turns say.

    Raises:
        NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict, TooLarge, CannotParse: nothing was written.
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
    new = what.read(history(connection, place, what.known, contents))
    found = put(connection, place, new, now)
    made = {"kind": "items", "first": found.first, "count": found.count, "branch": found.branch}
    record(connection, place.scope.tenant, place.key, what.once, now, **made)
    return Put(found.first, found.branch, found.revision, new)


def history(connection: Connection, place: Place, known: Known, contents: Contents) -> Sequence[Entry]:
    """The items of a branch; only what a handle does not know yet is read."""
    if place.branch != known.found.branch:
        found = get(connection, place.scope, "id", place.key, contents, place.branch)
        return load(connection, place, contents, found, 0, is_latest=True).entries
    loaded = load(connection, place, contents, known.found, known.next_position, is_latest=True)
    return [*known.entries, *loaded.entries] if loaded.since else loaded.entries


def put(connection: Connection, place: Place, new: Incoming, now: datetime) -> Taken:
    """Append items to a branch of a conversation that is locked."""
    found = take(connection, place, ANYWHERE, now, Amounts(items=len(new.drafts)))
    insert_items(connection, place, new.drafts, found, now, turns=new.turns)
    return found


def _check_key(connection: Connection, place: Place, once: Once | None) -> None:
    """Hand over what was done under the key before, if anything was."""
    outcome = outcome_of(connection, place.scope.tenant, place.key, once)
    if outcome is not None:
        stored = stored_range(connection, place, outcome)
        raise Replayed(Put(outcome["first"], outcome["branch"], -1, Incoming((), (), ()), stored))


def stored_range(connection: Connection, place: Place, outcome: JsonObject) -> list[StoredItem]:
    """The items that were appended under a key."""
    first, last = outcome["first"], outcome["first"] + outcome["count"] - 1
    window = Window(after=first - 1, before=last + 1, limit=None)
    found = stored_items(connection, replace(place, branch=outcome["branch"]), window)
    return [replace(item, replayed=True, created_at=None) for item in found]
