"""Compaction: an item that replaces the items before it, and the item that undoes it. No row is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from threadkeep.domain.items import Compaction, item_from, item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.makers import asked_of
from threadkeep.domain.objects import shown
from threadkeep.domain.stored import StoredItem
from threadkeep.errors import InvalidItem, InvalidOption
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.messages import parse_parts as messages
from threadkeep.formats.shared.pairing import between_turns
from threadkeep.formats.shared.views import KEEPS_USERS, UNDONE, standing
from threadkeep.store.handle import Handle
from threadkeep.store.importing import provider_json
from threadkeep.store.item_rows import encode_item, read_branch, read_entries
from threadkeep.store.items import AppendResult, NewItems
from threadkeep.store.lineage import lock_lineage
from threadkeep.store.positions import AppendOptions, Counts, Reservation, head_check, idempotency_key, reserve_once
from threadkeep.store.refs import BranchRef
from threadkeep.store.validation import MAX_POSITION, whole_number


def compact(handle: Handle, upto: int | None, summary: object, item: object, options: AppendOptions) -> StoredItem:
    """Replace earlier items with a summary or a provider's compaction item; see `Conversation.compact`."""
    position = None if upto is None else whole_number("upto", upto, MAX_POSITION)
    return _append(handle, "compact", _compaction_item(summary, item), position, options)


def undo_compaction(handle: Handle, options: AppendOptions) -> StoredItem:
    """Undo the last compaction; see `Conversation.undo_compaction`."""
    return _append(handle, "undo_compaction", None, None, options)


def _append(
    handle: Handle, method: str, item: JsonObject | None, upto: int | None, options: AppendOptions
) -> StoredItem:
    """Append a compaction (`upto` None: of everything) or, without an item, the undoing of the last one."""
    ref, check = handle.ref, head_check(options)
    key = idempotency_key(options, method, {"item": item, "upto": upto})

    def write(connection: Connection) -> tuple[AppendResult, NewItems]:
        def decode(outcome: JsonObject) -> tuple[AppendResult, NewItems]:
            result = AppendResult.of_outcome(outcome)
            found = read_entries(connection, ref, [(result.branch, result.first - 1, result.first)])
            value = found[0].item() if found else item or {"type": UNDONE}  # it was removed since
            return result, NewItems([item_from_object(value)], [encode_item(value)])

        now = check.at or datetime.now(UTC)
        reservation = reserve_once(connection, ref, check, now, Counts(items=1), key, decode)
        entries = _read_before(connection, ref.on(reservation.branch), reservation)
        value = _undo_item(entries) if item is None else {**item, "upto": _last_covered(entries, upto)}
        new = NewItems([item_from_object(value)], [encode_item(value, maker=_maker(handle, value))])
        return new.insert(connection, ref, reservation, key, now), new

    result, new = handle.transactions.write(write, is_repeatable=key is not None)
    new.take_in(handle, result)
    return new.stored(ref, result)[0]


def _compaction_item(summary: object, item: object) -> JsonObject:
    """Return the item of a compaction: a summary, or a provider's item."""
    if (summary is None) is (item is None):
        raise InvalidOption("Give either summary= (text) or item= (a provider's compaction item).")
    if summary is not None:
        if not isinstance(summary, str) or not summary.strip():
            raise InvalidOption(f"must be text that is not blank, not {shown(summary)}.", argument="summary")
        return {"type": "compaction", "summary": summary}
    given: Any = item if isinstance(item, Compaction) else provider_json(item)
    if isinstance(given, Mapping) and given.get("type") == "compaction" and isinstance(given.get("content"), str):
        return _block_item(given)
    typed = item_from(given)
    if not isinstance(typed, Compaction):
        raise InvalidItem(f"must be an item of type compaction, not of type {typed.type!r}.", argument="item")
    compaction = {"origin": "open_responses", **typed.to_object()}
    return compaction if compaction.get("summary") is not None else {**compaction, KEEPS_USERS: True}


def _block_item(block: Mapping[str, Any]) -> JsonObject:
    """Anthropic's compaction block as an item."""
    compaction = messages.compaction_of(dict(block))
    if compaction is None:
        raise InvalidItem("is a block without content: the compaction failed.", argument="item")
    return compaction


def _maker(handle: Handle, item: JsonObject) -> str | None:
    """Who made a compaction that only its provider can read, where the conversation names that."""
    asked = asked_of(handle.cache.conversation.settings)
    is_opaque = item["type"] == "compaction" and "summary" not in item
    return asked.text if is_opaque and asked.provider is not None else None


def _read_before(connection: Connection, ref: BranchRef, reservation: Reservation) -> list[Entry]:
    lineage = lock_lineage(connection, ref)
    before = replace(lineage, head=reservation.first - 1)
    return read_branch(connection, ref, before, -1, is_latest=True)


def _last_covered(entries: Sequence[Entry], upto: int | None) -> int:
    """Return the last compacted position; turns are not split, and neither are calls and their outputs."""
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
