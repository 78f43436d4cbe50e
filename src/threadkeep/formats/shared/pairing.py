"""Passes over the items of a whole request: which output answers which call.

The rules are the same for all formats: an output answers the nearest earlier unanswered call of its id, and of calls of
one turn with the same id the first one that is unanswered; a call without an output gets a placeholder; an output
without a call is dropped. A placeholder that a recorded request has shown to the model stays, and the output that comes
after it is sent as user text at its own place. All of it depends only on earlier items, so that what was rendered once
stays as it was.

`call_kinds` lists the kinds of calls. Most formats have functions and custom tools only (`FUNCTIONS`); Open Responses
has all of them (`ALL_KINDS`), and so have views and the store. Calls that the provider runs itself get no placeholder.
In Open Responses, asynchronous calls get none either: the model goes on without their outputs, which are in time
whenever they come. An output that names its tool in place of a call stands alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Protocol

from threadkeep.domain import call_kinds
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import ItemEntry, Snapshot


@dataclass(frozen=True, slots=True)
class PairedKinds:
    """The kinds of calls that are paired with outputs, by item type."""

    calls: Mapping[str, str]  # item type -> the kind of call it makes; a provider's item is a call if it has a call id
    outputs: Mapping[str, str]  # item type -> the kind of call it answers
    others: Mapping[str, Sequence[str]]  # … and further kinds that it answers
    has_asynchronous: bool  # whether asynchronous calls wait for their outputs without a placeholder


_FUNCTION_KINDS: Final = tuple(kind for kind in call_kinds.KINDS if kind.name in ("function", "custom"))
CALLS: Final = {**{kind.call: kind.name for kind in _FUNCTION_KINDS}, "provider_item": "function"}
OUTPUTS: Final = {kind.output: kind.name for kind in _FUNCTION_KINDS}
FUNCTIONS: Final = PairedKinds(CALLS, OUTPUTS, {}, has_asynchronous=False)
ALL_KINDS: Final = PairedKinds(
    CALLS | {kind.call: kind.name for kind in call_kinds.KINDS},
    {kind.output: kind.name for kind in call_kinds.KINDS},
    {kind.also_answered_by: [kind.name] for kind in call_kinds.KINDS if kind.also_answered_by is not None},
    has_asynchronous=True,
)
# calls that the application can be asked to answer, and the outputs with which it does
CLIENT_CALLS: Final = {name: kind for name, kind in ALL_KINDS.calls.items() if kind != "program"}
CLIENT_OUTPUTS: Final = {name: kind for name, kind in ALL_KINDS.outputs.items() if kind != "program"}

# the `turn` of a message that was made for one request and is not an item, see `views`: nothing from it on is final
LAYER: Final = -2

_position = attrgetter("position")


class HasPosition(Protocol):
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

    all_calls: list[ItemEntry] = field(default_factory=list)  # in order
    answers: dict[int, ItemEntry] = field(default_factory=dict)  # call -> its output, which came in time
    calls: dict[int, ItemEntry] = field(default_factory=dict)  # output -> its call, for outputs in time
    late: dict[int, ItemEntry] = field(
        default_factory=dict
    )  # the same for those that came after the placeholder was sent
    unanswered: dict[int, ItemEntry] = field(default_factory=dict)  # calls that get a placeholder
    asynchronous: dict[int, ItemEntry] = field(default_factory=dict)  # calls that wait for their output without one
    hosted: dict[int, ItemEntry] = field(
        default_factory=dict
    )  # calls of the provider's own tools, without their output
    by_name: dict[int, ItemEntry] = field(default_factory=dict)  # outputs that name a tool and no call
    sent: int = -1  # the last position that a recorded request has shown
    orphans: list[ItemEntry] = field(default_factory=list)  # outputs whose calls are all answered
    unknown: list[ItemEntry] = field(default_factory=list)  # first outputs of an id that no call here has
    # sent unpaired, because the imported request had them so; neither `unanswered` nor `orphans` nor `unknown`
    alone: set[int] = field(default_factory=set)

    def pending(self) -> set[int]:
        """Calls whose output may still come: nothing from their turns on is settled."""
        return {position for position in self.unanswered if position > self.sent}


def left_alone(snapshot: Snapshot, format_name: str, kinds: PairedKinds = FUNCTIONS) -> frozenset[int]:
    """Calls and outputs that an imported request had without their partners: they go back to its format like that."""
    imported = snapshot.imported
    if imported is None or imported.format != format_name:
        return frozenset()
    lonely = _lonely(paired(upto(snapshot.entries, imported.count - 1), kinds=kinds))
    return frozenset(entry.position for entry in lonely if entry.origin == format_name)


def paired(entries: Sequence[ItemEntry], alone: Collection[int] = (), kinds: PairedKinds = FUNCTIONS) -> Pairing:
    """Pair calls with outputs, see the module's docstring; those in `alone` may stay without a partner."""
    pairing, calls, outputs = Pairing(), kinds.calls, kinds.outputs
    waiting: dict[tuple[str, str], list[list[ItemEntry]]] = {}  # calls without an output yet, twins together
    for entry in entries:
        kind = entry.type
        if entry.seen is not None and entry.seen > pairing.sent:
            pairing.sent = entry.seen
        if kind == "message":
            continue
        if kind in calls and (entry.call_id is not None or kind in _NAMELESS):
            pairing.all_calls.append(entry)
            _wait(waiting.setdefault((calls[kind], entry.call_id or ""), []), entry)
        elif kind in outputs:
            _take_output(pairing, waiting, entry, kinds)
    waiting_calls = [*pairing.late.values(), *(call for one in waiting.values() for twins in one for call in twins)]
    for call in sorted(waiting_calls, key=_position):
        _list_unanswered(pairing, call, kinds)
    if alone:
        _leave_alone(pairing, alone)
    return pairing


# item types that are calls and outputs also without an id; what a provider runs itself needs none
_NAMELESS: Final = frozenset({*CALLS, *OUTPUTS}) - {"provider_item"}


def _take_output(
    pairing: Pairing, waiting: dict[tuple[str, str], list[list[ItemEntry]]], output: ItemEntry, kinds: PairedKinds
) -> None:
    """Pair an output with the call that it answers; an output may be of several kinds."""
    call_id, names = output.call_id or "", [kinds.outputs[output.type], *kinds.others.get(output.type, ())]
    key = next(((name, call_id) for name in names if (name, call_id) in waiting), (names[0], call_id))
    of_function = waiting.get(("function", call_id))
    if key not in waiting and of_function and of_function[-1][-1].type == "provider_item":
        key = ("function", call_id)  # only its provider knows it: outputs of functions and custom tools answer it
    # One of a function names its tool; others without the id of a call came from the provider's own tools
    is_by_name = output.call_id is None and (output.type not in _NAMELESS or bool(output.item().get("name")))
    if key in waiting or not is_by_name:
        _answer(pairing, waiting.get(key), output, kinds)
        waiting.setdefault(key, [])
    else:
        pairing.by_name[output.position] = output


def _list_unanswered(pairing: Pairing, call: ItemEntry, kinds: PairedKinds) -> None:
    if call.type in call_kinds.BY_CALL and call.payload is not None:
        item = call.item()
        if not call_kinds.is_answered_by_client(item):
            pairing.hosted[call.position] = call
            return
        if kinds.has_asynchronous and call_kinds.is_asynchronous(item):
            pairing.asynchronous[call.position] = call
            return
    pairing.unanswered[call.position] = call


def _lonely(pairing: Pairing) -> list[ItemEntry]:
    """Calls and outputs without a partner."""
    calls = [*pairing.unanswered.values(), *pairing.hosted.values()]
    return [*calls, *pairing.orphans, *pairing.unknown, *pairing.by_name.values()]


def _leave_alone(pairing: Pairing, alone: Collection[int]) -> None:
    pairing.alone = {entry.position for entry in _lonely(pairing)}.intersection(alone)
    pairing.unanswered = {position: call for position, call in pairing.unanswered.items() if position not in alone}
    pairing.hosted = {position: call for position, call in pairing.hosted.items() if position not in alone}
    pairing.by_name = {position: one for position, one in pairing.by_name.items() if position not in alone}
    pairing.orphans = [output for output in pairing.orphans if output.position not in alone]
    pairing.unknown = [output for output in pairing.unknown if output.position not in alone]


def _wait(calls: list[list[ItemEntry]], call: ItemEntry) -> None:
    if calls and are_twins(calls[-1][-1], call):
        calls[-1].append(call)
    else:
        calls.append([call])


def are_twins(call: HasPosition, after: HasPosition) -> bool:
    """Whether two calls with the same id are of one turn; of those that the user built: whether they are neighbours."""
    return after.turn == call.turn and (call.turn is not None or after.position == call.position + 1)


def in_order_of_answers(calls: Sequence[ItemEntry]) -> list[ItemEntry]:
    """Unanswered calls, those with the same id in the order in which the next outputs of it answer them."""
    waiting: dict[tuple[str, str], list[list[ItemEntry]]] = {}
    for call in calls:
        _wait(waiting.setdefault(_id_of(call), []), call)
    ordered = {key: iter([call for twins in reversed(one) for call in twins]) for key, one in waiting.items()}
    return [next(ordered[_id_of(call)]) for call in calls]


def _id_of(call: ItemEntry) -> tuple[str, str]:
    return ALL_KINDS.calls[call.type], call.call_id or ""


def _answer(pairing: Pairing, calls: list[list[ItemEntry]] | None, output: ItemEntry, kinds: PairedKinds) -> None:
    if calls is None:
        pairing.unknown.append(output)
    elif not calls:
        pairing.orphans.append(output)
    else:
        call = calls[-1].pop(0)
        if not calls[-1]:
            calls.pop()
        if pairing.sent >= call.position and _had_placeholder(call, kinds):
            pairing.late[output.position] = call
        else:
            pairing.answers[call.position] = output
            pairing.calls[output.position] = call


def _had_placeholder(call: ItemEntry, kinds: PairedKinds) -> bool:
    """Whether requests before its output had a placeholder for a call."""
    if call.payload is None or call.type not in call_kinds.BY_CALL:
        return True
    item = call.item()
    return call_kinds.is_answered_by_client(item) and not (kinds.has_asynchronous and call_kinds.is_asynchronous(item))


def upto(entries: Sequence[ItemEntry], position: int | None) -> Sequence[ItemEntry]:
    """The items up to a position, included."""
    if position is None or not entries or entries[-1].position <= position:
        return entries
    return entries[: bisect_right(entries, position, key=_position)]


def between_turns(entries: Sequence[ItemEntry], upto: int | None = None) -> int | None:
    """The last position (up to another) where a turn is over and every call has its output, or never gets one."""
    pairing = paired(entries, kinds=ALL_KINDS)
    spans = [(call, output.position) for call, output in pairing.answers.items()]
    waiting = [call for call in pairing.unanswered.values() if _waits(call, entries)]
    waiting += pairing.asynchronous.values()
    spans += [(call.position, entries[-1].position + 1) for call in waiting]
    end = len(entries) if upto is None else bisect_right(entries, upto, key=_position)
    for index in reversed(range(end)):
        position = entries[index].position
        if not _goes_on(entries, index) and not any(call <= position < output for call, output in spans):
            return position
    return None


def _goes_on(entries: Sequence[ItemEntry], index: int) -> bool:
    """Whether the next item is of the same turn, or another call of those that the user built."""
    if index + 1 == len(entries):
        return False
    entry, after = entries[index], entries[index + 1]
    return after.turn == entry.turn and (entry.turn is not None or (_is_call(entry) and _is_call(after)))


def _is_call(entry: ItemEntry) -> bool:
    return entry.type in ALL_KINDS.calls


def _waits(call: ItemEntry, entries: Sequence[ItemEntry]) -> bool:
    """Whether nothing stands behind a call but its own turn and outputs, so that its output may still come."""
    later = entries[bisect_right(entries, call.position, key=_position) :]
    is_built = call.turn is None
    outputs = ALL_KINDS.outputs
    return all(e.type in outputs or (e.turn == call.turn and (not is_built or _is_call(e))) for e in later)


def turn_start(entries: Sequence[ItemEntry], entry: ItemEntry) -> int:
    """The position of the first item of an item's turn."""
    index = bisect_right(entries, entry.position, key=_position) - 1
    while index > 0 and entry.turn is not None and entries[index - 1].turn == entry.turn:
        index -= 1
    return entries[index].position


def run_end(entries: Sequence[ItemEntry], call: ItemEntry) -> int:
    """The position of the last item of a call's turn; of calls that the user built: of the last one in a row."""
    index = bisect_right(entries, call.position, key=_position) - 1
    while index + 1 < len(entries) and entries[index + 1].turn == call.turn:
        if call.turn is None and not _is_call(entries[index + 1]):
            break
        index += 1
    return entries[index].position


def placeholder_of(call: JsonObject) -> str:
    """What the placeholder for the output of a call says."""
    return _kind_of(call).missing_text(call)


def shown_placeholder_of(call: JsonObject) -> str:
    """What people are shown in the place of the output of a call."""
    text = placeholder_of(call)
    return call_kinds.LEFT_BEHIND if text == call_kinds.MISSING_OUTPUT else text


def placeholder_item(call: JsonObject, call_id: str) -> JsonObject:
    """The output that stands for the one that a call lacks."""
    return _kind_of(call).placeholder(call, call_id)


def _kind_of(call: JsonObject) -> call_kinds.CallKind:
    return call_kinds.BY_CALL.get(call["type"], call_kinds.BY_CALL["function_call"])


def late_output_message(output: JsonObject, call: JsonObject | None) -> JsonObject:
    """A tool output that came too late, as a user message that names its call; without one, that names its tool."""
    if call is None:
        text = f"The result of the tool {output.get('name')}:"
    else:
        name = call.get("name") or ("" if call["type"] in CALLS else call["type"])
        text = f"The result of the tool call {name} ({call_kinds.reference_of(call) or ''}) came in later:"
    content = [{"type": "input_text", "text": text}, *call_kinds.shown_output(output)]
    return {"type": "message", "role": "user", "content": content}
