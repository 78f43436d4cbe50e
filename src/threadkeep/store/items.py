"""Appending items that the application made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count, groupby
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.queries.appends import FIRST
from threadkeep.domain.item_ids import derived_id
from threadkeep.domain.items import (
    Item,
    call_output,
    given_item,
    given_items,
    given_of,
    message_of,
)
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import StoredItem
from threadkeep.store.appending import change_row, item_rows, kept_row, write_at_once, write_items, write_rows
from threadkeep.store.handle import Handle
from threadkeep.store.idempotency import IdempotencyKey, keep_outcome
from threadkeep.store.item_places import check_new_ids
from threadkeep.store.item_reading import ItemWindow, read_items
from threadkeep.store.item_rows import ItemRecord, author_of, encode_item
from threadkeep.store.lineage import lock_lineage
from threadkeep.store.positions import (
    AppendOptions,
    Counts,
    HeadCheck,
    Reservation,
    head_check,
    idempotency_key,
    reserve_once,
)
from threadkeep.store.refs import BranchRef
from threadkeep.store.validation import identifier


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
    def of(cls, reservation: Reservation, now: datetime) -> AppendResult:
        """Where they were appended now."""
        return cls(reservation.first, reservation.count, reservation.branch, reservation.revision, now)

    @classmethod
    def of_outcome(cls, outcome: JsonObject) -> AppendResult:
        """What was kept under an idempotency key."""
        return cls(outcome["first"], outcome["count"], outcome["branch"])


def _outcome(first: int | str, count: int, branch: int) -> JsonObject:
    """What is kept of it under an idempotency key."""
    return {"kind": "items", "first": first, "count": count, "branch": branch}


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
        if self.records:
            rows = [*item_rows(self.records, self.turns), change_row(ref, len(self.records) - 1)]
            write_rows(connection, ref, reservation, rows, now, self.records)
        result = AppendResult.of(reservation, now)
        if key is not None:
            outcome = _outcome(result.first, result.count, result.branch) | outcome
            keep_outcome(connection, ref.scope.tenant, ref.key, key, now, **outcome)
        return result

    def insert_at_once(
        self, connection: Connection, ref: BranchRef, check: HeadCheck, key: IdempotencyKey | None
    ) -> AppendResult | None:
        """Reserve positions and write them in one statement of PostgreSQL; None where that takes a transaction."""
        count, now = len(self.records), datetime.now(UTC)
        if not count:  # nothing to tell of
            return None
        rows = [*item_rows(self.records, self.turns), change_row(ref, count - 1)]
        if key is not None:
            rows.append(kept_row(key, _outcome(FIRST, count, ref.branch)))
        reservation = write_at_once(connection, ref, check, Counts(items=count), rows, now, self.records)
        return None if reservation is None else AppendResult.of(reservation, now)

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
    handle: Handle,
    items: Iterable[Any],
    options: AppendOptions,
    author_id: str | None = None,
    *,
    unique_ids: bool = False,
) -> list[StoredItem]:
    """Append several items, all or none; see `Conversation.add_items`."""
    return _append(handle, "add_items", given_items(items), options, author_id, unique_ids=unique_ids)


def append_call_output(
    handle: Handle, call_id: str | None, output: Any, result: Any, status: str | None, options: AppendOptions
) -> StoredItem:
    """Append what a called function returned; see `Conversation.add_function_call_output`."""
    item = call_output(call_id, output, result, status)
    return _append(handle, "add_function_call_output", [item], options)[0]


def _append(
    handle: Handle,
    method: str,
    items: Sequence[Item],
    options: AppendOptions,
    author_id: str | None = None,
    *,
    unique_ids: bool = False,
) -> list[StoredItem]:
    ref, check = handle.ref, head_check(options)
    author = None if author_id is None else identifier("author_id", author_id)
    objects = [item.to_object() for item in items]
    key = idempotency_key(options, method, {"items": objects, "author_id": author})
    pairs = zip(items, objects, strict=True)
    records = [encode_item(value, author_id=author or author_of(item), given=given_of(item)) for item, value in pairs]
    new = NewItems(items, records)
    counts = Counts(items=len(items), is_idle=not items)
    own_ids = ((index, record.columns["item_id"]) for index, record in enumerate(records) if unique_ids)
    ids = {index: item_id for index, item_id in own_ids if item_id is not None}

    def write(connection: Connection) -> AppendResult:
        now = check.at or datetime.now(UTC)
        reservation = reserve_once(connection, ref, check, now, counts, key, AppendResult.of_outcome)
        if ids:
            place = ref.on(reservation.branch)
            check_new_ids(connection, place, lock_lineage(connection, place), ids)
        return new.insert(connection, ref, reservation, key, now)

    def write_now(connection: Connection) -> AppendResult | None:
        return None if ids else new.insert_at_once(connection, ref, check, key)

    is_once = key is not None
    result = write_items(handle.transactions, ref.scope, records, write, is_repeatable=is_once, at_once=write_now)
    new.take_in(handle, result)
    return new.stored(ref, result, author_id)


# Replays


def read_appended(connection: Connection, ref: BranchRef, result: AppendResult) -> list[StoredItem]:
    """The items that an earlier call with the same idempotency key had appended."""
    window = ItemWindow(after=result.first - 1, before=result.first + result.count, limit=None)
    items = read_items(connection, ref.on(result.branch), window)
    return [replace(item, replayed=True, created_at=None) for item in items]
