"""Running a conversation: the calls that wait for an output, and whose turn it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.queries import histories, responses
from threadkeep.db.queries.items import last_said, stored_item_of, with_call_id
from threadkeep.domain import call_kinds, ids, items
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.running import Approval, NextStep, PendingCall
from threadkeep.domain.stored import Page
from threadkeep.formats.canonical.entries import ItemEntry, Snapshot
from threadkeep.formats.shared import pairing as pairs
from threadkeep.formats.shared import parsing, views
from threadkeep.formats.shared.pairing import in_order_of_answers
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.item_rows import ENTRY_WIDTH, decode_entries
from threadkeep.store.work.refs import MAX_RANGES, BranchRef, Lineage, get_lineage, get_row, range_parameters

MAX_AT_ONCE: Final = 4 * 1024 * 1024  # bytes of calls and outputs that are read in one statement
PAIRED: Final = frozenset({*pairs.ALL_KINDS.calls, *pairs.ALL_KINDS.outputs})
_ASIDE: Final = frozenset({"compaction", views.UNDONE})  # types of items that are nobody's turn …
_RULES: Final = frozenset({"system", "developer"})  # … and roles of messages that are not


def pending_calls(handle: Handle) -> list[PendingCall]:
    """The calls that wait for an output; see `Conversation.pending_calls`."""
    ref = handle.ref

    def read(connection: Connection) -> list[PendingCall]:
        return [*read_pending(connection, ref, get_lineage(connection, ref, get_row(connection, ref)))]

    return handle.transactions.read_any(read)


def read_pending(
    connection: Connection, ref: BranchRef, lineage: Lineage, after: int = -1, limit: float = inf, most: float = inf
) -> Page[PendingCall]:
    """A page of the calls that wait for an output, of `most` bytes or one call, behind the one at a position."""
    denied: set[int] = set()
    while True:
        calls, has_more = _page(_waiting(connection, ref, lineage, after), limit, most)
        decisions = read_decisions(connection, ref, [call.position for call in calls])
        known, denied = denied, {position for position, made in decisions.items() if made.decision == "denied"}
        if denied <= known:  # on other branches; here, an output came with the decision
            found = [pending_call(ref, call, decisions.get(call.position)) for call in calls]
            return Page(found, ids.derived_id(calls[-1].type, ref.public_id, calls[-1].position) if has_more else None)
        lineage = get_lineage(connection, ref, get_row(connection, ref))


def _page(waiting: Iterator[ItemEntry], limit: float, most: float) -> tuple[list[ItemEntry], bool]:
    """The first calls, and whether there are more."""
    calls: list[ItemEntry] = []
    for call in waiting:
        most -= len(call.payload or b"") + len(call.rest or b"")
        if calls and (len(calls) >= limit or most < 0):
            return calls, True
        calls.append(call)
    return calls, False


def waiting_calls(handle: Handle) -> list[tuple[str | None, JsonObject]]:
    """The calls that wait for an output, with their ids."""
    ref = handle.ref

    def read(connection: Connection) -> list[tuple[str | None, JsonObject]]:
        lineage = get_lineage(connection, ref, get_row(connection, ref))
        return [(call.call_id, call.item()) for call in _waiting(connection, ref, lineage)]

    return handle.transactions.read_any(read)


def is_waiting(connection: Connection, ref: BranchRef, lineage: Lineage, position: int) -> bool:
    """Whether the call at a position is one that waits for an output."""
    return any(call.position == position for call in _waiting(connection, ref, lineage))


def asynchronous_calls(handle: Handle, call_id: str) -> list[JsonObject]:
    """The asynchronous calls with an id, anywhere on the branch, that have no output: the model has gone on without."""
    ref = handle.ref

    def read(connection: Connection) -> list[JsonObject]:
        waiting: dict[str, JsonObject] = {}
        lineage = get_lineage(connection, ref, get_row(connection, ref))
        for entry in entries_with_call_id(connection, ref, lineage, call_id):
            item = entry.item()
            if item["type"] in pairs.CLIENT_CALLS and call_kinds.is_asynchronous(item):
                waiting[pairs.CLIENT_CALLS[item["type"]]] = item
            elif item["type"] in pairs.CLIENT_OUTPUTS:
                waiting.pop(pairs.CLIENT_OUTPUTS[item["type"]], None)
        return [*waiting.values()]

    return handle.transactions.read_any(read)


def entries_with_call_id(
    connection: Connection, ref: BranchRef, lineage: Lineage, call_id: str | None
) -> list[ItemEntry]:
    """The calls and outputs of a branch with this id."""
    rows = with_call_id(PAIRED).fetch_all(connection, ref.parameters(hash=ids.short_hash(call_id)))
    entries = zip(decode_entries(connection, ref, rows, is_latest=True), rows, strict=True)
    return [entry for entry, row in entries if lineage.includes(ref.branch, entry.position, row[ENTRY_WIDTH])]


def next_step(handle: Handle) -> NextStep:
    """Whose turn it is; see `Conversation.next_step`."""
    ref = handle.ref

    def read(connection: Connection) -> NextStep:
        return read_step(connection, ref, get_lineage(connection, ref, get_row(connection, ref)))

    return handle.transactions.read_any(read)


def read_step(connection: Connection, ref: BranchRef, lineage: Lineage) -> NextStep:
    """Whose turn it is on a branch with this lineage."""
    has_calls = False
    for call in _waiting(connection, ref, lineage):
        if not call_kinds.is_asynchronous(call.item()):
            return "tools"
        has_calls = True
    last = _last_said(connection, ref, lineage)
    reason = None if last is None or last.seen is None else _pause_of(last)
    if reason == parsing.COMPACTED:  # which answers nothing
        last = _last_said(connection, ref, lineage, last.turn - 1)
    elif reason is not None:
        return "model"
    if not _is_input(last):
        return "tools" if has_calls else "user"
    ended = connection.execute(responses.last_ended(), ref.parameters(branch=ref.branch)).one_or_none()
    return "user" if ended is not None and _answers(ended, last, ref, lineage) else "model"


def _answers(ended: Any, last: Any, ref: BranchRef, lineage: Lineage) -> bool:
    """Whether the response that ended last is one to the last item: it came after it, and had no items."""
    if ended.from_position <= last.position or _pause_of(ended):
        return False
    has_items = ended.from_position <= ended.to_position
    return not has_items or lineage.includes(ref.branch, ended.to_position, ref.branch)


def _pause_of(answer: Any) -> str | None:
    """The reason for which the model paused in a response, if it did."""
    reason = None if answer.incomplete_details is None else parsing.reason_of(loads(answer.incomplete_details))
    return reason if reason in parsing.PAUSES else None


def _waiting(connection: Connection, ref: BranchRef, lineage: Lineage, after: int = -1) -> Iterator[ItemEntry]:
    """The calls without an output that the newest response has not been shown yet: it has seen the others.

    Only the items behind that point are read, which are the last ones; large ones when it is their turn. They are in
    the order in which outputs answer them, behind the call at a position.
    """
    tail: list[ItemEntry] = []
    shown, size = -1, 1
    ranges = lineage.ranges(ref.branch, -1, lineage.head)
    while ranges and ranges[-1][2] > shown:
        batch, ranges = ranges[-size:], ranges[:-size]
        size = MAX_RANGES
        entries = _read_tail(connection, ref, batch, shown)
        shown = max([shown, *(entry.seen for entry in entries if entry.seen is not None)])
        tail[:0] = entries
    pairing = paired_by_client(tail)
    unseen = {**pairing.unanswered, **pairing.asynchronous}
    calls = [unseen[position] for position in sorted(unseen) if position > pairing.sent]
    here = [call for call in calls if not _is_left_out(call) and not call_kinds.is_cut_off(call.item())]
    here = _whole(connection, ref, here) + [call for call in calls if _is_left_out(call)]
    ordered = in_order_of_answers(sorted(here, key=attrgetter("position")))
    places = [call.position for call in ordered]
    first = places.index(after) + 1 if after in places else bisect_right(places, after)
    for call in ordered[first:]:
        yield from _read_large(connection, ref, call) if _is_left_out(call) else [call]


def _is_left_out(call: ItemEntry) -> bool:
    """Whether the content of a call was not read with those before it."""
    return call.payload is None and call.rest is None


def _read_large(connection: Connection, ref: BranchRef, call: ItemEntry) -> list[ItemEntry]:
    """A call whose content was left out, if it waits for an output of the application."""
    rows = stored_item_of().fetch_all(connection, ref.parameters(position=call.position))
    items = [(entry, entry.item()) for entry in decode_entries(connection, ref, rows)]
    found = [
        entry for entry, item in items if call_kinds.is_answered_by_client(item) and not call_kinds.is_cut_off(item)
    ]
    return _whole(connection, ref, found)


def _read_tail(
    connection: Connection, ref: BranchRef, ranges: list[tuple[int, int, int]], shown: int
) -> list[ItemEntry]:
    """The calls and outputs in some ranges, but for what was shown; a statement takes one range, or many."""
    count, parameters = range_parameters([(branch, max(after, shown), upto) for branch, after, upto in ranges])
    statement = histories.tail_of(PAIRED, count, scoped=ref.scope.user is not None)
    rows = statement.fetch_all(connection, parameters | ref.scope.parameters(key=ref.key, most=MAX_AT_ONCE))
    if not rows or rows[0][0] != histories.HEAD:
        raise ref.not_found()
    return decode_entries(connection, ref, rows[1:])


def _whole(connection: Connection, ref: BranchRef, calls: list[ItemEntry]) -> list[ItemEntry]:
    """Calls without those that broke off with their response: what is no JSON may also be what the model wrote."""
    unclear = {call.position: call.turn for call in calls if call.turn is not None and not _is_whole(call)}
    if not unclear:
        return calls
    parameters = ref.parameters(positions=sorted(set(unclear.values())))
    broken_off = set(connection.execute(responses.broken_off_at(), parameters).scalars())
    return [call for call in calls if unclear.get(call.position) not in broken_off]


def _is_whole(call: ItemEntry) -> bool:
    """Whether a call is certainly whole: its arguments are JSON, or its tool says that it is completed."""
    item = call.item()
    _, arguments = _name_and_arguments(item)
    if call.type == "function_call":
        return not isinstance(arguments, str)
    return item.get("status") != "in_progress"


def paired_by_client(entries: Sequence[ItemEntry]) -> pairs.Pairing:
    """Which output answers which call, of all kinds."""
    return pairs.paired(entries, kinds=pairs.ALL_KINDS)


def _last_said(connection: Connection, ref: BranchRef, lineage: Lineage, upto: int | None = None) -> Any:
    """The last item of a branch, up to a position, that decides whose turn it is."""
    end = lineage.head if upto is None else upto
    for branch, after, until in reversed(lineage.ranges(ref.branch, -1, end)):
        parameters = ref.parameters(branch=branch, after=after, upto=until)
        found = connection.execute(last_said(_ASIDE, _RULES), parameters).one_or_none()
        if found is not None:
            return found
    return None


def _is_input(item: Any) -> bool:
    """Whether there is something that the model is to answer: what a user says, and what a tool returns."""
    if item is None or item.seen is not None:
        return False
    if item.type == "message":
        return bool(item.role != "assistant")
    return str(item.type).endswith(("_output", "_response"))


def read_decisions(connection: Connection, ref: BranchRef, calls: Sequence[int]) -> dict[int, Approval]:
    """The decisions about the calls at some positions."""
    if not calls:
        return {}
    return _decisions(connection.execute(responses.approvals_of(), ref.parameters(positions=calls)))


def decisions(handle: Handle, snapshot: Snapshot) -> dict[int, Approval]:
    """What was decided about the calls of a history that was read, by their positions."""
    return handle.transactions.read(lambda connection: read_decisions_in(connection, handle.ref, snapshot))


def read_decisions_in(connection: Connection, ref: BranchRef, snapshot: Snapshot) -> dict[int, Approval]:
    """The decisions about the calls of a history."""
    if not any(entry.type in pairs.CLIENT_CALLS for entry in snapshot.entries):
        return {}
    return _decisions(connection.execute(responses.approvals_of(is_whole=True), ref.parameters()))


def _decisions(rows: Iterable[Any]) -> dict[int, Approval]:
    return {row.position: Approval(row.decision, row.reason, row.decided_by, row.created_at) for row in rows}


def pending_call(ref: BranchRef, call: ItemEntry, approval: Approval | None) -> PendingCall:
    """A call as callers get it."""
    item = call.item()
    name, arguments = _name_and_arguments(item)
    item_id = ids.own_id(item) or ids.derived_id(call.type, ref.public_id, call.position)
    return PendingCall(call.position, item_id, call.call_id, name, arguments, approval, items.item_from_object(item))


def _name_and_arguments(item: JsonObject) -> tuple[str, Any]:
    """What is called with what; the arguments of a function are parsed, if they are JSON."""
    said: Any = item
    if item["type"] == "provider_item":  # a call that only its own format knows
        payload = item["payload"]
        said = next((payload[key] for key in ("custom", "function") if isinstance(payload.get(key), dict)), payload)
    name, text = said.get("name") or item["type"], said.get("arguments")
    if text is None:
        return str(name), next((said[key] for key in ("input", "action", "operation") if key in said), None)
    try:
        return str(name), loads(text) if isinstance(text, str) else text
    except ValueError:
        return str(name), text
