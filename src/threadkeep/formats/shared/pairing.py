"""Passes over the items of a whole request: which output answers which call.

The rules are the same for all formats: an output answers the nearest earlier unanswered call of its id, and of calls of
one turn with the same id the first one that is unanswered; a call without an output gets a placeholder; an output
without a call is dropped. A placeholder that a recorded request has shown to the model stays, and the output that comes
after it is sent as user text at its own place. All of it depends only on earlier items, so that what was rendered once
stays as it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Protocol

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tools import CUT_OFF
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.snapshots import Snapshot

MISSING_OUTPUT: Final = "Tool result missing"
CUT_OFF_OUTPUT: Final = "The tool call was cut off and was not run"
PLACEHOLDERS: Final = frozenset({MISSING_OUTPUT, CUT_OFF_OUTPUT})

# item type -> the kind of call it makes; a provider's own item is a call when it has a call id
CALLS: Final = {"function_call": "function", "custom_tool_call": "custom", "provider_item": "function"}
# item type -> the kind of call it answers
OUTPUTS: Final = {"function_call_output": "function", "custom_tool_call_output": "custom"}
# the same with the built-in tools that the application runs; no format needs their pairs
CLIENT_CALLS: Final = CALLS | {"computer_call": "computer", "shell_call": "shell", "apply_patch_call": "apply_patch"}
CLIENT_OUTPUTS: Final = OUTPUTS | {
    "computer_call_output": "computer", "shell_call_output": "shell", "apply_patch_call_output": "apply_patch",
}  # fmt: skip
# kind of call -> item type of its output
OUTPUT_TYPES: Final = {kind: name for name, kind in OUTPUTS.items()}

# the `turn` of a message that was made for one request and is not an item, see `views`: nothing from it on is final
LAYER: Final = -2

_position = attrgetter("position")


class Placed(Protocol):
    """Something that has a place in a conversation."""

    @property
    def position(self) -> int:
        """Its position."""

    @property
    def turn(self) -> int | None:
        """The first position of the turn that it is of, if any."""


@dataclass(slots=True)
class Pairing:
    """Which output answers which call; keys are positions."""

    all_calls: list[Entry] = field(default_factory=list)  # in order
    answers: dict[int, Entry] = field(default_factory=dict)  # call -> its output, which came in time
    calls: dict[int, Entry] = field(default_factory=dict)  # output -> its call, for outputs in time
    late: dict[int, Entry] = field(default_factory=dict)  # the same for those that came after the placeholder was sent
    unanswered: dict[int, Entry] = field(default_factory=dict)  # calls that get a placeholder
    sent: int = -1  # the last position that a recorded request has shown
    orphans: list[Entry] = field(default_factory=list)  # outputs whose calls are all answered
    unknown: list[Entry] = field(default_factory=list)  # first outputs of an id that no call here has
    # sent unpaired, because the imported request had them so; neither `unanswered` nor `orphans` nor `unknown`
    alone: set[int] = field(default_factory=set)

    def pending(self) -> set[int]:
        """Calls whose output may still come: nothing from their turns on is settled."""
        return {position for position in self.unanswered if position > self.sent}


def left_alone(snapshot: Snapshot, format_name: str) -> frozenset[int]:
    """Calls and outputs that an imported request had without their partners: they go back to its format like that."""
    imported = snapshot.imported
    if imported is None or imported.format != format_name:
        return frozenset()
    lonely = _lonely(paired(upto(snapshot.entries, imported.count - 1)))
    return frozenset(entry.position for entry in lonely if entry.origin == format_name)


def paired(
    entries: Sequence[Entry],
    alone: Collection[int] = (),
    calls: Mapping[str, str] = CALLS,
    outputs: Mapping[str, str] = OUTPUTS,
) -> Pairing:
    """Pair calls with outputs, see the module's docstring; those in `alone` may stay without a partner."""
    pairing = Pairing()
    waiting: dict[tuple[str, str], list[list[Entry]]] = {}  # calls without an output yet, twins together
    for entry in entries:
        kind = entry.type
        if entry.seen is not None and entry.seen > pairing.sent:
            pairing.sent = entry.seen
        if kind == "message":
            continue
        if kind in calls and (entry.call_id is not None or kind != "provider_item"):
            pairing.all_calls.append(entry)
            _wait(waiting.setdefault((calls[kind], entry.call_id or ""), []), entry)
        elif kind in outputs:
            key = (outputs[kind], entry.call_id or "")
            _answer(pairing, waiting.get(key), entry)
            waiting.setdefault(key, [])
    waiting_calls = [*pairing.late.values(), *(call for one in waiting.values() for twins in one for call in twins)]
    pairing.unanswered = {call.position: call for call in sorted(waiting_calls, key=_position)}
    if alone:
        _leave_alone(pairing, alone)
    return pairing


def _lonely(pairing: Pairing) -> list[Entry]:
    """Calls and outputs without a partner."""
    return [*pairing.unanswered.values(), *pairing.orphans, *pairing.unknown]


def _leave_alone(pairing: Pairing, alone: Collection[int]) -> None:
    pairing.alone = {entry.position for entry in _lonely(pairing)}.intersection(alone)
    pairing.unanswered = {position: call for position, call in pairing.unanswered.items() if position not in alone}
    pairing.orphans = [output for output in pairing.orphans if output.position not in alone]
    pairing.unknown = [output for output in pairing.unknown if output.position not in alone]


def _wait(calls: list[list[Entry]], call: Entry) -> None:
    if calls and are_twins(calls[-1][-1], call):
        calls[-1].append(call)
    else:
        calls.append([call])


def are_twins(call: Placed, after: Placed) -> bool:
    """Whether two calls with the same id are of one turn; of those that the user built: whether they are neighbours."""
    return after.turn == call.turn and (call.turn is not None or after.position == call.position + 1)


def in_order_of_answers(calls: Sequence[Entry]) -> list[Entry]:
    """Unanswered calls, those with the same id in the order in which the next outputs of it answer them."""
    waiting: dict[tuple[str, str], list[list[Entry]]] = {}
    for call in calls:
        _wait(waiting.setdefault(_id_of(call), []), call)
    ordered = {key: iter([call for twins in reversed(one) for call in twins]) for key, one in waiting.items()}
    return [next(ordered[_id_of(call)]) for call in calls]


def _id_of(call: Entry) -> tuple[str, str]:
    return CLIENT_CALLS[call.type], call.call_id or ""


def _answer(pairing: Pairing, calls: list[list[Entry]] | None, output: Entry) -> None:
    if calls is None:
        pairing.unknown.append(output)
    elif not calls:
        pairing.orphans.append(output)
    else:
        call = calls[-1].pop(0)
        if not calls[-1]:
            calls.pop()
        if pairing.sent >= call.position:
            pairing.late[output.position] = call
        else:
            pairing.answers[call.position] = output
            pairing.calls[output.position] = call


def placeholder_of(call: JsonObject) -> str:
    """What is sent as the output of a call that has none."""
    return CUT_OFF_OUTPUT if call.get("status") in CUT_OFF else MISSING_OUTPUT


def upto(entries: Sequence[Entry], position: int | None) -> Sequence[Entry]:
    """The items up to a position, included."""
    if position is None or not entries or entries[-1].position <= position:
        return entries
    return entries[: bisect_right(entries, position, key=_position)]


def between_turns(entries: Sequence[Entry], upto: int | None = None) -> int | None:
    """The last position (up to another) where a turn is over and every call has its output, or never gets one."""
    pairing = paired(entries)
    spans = [(call, output.position) for call, output in pairing.answers.items()]
    waiting = [call for call in pairing.unanswered.values() if _waits(call, entries)]
    spans += [(call.position, entries[-1].position + 1) for call in waiting]
    end = len(entries) if upto is None else bisect_right(entries, upto, key=_position)
    for index in reversed(range(end)):
        position = entries[index].position
        if not _goes_on(entries, index) and not any(call <= position < output for call, output in spans):
            return position
    return None


def _goes_on(entries: Sequence[Entry], index: int) -> bool:
    """Whether the next item is of the same turn, or another call of those that the user built."""
    if index + 1 == len(entries):
        return False
    entry, after = entries[index], entries[index + 1]
    return after.turn == entry.turn and (entry.turn is not None or (entry.type in CALLS and after.type in CALLS))


def _waits(call: Entry, entries: Sequence[Entry]) -> bool:
    """Whether nothing stands behind a call but its own turn and outputs, so that its output may still come."""
    later = entries[bisect_right(entries, call.position, key=_position) :]
    is_built = call.turn is None
    return all(e.type in OUTPUTS or (e.turn == call.turn and (not is_built or e.type in CALLS)) for e in later)


def turn_start(entries: Sequence[Entry], entry: Entry) -> int:
    """The position of the first item of an item's turn."""
    index = bisect_right(entries, entry.position, key=_position) - 1
    while index > 0 and entry.turn is not None and entries[index - 1].turn == entry.turn:
        index -= 1
    return entries[index].position


def run_end(entries: Sequence[Entry], call: Entry) -> int:
    """The position of the last item of a call's turn; of calls that the user built: of the last one in a row."""
    index = bisect_right(entries, call.position, key=_position) - 1
    while index + 1 < len(entries) and entries[index + 1].turn == call.turn:
        if call.turn is None and entries[index + 1].type not in CALLS:
            break
        index += 1
    return entries[index].position


def late_output_message(output: JsonObject, call: JsonObject) -> JsonObject:
    """A tool output that came too late, as a user message that names its call."""
    content = output.get("output")
    parts = content if isinstance(content, list) else [{"type": "input_text", "text": content or ""}]
    text = f"The result of the tool call {call.get('name') or ''} ({call.get('call_id') or ''}) came in later:"
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}, *parts]}
