"""Reading items: one by one, in pages, or all of a branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from threadkeep.db.driver import Row
from threadkeep.db.queries.items import STORED_READER, stored_item_of, stored_items_of
from threadkeep.domain.item_ids import derived_id
from threadkeep.domain.stored import Page, StoredItem
from threadkeep.errors import InvalidOption
from threadkeep.formats.canonical.views import ItemViews
from threadkeep.store.annotations import annotated
from threadkeep.store.handle import Handle
from threadkeep.store.item_places import position_of_id
from threadkeep.store.item_rows import ENTRY_WIDTH, decode_entries
from threadkeep.store.lineage import Lineage, get_lineage, get_row
from threadkeep.store.media.cutting import MediaForm
from threadkeep.store.refs import BranchRef, ConversationRef
from threadkeep.store.validation import MAX_POSITION, item_cursor, one_of, page_size, whole_number

ALL: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ItemWindow:
    """Which items are read: those after `after` and before `before` (positions, or ids of items), at most `limit`."""

    after: int | str | None = None
    before: int | str | None = None
    limit: int | None = 100  # None: all of them
    is_descending: bool = False
    annotations: bool = False
    media: MediaForm = "inline"


def list_items(
    handle: Handle,
    before: int | str | None,
    after: int | str | None,
    limit: int,
    order: str,
    media: MediaForm,
    *,
    annotations: bool = False,
) -> Page[StoredItem]:
    """A page of items; see `Conversation.items`."""
    window, size = item_window(before, after, limit, order)
    window = replace(window, annotations=annotations, media=media_form(media))
    items = handle.transactions.read_any(lambda connection: read_items(connection, handle.ref, window))
    return Page.of(items, size, lambda item: str(item.position))


def item_window(before: int | str | None, after: int | str | None, limit: int, order: str) -> tuple[ItemWindow, int]:
    """The window of a page, with one item more than the page has, and how many that has."""
    is_descending, size = one_of("order", order, ("asc", "desc")) == "desc", page_size(limit)
    window = ItemWindow(item_cursor(after), item_cursor(before, "before"), size + 1, is_descending)
    if is_descending and after is not None:  # the page behind a descending one lies before it
        window = replace(window, after=None, before=window.after)
    return window, size


def list_all_items(handle: Handle, last: int | None = None, media: MediaForm = "inline") -> list[StoredItem]:
    """All items of the branch, or the last ones, in order."""
    limit = None if last is None else whole_number("last", last)
    if limit is not None and limit < 0:
        raise InvalidOption(f"must be 0 or more, not {last}.", argument="last")
    window = ItemWindow(limit=limit, is_descending=limit is not None, media=media_form(media))
    found = handle.transactions.read_any(lambda connection: read_items(connection, handle.ref, window))
    return found[::-1] if window.is_descending else found


def media_form(media: object) -> MediaForm:
    """How items are to contain their media: as they are, or as references."""
    form: MediaForm = "reference" if one_of("media", media, ("inline", "reference")) == "reference" else "inline"
    return form


def read_item(
    connection: Connection,
    ref: ConversationRef,
    position: int,
    media: MediaForm = "inline",
    *,
    is_latest: bool = False,
) -> StoredItem | None:
    """The item at a position, on whatever branch it is; `is_latest` as in `read_history`."""
    statement = stored_item_of(connection.dialect.name, latest=is_latest)
    rows = statement.fetch_all(connection, ref.parameters(position=position))
    return next(iter(stored_items(connection, ref, rows, media)), None)


def read_items(connection: Connection, ref: BranchRef, window: ItemWindow) -> list[StoredItem]:
    """The items of a branch in a window."""
    return read_window(connection, ref, get_lineage(connection, ref, get_row(connection, ref)), window)


def read_window(
    connection: Connection, ref: BranchRef, lineage: Lineage, window: ItemWindow, last: int = MAX_POSITION
) -> list[StoredItem]:
    """The items of a branch with this lineage in a window, up to a position; NotFound where it is deleted by now."""
    # of several items with the id of a cursor, the one from which a walk through the pages cannot come back
    after = _position(connection, ref, lineage, window.after, is_newest=True)
    before = _position(connection, ref, lineage, window.before, is_newest=False)
    low = -1 if after is None else after
    high = min(lineage.head, last) if before is None else min(lineage.head, last, before - 1)
    spans, keeps = lineage.spans(ref.branch, low, high), lineage.keeps()
    is_scoped = ref.scope.user is not None
    statement = stored_items_of(connection.dialect.name, descending=window.is_descending, scoped=is_scoped)
    rows: list[Row] = []
    for branch, after, upto, surplus in reversed(spans) if window.is_descending else spans:
        if len(rows) == window.limit:
            break
        limit = ALL if window.limit is None else window.limit - len(rows)
        parameters = ref.scope.parameters(
            key=ref.key, branch=branch, after=after, upto=upto, limit=min(limit + surplus, ALL)
        )
        taken = statement.fetch_all(connection, parameters)
        if not taken:  # it may have been deleted since its lineage was read
            get_row(connection, ref)
        elif taken[0][-1] is None:
            raise ref.not_found()
        rows += [row for row in taken if keeps(row[0])][:limit] if surplus else taken
    found = stored_items(connection, ref, rows, window.media)
    return annotated(connection, ref.scope, [ref.key] * len(found), found) if window.annotations else found


def _position(
    connection: Connection, ref: BranchRef, lineage: Lineage, cursor: int | str | None, *, is_newest: bool
) -> int | None:
    if not isinstance(cursor, str):
        return cursor
    return position_of_id(connection, ref, lineage, cursor, is_newest=is_newest)


def stored_items(
    connection: Connection, ref: ConversationRef, rows: Sequence[Row], media: MediaForm = "inline"
) -> list[StoredItem]:
    """The items of rows that begin with the columns of one, as the driver gives them."""
    entries = decode_entries(connection, ref, rows, media=media)
    records = STORED_READER.read(connection.dialect, [row[ENTRY_WIDTH:] for row in rows])
    return [
        StoredItem(
            id=record.item_id or derived_id(entry.type, ref.public_id, entry.position),
            position=entry.position,
            branch=record.branch,
            turn=entry.turn,
            _source=entry.item(),
            author_id=record.author_id,
            created_at=record.created_at,
            conversation_id=ref.public_id,
            _views=ItemViews(entry, record.given),
        )
        for record, entry in zip(records, entries, strict=True)
    ]
