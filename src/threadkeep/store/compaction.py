"""Compaction: an item that stands for the items before it, and the item that undoes it. No row is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.domain.items import Compaction, item_from, item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import shown
from threadkeep.domain.stored import StoredItem
from threadkeep.errors import InvalidItem, InvalidOption
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.shared.pairing import between_turns
from threadkeep.formats.shared.views import UNDONE, standing
from threadkeep.store.handle import Handle
from threadkeep.store.idempotency import IdempotencyKey, keep_outcome
from threadkeep.store.item_rows import ItemRecord, encode_item, insert_items, read_entries
from threadkeep.store.items import AppendResult
from threadkeep.store.lineage import get_lineage, get_row
from threadkeep.store.positions import AppendOptions, Counts, Reservation, head_check, reserve_once
from threadkeep.store.refs import BranchRef
from threadkeep.store.validation import MAX_POSITION, whole_number


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Where the item was appended, and the item; a replay appended no record."""

    appended: AppendResult
    item: JsonObject
    record: ItemRecord | None = None


def compact(handle: Handle, upto: int | None, summary: object, item: object, options: AppendOptions) -> StoredItem:
    """Let a summary or a provider's compaction item stand for earlier items; see `Conversation.compact`."""
    position = None if upto is None else whole_number("upto", upto, MAX_POSITION)
    return _append(handle, "compact", _compaction_item(summary, item), position, options)


def undo_compaction(handle: Handle, options: AppendOptions) -> StoredItem:
    """Undo the last compaction; see `Conversation.undo_compaction`."""
    return _append(handle, "undo_compaction", None, None, options)


def _append(
    handle: Handle, method: str, item: JsonObject | None, upto: int | None, options: AppendOptions
) -> StoredItem:
    """Append a compaction (`upto` None: of all that is there), or without an item what undoes the last one.

    Raises:
        InvalidOption: there is nothing to compact, or no compaction to undo; nothing was written.
        NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict: as for every append.
    """
    ref, check = handle.ref, head_check(options)
    key = IdempotencyKey.of(options.get("idempotency_key"), method, {"item": item, "upto": upto})

    def write(connection: Connection) -> CompactionResult:
        def decode(outcome: JsonObject) -> CompactionResult:
            result = AppendResult.of_outcome(outcome)
            (entry,) = read_entries(connection, ref, result.branch, result.first - 1, result.first)
            return CompactionResult(result, entry.item())

        now = datetime.now(UTC)
        reservation = reserve_once(connection, ref, check, now, Counts(items=1), key, decode)
        entries = _read_before(connection, ref.on(reservation.branch), reservation)
        new = _undo_item(entries) if item is None else {**item, "upto": _last_covered(entries, upto)}
        record = encode_item(new)
        insert_items(connection, ref, [record], reservation, now)
        keep_outcome(
            connection, ref.scope.tenant, ref.key, key, now,
            kind="items", first=reservation.first, count=1, branch=reservation.branch,
        )  # fmt: skip
        appended = AppendResult(reservation.first, 1, reservation.branch, reservation.revision, now)
        return CompactionResult(appended, new, record)

    result = handle.transactions.write(write, is_repeatable=key is not None)
    appended = result.appended
    if result.record is not None and appended.branch == ref.branch:
        handle.cache.append([result.record], appended.first, appended.revision)
    handle.after_write()
    return StoredItem(
        id=ref.item_id(appended.first),
        position=appended.first,
        branch=appended.branch,
        turn=None,
        item=item_from_object(result.item),
        replayed=appended.is_replayed,
        created_at=appended.at,
    )


def _compaction_item(summary: object, item: object) -> JsonObject:
    """The item of a compaction.

    Raises:
        InvalidOption: neither a summary nor an item is given, or both.
        InvalidItem: the item is not a compaction.
    """
    if (summary is None) is (item is None):
        raise InvalidOption("Give either summary= (text) or item= (a provider's compaction item).")
    if summary is not None:
        if not isinstance(summary, str) or not summary.strip():
            raise InvalidOption(f"must be text that is not blank, not {shown(summary)}.", argument="summary")
        return {"type": "compaction", "summary": summary}
    typed = item_from(dict(item) if isinstance(item, Mapping) else item)
    if not isinstance(typed, Compaction):
        raise InvalidItem(f"must be an item of type compaction, not of type {typed.type!r}.", argument="item")
    return {"origin": "open_responses", **typed.to_object()}


def _read_before(connection: Connection, ref: BranchRef, reservation: Reservation) -> list[Entry]:
    lineage = get_lineage(connection, ref, get_row(connection, ref))
    ranges = lineage.ranges(ref.branch, -1, reservation.first - 1)
    return [entry for range_ in ranges for entry in read_entries(connection, ref, *range_, is_latest=True)]


def _last_covered(entries: Sequence[Entry], upto: int | None) -> int:
    """The last position that is covered: no turn is cut, and no call is parted from its output."""
    covered = between_turns(entries, upto)
    if covered is None:
        where = "" if upto is None else f" up to position {upto}"
        raise InvalidOption(f"There is nothing to compact{where}: no turn and its tool outputs end there or before.")
    return covered


def _undo_item(entries: Sequence[Entry]) -> JsonObject:
    compactions = standing([entry for entry in entries if entry.type in {"compaction", UNDONE}])
    if not compactions:
        raise InvalidOption("There is no compaction to undo.")
    return {"type": UNDONE, "compaction": max(compactions)}
