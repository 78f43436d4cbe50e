"""Passes over the items of a whole request: which output answers which call.

The rules are the same for all formats: an output answers the nearest earlier unanswered call of its id; a call without
an output gets a placeholder; an output without a call is dropped. A placeholder that a recorded request has shown to
the model stays, and the output that comes after it is told as user text at its own place. All of it depends only on
earlier items, so that what was rendered once stays as it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Entry, Snapshot

MISSING_OUTPUT: Final = "Tool result missing"

# item type -> the kind of call it makes; a provider's own item is a call when it has a call id
CALLS: Final = {"function_call": "function", "custom_tool_call": "custom", "provider_item": "function"}
# item type -> the kind of call it answers
OUTPUTS: Final = {"function_call_output": "function", "custom_tool_call_output": "custom"}
# kind of call -> item type of its output
OUTPUT_TYPES: Final = {kind: name for name, kind in OUTPUTS.items()}

# the `turn` of a message that was made for one request, and is no item: see `views`
LAYER: Final = -2

_position = attrgetter("position")


@dataclass(slots=True)
class Pairing:
    """Which output answers which call; keys are positions.

    Attributes:
        made: all calls, in order.
        answers: call -> its output, which came in time.
        calls: output -> its call, for outputs in time.
        late: output -> its call, for outputs that came after the placeholder was sent.
        unanswered: calls that get a placeholder.
        sent: the last position that a recorded request has shown.
        orphans: outputs whose calls are all answered.
        unknown: first outputs of an id that no call here has.
        alone: calls and outputs that are sent unpaired, because the imported request had them so; they are neither
            `unanswered` nor `orphans` nor `unknown`.
    """

    made: list[Entry] = field(default_factory=list)
    answers: dict[int, Entry] = field(default_factory=dict)
    calls: dict[int, Entry] = field(default_factory=dict)
    late: dict[int, Entry] = field(default_factory=dict)
    unanswered: dict[int, Entry] = field(default_factory=dict)
    sent: int = -1
    orphans: list[Entry] = field(default_factory=list)
    unknown: list[Entry] = field(default_factory=list)
    alone: set[int] = field(default_factory=set)

    def pending(self) -> set[int]:
        """Calls whose output may still come: nothing from their turns on is settled."""
        return {position for position in self.unanswered if position > self.sent}


def left_alone(snapshot: Snapshot, format_name: str) -> frozenset[int]:
    """Calls and outputs that an imported request had without their partners: they go back to its format like that."""
    imported = snapshot.imported
    if imported is None or imported.format != format_name:
        return frozenset()
    found = paired(upto(snapshot.entries, imported.count - 1))
    lonely = [*found.unanswered.values(), *found.orphans, *found.unknown]
    return frozenset(entry.position for entry in lonely if entry.origin == format_name)


def paired(entries: Sequence[Entry], alone: Collection[int] = ()) -> Pairing:
    """Pair calls with outputs, see the module's docstring; those in `alone` may stay without a partner."""
    found = Pairing()
    waiting: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        kind = entry.type
        if entry.seen is not None and entry.seen > found.sent:
            found.sent = entry.seen
        if kind == "message":
            continue
        if kind in CALLS and (entry.call_id is not None or kind != "provider_item"):
            found.made.append(entry)
            waiting.setdefault((CALLS[kind], entry.call_id or ""), []).append(entry)
        elif kind in OUTPUTS:
            key = (OUTPUTS[kind], entry.call_id or "")
            _answer(found, waiting.get(key), entry)
            waiting.setdefault(key, [])
    left = [*found.late.values(), *(call for calls in waiting.values() for call in calls)]
    found.unanswered = {call.position: call for call in sorted(left, key=_position)}
    if alone:
        _leave_alone(found, alone)
    return found


def _leave_alone(found: Pairing, alone: Collection[int]) -> None:
    lonely = [*found.unanswered.values(), *found.orphans, *found.unknown]
    found.alone = {entry.position for entry in lonely}.intersection(alone)
    found.unanswered = {position: call for position, call in found.unanswered.items() if position not in alone}
    found.orphans = [output for output in found.orphans if output.position not in alone]
    found.unknown = [output for output in found.unknown if output.position not in alone]


def _answer(found: Pairing, calls: list[Entry] | None, output: Entry) -> None:
    if calls is None:
        found.unknown.append(output)
    elif not calls:
        found.orphans.append(output)
    else:
        call = calls.pop()
        if found.sent >= call.position:
            found.late[output.position] = call
        else:
            found.answers[call.position] = output
            found.calls[output.position] = call


def is_layer(entry: Entry) -> bool:
    """Whether an entry was made for this request, so that nothing from it on is settled."""
    return entry.turn == LAYER


def upto(entries: Sequence[Entry], position: int | None) -> Sequence[Entry]:
    """The items up to a position, included."""
    if position is None or not entries or entries[-1].position <= position:
        return entries
    return entries[: bisect_right(entries, position, key=_position)]


def between_turns(entries: Sequence[Entry], upto: int | None = None) -> int | None:
    """The last position up to another one where a turn is over and every call has its output; None when there is none.

    Calls that never got an output are over where the next turn begins.
    """
    pairing = paired(entries)
    spans = [(call, output.position) for call, output in pairing.answers.items()]
    waiting = [call for call in pairing.unanswered.values() if _waits(call, entries)]
    spans += [(call.position, entries[-1].position + 1) for call in waiting]
    end = len(entries) if upto is None else bisect_right(entries, upto, key=_position)
    for index in range(end - 1, -1, -1):
        entry, after = entries[index], entries[index + 1] if index + 1 < len(entries) else None
        is_in_turn = after is not None and after.turn is not None and after.turn == entry.turn
        is_in_run = after is not None and entry.type in CALLS and after.type in CALLS and after.turn == entry.turn
        if not is_in_turn and not is_in_run and not any(call <= entry.position < out for call, out in spans):
            return entry.position
    return None


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


def told(output: JsonObject, call: JsonObject) -> JsonObject:
    """A tool output that came too late, as a user message that names its call."""
    content = output.get("output")
    parts = content if isinstance(content, list) else [{"type": "input_text", "text": content or ""}]
    text = f"The result of the tool call {call.get('name') or ''} ({call.get('call_id') or ''}) came in later:"
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}, *parts]}
