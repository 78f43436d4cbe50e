"""Decisions about calls: any process approves or denies one; a denied call gets the reason as its output."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db import models
from threadkeep.db.driver.inserting import insert_statement
from threadkeep.db.queries.items import entry_at
from threadkeep.domain import call_kinds, items, jsontext, stored
from threadkeep.domain.running import Approval, PendingCall
from threadkeep.errors import Conflict, InvalidOption, NotFound, shown
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.shared.pairing import CLIENT_CALLS, in_order_of_answers
from threadkeep.store.changes.feed import record_change
from threadkeep.store.reading.calls import (
    entries_with_call_id,
    is_waiting,
    paired_by_client,
    pending_call,
    read_decisions,
)
from threadkeep.store.work import item_rows, positions, refs, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.idempotency import IdempotencyKey, idempotent, keep_outcome
from threadkeep.store.writing.appending import AppendResult, NewItems

_HINT: Final = "pending_calls() lists the calls without an output."
_CUT_HINT: Final = "Requests answer it with a placeholder, so that the model can call the tool again."
_TWINS_HINT: Final = "Calls with the same id are decided about and answered in the order of pending_calls()."


def approve(handle: Handle, call: str | int, decided_by: str | None, key: str | None) -> PendingCall:
    """Approve a call; see `Conversation.approve`."""
    ref, wanted = handle.ref, validation.item_argument("call", call)
    by = validation.optional_identifier("decided_by", decided_by)
    once = IdempotencyKey.of(key, "approve", [wanted, by])

    def write(connection: Connection) -> PendingCall:
        def replay(outcome: jsontext.JsonObject) -> PendingCall:
            lineage = refs.get_lineage(connection, ref, refs.get_row(connection, ref))
            found = _read_here(connection, ref, lineage, outcome["position"])
            return pending_call(ref, found, read_decisions(connection, ref, [found.position])[found.position])

        now = datetime.now(UTC)
        if not positions.lock(connection, ref, now):
            raise ref.not_found()
        idempotent(connection, ref, once, replay)
        lineage = refs.lock_lineage(connection, ref)
        found, before = _get_open_call(connection, ref, lineage, wanted)
        decisions = read_decisions(connection, ref, [call.position for call in (*before, found)])
        if found.position in decisions:
            raise _decided_already(found, decisions[found.position])
        for other in before:
            if other.position not in decisions:
                raise _is_behind(found, other)
        if not (call_kinds.is_asynchronous(found.item()) or is_waiting(connection, ref, lineage, found.position)):
            problem = f"The call {shown(wanted)} waits no more: the model has gone on without it, and it would not run."
            raise Conflict(f"{problem} After a new message of the user, the model can call again.", hint=_HINT)
        approval = Approval("approved", None, by, now)
        record_change(connection, ref, more=[(models.approvals, [_decision_row(ref, found, approval)])])
        keep_outcome(connection, ref.scope.tenant, ref.key, once, now, kind="approval", position=found.position)
        return pending_call(ref, found, approval)

    return handle.transactions.write(write, is_repeatable=once is not None)


def deny(handle: Handle, call: str | int, reason: str, decided_by: str | None, key: str | None) -> stored.StoredItem:
    """Deny a call, and append the reason as its output; see `Conversation.deny`."""
    ref, wanted = handle.ref, validation.item_argument("call", call)
    by = validation.optional_identifier("decided_by", decided_by)
    text = validation.plain_text("reason", reason)
    once = IdempotencyKey.of(key, "deny", [wanted, text, by])

    def write(connection: Connection) -> tuple[AppendResult, NewItems]:
        def replay(outcome: jsontext.JsonObject) -> tuple[AppendResult, NewItems]:
            denied = {"type": outcome["call_type"], "caller": outcome.get("caller")}
            return AppendResult.of_outcome(outcome), _denial(denied, outcome["call_id"], text)

        now = datetime.now(UTC)
        reservation = positions.reserve_once(
            connection, ref, positions.NO_CHECK, now, positions.Counts(items=1), once, replay
        )
        found, before = _get_open_call(connection, ref, refs.lock_lineage(connection, ref), wanted)
        if before:
            raise _is_behind(found, before[0])
        earlier = read_decisions(connection, ref, [found.position]).get(found.position)
        denied = found.item()
        output = _denial(denied, found.call_id, text)
        if earlier is None:
            row = _decision_row(ref, found, Approval("denied", text, by, now))
            insert_statement(models.approvals).execute(connection, row)
        elif earlier.decision != "denied":  # one that was denied on another branch has its output there
            raise _decided_already(found, earlier)
        call = {"call_type": found.type, "call_id": found.call_id}  # it may be removed before this is repeated
        if denied.get("caller") is not None:
            call["caller"] = denied["caller"]
        return output.insert(connection, ref, reservation, once, now, **call), output

    result, output = handle.transactions.write(write, is_repeatable=once is not None)
    output.take_in(handle, result)
    return output.stored(ref, result)[0]


def _get_open_call(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, wanted: str | int
) -> tuple[ItemEntry, list[ItemEntry]]:
    """The call of that call id, item id or position, on this branch, and those that are answered before it.

    Of several calls with the call id, the one that the next output answers; Conflict if there is none.
    """
    entries: list[ItemEntry] = []
    if isinstance(wanted, str):
        entries = entries_with_call_id(connection, ref, lineage, wanted)
        position = _position_of(connection, ref, lineage, wanted, entries)
    else:
        position = wanted
    if position is not None:
        found = _read_here(connection, ref, lineage, position)
        _check_client(found, wanted)
        entries = [found] if found.call_id is None else entries_with_call_id(connection, ref, lineage, found.call_id)
    pairing = paired_by_client(entries)
    if not pairing.all_calls:
        raise NotFound(f"Branch {ref.branch} of {ref.public_id} has no call {shown(wanted)}.", hint=_HINT)
    answered = pairing.answers.keys() | {call.position for call in pairing.late.values()}
    waiting = in_order_of_answers([call for call in pairing.all_calls if call.position not in answered])
    before = [] if position is None else list(takewhile(lambda call: call.position != position, waiting))
    if len(before) == len(waiting):
        raise Conflict(f"The call {shown(wanted)} has an output already.", hint=_HINT)
    call = waiting[len(before)]
    _check_client(call, wanted)
    if call_kinds.is_cut_off(call.item()):
        raise Conflict(f"The call {shown(wanted)} was cut off with its answer; it must not be run.", hint=_CUT_HINT)
    return call, before


def _is_behind(call: ItemEntry, other: ItemEntry) -> Conflict:
    """That a decision about another call comes first: an output states the call id, and so answers that one."""
    problem = f"The call at position {call.position} has the call id {call.call_id!r} of the one at position"
    return Conflict(f"{problem} {other.position}, which is answered first.", hint=_TWINS_HINT)


def _position_of(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, wanted: str, entries: Sequence[ItemEntry]
) -> int | None:
    """The position of the item with an id; None where it is the call id of `entries`.

    A model writes both ids: if they name two calls, the decision is ambiguous.
    """
    position = refs.find_position(connection, ref, lineage, wanted)
    calls = [entry.position for entry in entries if entry.type in CLIENT_CALLS]
    if position is None or not calls or position in calls:
        return None if calls else position
    other, _ = _read_call(connection, ref, position)
    if other.type not in CLIENT_CALLS:
        return None
    problem = f"is the id of the item at position {position}, and the call id of another one, at {calls[-1]}."
    raise InvalidOption(problem, argument="call", hint="Give the position of the one that is meant.")


def _check_client(call: ItemEntry, wanted: str | int) -> None:
    """Raise InvalidOption for what is no call, or one whose output the provider gives."""
    if call.type not in CLIENT_CALLS or not call_kinds.is_answered_by_client(call.item()):
        given = "id" if isinstance(wanted, str) else "position"
        problem = f"is the {given} of an item of type {call.type!r}, not of a call that the application answers."
        raise InvalidOption(problem, argument="call", hint=_HINT)


def _read_here(connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, position: int) -> ItemEntry:
    """The item at a position of a branch; NotFound where it has none."""
    found, branch = _read_call(connection, ref, position)
    if not lineage.includes(ref.branch, position, branch):
        raise refs.position_not_found(ref, position, lineage.head)
    return found


def _read_call(connection: Connection, ref: refs.BranchRef, position: int) -> tuple[ItemEntry, int]:
    """The item at a position of the conversation, and its branch."""
    rows = entry_at().fetch_all(connection, ref.parameters(position=position))
    entries = item_rows.decode_entries(connection, ref, rows, is_latest=True)
    if not entries:
        raise NotFound(f"{ref.public_id} has no item at position {position}.", hint=_HINT)
    return entries[0], rows[0][item_rows.ENTRY_WIDTH]


def _denial(call: jsontext.JsonObject, call_id: str | None, reason: str) -> NewItems:
    """The output of a call that was denied."""
    kind = call_kinds.BY_CALL.get(call["type"], call_kinds.BY_CALL["function_call"])
    if kind.text_output is None:
        problem = f"is a call of type {call['type']!r}, whose output cannot be a text."
        raise InvalidOption(problem, argument="call", hint="Append its output with add_item(...).")
    output = kind.output_of(call, call_id, kind.text_output(reason))
    if kind.name == "function":
        output["status"] = "incomplete"
    return NewItems([items.item_from_object(output)], [item_rows.encode_item(output)])


def _decision_row(ref: refs.BranchRef, call: ItemEntry, approval: Approval) -> dict[str, Any]:
    values = {"decision": approval.decision, "reason": approval.reason, "decided_by": approval.decided_by}
    return ref.columns(position=call.position, **values, created_at=approval.decided_at)


def _decided_already(call: ItemEntry, earlier: Approval) -> Conflict:
    by = "" if earlier.decided_by is None else f" by {earlier.decided_by!r}"
    return Conflict(f"The call {call.call_id!r} was {earlier.decision} already{by}.", hint=_HINT)
