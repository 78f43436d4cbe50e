"""Redacting an item: its content goes from wherever it is stored, its place stays on all branches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, update

from threadkeep.db.queries import removal as queries
from threadkeep.db.queries.items import stored_item_of
from threadkeep.db.tables import items, responses, search_documents, usage_records
from threadkeep.domain.jsontext import JsonObject, loads, loads_stored
from threadkeep.domain.placeholders import REDACTED, without_content
from threadkeep.errors import DamagedRow
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.shared.pairing import CLIENT_OUTPUTS
from threadkeep.store.handle import Handle
from threadkeep.store.history import BROKEN_OFF_TEXT
from threadkeep.store.idempotency import FORGOTTEN, IdempotencyKey, keep_outcome
from threadkeep.store.item_places import find_position, newest_position, position_of_id
from threadkeep.store.item_rows import decode_entries, encode_item, short_hash
from threadkeep.store.ledger import json_text
from threadkeep.store.lineage import Lineage, lock_lineage, position_not_found
from threadkeep.store.media.collecting import LostMedia, remove_lost
from threadkeep.store.positions import NO_CHECK, NOTHING, reserve_once
from threadkeep.store.refs import TENANT_WIDE, BranchRef
from threadkeep.store.search.index import forget_documents, merge_index
from threadkeep.store.updates import update_row
from threadkeep.store.validation import item_argument

_STAYS: Final = ("author_id", "model", "maker")  # columns of an item that are not of its content
_KEYS: Final = 500  # idempotency keys in one statement


def redact_item(handle: Handle, position: object, key: str | None) -> None:
    """Redact an item; see `Conversation.redact_item`."""
    ref, place = handle.ref, item_argument("position", position)
    once = IdempotencyKey.of(key, "redact_item", place)

    def write(connection: Connection) -> LostMedia:
        now = datetime.now(UTC)
        reserve_once(connection, ref, NO_CHECK, now, NOTHING, once, lambda _: LostMedia())
        lineage = lock_lineage(connection, ref)
        found = _position_at(connection, ref, lineage, place)
        entry = _read_entry(connection, ref, found)
        if entry is None:
            raise position_not_found(ref, found, lineage.head)
        media = _redact_row(connection, ref, entry)
        number = _redact_response(connection, ref, found)
        _forget_keys(connection, ref, found, number)
        update_row(connection, ref, {})
        keep_outcome(connection, ref.scope.tenant, ref.key, once, now, kind="redacted")
        return media

    media = handle.transactions.write(write, is_repeatable=once is not None)
    remove_lost(handle.transactions, ref.scope, media)
    handle.resources.histories.forget(ref.scope.tenant, ref.public_bytes)
    handle.after_write()


def _position_at(connection: Connection, ref: BranchRef, lineage: Lineage, place: int | str) -> int:
    """The position of an item, given by its position or id; of several with that id, the newest one of the branch."""
    if not isinstance(place, str):
        return place
    position = find_position(connection, ref, lineage, place)
    if position is None:
        position = newest_position(connection, ref, place)
    return position_of_id(connection, ref, lineage, place) if position is None else position


def _read_entry(connection: Connection, ref: BranchRef, position: int) -> Entry | None:
    """The item at a position, also one that a branch does not have any more."""
    rows = stored_item_of(connection.dialect.name, latest=True).fetch_all(connection, ref.parameters(position=position))
    entries = decode_entries(connection, ref, rows, media="omitted")
    return entries[0] if entries else None


def _redact_row(connection: Connection, ref: BranchRef, entry: Entry) -> LostMedia:
    """Redact the row of an item; return what it had of media."""
    position, parameters = entry.position, ref.parameters(position=entry.position)
    try:
        item = entry.item()
    except DamagedRow:  # there is something in it, all the same
        named = {"type": entry.type, "role": entry.role, "call_id": entry.call_id}
        item = {name: value for name, value in named.items() if value is not None}
    value = without_content(item, REDACTED, call_id=entry.call_id, is_answer=entry.seen is not None)
    columns = encode_item(value).columns
    values = {name: value for name, value in columns.items() if name not in _STAYS}
    table = items.c
    connection.execute(update(items).where(*ref.rows_of(table), table.position == position).values(**values))
    if entry.call_id is not None and entry.type in CLIENT_OUTPUTS:
        of_call = ref.parameters(hash=short_hash(entry.call_id), redacted=REDACTED)
        connection.execute(queries.reasons_change(), of_call)
    hashes = set(connection.execute(queries.media_between(position - 1, position), parameters).scalars())
    media = LostMedia()
    if hashes:
        connection.execute(queries.media_links_removal(), parameters)
        media.collect(connection, ref.scope.tenant, hashes)
    documents = search_documents.c
    if forget_documents(connection, ref, *ref.rows_of(documents), documents.position == position):
        merge_index(connection)
    return media


def _redact_response(connection: Connection, ref: BranchRef, position: int) -> int | None:
    """Remove what else is stored of the response that an item came in; return its number, None if it came in none.

    Its events are gone: they are deleted when the items are written.
    """
    parameters = ref.parameters(first=position, upto=position)
    row = connection.execute(queries.response_at(), parameters).one_or_none()
    if row is None:
        return None
    number: int = row.number
    connection.execute(queries.body_removal(), ref.parameters(number=number))
    values = {
        "provider_data": None,
        "error": _redacted_error(row.error),
        "incomplete_details": _redacted_details(row.incomplete_details),
    }
    table = responses.c
    connection.execute(update(responses).where(*ref.rows_of(table), table.number == number).values(**values))
    table = usage_records.c
    is_attempt = [*ref.rows_of(table), table.response == number, table.error.is_not(None)]
    connection.execute(update(usage_records).where(*is_attempt).values(error=_redacted_error("{}")))
    return number


def _redacted_error(text: str | None) -> str | None:
    return None if text is None else json_text({"message": REDACTED})


def _redacted_details(text: str | None) -> str | None:
    """Why a response is incomplete: the provider's word for it, without more."""
    if text is None or text == BROKEN_OFF_TEXT:
        return text
    details = loads(text)
    reason = details.get("reason") if isinstance(details, dict) else None
    return json_text({"reason": reason if isinstance(reason, str) and reason.isidentifier() else REDACTED})


def _forget_keys(connection: Connection, ref: BranchRef, position: int, response: int | None) -> None:
    """Forget the hashes of what was stored under idempotency keys, which show what it was; the keys stay used."""
    tenant = {"tenant": ref.scope.tenant}
    rows = connection.execute(queries.outcomes_of(), ref.parameters())
    outcomes = ((row.key, loads_stored(row.outcome, "appends", f"key {row.key!r}")) for row in rows)
    own = [key for key, outcome in outcomes if _covers(outcome, position, response)]
    named = ref.parameters(everywhere=TENANT_WIDE, pattern=f"%{ref.public_id.removeprefix('conv_')}%")
    creations = list(connection.execute(queries.creations_of(), named).scalars())
    for conversation, keys in ((ref.key, own), (TENANT_WIDE, creations)):
        for start in range(0, len(keys), _KEYS):
            statement = queries.hashes_removal(keys[start : start + _KEYS])
            connection.execute(statement, tenant | {"conversation": conversation, "forgotten": FORGOTTEN})


def _covers(outcome: JsonObject, position: int, response: int | None) -> bool:
    """Whether an item was stored by the call that had this outcome."""
    first: Any = outcome.get("first")
    if outcome["kind"] == "response":  # of a whole turn, its input stands before it
        return bool(outcome["number"] == response) or first - outcome.get("input", 0) <= position < first
    return first is not None and first <= position < first + outcome["count"]
