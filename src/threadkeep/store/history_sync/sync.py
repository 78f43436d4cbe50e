"""Bringing a conversation up to date with a client's history: what is new is appended, what differs branches off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from threadkeep.db.tables import branches, responses
from threadkeep.domain.formats import get_format
from threadkeep.domain.stored import SyncResult
from threadkeep.formats.canonical.entries import Entry
from threadkeep.store.handle import Handle
from threadkeep.store.history import is_held
from threadkeep.store.history_sync.client_history import ClientHistory, HistoryDelta
from threadkeep.store.importing import Continuation, append_to_history, provider_json
from threadkeep.store.item_rows import read_entries
from threadkeep.store.lineage import Lineage, get_row, lineage_from
from threadkeep.store.positions import AppendOptions, fork, idempotency_key
from threadkeep.store.refs import BranchRef


def sync_request(handle: Handle, payload: Any, format: str, options: AppendOptions) -> SyncResult:
    """Append what is new in the history of a client's request; see `Conversation.sync_request`."""
    value = provider_json(payload)
    client = ClientHistory(get_format(format).parse_request(value))
    key = idempotency_key(options, "sync_request", {"payload": value, "format": format})
    initial_id = handle.cache.conversation.settings.get("previous_response_id")

    def continue_(connection: Connection, ref: BranchRef, entries: Sequence[Entry], now: datetime) -> Continuation:
        start = _start(connection, ref, client, entries, initial_id)
        ref, delta, branched_at = _compare(connection, ref, client, entries, start, now)
        return Continuation(ref, delta.new, {"kind": "sync", "matched": delta.matched, "branched_at": branched_at})

    items, result, outcome = append_to_history(handle, options, key, continue_)
    matched, branched_at = outcome["matched"], outcome["branched_at"]
    return SyncResult(matched, len(items), branched_at, result.branch, items, replayed=result.is_replayed)


def _compare(
    connection: Connection, ref: BranchRef, client: ClientHistory, entries: Sequence[Entry], start: int, now: datetime
) -> tuple[BranchRef, HistoryDelta, int | None]:
    """On which branch a client's history goes on, what is new there, and where that branch was forked off just now.

    A history that differs goes on on a branch that it has all of, else on a new one from where it differs.
    """
    cut_off = _read_cut_off(connection, ref)
    delta = client.compare(entries[start:], cut_off, may_begin_later=not start)
    if delta.is_all:
        return ref, delta, None
    if client.has_conversation:  # the provider holds the history: all that is sent is new
        return ref, client.compare((), cut_off, may_begin_later=False), None
    kept = entries[: start + delta.kept]
    position = kept[-1].position if kept else -1
    for number, following in _other_branches(connection, ref, position):
        other = client.compare([*kept, *following], cut_off)
        if other.is_all:
            return ref.on(number), other, None
    return ref.on(fork(connection, ref, position, now)), delta, position


def _other_branches(connection: Connection, ref: BranchRef, position: int) -> Iterator[tuple[int, list[Entry]]]:
    """The other branches that share the items up to a position, newest first, with the items that follow there."""
    statement = (
        select(branches.c.number, branches.c.lineage, branches.c.head_position)
        .where(branches.c.tenant_id == ref.scope.tenant, branches.c.conversation_id == ref.key)
        .order_by(branches.c.number.desc())
    )
    lineages = {row.number: lineage_from(row) for row in connection.execute(statement)}
    lineages[0] = Lineage((), get_row(connection, ref).head_position)
    shared = lineages[ref.branch].ranges(ref.branch, -1, position)
    for number, lineage in lineages.items():
        if number != ref.branch and lineage.ranges(number, -1, position) == shared:
            parts = lineage.ranges(number, position, lineage.head)
            yield number, read_entries(connection, ref, parts, is_latest=True)


def _read_cut_off(connection: Connection, ref: BranchRef) -> set[int]:
    """Return the last positions of interrupted responses, of which a client may have seen more or less."""
    table = responses.c
    statement = select(table.to_position).where(
        table.tenant_id == ref.scope.tenant,
        table.conversation_id == ref.key,
        table.status.in_(("incomplete", "cancelled", "failed")),
    )
    return set(connection.execute(statement).scalars())


def _start(
    connection: Connection, ref: BranchRef, client: ClientHistory, entries: Sequence[Entry], initial_id: str | None
) -> int:
    """How many of the stored items come before those that the client's history has.

    `initial_id` names the response that the conversation itself began with.
    """
    previous_id = client.previous_response_id
    if previous_id is None and not client.has_conversation:
        return 0
    boundary = _find_boundary(connection, ref, entries, previous_id)
    if boundary is not None:
        return sum(entry.position <= boundary for entry in entries)
    return 0 if previous_id is None or previous_id == initial_id else len(entries)


def _find_boundary(
    connection: Connection, ref: BranchRef, entries: Sequence[Entry], previous_id: str | None
) -> int | None:
    """Return where the response with that id ends on this branch; without an id, the latest response."""
    table = responses.c
    statement = (
        select(table.provider_response_id, table.from_position, table.to_position)
        .where(table.tenant_id == ref.scope.tenant, table.conversation_id == ref.key, *is_held(table))
        .order_by(table.number.desc())
    )
    positions = {entry.position for entry in entries}
    for row in connection.execute(statement):
        is_named = previous_id is None or row.provider_response_id == previous_id
        if is_named and (row.to_position in positions or row.to_position < row.from_position):
            boundary: int = row.to_position
            return boundary
    return None
