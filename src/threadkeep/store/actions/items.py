"""Appending items, and reading them one by one or in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, insert

from threadkeep.db.cursors import Row
from threadkeep.db.dialects import check_sizes, insert_missing
from threadkeep.db.insertions import Rows, insert_together
from threadkeep.db.queries.items import STORED_READER, stored_item_of, stored_items_of
from threadkeep.db.tables import blobs, item_blobs
from threadkeep.db.tables import items as items_table
from threadkeep.domain.items import item_from_object
from threadkeep.domain.stored import StoredItem
from threadkeep.errors import Conflict, NotFound
from threadkeep.store.actions.entries import WIDTH, entries_from, facts_at, lineage_of
from threadkeep.store.actions.keys import outcome_of, record
from threadkeep.store.actions.numbers import ANYWHERE, Amounts, Guard, Taken, Unfinished, take
from threadkeep.store.attempts import Replayed
from threadkeep.store.drafts import Draft, media_rows
from threadkeep.store.place import Once, Place

MAX_PAGE: Final = 1_000
ALL: Final = 2**31 - 1


@dataclass(slots=True)
class Append:
    """Items to be appended, and how."""

    drafts: Sequence[Draft]
    once: Once | None = None
    guard: Guard = ANYWHERE


@dataclass(slots=True)
class Appended:
    """Where they were put."""

    first: int
    branch: int
    revision: int
    is_replayed: bool = False


def append_items(connection: Connection, place: Place, what: Append) -> Appended:
    """Append items to a branch.

    Raises:
        NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict, TooLarge: nothing was written.
        Unfinished: a response in progress must be ended first.
    """
    now = datetime.now(UTC)
    try:
        found = take(connection, place, what.guard, now, Amounts(items=len(what.drafts)))
    except (Conflict, Unfinished):
        _check_key(connection, place, what.once)  # a retry finds its own first attempt at the end of the branch
        raise
    _check_key(connection, place, what.once)
    insert_items(connection, place, what.drafts, found, now)
    record(
        connection, place.scope.tenant, place.key, what.once, now,
        kind="items", first=found.first, count=found.count, branch=found.branch,
    )  # fmt: skip
    return Appended(found.first, found.branch, found.revision)


def _check_key(connection: Connection, place: Place, once: Once | None) -> None:
    """Hand over what was done under the key before, if anything was."""
    outcome = outcome_of(connection, place.scope.tenant, place.key, once)
    if outcome is not None:
        raise Replayed(Appended(outcome["first"], outcome["branch"], -1, is_replayed=True))


def insert_items(
    connection: Connection,
    place: Place,
    drafts: Sequence[Draft],
    found: Taken,
    now: datetime,
    *,
    seen: int | None = None,
    turns: Sequence[int | None] = (),
    beside: Rows = (),
) -> None:
    """The rows of items at the positions that were taken; `seen` marks them as the output of one response.

    `turns` are the offsets at which the wire turns of the items begin, where they have any; `beside` are rows of other
    tables, to be written with them.
    """
    first = found.first
    offsets = turns or [None if seen is None else 0] * len(drafts)
    shared = {
        "tenant_id": place.scope.tenant,
        "conversation_id": place.key,
        "branch": found.branch,
        "seen": seen,
        "created_at": now,
    }
    rows = [
        draft.row(shared, first + offset, None if turn is None else first + turn)
        for offset, (draft, turn) in enumerate(zip(drafts, offsets, strict=True))
    ]
    insert_rows(connection, rows, drafts, now, beside)


def insert_rows(
    connection: Connection, rows: Sequence[dict[str, Any]], drafts: Sequence[Draft], now: datetime, beside: Rows = ()
) -> None:
    """Rows of items and their media; blobs first, in hash order, so that two writers cannot wait for each other."""
    check_sizes(connection, rows, "an item", ("payload", "rest"))
    contents, links = {}, []
    for row, draft in zip(rows, drafts, strict=True):
        if draft.media:
            place = {name: row[name] for name in ("tenant_id", "conversation_id", "position")}
            new, linked = media_rows(draft, now, **place)
            contents.update({blob["hash"]: blob for blob in new})
            links += linked
    if contents:
        ordered = [contents[hash_] for hash_ in sorted(contents)]
        check_sizes(connection, ordered, "the media of an item", ("content",))
        connection.execute(insert_missing(connection, blobs), ordered)
    insert_together(connection, [(items_table, rows), *beside])
    if links:
        connection.execute(insert(item_blobs), links)


def stored_item(connection: Connection, place: Place, position: int) -> StoredItem:
    """The item at a position of the branch.

    Raises:
        NotFound: the branch has none there.
    """
    lineage = lineage_of(connection, place, facts_at(connection, place))
    parameters = {"tenant": place.scope.tenant, "key": place.key, "position": position}
    found = _stored(connection, place, stored_item_of(connection.dialect.name).rows(connection, parameters))
    if not found or not lineage.has(place.branch, position, found[0].branch):
        raise NotFound(
            f"Branch {place.branch} of {place.public_id} has no item at position {position}; it ends at {lineage.head}."
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class Window:
    """Which items a page shows: positions after `after` and before `before`, at most `limit`."""

    after: int | None = None
    before: int | None = None
    limit: int | None = 100  # None: all of them
    is_descending: bool = False


def stored_items(connection: Connection, place: Place, window: Window) -> list[StoredItem]:
    """A page of a branch's items."""
    lineage = lineage_of(connection, place, facts_at(connection, place))
    low = -1 if window.after is None else window.after
    high = lineage.head if window.before is None else min(lineage.head, window.before - 1)
    parts = lineage.ranges(place.branch, low, high)
    statement = stored_items_of(connection.dialect.name, descending=window.is_descending)
    found: list[Row] = []
    for branch, after, upto in reversed(parts) if window.is_descending else parts:
        if len(found) == window.limit:
            break
        parameters = {
            "tenant": place.scope.tenant, "key": place.key, "branch": branch, "after": after, "upto": upto,
            "limit": ALL if window.limit is None else window.limit - len(found),
        }  # fmt: skip
        found += statement.rows(connection, parameters)
    return _stored(connection, place, found)


def item_id_of(place: Place, position: int) -> str:
    """The id of a stored item: never sent to a provider."""
    return f"item_{place.public_id.removeprefix('conv_')}_{position}"


def _stored(connection: Connection, place: Place, rows: Sequence[Row]) -> list[StoredItem]:
    entries = entries_from(connection, place, rows)
    records = STORED_READER.records(connection.dialect, [row[WIDTH:] for row in rows])
    return [
        StoredItem(
            id=item_id_of(place, entry.position),
            position=entry.position,
            branch=record.branch,
            turn=entry.turn,
            item=item_from_object(entry.item()),
            author_id=record.author_id,
            created_at=record.created_at,
        )
        for record, entry in zip(records, entries, strict=True)
    ]
