"""Bringing a conversation up to date with a client's history: what is new is appended, what differs branches off."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, select

from threadkeep.db.queries.items import first_positions
from threadkeep.db.tables import branches, responses
from threadkeep.domain.formats import get_format
from threadkeep.domain.stored import SyncResult
from threadkeep.formats.canonical.entries import Entry
from threadkeep.store.handle import Handle
from threadkeep.store.history import is_held
from threadkeep.store.history_sync.client_history import ClientHistory, HistoryDelta
from threadkeep.store.importing import Continuation, append_to_history, provider_json
from threadkeep.store.item_rows import read_branch, read_texts
from threadkeep.store.lineage import Lineage, get_row, lineage_from, root_lineage
from threadkeep.store.positions import AppendOptions, idempotency_key
from threadkeep.store.refs import BranchRef

# How many branches are looked at of which a client may have the end, but not the beginning; the newest ones
CUT_HISTORIES: Final = 10

Parts = Sequence[tuple[int, int, int]]


def sync_request(handle: Handle, payload: Any, format: str, options: AppendOptions) -> SyncResult:
    """Append what is new in the history of a client's request; see `Conversation.sync_request`."""
    value = provider_json(payload)
    client = ClientHistory(get_format(format).parse_request(value))
    key = idempotency_key(options, "sync_request", {"payload": value, "format": format})
    initial_id = handle.cache.conversation.settings.get("previous_response_id")

    def continue_(connection: Connection, ref: BranchRef, entries: Sequence[Entry], *, is_latest: bool) -> Continuation:
        start = _start(connection, ref, client, entries, initial_id)
        return _compare(connection, ref, client, entries, start, is_latest=is_latest)

    items, result, outcome = append_to_history(handle, options, key, continue_, is_planned=True)
    matched, branched_at = outcome["matched"], outcome["branched_at"]
    return SyncResult(matched, len(items), branched_at, result.branch, items, replayed=result.is_replayed)


def _compare(
    connection: Connection,
    ref: BranchRef,
    client: ClientHistory,
    entries: Sequence[Entry],
    start: int,
    *,
    is_latest: bool,
) -> Continuation:
    """Finds the branch that a client's history continues, and what is new in it.

    A history that differs goes on on a branch that it has all of, else on a new one from where it differs.
    """
    cut_off = _read_cut_off(connection, ref)
    delta = client.compare(entries[start:], cut_off, may_begin_later=not start)
    if delta.is_all:
        return _continuation(ref, delta)
    if client.has_conversation:  # the provider holds the history: all that is sent is new
        return _continuation(ref, client.compare((), cut_off, may_begin_later=False))
    kept = entries[: start + delta.kept]
    position = kept[-1].position if kept else -1
    lineages = _read_lineages(connection, ref)
    shared = lineages[ref.branch].ranges(ref.branch, -1, position)
    others = {
        number: lineage.ranges(number, position, lineage.head)
        for number, lineage in lineages.items()
        if number != ref.branch and lineage.ranges(number, -1, position) == shared
    }
    for number in _possible_branches(connection, ref, client, others, position, cut_off):
        following = read_branch(connection, ref.on(number), lineages[number], position, is_latest=is_latest)
        other = client.compare([*kept, *following], cut_off)
        if other.is_all:
            return _continuation(ref.on(number), other)
    return _continuation(ref, delta, position, max(lineages) + 1)


def _continuation(
    ref: BranchRef, delta: HistoryDelta, fork_at: int | None = None, new_branch: int | None = None
) -> Continuation:
    outcome = {"kind": "sync", "matched": delta.matched, "branched_at": fork_at}
    return Continuation(ref, delta.new, outcome, fork_at, new_branch)


def _read_lineages(connection: Connection, ref: BranchRef) -> dict[int, Lineage]:
    """Return the lineages of the branches, newest first."""
    statement = (
        select(branches.c.number, branches.c.lineage, branches.c.head_position)
        .where(*ref.rows_of(branches.c))
        .order_by(branches.c.number.desc())
    )
    lineages = {row.number: lineage_from(row) for row in connection.execute(statement)}
    return {**lineages, 0: root_lineage(get_row(connection, ref))}


def _possible_branches(
    connection: Connection,
    ref: BranchRef,
    client: ClientHistory,
    others: Mapping[int, Parts],
    position: int,
    cut_off: Collection[int],
) -> Iterator[int]:
    """The branches that a client may have all of, by their first and last items after a position.

    It must have the last one. Without the first it can only have the end of a branch; some of these are looked at.
    """
    rows = connection.execute(first_positions(), ref.parameters(after=position))
    firsts = {row.branch: row.first for row in rows}
    ends = {number: (firsts.get(parts[0][0]), parts[-1][2]) for number, parts in others.items() if parts}
    positions = {end for pair in ends.values() for end in pair if end is not None} - set(cut_off)
    texts = read_texts(connection, ref, positions)
    is_said: dict[int | None, bool] = {at: client.may_say(item) for at, item in texts.items()}
    left = CUT_HISTORIES
    for number in others:
        first, last = ends.get(number, (None, None))
        if not is_said.get(last, True):
            continue
        left -= not is_said.get(first, True)
        if is_said.get(first, True) or left >= 0:
            yield number


def _read_cut_off(connection: Connection, ref: BranchRef) -> set[int]:
    """Return the last positions of interrupted responses, of which a client may have seen more or less."""
    table = responses.c
    broke_off = table.status.in_(("incomplete", "cancelled", "failed"))
    statement = select(table.to_position).where(*ref.rows_of(table), broke_off)
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
        .where(*ref.rows_of(table), *is_held(table))
        .order_by(table.number.desc())
    )
    positions = {entry.position for entry in entries}
    for row in connection.execute(statement):
        is_named = previous_id is None or row.provider_response_id == previous_id
        if is_named and (row.to_position in positions or row.to_position < row.from_position):
            boundary: int = row.to_position
            return boundary
    return None
