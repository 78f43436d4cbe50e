"""Reading items: one by one, in pages, or all of a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.driver import LazyRow, Row, Statement
from threadkeep.db.queries import items, overviews
from threadkeep.db.queries.annotations import annotated_items
from threadkeep.domain.ids import derived_id, place_of, public_id_bytes, public_id_text, short_hash
from threadkeep.domain.stored import Page, StoredItem
from threadkeep.errors import InvalidOption, NotFound, shown
from threadkeep.formats.canonical.view import StoredItemViews
from threadkeep.store.media.cutting import MediaForm
from threadkeep.store.reading.siblings import Branches
from threadkeep.store.work import item_rows, refs, validation
from threadkeep.store.work.connections import made_of
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.writing.annotations import annotated, valid_rating

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
    is_joined: bool = False  # whether the parts of a branch that was forked off are read together


def list_items(
    handle: Handle,
    before: int | str | None,
    after: int | str | None,
    limit: int,
    order: str,
    media: MediaForm,
    *,
    annotations: bool = False,
    variants: bool = False,
) -> Page[StoredItem]:
    """A page of items; see `Conversation.items`."""
    window, size = item_window(before, after, limit, order)
    window, ref = replace(window, annotations=annotations, media=media_form(media)), handle.ref

    def read(connection: Connection) -> Page[StoredItem]:
        row = refs.get_row(connection, ref)
        branches = Branches(connection, ref, row) if variants else None
        lineage = refs.get_lineage(connection, ref, row) if branches is None else branches.lineage
        found = read_window(connection, ref, lineage, replace(window, is_joined=variants))
        if branches is not None:
            found = branches.with_siblings(connection, found)
        return Page.of(found, size, lambda item: str(item.position))

    return handle.transactions.read_any(read)


def item_window(before: int | str | None, after: int | str | None, limit: int, order: str) -> tuple[ItemWindow, int]:
    """The window of a page, with one item more than the page has, and how many that has."""
    is_descending, size = validation.one_of("order", order, ("asc", "desc")) == "desc", validation.page_size(limit)
    window = ItemWindow(
        validation.item_cursor(after), validation.item_cursor(before, "before"), size + 1, is_descending
    )
    if is_descending and after is not None:  # the page behind a descending one lies before it
        window = replace(window, after=None, before=window.after)
    return window, size


def list_all_items(handle: Handle, last: int | None = None, media: MediaForm = "inline") -> list[StoredItem]:
    """All items of the branch, or the last ones, in order."""
    limit = None if last is None else validation.whole_number("last", last)
    if limit is not None and limit < 0:
        raise InvalidOption(f"must be 0 or more, not {last}.", argument="last")
    window = ItemWindow(limit=limit, is_descending=limit is not None, media=media_form(media))
    found = handle.transactions.read_any(lambda connection: read_items(connection, handle.ref, window))
    return found[::-1] if window.is_descending else found


def media_form(media: object) -> MediaForm:
    """How items are to contain their media: as they are, or as references."""
    form: MediaForm = (
        "reference" if validation.one_of("media", media, ("inline", "reference")) == "reference" else "inline"
    )
    return form


def read_item(
    connection: Connection,
    ref: refs.ConversationRef,
    position: int,
    media: MediaForm = "inline",
    *,
    is_latest: bool = False,
) -> StoredItem | None:
    """The item at a position, on whatever branch it is; `is_latest` as in `read_history`."""
    statement = items.stored_item_of(latest=is_latest)
    rows = statement.fetch_all(connection, ref.parameters(position=position))
    return next(iter(stored_items(connection, ref, rows, media)), None)


def read_items(connection: Connection, ref: refs.BranchRef, window: ItemWindow) -> list[StoredItem]:
    """The items of a branch in a window."""
    return read_window(connection, ref, refs.get_lineage(connection, ref, refs.get_row(connection, ref)), window)


def read_window(
    connection: Connection,
    ref: refs.BranchRef,
    lineage: refs.Lineage,
    window: ItemWindow,
    last: int = validation.MAX_POSITION,
) -> list[StoredItem]:
    """The items of a branch with this lineage in a window, up to a position; NotFound where it is deleted by now."""
    rows = _window_rows(connection, ref, lineage, window, last, items.stored_items_of)
    found = stored_items(connection, ref, rows, window.media)
    return annotated(connection, ref.scope, [ref.key] * len(found), found) if window.annotations else found


def _window_rows(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, window: ItemWindow, last: int,
    statement_of: Callable[..., Statement],
) -> list[Row]:  # fmt: skip
    """The rows of a window in a statement that begins with their position, and ends with the revision."""
    spans, keeps = _spans(connection, ref, lineage, window, last), lineage.keeps()
    is_scoped = ref.scope.user is not None
    if window.is_joined and 1 < len(spans) <= refs.MAX_RANGES:
        statement = items.stored_items_of(descending=window.is_descending, scoped=is_scoped, ranges=refs.MAX_RANGES)
        return _joined_rows(connection, ref, window, spans, statement, keeps)
    statement = statement_of(descending=window.is_descending, scoped=is_scoped)
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
            refs.get_row(connection, ref)
        elif taken[0][-1] is None:
            raise ref.not_found()
        rows += [row for row in taken if keeps(row[0])][:limit] if surplus else taken
    return rows


def _spans(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, window: ItemWindow, last: int
) -> list[refs.Span]:  # fmt: skip
    """Where the items of a window are."""
    # of several items with the id of a cursor, the one from which a walk through the pages cannot come back
    after = _position(connection, ref, lineage, window.after, is_newest=True)
    before = _position(connection, ref, lineage, window.before, is_newest=False)
    high = min(lineage.head, last) if before is None else min(lineage.head, last, before - 1)
    return lineage.spans(ref.branch, -1 if after is None else after, high)


def _joined_rows(
    connection: Connection, ref: refs.BranchRef, window: ItemWindow, spans: Sequence[refs.Span], statement: Statement,
    keeps: Callable[[int], bool],
) -> list[Row]:  # fmt: skip
    """The rows of a window in several spans, in one statement."""
    _, ranges = refs.range_parameters([span[:3] for span in spans])
    limit = ALL if window.limit is None else min(window.limit + sum(span.surplus for span in spans), ALL)
    rows = statement.fetch_all(connection, ref.scope.parameters(key=ref.key, limit=limit, **ranges))
    if rows and rows[0][-1] is None:
        raise ref.not_found()
    return [row for row in rows if keeps(row[0])][: window.limit]


def read_bounded(
    connection: Connection,
    ref: refs.BranchRef,
    lineage: refs.Lineage,
    window: ItemWindow,
    most: int,
    last: int = validation.MAX_POSITION,
) -> Page[StoredItem]:
    """A page of a window that has one item more than the page: as many of its items as have `most` bytes, at least one.

    An item with the id of an earlier one has an id made of its position instead: some servers give all the same id.
    """
    sizes = _window_rows(connection, ref, lineage, window, last, overviews.page_sizes_of)
    count, left = 0, most
    for _, texts, media, *_ in sizes[: ALL if window.limit is None else window.limit - 1]:
        left -= int(texts) + (0 if window.media == "reference" else int(media) * 4 // 3)
        if left < 0 and count:
            break
        count += 1
    if not count:
        return Page([])
    found = read_window(connection, ref, lineage, replace(window, limit=count), last)
    repeated = {row[0] for row in sizes if row[3] is not None and row[3] < row[0]}
    items = [
        with_derived_id(item) if item.position in repeated and place_of(item.id) is None else item for item in found
    ]
    return Page(items, str(sizes[count - 1][0]) if count < len(sizes) else None)


def with_derived_id(item: StoredItem) -> StoredItem:
    """An item with an id that is made of its position."""
    return replace(item, id=derived_id(str(item.to_object()["type"]), item.conversation_id, item.position))


def _position(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, cursor: int | str | None, *, is_newest: bool
) -> int | None:
    if not isinstance(cursor, str):
        return cursor
    return refs.position_of_id(connection, ref, lineage, cursor, is_newest=is_newest)


def stored_items(
    connection: Connection, ref: refs.ConversationRef, rows: Sequence[Row], media: MediaForm = "inline"
) -> list[StoredItem]:
    """The items of rows that begin with the columns of one, as the driver gives them."""
    entries = item_rows.decode_entries(connection, ref, rows, media=media)
    records = items.STORED_READER.read(connection, [row[item_rows.ENTRY_WIDTH :] for row in rows])

    views = [StoredItemViews(entry, record.given) for record, entry in zip(records, entries, strict=True)]

    def made() -> list[StoredItem]:
        return [_stored_item(ref, record, view) for record, view in zip(records, views, strict=True)]

    return made_of(sum(view.size for view in views), made)


def _stored_item(ref: refs.ConversationRef, record: Any, views: StoredItemViews) -> StoredItem:
    entry = views.entry
    return StoredItem(
        id=record.item_id or derived_id(entry.type, ref.public_id, entry.position),
        position=entry.position,
        branch=record.branch,
        turn=entry.turn,
        _source=entry.item(),
        author_id=record.author_id,
        created_at=record.created_at,
        conversation_id=ref.public_id,
        _views=views,
    )


def new_items(
    ref: refs.BranchRef, records: Sequence[item_rows.ItemRecord], first: int, seen: int | None, stored_at: datetime
) -> list[StoredItem]:
    """The items of a response that was just stored, as they would be read."""
    entries = [record.entry(first + offset, first, seen) for offset, record in enumerate(records)]
    return [
        StoredItem(
            id=record.columns["item_id"] or derived_id(entry.type, ref.public_id, entry.position),
            position=entry.position,
            branch=ref.branch,
            turn=entry.turn,
            _source=entry.item(),
            author_id=record.columns["author_id"],
            created_at=stored_at,
            conversation_id=ref.public_id,
            _views=StoredItemViews(entry, record.columns["given"]),
        )
        for record, entry in zip(records, entries, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Single items: by position, or by id in one conversation or in all of a store


def get_item(handle: Handle, position: object, media: object, *, annotations: bool = False) -> StoredItem:
    """The item of a branch at a position or with an id; see `Conversation.get_item`."""
    ref, form = handle.ref, media_form(media)
    wanted = validation.item_argument("position", position)

    def read(connection: Connection) -> StoredItem:
        lineage = refs.get_lineage(connection, ref, refs.get_row(connection, ref))
        return item_of(
            connection, ref, lineage, refs.position_of(connection, ref, lineage, wanted), form, annotations=annotations
        )

    return handle.transactions.read_any(read)


def item_of(
    connection: Connection,
    ref: refs.BranchRef,
    lineage: refs.Lineage,
    position: int,
    media: MediaForm,
    *,
    annotations: bool,
) -> StoredItem:
    """The item of a branch at a position; NotFound."""
    found = read_item(connection, ref, position, media)
    if found is None or not lineage.includes(ref.branch, position, found.branch):
        raise refs.position_not_found(ref, position, lineage.head)
    return annotated(connection, ref.scope, [ref.key], [found])[0] if annotations else found


def find_item(
    transactions: Transactions, scope: refs.Scope, item_id: object, media: object, *, annotations: bool = False
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


def _named_by(connection: Connection, scope: refs.Scope, item_id: str) -> LazyRow | None:
    """The conversation that a derived id names."""
    named = place_of(item_id)
    return None if named is None else refs.find_row(connection, scope, "public_id", public_id_bytes(named[0]))


def _newest_with(connection: Connection, scope: refs.Scope, item_id: str) -> LazyRow | None:
    """The newest conversation that has an item with an id of its own."""
    parameters = scope.parameters(hash=short_hash(item_id))
    key = connection.execute(items.conversation_with_id(scoped=scope.user is not None), parameters).scalar()
    return None if key is None else refs.find_row(connection, scope, "id", key)


def _item_in(
    connection: Connection, scope: refs.Scope, row: LazyRow, item_id: str, media: MediaForm
) -> StoredItem | None:
    ref = refs.BranchRef(scope, row.id, public_id_text(bytes(row.public_id)), row.active_branch)
    position = refs.find_position(connection, ref, refs.get_lineage(connection, ref, row), item_id)
    if position is None:
        position = refs.newest_position(connection, ref, item_id)
    return None if position is None else read_item(connection, ref, position, media)


def _item_not_found(item_id: object) -> NotFound:
    hint = "Check the id, and that the store has the right database, tenant and user."
    return NotFound(f"There is no item with the id {shown(item_id)}.", hint=hint)


# ---------------------------------------------------------------------------------------------------------------------
# Finding items by their labels and ratings, in all conversations that a scope sees


def list_annotated(
    transactions: Transactions, scope: refs.Scope, wanted: Mapping[str, Any], media: object
) -> Page[StoredItem]:
    """A page of items; see `Store.list_items`, whose arguments `wanted` has by name."""
    labels, limit, form = (
        validation.label_filter(wanted["labels"]),
        validation.page_size(wanted["limit"]),
        media_form(media),
    )
    rating, owner = valid_rating(wanted["rating"]), validation.optional_identifier("user_id", wanted["user_id"])
    after = validation.place_cursor(wanted["after"])
    if not labels and rating is None:
        raise InvalidOption("It is not said which items are wanted.", hint="Pass labels= or rating=.")
    if scope.user is not None and owner not in {None, scope.user}:
        return Page([])
    parameters = scope.parameters(limit=limit + 1, rating=rating, owner=owner)
    if after is not None:
        parameters["after_key"], parameters["after_position"] = after
    for number, (name, value) in enumerate(sorted(labels.items())):
        parameters[f"key_{number}"], parameters[f"value_{number}"] = name, value

    def read(connection: Connection) -> Page[StoredItem]:
        statement = annotated_items(
            labels=len(labels), rating=rating is not None, owner=owner is not None,
            scoped=scope.user is not None, after=after is not None,
        )  # fmt: skip
        rows = statement.fetch_all(connection, parameters)
        items = []
        for (key, public_id), some in groupby(rows, itemgetter(-2, -1)):
            ref = refs.ConversationRef(scope, key, public_id_text(bytes(public_id)))
            items += stored_items(connection, ref, list(some), form)
        keys = [row[-2] for row in rows]
        page = annotated(connection, scope, keys[:limit], items[:limit])
        return Page(page, validation.place_after(keys[limit - 1], page[-1].position) if len(rows) > limit else None)

    return transactions.read_any(read)
