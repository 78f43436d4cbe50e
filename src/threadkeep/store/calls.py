"""Running a conversation: the calls that wait for an output, and whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.queries.approvals import approvals_of
from threadkeep.db.queries.histories import HEAD, tail_of
from threadkeep.db.queries.items import last_said
from threadkeep.db.queries.streams import broken_off_at, last_ended
from threadkeep.domain.call_kinds import is_asynchronous, is_cut_off
from threadkeep.domain.item_ids import derived_id, own_id
from threadkeep.domain.items import item_from_object
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.running import Approval, NextStep, PendingCall
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.shared.endings import COMPACTED, PAUSES, reason_of
from threadkeep.formats.shared.pairing import ALL_KINDS, Pairing, in_order_of_answers, paired
from threadkeep.formats.shared.views import UNDONE
from threadkeep.store.handle import Handle
from threadkeep.store.item_rows import decode_entries
from threadkeep.store.lineage import MAX_RANGES, Lineage, get_lineage, get_row, range_parameters
from threadkeep.store.refs import BranchRef

PAIRED: Final = frozenset({*ALL_KINDS.calls, *ALL_KINDS.outputs})
_ASIDE: Final = frozenset({"compaction", UNDONE})  # types of items that are nobody's turn …
_RULES: Final = frozenset({"system", "developer"})  # … and roles of messages that are not


def pending_calls(handle: Handle) -> list[PendingCall]:
    """The calls that wait for an output; see `Conversation.pending_calls`."""
    ref = handle.ref

    def read(connection: Connection) -> list[PendingCall]:
        denied: set[int] = set()
        while True:
            known, lineage = denied, get_lineage(connection, ref, get_row(connection, ref))
            calls = _waiting(connection, ref, lineage)
            decisions = read_decisions(connection, ref, [call.position for call in calls])
            denied = {position for position, made in decisions.items() if made.decision == "denied"}
            if denied <= known:  # on other branches; here, an output came with the decision
                found = in_order_of_answers(calls)
                return [pending_call(ref, call, decisions.get(call.position)) for call in found]

    return handle.transactions.read_any(read)


def next_step(handle: Handle) -> NextStep:
    """Whose turn it is; see `Conversation.next_step`."""
    ref = handle.ref

    def read(connection: Connection) -> NextStep:
        lineage = get_lineage(connection, ref, get_row(connection, ref))
        calls = _waiting(connection, ref, lineage)
        if not all(is_asynchronous(call.item()) for call in calls):
            return "tools"
        last = _last_said(connection, ref, lineage)
        reason = None if last is None or last.seen is None else _pause_of(last)
        if reason == COMPACTED:  # which answers nothing
            last = _last_said(connection, ref, lineage, last.turn - 1)
        elif reason is not None:
            return "model"
        if not _is_input(last):
            return "tools" if calls else "user"
        ended = connection.execute(last_ended(), ref.parameters(branch=ref.branch)).one_or_none()
        return "user" if ended is not None and _answers(ended, last, ref, lineage) else "model"

    return handle.transactions.read_any(read)


def _answers(ended: Any, last: Any, ref: BranchRef, lineage: Lineage) -> bool:
    """Whether the response that ended last is one to the last item: it came after it, and had no items."""
    if ended.from_position <= last.position or _pause_of(ended):
        return False
    has_items = ended.from_position <= ended.to_position
    return not has_items or lineage.includes(ref.branch, ended.to_position, ref.branch)


def _pause_of(answer: Any) -> str | None:
    """The reason for which the model paused in a response, if it did."""
    reason = None if answer.incomplete_details is None else reason_of(loads(answer.incomplete_details))
    return reason if reason in PAUSES else None


def _waiting(connection: Connection, ref: BranchRef, lineage: Lineage) -> list[Entry]:
    """The calls without an output that the newest response has not been shown yet: it was told what to make of others.

    Only the items behind that point are read, which are the last ones.
    """
    tail: list[Entry] = []
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
    return _whole(connection, ref, [call for call in calls if not is_cut_off(call.item())])


def _read_tail(connection: Connection, ref: BranchRef, ranges: list[tuple[int, int, int]], shown: int) -> list[Entry]:
    """The calls and outputs in some ranges, but for what was shown; a statement takes one range, or many."""
    count, parameters = range_parameters([(branch, max(after, shown), upto) for branch, after, upto in ranges])
    statement = tail_of(connection.dialect.name, PAIRED, count, scoped=ref.scope.user is not None)
    rows = statement.fetch_all(connection, parameters | ref.scope.parameters(key=ref.key))
    if not rows or rows[0][0] != HEAD:
        raise ref.not_found()
    return decode_entries(connection, ref, rows[1:])


def _whole(connection: Connection, ref: BranchRef, calls: list[Entry]) -> list[Entry]:
    """Calls without those that broke off with their response: what is no JSON may also be what the model wrote."""
    unclear = {call.position: call.turn for call in calls if call.turn is not None and not _is_whole(call)}
    if not unclear:
        return calls
    parameters = ref.parameters(positions=sorted(set(unclear.values())))
    broken_off = set(connection.execute(broken_off_at(), parameters).scalars())
    return [call for call in calls if unclear.get(call.position) not in broken_off]


def _is_whole(call: Entry) -> bool:
    """Whether a call is certainly whole: its arguments are JSON, or its tool says that it is completed."""
    item = call.item()
    _, arguments = _name_and_arguments(item)
    if call.type == "function_call":
        return not isinstance(arguments, str)
    return item.get("status") != "in_progress"


def paired_by_client(entries: Sequence[Entry]) -> Pairing:
    """Which output answers which call, of all kinds."""
    return paired(entries, kinds=ALL_KINDS)


def _last_said(connection: Connection, ref: BranchRef, lineage: Lineage, upto: int | None = None) -> Any:
    """The last item of a branch, up to a position, that is somebody's turn."""
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
    rows = connection.execute(approvals_of(), ref.parameters(positions=calls))
    return {row.position: Approval(row.decision, row.reason, row.decided_by, row.created_at) for row in rows}


def pending_call(ref: BranchRef, call: Entry, approval: Approval | None) -> PendingCall:
    """A call as callers get it."""
    item = call.item()
    name, arguments = _name_and_arguments(item)
    item_id = own_id(item) or derived_id(call.type, ref.public_id, call.position)
    return PendingCall(call.position, item_id, call.call_id, name, arguments, approval, item_from_object(item))


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
