"""The input list: what is sent of each item once the whole request has been looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from threadkeep.domain.jsontext import dumps
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.items import wire_item
from threadkeep.formats.canonical.keys import NAME
from threadkeep.formats.canonical.snapshots import ServerState
from threadkeep.formats.open_responses.plan import (
    NOTHING_IMPORTED,
    ImportedPlan,
    InputPlan,
    plan_of,
    sent_call_id,
)
from threadkeep.formats.shared.pairing import (
    CALLS,
    LAYER,
    MISSING_OUTPUT,
    OUTPUT_TYPES,
    Pairing,
    late_output_message,
)
from threadkeep.formats.shared.reports import Context


def input_of(
    entries: Sequence[Entry], state: ServerState | None, context: Context, as_came: ImportedPlan = NOTHING_IMPORTED
) -> tuple[list[bytes], int]:
    """The elements of `input` as JSON, and how many of them no later append changes."""
    plan = plan_of(entries, as_came, knows_more=state is not None)
    shown = entries if state is None else _news(entries, state)
    overdue = [] if state is None else list(_overdue(plan, shown, plan.pairing, context))
    elements, stable = rendered_elements(shown, plan, context)
    return [*overdue, *elements], stable


def rendered_elements(entries: Sequence[Entry], plan: InputPlan, context: Context) -> tuple[list[bytes], int]:
    """The items as the plan has them sent, and how many of the elements no later append changes."""
    special = plan.positions()
    elements: list[bytes] = []
    stable = None
    for entry in entries:
        if stable is None and entry.turn == LAYER:
            stable = len(elements)
        if entry.payload is not None and entry.position not in special and _is_sent_as_stored(entry):
            elements.append(entry.payload)
            continue
        context.position = entry.position
        if stable is None and entry.position == plan.unsettled:
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
        return [entry for entry in entries if entry.position > state.boundary or entry.turn == LAYER]
    seen = answer.seen
    return [
        entry
        for entry in entries
        if entry.position > state.boundary
        or (entry.position > seen and entry.turn != answer.turn)
        or entry.turn == LAYER
    ]


def _is_of_answer(entry: Entry, state: ServerState) -> bool:
    return entry.position <= state.boundary and entry.seen is not None


def _sent(entry: Entry, plan: InputPlan, context: Context) -> Iterator[bytes]:
    """What is sent of an item by the plan."""
    position = entry.position
    if position in plan.left_out:
        code, detail = plan.left_out[position]
        (context.loss if code == "orphan_output" else context.repair)(code, "", detail)
    elif position in plan.late:
        yield from _late(entry, plan.late[position], context)
    elif any(position in ids for ids in (plan.call_ids, plan.answer_ids, plan.idless)):
        yield from _with_other_ids(entry, plan, context)
    elif entry.rest is None and entry.payload is not None:
        yield entry.payload
    else:
        yield from _written(entry.item(), context)


def _written(item: dict[str, Any], context: Context) -> Iterator[bytes]:
    element = wire_item(item, context)
    if element is not None:
        yield dumps(element)


def _with_other_ids(entry: Entry, plan: InputPlan, context: Context) -> Iterator[bytes]:
    """An item without the ids that an earlier one has, or with the call id that its call came with."""
    position = entry.position
    call_id = plan.call_ids.get(position) or plan.answer_ids.get(position)
    item = wire_item(entry.item() if call_id is None else {**entry.item(), "call_id": "c"}, context)
    if item is None:
        return
    if call_id is not None:
        item = {**item, "call_id": call_id}
    if position in plan.call_ids:
        context.repair("duplicate_call_id", "call_id", f"The call id {entry.call_id!r} was sent before.")
    if position in plan.idless:
        context.repair("duplicate_id", "id", f"The id {item['id']!r} was sent before and was left out here.")
        item = {key: value for key, value in item.items() if key != "id"}
    yield dumps(item)


def _late(output: Entry, call: Entry, context: Context) -> Iterator[bytes]:
    context.late_output(output)
    yield from _written(late_output_message(output.item(), call.item()), context)


def _placeholders(calls: Sequence[Entry], plan: InputPlan, context: Context) -> Iterator[bytes]:
    for call in calls:
        context.missing_output(call, MISSING_OUTPUT)
        call_id = plan.call_ids.get(call.position) or sent_call_id(call)
        yield dumps({"type": OUTPUT_TYPES[CALLS[call.type]], "call_id": call_id, "output": MISSING_OUTPUT})


def _overdue(plan: InputPlan, shown: Sequence[Entry], pairing: Pairing, context: Context) -> Iterator[bytes]:
    """Placeholders for calls that the provider has and still waits for."""
    here = {entry.position for entry in shown}
    for position, calls in plan.placeholders.items():
        if position not in here:
            yield from _placeholders([call for call in calls if call.position > pairing.sent], plan, context)
