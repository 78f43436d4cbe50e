"""The input list: what is sent of each item once the whole request has been looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from threadkeep.domain.jsontext import JsonObject, decode, dumps
from threadkeep.domain.wire import Entry, ServerState, Snapshot
from threadkeep.formats.names import hashed
from threadkeep.formats.open_responses.fields import IDLESS, NAME
from threadkeep.formats.open_responses.items import sized_call_id, wire_item
from threadkeep.formats.open_responses.ordinary import ID, NOT_LED_TO
from threadkeep.formats.reports import Context
from threadkeep.formats.turns import (
    CALLS,
    MISSING_OUTPUT,
    OUTPUT_TYPES,
    Pairing,
    left_alone,
    paired,
    run_end,
    told,
    turn_start,
    upto,
)


@dataclass(slots=True)
class Plan:
    """What becomes of the items that are not simply sent, by position."""

    pairing: Pairing = field(default_factory=Pairing)
    ids: set[bytes] = field(default_factory=set)  # of all items, as they stand in their payloads
    left_out: dict[int, tuple[str, str]] = field(default_factory=dict)  # code and detail
    call_ids: dict[int, str] = field(default_factory=dict)  # another call id than the item's own
    idless: set[int] = field(default_factory=set)  # items sent without their id
    late: dict[int, Entry] = field(default_factory=dict)  # outputs told as text, with their calls
    placeholders: dict[int, list[Entry]] = field(default_factory=dict)  # behind this item, for these calls
    unsettled: int | None = None  # from here on a later append may change something

    def positions(self) -> set[int]:
        """The items that need more than a look at their row."""
        found = {*self.left_out, *self.call_ids, *self.idless, *self.late, *self.placeholders}
        return found if self.unsettled is None else found | {self.unsettled}


@dataclass(frozen=True, slots=True)
class AsImported:
    """What goes back as an imported request of this format had it.

    Attributes:
        alone: calls and outputs that had no partner there, by position.
        plan: what else would be done about its items.
    """

    alone: frozenset[int] = frozenset()
    plan: Plan = field(default_factory=Plan)

    def excuse(self, plan: Plan) -> None:
        """Take out of a plan what the imported request gave reason for."""
        for position, (code, _) in self.plan.left_out.items():
            if position in plan.left_out and plan.left_out[position][0] == code:
                del plan.left_out[position]
        for position in self.plan.call_ids:
            plan.call_ids.pop(position, None)
        plan.idless -= self.plan.idless


NOTHING_IMPORTED: Final = AsImported()


def as_imported(snapshot: Snapshot) -> AsImported:
    """What is not mended, because the imported request had it so."""
    imported = snapshot.imported
    if imported is None or imported.format != NAME:
        return NOTHING_IMPORTED
    alone = left_alone(snapshot, NAME)
    return AsImported(alone, planned(upto(snapshot.entries, imported.count - 1), AsImported(alone)))


def input_of(
    entries: Sequence[Entry], state: ServerState | None, context: Context, as_came: AsImported = NOTHING_IMPORTED
) -> tuple[list[bytes], int]:
    """The elements of `input` as JSON, and how many of them no later append changes."""
    plan = planned(entries, as_came, knows_more=state is not None)
    shown = entries if state is None else _news(entries, state)
    overdue = [] if state is None else list(_overdue(plan, shown, plan.pairing, context))
    elements, stable = rendered_elements(shown, plan, context)
    return [*overdue, *elements], stable


def rendered_elements(entries: Sequence[Entry], plan: Plan, context: Context) -> tuple[list[bytes], int]:
    """The items as the plan wants them sent, and how many of the elements no later append changes."""
    special = plan.positions()
    elements: list[bytes] = []
    stable = None
    for entry in entries:
        if entry.payload is not None and entry.position not in special and _is_sent_as_stored(entry):
            elements.append(entry.payload)
            continue
        context.position = entry.position
        if entry.position == plan.unsettled:
            stable = len(elements)
        elements.extend(_sent(entry, plan, context))
        elements.extend(_placeholders(plan.placeholders.get(entry.position, ()), plan, context))
    context.position = None
    return elements, len(elements) if stable is None else stable


def _is_sent_as_stored(entry: Entry) -> bool:
    """Whether there is nothing to report of an item: it says no more, or goes back to where it came from."""
    return entry.rest is None or (entry.origin == NAME and entry.type != "function_call")


def _news(entries: Sequence[Entry], state: ServerState) -> list[Entry]:
    """What the provider does not have: what follows its answer, and what came in while it was answering."""
    answer = next((entry for entry in reversed(entries) if _is_of_answer(entry, state)), None)
    if answer is None or answer.seen is None:
        return [entry for entry in entries if entry.position > state.boundary]
    seen = answer.seen
    return [
        entry
        for entry in entries
        if entry.position > state.boundary or (entry.position > seen and entry.turn != answer.turn)
    ]


def _is_of_answer(entry: Entry, state: ServerState) -> bool:
    return entry.position <= state.boundary and entry.seen is not None


def planned(entries: Sequence[Entry], as_came: AsImported = NOTHING_IMPORTED, *, knows_more: bool = False) -> Plan:
    """What must be done about the items beyond sending them; `knows_more`: the provider has others."""
    pairing = paired(entries, as_came.alone)
    plan = Plan(pairing, late=pairing.late)
    _leave_out_orphans(plan, entries, pairing, knows_more=knows_more)
    _leave_out_reasoning(plan, entries)
    _use_ids_once(plan, entries)
    _use_call_ids_once(plan, pairing)
    as_came.excuse(plan)
    for call in pairing.unanswered.values():
        if call.payload is not None:
            plan.placeholders.setdefault(run_end(entries, call), []).append(call)
    if pending := pairing.pending():
        plan.unsettled = turn_start(entries, pairing.unanswered[min(pending)])
    return plan


def _leave_out_orphans(plan: Plan, entries: Sequence[Entry], pairing: Pairing, *, knows_more: bool) -> None:
    """Outputs whose call is not sent; what the provider keeps may hold a call that is not here."""
    for output in pairing.orphans:
        plan.left_out[output.position] = (
            "orphan_output",
            "A tool output was left out: its call has an output already.",
        )
    references = (entry.position for entry in entries if entry.type == "item_reference")
    known_from = -1 if knows_more else min(references, default=None) if pairing.unknown else None
    for output in pairing.unknown:
        if known_from is None or output.position < known_from:
            plan.left_out[output.position] = (
                "orphan_output",
                "A tool output was left out: there is no call with its id.",
            )
    for position, call in [*pairing.calls.items(), *pairing.late.items()]:
        if call.payload is None:
            plan.left_out[position] = ("orphan_output", "A tool output was left out: its call cannot be sent.")


def _leave_out_reasoning(plan: Plan, entries: Sequence[Entry]) -> None:
    """The service refuses a reasoning item without the item of the same answer that it led to."""
    turn, is_led_to = None, False
    for entry in reversed(entries):
        if entry.payload is None or entry.position in plan.left_out:
            continue
        if entry.type != "reasoning":
            turn = entry.turn
            is_led_to = entry.role == "assistant" if entry.type == "message" else entry.type not in NOT_LED_TO
        elif not is_led_to or turn != entry.turn:
            plan.left_out[entry.position] = ("reasoning_follower", "Reasoning was left out: what it led to is missing.")


def _use_ids_once(plan: Plan, entries: Sequence[Entry]) -> None:
    """The service refuses an item id that comes twice; the later item goes without, where it can.

    A host that gives an id twice in one answer takes it back like that (x.ai does, for reasoning).
    """
    found = [entry for entry in entries if entry.payload is not None and entry.payload.startswith(ID)]
    plan.ids = {_id_text(entry.payload) for entry in found}
    if len(plan.ids) == len(found):
        return
    used: dict[str, int | None] = {}
    for entry in found:
        item_id = decode(entry.payload or b"", entry.codec)["id"]
        if entry.position in plan.left_out:
            continue
        if item_id in used:
            if entry.turn is not None and entry.origin == NAME and used[item_id] == entry.turn:
                continue
            if entry.type in IDLESS:
                plan.idless.add(entry.position)
            else:
                plan.left_out[entry.position] = ("duplicate_id", f"The id {item_id!r} was sent before.")
        else:
            used[item_id] = entry.turn


def used_call_ids(plan: Plan) -> set[str]:
    """The call ids of items, as they are sent."""
    return {sized_call_id(item.call_id) for item in (*plan.pairing.made, *plan.pairing.unknown)}


def _id_text(payload: bytes | None) -> bytes:
    """The id of an item, or what stands before the first quote in it."""
    return b"" if payload is None else payload[: payload.find(b'"', len(ID))]


def _use_call_ids_once(plan: Plan, pairing: Pairing) -> None:
    """The service refuses a call id that comes twice; the later call and its output get a hash of it."""
    used = {sized_call_id(output.call_id) for output in pairing.unknown if output.position not in plan.left_out}
    for call in pairing.made:
        if call.payload is None:
            continue
        call_id = sized_call_id(call.call_id)
        if call_id in used:
            call_id = f"call_{hashed(call_id, call.position)}"
            plan.call_ids[call.position] = call_id
            if call.position in pairing.answers:
                plan.call_ids[pairing.answers[call.position].position] = call_id
        used.add(call_id)


def _sent(entry: Entry, plan: Plan, context: Context) -> Iterator[bytes]:
    """An item as the plan wants it sent."""
    position = entry.position
    is_changed = position in plan.call_ids or position in plan.idless
    if position in plan.left_out:
        code, detail = plan.left_out[position]
        (context.lose if code == "orphan_output" else context.mend)(code, "", detail)
    elif position in plan.late:
        yield from _late(entry, plan.late[position], context)
    elif entry.rest is None and entry.payload is not None and not is_changed:
        yield entry.payload
    elif (item := wire_item(entry.item(), context)) is not None:
        yield dumps(_with_own_ids(item, position, plan, context) if is_changed else item)


def _with_own_ids(item: JsonObject, position: int, plan: Plan, context: Context) -> JsonObject:
    """An item without the ids that an earlier one has."""
    if position in plan.call_ids:
        context.mend("duplicate_call_id", "call_id", f"The call id {item['call_id']!r} was sent before.")
        item = {**item, "call_id": plan.call_ids[position]}
    if position in plan.idless:
        context.mend("duplicate_id", "id", f"The id {item['id']!r} was sent before and was left out here.")
        item = {key: value for key, value in item.items() if key != "id"}
    return item


def _late(output: Entry, call: Entry, context: Context) -> Iterator[bytes]:
    context.mend("late_output", "", f"The output of {call.call_id!r} came late and was sent as the user's text.")
    message = wire_item(told(output.item(), call.item()), context)
    if message is not None:
        yield dumps(message)


def _placeholders(calls: Sequence[Entry], plan: Plan, context: Context) -> Iterator[bytes]:
    for call in calls:
        context.position = call.position
        context.mend("missing_output", "", f"The call {call.call_id!r} has no output; {MISSING_OUTPUT!r} was sent.")
        call_id = plan.call_ids.get(call.position) or sized_call_id(call.call_id)
        yield dumps({"type": OUTPUT_TYPES[CALLS[call.type]], "call_id": call_id, "output": MISSING_OUTPUT})


def _overdue(plan: Plan, shown: Sequence[Entry], pairing: Pairing, context: Context) -> Iterator[bytes]:
    """Placeholders for calls that the provider has and still waits for."""
    here = {entry.position for entry in shown}
    for place, calls in plan.placeholders.items():
        if place not in here:
            yield from _placeholders([call for call in calls if call.position > pairing.sent], plan, context)
