"""Where items are, by id: the position of an item with that id of its own, or that the id was derived from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.queries.items import first_places_of_ids, place_at, places_of_id
from threadkeep.domain.item_ids import derived_id, place_of
from threadkeep.errors import InvalidItem, NotFound, shown
from threadkeep.store.item_rows import short_hash
from threadkeep.store.lineage import Lineage
from threadkeep.store.refs import BranchRef, ConversationRef
from threadkeep.store.validation import MAX_POSITION

_BATCH: Final = 100  # items with one id that are looked at in one statement


class Place(NamedTuple):
    """Where an item is."""

    position: int
    branch: int


def position_of_id(
    connection: Connection, ref: BranchRef, lineage: Lineage, item_id: str, *, is_newest: bool = True
) -> int:
    """The position of an item of a branch; NotFound. Of several items with that id it is the newest, or the oldest."""
    found = find_position(connection, ref, lineage, item_id, is_newest=is_newest)
    if found is None:
        raise NotFound(f"Branch {ref.branch} of {ref.public_id} has no item with the id {shown(item_id)}.")
    return found


def position_of(connection: Connection, ref: BranchRef, lineage: Lineage, item: int | str) -> int:
    """The position of an item that is given by its position or id."""
    return position_of_id(connection, ref, lineage, item) if isinstance(item, str) else item


def find_position(
    connection: Connection, ref: BranchRef, lineage: Lineage, item_id: str, *, is_newest: bool = True
) -> int | None:
    """Like `position_of_id`; None where the branch has no such item."""

    def first(places: Iterable[Place]) -> list[int]:
        on_branch = (place.position for place in places if lineage.includes(ref.branch, place.position, place.branch))
        return [position for position in [next(on_branch, None)] if position is not None]

    found = first(_derived(connection, ref, item_id)) + first(_own(connection, ref, item_id, is_newest=is_newest))
    return (max if is_newest else min)(found, default=None)


def newest_position(connection: Connection, ref: ConversationRef, item_id: str) -> int | None:
    """The position of the newest item with an id, on whatever branch it is."""
    places = [*_derived(connection, ref, item_id), next(_own(connection, ref, item_id, is_newest=True), None)]
    return max((place.position for place in places if place is not None), default=None)


def first_positions(connection: Connection, ref: ConversationRef, ids: Iterable[str]) -> dict[str, int]:
    """The position of the first item with each of several ids of their own, on whatever branch it is."""
    hashes = {short_hash(item_id): item_id for item_id in ids}
    if not hashes:
        return {}
    rows = connection.execute(first_places_of_ids(), ref.parameters(hashes=[*hashes]))
    return {hashes[bytes(hash_)]: position for hash_, position in rows}


def check_new_ids(connection: Connection, ref: BranchRef, lineage: Lineage, ids: Mapping[int, str]) -> None:
    """Raise InvalidItem where an item of a branch has the id of a new one; `ids` are by the index of the new item.

    OpenAI's API refuses such input, too: "Duplicate item found with id …".
    """
    known, seen = first_positions(connection, ref, ids.values()), set[str]()
    for index, item_id in ids.items():
        is_known = (item_id in known or place_of(item_id) is not None) and (
            find_position(connection, ref, lineage, item_id) is not None
        )
        if is_known or item_id in seen:
            problem = f"has the id {shown(item_id)} of an item that is there already."
            hint = "Send only new items, or new items without an id."
            raise InvalidItem(problem, argument=f"items[{index}].id", hint=hint)
        seen.add(item_id)


def _derived(connection: Connection, ref: ConversationRef, item_id: str) -> Iterator[Place]:
    """The item that an id was derived from."""
    named = place_of(item_id)
    if named is None or named[0] != ref.public_id or named[1] > MAX_POSITION:
        return
    row = connection.execute(place_at(), ref.parameters(position=named[1])).one_or_none()
    if row is not None and derived_id(row.type, *named) == item_id:
        yield Place(named[1], row.branch)


def _own(connection: Connection, ref: ConversationRef, item_id: str, *, is_newest: bool) -> Iterator[Place]:
    """The items with an id of their own, from the newest or from the oldest on."""
    statement, after, upto = places_of_id(descending=is_newest), -1, MAX_POSITION
    hash_ = short_hash(item_id)
    while True:
        parameters = ref.parameters(hash=hash_, after=after, upto=upto, limit=_BATCH)
        places = [Place(*row) for row in connection.execute(statement, parameters)]
        yield from places
        if len(places) < _BATCH:
            return
        after, upto = (after, places[-1].position - 1) if is_newest else (places[-1].position, upto)
