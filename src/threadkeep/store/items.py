"""Items: appending what the application made, and reading items one by one or in pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count, groupby
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.driver import Row
from threadkeep.db.queries.items import STORED_READER, stored_item_of, stored_items_of
from threadkeep.domain.item_ids import derived_id
from threadkeep.domain.items import Item, call_output, given_item, given_items, given_of, item_from_object, message_of
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import Page, StoredItem
from threadkeep.errors import DamagedRow, InvalidItem
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.views import ItemViews
from threadkeep.store.annotations import annotated
from threadkeep.store.handle import Handle
from threadkeep.store.idempotency import IdempotencyKey, keep_outcome
from threadkeep.store.item_places import position_of_id
from threadkeep.store.item_rows import ENTRY_WIDTH, ItemRecord, author_of, decode_entries, encode_item, insert_items
from threadkeep.store.lineage import Lineage, get_lineage, get_row
from threadkeep.store.media.cutting import MediaForm
from threadkeep.store.media.placing import write_items
from threadkeep.store.positions import AppendOptions, Counts, Reservation, head_check, idempotency_key, reserve_once
from threadkeep.store.refs import BranchRef, ConversationRef
from threadkeep.store.validation import MAX_POSITION, identifier, item_cursor, one_of, page_size

ALL: Final = 2**31 - 1


@dataclass(slots=True)
class AppendResult:
    """Where items were appended; `revision` is -1 when an earlier call had done it."""

    first: int
    count: int
    branch: int
    revision: int = -1
    at: datetime | None = None

    @property
    def is_replayed(self) -> bool:
        """Whether an earlier call with the same idempotency key had appended them."""
        return self.revision < 0

    @classmethod
    def of_outcome(cls, outcome: JsonObject) -> AppendResult:
        """What was kept under an idempotency key."""
        return cls(outcome["first"], outcome["count"], outcome["branch"])


class NewItems(NamedTuple):
    """Items to be appended; `turns` are the offsets at which their wire turns begin, where they have any."""

    items: Sequence[Item]
    records: Sequence[ItemRecord]
    turns: Sequence[int | None] = ()

    def insert(
        self,
        connection: Connection,
        ref: BranchRef,
        reservation: Reservation,
        key: IdempotencyKey | None,
        now: datetime,
        **outcome: Any,
    ) -> AppendResult:
        """Write them at the positions that were reserved, and keep that, with `outcome`, under the key."""
        insert_items(connection, ref, self.records, reservation, now, turns=self.turns)
        result = AppendResult(reservation.first, reservation.count, reservation.branch, reservation.revision, now)
        if key is not None:
            where = {"kind": "items", "first": result.first, "count": result.count, "branch": result.branch}
            keep_outcome(connection, ref.scope.tenant, ref.key, key, now, **{**where, **outcome})
        return result

    def take_in(self, handle: Handle, result: AppendResult) -> None:
        """Let the handle know what it appended, turn by turn."""
        if not result.is_replayed and result.branch == handle.ref.branch:
            if self.turns:
                for turn, group in groupby(range(len(self.turns)), self.turns.__getitem__):
                    first, *_ = offsets = list(group)
                    start = None if turn is None else result.first + turn
                    records = self.records[first : first + len(offsets)]
                    handle.cache.append(records, result.first + first, result.revision, turn=start)
            else:
                handle.cache.append(self.records, result.first, result.revision)
        handle.after_write()

    def stored(self, ref: BranchRef, result: AppendResult, author_id: str | None = None) -> list[StoredItem]:
        """What a caller gets of them."""
        first, branch, is_replayed, public_id = result.first, result.branch, result.is_replayed, ref.public_id
        stored = [
            StoredItem(
                record.columns["item_id"] or derived_id(item.type, public_id, position),
                position, branch, None, item, is_replayed, result.at, author_id, public_id, _views=record,
            )
            for position, item, record in zip(count(first), self.items, self.records, strict=False)
        ]  # fmt: skip
        if not self.turns:
            return stored
        pairs = zip(stored, self.turns, strict=True)
        return [item if turn is None else replace(item, turn=first + turn) for item, turn in pairs]


NO_ITEMS: Final = NewItems((), ())


class TurnInput(NamedTuple):
    """What a response answers that is stored with it; `content` is what an idempotency key stands for."""

    items: NewItems
    content: JsonObject
    method: str = "add_turn"


NO_TURN: Final = TurnInput(NO_ITEMS, {}, "add_response")


# Appending


def append_message(
    handle: Handle, role: str, content: Any, options: AppendOptions, author_id: str | None = None
) -> StoredItem:
    """Append a message; see `Conversation.user`."""
    return _append(handle, role, [message_of(role, content)], options, author_id)[0]


def append_item(handle: Handle, item: Any, options: AppendOptions, author_id: str | None = None) -> StoredItem:
    """Append an item of any type; see `Conversation.add_item`."""
    return _append(handle, "add_item", [given_item(item)], options, author_id)[0]


def append_items(
    handle: Handle, items: Iterable[Any], options: AppendOptions, author_id: str | None = None
) -> list[StoredItem]:
    """Append several items, all or none; see `Conversation.add_items`."""
    return _append(handle, "add_items", given_items(items), options, author_id)


def append_call_output(
    handle: Handle, call_id: str | None, output: Any, result: Any, status: str | None, options: AppendOptions
) -> StoredItem:
    """Append what a called function returned; see `Conversation.add_function_call_output`."""
    item = call_output(call_id, output, result, status)
    return _append(handle, "add_function_call_output", [item], options)[0]


def _append(
    handle: Handle, method: str, items: Sequence[Item], options: AppendOptions, author_id: str | None = None
) -> list[StoredItem]:
    ref, check = handle.ref, head_check(options)
    author = None if author_id is None else identifier("author_id", author_id)
    objects = [item.to_object() for item in items]
    key = idempotency_key(options, method, {"items": objects, "author_id": author})
    pairs = zip(items, objects, strict=True)
    records = [encode_item(value, author_id=author or author_of(item), given=given_of(item)) for item, value in pairs]
    new = NewItems(items, records)
    counts = Counts(items=len(items))

    def write(connection: Connection) -> AppendResult:
        now = check.at or datetime.now(UTC)
        reservation = reserve_once(connection, ref, check, now, counts, key, AppendResult.of_outcome)
        return new.insert(connection, ref, reservation, key, now)

    result = write_items(handle.transactions, ref.scope, new.records, write, is_repeatable=key is not None)
    new.take_in(handle, result)
    return new.stored(ref, result, author_id)


# Reading


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
    items = handle.transactions.read(lambda connection: read_items(connection, handle.ref, window))
    return Page.of(items, size, lambda item: str(item.position))


def item_window(before: int | str | None, after: int | str | None, limit: int, order: str) -> tuple[ItemWindow, int]:
    """The window of a page, with one item more than the page has, and how many that has."""
    is_descending, size = one_of("order", order, ("asc", "desc")) == "desc", page_size(limit)
    window = ItemWindow(item_cursor(after), item_cursor(before, "before"), size + 1, is_descending)
    if is_descending and after is not None:  # the page behind a descending one lies before it
        window = replace(window, after=None, before=window.after)
    return window, size


def list_all_items(handle: Handle, media: MediaForm = "inline") -> list[StoredItem]:
    """All items of the branch, in order."""
    window = ItemWindow(limit=None, media=media_form(media))
    return handle.transactions.read(lambda connection: read_items(connection, handle.ref, window))


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
    """The items of a branch with this lineage in a window, up to a position."""
    # of several items with the id of a cursor, the one from which a walk through the pages cannot come back
    after = _position(connection, ref, lineage, window.after, is_newest=True)
    before = _position(connection, ref, lineage, window.before, is_newest=False)
    low = -1 if after is None else after
    high = min(lineage.head, last) if before is None else min(lineage.head, last, before - 1)
    spans, keeps = lineage.spans(ref.branch, low, high), lineage.keeps()
    statement = stored_items_of(connection.dialect.name, descending=window.is_descending)
    rows: list[Row] = []
    for branch, after, upto, surplus in reversed(spans) if window.is_descending else spans:
        if len(rows) == window.limit:
            break
        limit = ALL if window.limit is None else window.limit - len(rows)
        parameters = ref.parameters(branch=branch, after=after, upto=upto, limit=min(limit + surplus, ALL))
        taken = statement.fetch_all(connection, parameters)
        rows += [row for row in taken if keeps(row[0])][:limit] if surplus else taken
    found = stored_items(connection, ref, rows, window.media)
    return annotated(connection, ref.scope, [ref.key] * len(found), found) if window.annotations else found


def _position(
    connection: Connection, ref: BranchRef, lineage: Lineage, cursor: int | str | None, *, is_newest: bool
) -> int | None:
    if not isinstance(cursor, str):
        return cursor
    return position_of_id(connection, ref, lineage, cursor, is_newest=is_newest)


def read_appended(connection: Connection, ref: BranchRef, result: AppendResult) -> list[StoredItem]:
    """The items that an earlier call with the same idempotency key had appended."""
    window = ItemWindow(after=result.first - 1, before=result.first + result.count, limit=None)
    items = read_items(connection, ref.on(result.branch), window)
    return [replace(item, replayed=True, created_at=None) for item in items]


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
            item=_item_of(entry),
            author_id=record.author_id,
            created_at=record.created_at,
            conversation_id=ref.public_id,
            _views=ItemViews(entry, record.given),
        )
        for record, entry in zip(records, entries, strict=True)
    ]


def _item_of(entry: Entry) -> Item:
    try:
        return item_from_object(entry.item())
    except InvalidItem as error:
        raise DamagedRow("items", f"position {entry.position}", error) from error
