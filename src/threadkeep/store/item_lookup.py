"""Single items: by position, or by id in one conversation or in all of a store."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from threadkeep.db.driver import LazyRow
from threadkeep.db.queries.items import conversation_with_id
from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.domain.item_ids import place_of
from threadkeep.domain.stored import StoredItem
from threadkeep.errors import NotFound, shown
from threadkeep.store.annotations import annotated
from threadkeep.store.handle import Handle
from threadkeep.store.item_places import (
    find_position,
    first_positions,
    newest_position,
    position_of,
    position_of_id,
)
from threadkeep.store.item_reading import media_form, read_item
from threadkeep.store.item_rows import short_hash
from threadkeep.store.lineage import find_row, get_lineage, get_row, position_not_found
from threadkeep.store.media.cutting import MediaForm
from threadkeep.store.refs import BranchRef, Scope
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import item_argument


def get_item(handle: Handle, position: object, media: object, *, annotations: bool = False) -> StoredItem:
    """The item of a branch at a position or with an id; see `Conversation.get_item`."""
    ref, form = handle.ref, media_form(media)
    wanted = item_argument("position", position)

    def read(connection: Connection) -> StoredItem:
        lineage = get_lineage(connection, ref, get_row(connection, ref))
        place = position_of(connection, ref, lineage, wanted)
        found = read_item(connection, ref, place, form)
        if found is None or not lineage.includes(ref.branch, place, found.branch):
            raise position_not_found(ref, place, lineage.head)
        return annotated(connection, ref.scope, [ref.key], [found])[0] if annotations else found

    return handle.transactions.read_any(read)


def first_position(handle: Handle, item_id: str) -> int:
    """The position of the oldest item of a branch with an id; NotFound."""
    ref = handle.ref

    def read(connection: Connection) -> int:
        lineage = get_lineage(connection, ref, get_row(connection, ref))
        return position_of_id(connection, ref, lineage, item_id, is_newest=False)

    return handle.transactions.read_any(read)


def repeated_at(handle: Handle, ids: Mapping[int, str]) -> set[int]:
    """Those positions whose item has the id of an earlier item; some servers give all their items the same id."""
    first = handle.transactions.read_any(lambda connection: first_positions(connection, handle.ref, ids.values()))
    return {position for position, item_id in ids.items() if first.get(item_id, position) < position}


def find_item(
    transactions: Transactions, scope: Scope, item_id: object, media: object, *, annotations: bool = False
) -> StoredItem:
    """The item with an id, from any conversation that the scope sees; see `Store.get_item`."""
    form = media_form(media)
    if not isinstance(item_id, str):
        raise _item_not_found(item_id)

    def read(connection: Connection) -> StoredItem:
        for find in (_named_by, _newest_with):
            row = find(connection, scope, item_id)
            found = None if row is None else _item_in(connection, scope, row, item_id, form)
            if row is not None and found is not None:
                return annotated(connection, scope, [row.id], [found])[0] if annotations else found
        raise _item_not_found(item_id)

    return transactions.read_any(read)


def _named_by(connection: Connection, scope: Scope, item_id: str) -> LazyRow | None:
    """The conversation that a derived id names."""
    named = place_of(item_id)
    return None if named is None else find_row(connection, scope, "public_id", public_id_bytes(named[0]))


def _newest_with(connection: Connection, scope: Scope, item_id: str) -> LazyRow | None:
    """The newest conversation that has an item with an id of its own."""
    parameters = scope.parameters(hash=short_hash(item_id))
    key = connection.execute(conversation_with_id(scoped=scope.user is not None), parameters).scalar()
    return None if key is None else find_row(connection, scope, "id", key)


def _item_in(connection: Connection, scope: Scope, row: LazyRow, item_id: str, media: MediaForm) -> StoredItem | None:
    ref = BranchRef(scope, row.id, public_id_text(bytes(row.public_id)), row.active_branch)
    position = find_position(connection, ref, get_lineage(connection, ref, row), item_id)
    if position is None:
        position = newest_position(connection, ref, item_id)
    return None if position is None else read_item(connection, ref, position, media)


def _item_not_found(item_id: object) -> NotFound:
    hint = "Check the id, and that the store has the right database, tenant and user."
    return NotFound(f"There is no item with the id {shown(item_id)}.", hint=hint)
