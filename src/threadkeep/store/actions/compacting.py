"""Compaction: an item that stands for the items before it, and the item that takes it back. No row is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Entry
from threadkeep.errors import HeadConflict, InvalidOption
from threadkeep.formats.turns import between_turns
from threadkeep.formats.views import UNDONE, standing
from threadkeep.store.actions.entries import facts_at, lineage_of, read_entries
from threadkeep.store.actions.items import Appended, insert_items
from threadkeep.store.actions.keys import outcome_of, record
from threadkeep.store.actions.numbers import ANYWHERE, Amounts, Guard, Taken, take
from threadkeep.store.attempts import Replayed
from threadkeep.store.drafts import Draft, drafted
from threadkeep.store.place import Once, Place


@dataclass(frozen=True, slots=True)
class Compacting:
    """What is to be appended: an item without its position (`upto` None: all that is there), or the end of one."""

    item: JsonObject | None
    upto: int | None = None
    once: Once | None = None
    guard: Guard = ANYWHERE


@dataclass(frozen=True, slots=True)
class Compacted:
    """Where it was put, and the item; a replay appended no draft."""

    appended: Appended
    item: JsonObject
    draft: Draft | None = None


def compact(connection: Connection, place: Place, what: Compacting) -> Compacted:
    """Append a compaction, or what takes the last one back.

    Raises:
        InvalidOption: there is nothing to compact, or no compaction to take back; nothing was written.
        NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict: as for every append.
    """
    now = datetime.now(UTC)
    try:
        found = take(connection, place, what.guard, now, Amounts(items=1))
    except HeadConflict:
        _check_key(connection, place, what.once)  # a retry finds its own first attempt at the end of the branch
        raise
    _check_key(connection, place, what.once)
    entries = _entries(connection, replace(place, branch=found.branch), found)
    item = _undoing(entries) if what.item is None else {**what.item, "upto": _covered(entries, what.upto)}
    draft = drafted(item)
    insert_items(connection, place, [draft], found, now)
    record(
        connection, place.scope.tenant, place.key, what.once, now,
        kind="items", first=found.first, count=1, branch=found.branch,
    )  # fmt: skip
    return Compacted(Appended(found.first, found.branch, found.revision), item, draft)


def _check_key(connection: Connection, place: Place, once: Once | None) -> None:
    """Hand over what was done under the key before, if anything was."""
    outcome = outcome_of(connection, place.scope.tenant, place.key, once)
    if outcome is not None:
        first, branch = outcome["first"], outcome["branch"]
        item = read_entries(connection, place, branch, first - 1, first)[0].item()
        raise Replayed(Compacted(Appended(first, branch, -1, is_replayed=True), item))


def _entries(connection: Connection, place: Place, found: Taken) -> list[Entry]:
    lineage = lineage_of(connection, place, facts_at(connection, place))
    parts = lineage.ranges(place.branch, -1, found.first - 1)
    return [entry for part in parts for entry in read_entries(connection, place, *part, is_latest=True)]


def _covered(entries: Sequence[Entry], upto: int | None) -> int:
    """The last position that is covered: no turn is cut, and no call is parted from its output."""
    covered = between_turns(entries, upto)
    if covered is None:
        where = "" if upto is None else f" up to position {upto}"
        raise InvalidOption(f"There is nothing to compact{where}: no turn and its tool outputs end there or before.")
    return covered


def _undoing(entries: Sequence[Entry]) -> JsonObject:
    last = standing([entry for entry in entries if entry.type in {"compaction", UNDONE}])
    if not last:
        raise InvalidOption("There is no compaction to take back.")
    return {"type": UNDONE, "compaction": max(last)}
