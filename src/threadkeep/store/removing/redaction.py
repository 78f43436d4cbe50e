"""Redacting an item: its content goes from wherever it is stored, its place stays on all branches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Delete, Table, Update, bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError

from threadkeep.db import backends, base, functions, models
from threadkeep.db.models import items, responses, search_documents, usage_records
from threadkeep.db.queries import removal
from threadkeep.db.queries import removal as queries
from threadkeep.db.queries.items import stored_item_of
from threadkeep.domain import ids, jsontext
from threadkeep.domain.items import REDACTED, without_content
from threadkeep.errors import DamagedRow
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.shared.pairing import CLIENT_OUTPUTS
from threadkeep.store.media.collecting import LostMedia, remove_lost
from threadkeep.store.reading.history import BROKEN_OFF_TEXT
from threadkeep.store.removing.rules import Rows
from threadkeep.store.search.index import forget_documents, merge_index
from threadkeep.store.usage.ledger import json_text
from threadkeep.store.work import connections, idempotency, item_rows, positions, refs, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.pacing import Change, Done, Find, Pace
from threadkeep.store.writing.updates import update_row

_STAYS: Final = {column.name for column in base.columns_holding(items, "user", "source")}  # they are not of its content
_KEYS: Final = 500  # idempotency keys in one statement


def redact_item(handle: Handle, position: object, key: str | None) -> None:
    """Redact an item; see `Conversation.redact_item`."""
    ref, place = handle.ref, validation.item_argument("position", position)
    once = idempotency.IdempotencyKey.of(key, "redact_item", place)

    def write(connection: Connection) -> LostMedia:
        now = datetime.now(UTC)
        positions.reserve_once(connection, ref, positions.NO_CHECK, now, positions.NOTHING, once, lambda _: LostMedia())
        lineage = refs.lock_lineage(connection, ref)
        found = _position_at(connection, ref, lineage, place)
        # also one that the branch does not have any more
        rows = stored_item_of(latest=True).fetch_all(connection, ref.parameters(position=found))
        entries = item_rows.decode_entries(connection, ref, rows, media="omitted")
        if not entries:
            raise refs.position_not_found(ref, found, lineage.head)
        media = _redact_row(connection, ref, entries[0])
        number = _redact_response(connection, ref, found)
        _forget_keys(connection, ref, found, number)
        update_row(connection, ref, {})
        idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, once, now, kind="redacted")
        return media

    media = handle.transactions.write(write, is_repeatable=once is not None)
    remove_lost(handle.transactions, ref.scope, media)
    handle.resources.histories.forget(ref.scope.tenant, ref.public_bytes)
    handle.after_write()


def _position_at(connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, place: int | str) -> int:
    """The position of an item, given by its position or id; of several with that id, the newest one of the branch."""
    if not isinstance(place, str):
        return place
    position = refs.find_position(connection, ref, lineage, place)
    if position is None:
        position = refs.newest_position(connection, ref, place)
    return refs.position_of_id(connection, ref, lineage, place) if position is None else position


def _redact_row(connection: Connection, ref: refs.BranchRef, entry: ItemEntry) -> LostMedia:
    """Redact the row of an item; return what it had of media."""
    position, parameters = entry.position, ref.parameters(position=entry.position)
    try:
        item = entry.item()
    except DamagedRow:  # there is something in it, all the same
        named = {"type": entry.type, "role": entry.role, "call_id": entry.call_id}
        item = {name: value for name, value in named.items() if value is not None}
    value = without_content(item, REDACTED, call_id=entry.call_id, is_answer=entry.seen is not None)
    columns = item_rows.encode_item(value).columns
    values = {name: value for name, value in columns.items() if name not in _STAYS}
    table = items.c
    connection.execute(update(items).where(*ref.rows_of(table), table.position == position).values(**values))
    if entry.call_id is not None and entry.type in CLIENT_OUTPUTS:
        of_call = ref.parameters(hash=ids.short_hash(entry.call_id), redacted=REDACTED)
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


def _redact_response(connection: Connection, ref: refs.BranchRef, position: int) -> int | None:
    """Remove what else is stored of the response that an item came in; return its number, None if it came in none.

    Its events are gone: they are deleted when the items are written.
    """
    parameters = ref.parameters(first=position, upto=position)
    row = connection.execute(queries.response_at(), parameters).one_or_none()
    if row is None:
        return None
    number: int = row.number
    connection.execute(queries.bodies_removal(), ref.parameters(numbers=[number]))
    values: dict[str, Any] = dict.fromkeys(column.name for column in base.columns_holding(responses, "content"))
    values |= {"error": _redacted_error(row.error), "incomplete_details": _redacted_details(row.incomplete_details)}
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
    details = jsontext.loads(text)
    reason = details.get("reason") if isinstance(details, dict) else None
    return json_text({"reason": reason if isinstance(reason, str) and reason.isidentifier() else REDACTED})


def _forget_keys(connection: Connection, ref: refs.BranchRef, position: int, response: int | None) -> None:
    """Forget the hashes of what was stored under idempotency keys, which show what it was; the keys stay used."""
    tenant = {"tenant": ref.scope.tenant}
    rows = connection.execute(queries.outcomes_of(), ref.parameters())
    outcomes = ((row.key, jsontext.loads_stored(row.outcome, "appends", f"key {row.key!r}")) for row in rows)
    own = [key for key, outcome in outcomes if _covers(outcome, position, response)]
    named = ref.parameters(everywhere=refs.TENANT_WIDE, pattern=f"%{ref.public_id.removeprefix('conv_')}%")
    creations = list(connection.execute(queries.creations_of(), named).scalars())
    for conversation, keys in ((ref.key, own), (refs.TENANT_WIDE, creations)):
        for start in range(0, len(keys), _KEYS):
            statement = queries.hashes_removal(keys[start : start + _KEYS])
            connection.execute(statement, tenant | {"conversation": conversation, "forgotten": idempotency.FORGOTTEN})


def _covers(outcome: jsontext.JsonObject, position: int, response: int | None) -> bool:
    """Whether an item was stored by the call that had this outcome."""
    first: Any = outcome.get("first")
    if outcome["kind"] == "response":  # of a whole turn, its input stands before it
        return bool(outcome["number"] == response) or first - outcome.get("input", 0) <= position < first
    return first is not None and first <= position < first + outcome["count"]


# ---------------------------------------------------------------------------------------------------------------------
# Removing options, tool sets and tools that nothing uses any more

TOOLS: Final = models.tool_definitions
_USERS: Final = (models.conversations, models.responses)  # of options and tool sets


def _remove(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes], table: Table) -> Done:
    """Remove one after another: if one is used again, the others are removed."""

    def remove(some: Sequence[bytes]) -> int:
        which = _these(table, tenant, some)
        try:
            with connections.savepoint(connection):
                free = _lock_free(connection, table, which)
                return connection.execute(delete(table).where(*which)).rowcount if free else 0
        except IntegrityError:  # it is used again
            return 0

    return pace.change(keys, remove, size=1)


# Options and tool sets: what finds rows, and what removes them
STEPS: Final[tuple[tuple[Find, Change], ...]] = tuple(
    (
        Rows(table, ~removal.is_referred_to(table.c.hash, *(user.c[name] for user in _USERS)), is_indexed=False).find,
        partial(_remove, table=table),
    )
    for table, name in ((models.configs, "config_hash"), (models.tool_sets, "tool_set_hash"))
)


# Tools, when no set names them any more
#
# A set names its tools in JSON, which no index finds, so all sets are read to know what is unused. Nothing is locked
# for that: tools that seem to be unused are marked first (`unused_at`), and whoever stores one again takes its mark
# away. What still has the same mark after all sets were read again is named by none. Another mark may be of a removal
# that read the sets before a new one named the tool.


def way_to_read(connection: Connection, tenant: int) -> bool | None:
    """Return whether sets have to be read with locks, to see what is committed; None if nothing sees that.

    For the caller's transaction, which may see the past; reads of this library see it anyway.
    """
    del tenant
    backend = backends.backend_of(connection)
    if backend.sees_commits(connection):
        return False
    return True if backend.sees_locked else None


def find_sets(
    connection: Connection, tenant: int, after: bytes | None, limit: int, *, is_locking: bool
) -> Sequence[tuple[bytes, set[bytes]]]:
    """Return the hashes of tool sets, in order, behind one, each with its tools' hashes."""
    table = models.tool_sets.c
    statement = select(table.hash, table.definitions).where(table.tenant_id == tenant, table.hash > (after or b""))
    statement = statement.order_by(table.hash).limit(limit)
    rows = connection.execute(functions.as_committed(statement) if is_locking else statement)
    return [(bytes(row.hash), set(map(bytes.fromhex, jsontext.loads(row.definitions)))) for row in rows]


def change_definitions(
    connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes], change: Update | Delete, *, mark: Any = None
) -> Done:
    """Change tools that no other transaction is storing, with `mark` those that still have this mark.

    On PostgreSQL, only the lock makes those who store one see its mark, or wait for it. Each is changed by its key: to
    find many, MariaDB would read adjacent rows, too, and wait for their locks.
    """
    is_marked = [] if mark is None else [TOOLS.c.unused_at == mark]
    by_key = change.where(TOOLS.c.tenant_id == tenant, *is_marked, TOOLS.c.hash == bindparam("of_tool"))

    def change_some(some: Sequence[bytes]) -> int:
        hashes = _lock_free(connection, TOOLS, [*_these(TOOLS, tenant, some), *is_marked])
        if hashes:
            connection.execute(by_key, [{"of_tool": hash_} for hash_ in hashes])
        return len(hashes)

    return pace.change(keys, change_some)


def _these(table: Table, tenant: int, hashes: Sequence[bytes]) -> list[ColumnElement[bool]]:
    return [table.c.tenant_id == tenant, table.c.hash.in_(hashes)]


def _lock_free(connection: Connection, table: Table, which: Sequence[ColumnElement[bool]]) -> Sequence[bytes]:
    """Lock the rows that no other transaction has locked; return their hashes."""
    statement = select(table.c.hash).where(*which).order_by(table.c.hash).with_for_update(skip_locked=True)
    return connection.execute(statement).scalars().all()
