"""What must be done about the items of a request beyond sending them, seen from the whole history.

An unanswered call gets a placeholder, an output without its call is left out, and so is reasoning without the item it
led to; ids come once. What followed reasoning that is not sent goes without its id: the service refuses it with one
("was provided without its required 'reasoning' item"). What an imported request of this format had so stays so. A
vendor whose ids have a form gets no others.

Nearly always there is nothing to do: no item is mapped, every call is answered in time, all reasoning is followed by
what it led to, no id comes twice. `FastPath` sees that with one look at each item, and then nothing that comes later
changes anything either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import methodcaller
from typing import Any, Final

from threadkeep.domain import jsontext, tool_names
from threadkeep.domain.call_kinds import BY_CALL, CALL_ID, KINDS
from threadkeep.formats.canonical.entries import Glance, ItemEntry, PackedEntries, Snapshot, is_behind_gap
from threadkeep.formats.canonical.items import LONGEST_CALL_ID, NAME, sized_call_id
from threadkeep.formats.open_responses.fields import IDLESS
from threadkeep.formats.shared import pairing
from threadkeep.formats.shared.pairing import ALL_KINDS, Pairing

# item types that no reasoning leads to
NOT_LED_TO: Final = frozenset({"compaction", "item_reference", *ALL_KINDS.outputs})
# item types of calls that are paired without a call id, if they are, and of those that name another id
UNNAMED: Final = frozenset({*ALL_KINDS.calls, *ALL_KINDS.outputs}) - {*pairing.CALLS, *pairing.OUTPUTS}
NOT_BY_CALL_ID: Final = frozenset(
    name for kind in KINDS if kind.call_key != CALL_ID for name in (kind.call, kind.output)
)
# item types of outputs that may name their call under another key than the service reads
RENAMED: Final = frozenset({"local_shell_call_output"})
TRIGGER: Final = "compaction_trigger"  # which only the last item can be
# item types that say something about items that are not here
_REFERENCES: Final = frozenset({"item_reference", "provider_item", TRIGGER})
_TYPE, _POSITION, _TURN, _CALL_ID, _PAYLOAD, _REST = map(
    ItemEntry._fields.index, ("type", "position", "turn", "call_id", "payload", "rest")
)


# keys of reasoning that say more than its id, as they stand in payloads
_CONTENTS: Final = (b'"encrypted_content":"', b'"reasoning_text"')

NO_FORM: Final[Mapping[str, str]] = {}  # ids of items that are of any form
_ID: Final = b'{"id":"'  # how an item with an id begins, see wire_item
has_id: Final = methodcaller("startswith", _ID)


class FastPath:
    """A look at the items of a conversation, or at those that follow others."""

    def __init__(
        self,
        ids: Collection[bytes] = (),
        call_ids: Collection[str] = (),
        own_ids: Mapping[str, str] = NO_FORM,
        *,
        keeps_nothing: bool = False,
        gaps: Collection[int] = (),
    ) -> None:
        self.text = b""  # the items as JSON, with commas between them
        self.ids: set[bytes] = set()  # those that they use, as they stand in the payloads
        self.call_ids: set[str] = set()
        self._used_ids, self._used_call_ids, self._own_ids = ids, call_ids, own_ids
        self._keeps_nothing, self._gaps = keeps_nothing, gaps
        self._open: dict[tuple[str, str], int] = {}  # kind and id of calls that wait for their outputs -> position
        self._sent = -1  # the last position that a recorded request has shown, of the items while calls waited
        self._unseen = 0  # the index of the first item that was not looked at for that

    def takes(self, entries: Sequence[ItemEntry]) -> bool:
        """Whether all of them are sent as they are, whatever comes later."""
        if not entries:
            return True
        if isinstance(entries, PackedEntries):
            texts, others = entries.texts, entries.others
        else:
            columns = list(zip(*entries, strict=True))
            if columns[_REST].count(None) != len(entries):
                return False
            texts, others = columns[_PAYLOAD], _others(columns)
        with_ids = list(filter(has_id, texts))
        self.ids = ids_of(with_ids)
        if len(self.ids) < len(with_ids) or not self.ids.isdisjoint(self._used_ids):
            return False
        if not all(self._goes_through(entries, *other) for other in others) or self._open:
            return False
        if with_ids and self._loses_ids(entries, texts, others):
            return False
        self.text = entries.elements() if isinstance(entries, PackedEntries) else b",".join(texts)
        return True

    def _loses_ids(self, entries: Sequence[ItemEntry], texts: Sequence[bytes], others: Sequence[Glance]) -> bool:
        """Whether an item goes without its id."""
        if self._gaps or (self._own_ids and have_other_ids(texts, others, self._own_ids)):
            return True
        # An item of an answer may not be there, while others behind it are
        if isinstance(entries, PackedEntries):
            is_unbroken = entries.is_unbroken()
        else:
            is_unbroken = entries[-1].position - entries[0].position == len(entries) - 1
        return not is_unbroken and any(is_behind_gap(before, entry) for before, entry in pairwise(entries))

    def _goes_through(self, entries: Sequence[ItemEntry], index: int, kind: str, position: int, call_id: str) -> bool:
        """Whether an item that is not a message is sent as it is."""
        if not call_id and kind in UNNAMED:
            return True
        if kind in ALL_KINDS.outputs:
            call = self._open.pop((ALL_KINDS.outputs[kind], call_id), None)
            return call is not None and kind not in RENAMED and self._sent_before(entries, index + 1) < call
        if kind in ALL_KINDS.calls:
            is_new = call_id not in self._used_call_ids and call_id not in self.call_ids
            if not self._open:  # an earlier request cannot have shown it
                self._unseen = index + 1
            self._open[ALL_KINDS.calls[kind], call_id] = position
            self.call_ids.add(call_id)
            return is_new and 0 < len(call_id) <= LONGEST_CALL_ID
        if kind == "reasoning":
            return self._leads_on(entries, index)
        return kind not in _REFERENCES

    def _leads_on(self, entries: Sequence[ItemEntry], index: int) -> bool:
        """Whether what reasoning led to follows it, and the provider knows it."""
        is_known = not (self._keeps_nothing and lacks_content(entries[index].payload))
        if not is_known or index + 1 == len(entries):
            return False
        return entries[index].turn == entries[index + 1].turn and _is_led_to(entries[index + 1])

    def _sent_before(self, entries: Sequence[ItemEntry], end: int) -> int:
        for index in range(self._unseen, end):
            seen = entries.seen(index) if isinstance(entries, PackedEntries) else entries[index].seen
            if seen is not None and seen > self._sent:
                self._sent = seen
        self._unseen = end
        return self._sent


def _others(columns: Sequence[Sequence[Any]]) -> list[Glance]:
    """A glance at each item that is not a message."""
    looks = zip(columns[_TYPE], columns[_POSITION], columns[_CALL_ID], strict=True)
    return [
        (index, kind, position, call_id or "")
        for index, (kind, position, call_id) in enumerate(looks)
        if kind != "message"
    ]


def _is_led_to(entry: ItemEntry) -> bool:
    """Whether reasoning can lead to this item."""
    return entry.role == "assistant" if entry.type == "message" else entry.type not in NOT_LED_TO


@dataclass(slots=True)
class InputPlan:
    """What becomes of the items that are not simply sent, by position."""

    pairing: Pairing = field(default_factory=Pairing)
    ids: set[bytes] = field(default_factory=set)  # of all items, as they stand in their payloads
    left_out: dict[int, tuple[str, str]] = field(default_factory=dict)  # code and detail
    call_ids: dict[int, str] = field(default_factory=dict)  # another call id than the item's own, which came before
    answer_ids: dict[int, str] = field(default_factory=dict)  # outputs with the call id that their call came with
    idless: set[int] = field(default_factory=set)  # items sent without their id, which came before
    not_own: set[int] = field(default_factory=set)  # items sent without their id, which is not of the vendor's form
    followers: set[int] = field(default_factory=set)  # … because what they followed in their answer is not sent
    placeholders: dict[int, list[ItemEntry]] = field(default_factory=dict)  # behind this item, for these calls
    unsettled: int | None = None  # from here on a later append may change something

    def positions(self) -> set[int]:
        """The items that need more than a look at their row."""
        late = self.pairing.late
        other_ids = {*self.call_ids, *self.answer_ids, *self.idless, *self.not_own, *self.followers}
        positions = {*self.left_out, *other_ids, *late, *self.placeholders}
        return positions if self.unsettled is None else positions | {self.unsettled}


def imported_plan(snapshot: Snapshot) -> InputPlan:
    """What would be done about the items of an imported request of this format, which go back as it had them."""
    imported = snapshot.imported
    if imported is None or imported.format != NAME:
        return InputPlan()
    alone = Pairing(alone=set(pairing.left_alone(snapshot, NAME, ALL_KINDS)))
    entries = pairing.upto(snapshot.entries, imported.count - 1)
    return plan_of(entries, InputPlan(alone), keeps_nothing=keeps_nothing(snapshot))


def keeps_nothing(snapshot: Snapshot) -> bool:
    """Whether the request asks the provider not to store answers; then it knows no reasoning by its id alone."""
    return snapshot.settings.get("store") is False


def lacks_content(payload: bytes | None) -> bool:
    """Whether a reasoning item is nothing but an id and a summary."""
    return payload is not None and not any(key in payload for key in _CONTENTS)


def plan_of(
    entries: Sequence[ItemEntry],
    as_came: InputPlan,
    *,
    own_ids: Mapping[str, str] = NO_FORM,
    knows_more: bool = False,
    keeps_nothing: bool = False,
    gaps: Collection[int] = (),
) -> InputPlan:
    """What must be done about the items beyond sending them; `knows_more`: the provider has other items, too.

    `own_ids`: item type -> how ids of such items begin, for a vendor that takes no others. `gaps`: as of a snapshot.
    """
    pairs = pairing.paired(entries, as_came.pairing.alone, ALL_KINDS)
    plan = InputPlan(pairs)
    _leave_out_orphans(plan, entries, knows_more=knows_more)
    _leave_out_unanswerable(plan)
    # The service takes a compaction trigger as the last item only
    for entry in entries[:-1]:
        if entry.type == TRIGGER:
            plan.left_out[entry.position] = (TRIGGER, "A compaction trigger was left out: it is not the last item.")
    _leave_out_reasoning(plan, entries, keeps_nothing=keeps_nothing)
    _use_ids_once(plan, entries, has_form=bool(own_ids))
    _use_call_ids_once(plan)
    _excuse(plan, as_came)
    if own_ids:
        _leave_out_other_ids(plan, entries, own_ids)
    _find_followers(plan, entries, gaps)
    plan.followers -= as_came.followers
    for call in pairs.unanswered.values():
        if call.payload is not None and call.position not in plan.left_out:
            plan.placeholders.setdefault(pairing.run_end(entries, call), []).append(call)
    if pending := pairs.pending():
        plan.unsettled = pairing.turn_start(entries, pairs.unanswered[min(pending)])
    elif entries and entries[-1].type == TRIGGER:
        plan.unsettled = entries[-1].position
    return plan


def _excuse(plan: InputPlan, as_came: InputPlan) -> None:
    """Take out of a plan what the imported request gave reason for."""
    for position, (code, _) in as_came.left_out.items():
        if position in plan.left_out and plan.left_out[position][0] == code:
            del plan.left_out[position]
    for position in as_came.call_ids:
        plan.call_ids.pop(position, None)
    for position in as_came.answer_ids:
        plan.answer_ids.pop(position, None)
    plan.idless -= as_came.idless


def _leave_out_orphans(plan: InputPlan, entries: Sequence[ItemEntry], *, knows_more: bool) -> None:
    """Outputs whose call is not sent; what the provider keeps may hold a call that is not here."""
    pairs = plan.pairing
    references = (entry.position for entry in entries if entry.type == "item_reference")
    known_from = -1 if knows_more else min(references, default=None) if pairs.unknown else None
    reasons = {output.position: "its call has an output already" for output in pairs.orphans}
    for output in pairs.unknown:
        if known_from is None or output.position < known_from:
            reasons[output.position] = "there is no call with its id"
    for position, call in [*pairs.calls.items(), *pairs.late.items()]:
        if call.payload is None:
            reasons[position] = "its call cannot be sent"
    for position, reason in reasons.items():
        plan.left_out[position] = ("orphan_output", f"A tool output was left out: {reason}.")


def _leave_out_unanswerable(plan: InputPlan) -> None:
    """Calls without an output for which no placeholder can stand."""
    pairs = plan.pairing
    for call in (*pairs.unanswered.values(), *pairs.hosted.values()):
        kind = BY_CALL.get(call.type)
        if kind is not None and call.payload is not None and kind.is_refused(call.item()):
            detail = f"A call of type {call.type} was left out: it has no output, and nothing can stand for it."
            plan.left_out[call.position] = ("unanswered_call", detail)


def _leave_out_reasoning(plan: InputPlan, entries: Sequence[ItemEntry], *, keeps_nothing: bool) -> None:
    """The service refuses a reasoning item without the item of the same answer that it led to.

    It also does so where it has not kept it, and the item does not hold it.
    """
    turn, is_led_to = None, False
    for entry in reversed(entries):
        if entry.payload is None or entry.position in plan.left_out:
            continue
        if entry.type == "reasoning" and keeps_nothing and lacks_content(entry.payload):
            plan.left_out[entry.position] = ("reasoning", "Reasoning was left out: it has no encrypted content.")
        elif entry.type != "reasoning":
            turn, is_led_to = entry.turn, _is_led_to(entry)
        elif not is_led_to or turn != entry.turn:
            plan.left_out[entry.position] = ("reasoning_follower", "Reasoning was left out: what it led to is missing.")


def _find_followers(plan: InputPlan, entries: Sequence[ItemEntry], gaps: Collection[int]) -> None:
    """What followed reasoning in an answer, where that is not sent, whatever the reason; or something that is gone."""
    before: ItemEntry | None = None
    turn, is_missing = None, False
    for entry in entries:
        if entry.turn == pairing.LAYER:
            continue
        if entry.turn is None or entry.turn != turn:
            turn, is_missing = entry.turn, False
        is_missing = any((is_missing, entry.position in gaps, is_behind_gap(before, entry)))
        before = entry
        is_sent = entry.payload is not None and entry.position not in plan.left_out
        if entry.type == "reasoning":
            is_missing = not is_sent
        elif is_missing and is_sent and entry.type in IDLESS and has_id(entry.payload):
            plan.followers.add(entry.position)


def _leave_out_other_ids(plan: InputPlan, entries: Sequence[ItemEntry], own_ids: Mapping[str, str]) -> None:
    """The vendor refuses ids that others gave; the reasoning of others, which may be encrypted, goes with its id."""
    for entry in entries:
        if not has_other_id(entry.payload, entry.type, own_ids) or entry.position in plan.left_out:
            continue
        if entry.type == "reasoning":
            plan.left_out[entry.position] = ("reasoning", "Reasoning was left out: its id is another vendor's.")
        else:
            plan.not_own.add(entry.position)


def _use_ids_once(plan: InputPlan, entries: Sequence[ItemEntry], *, has_form: bool) -> None:
    """The later item goes without an id that came before, where it can; one answer of a host may repeat its own.

    Not so for a vendor whose ids have a form: it does not give one twice.
    """
    with_ids = [(entry, entry.payload) for entry in entries if entry.payload is not None and has_id(entry.payload)]
    plan.ids = ids_of(payload for _, payload in with_ids)
    if len(plan.ids) == len(with_ids):
        return
    used: dict[str, ItemEntry] = {}
    for entry, payload in with_ids:
        item_id = jsontext.decode(payload, entry.codec)["id"]
        if entry.position in plan.left_out:
            continue
        first = used.setdefault(item_id, entry)
        is_one_answer = entry.turn is not None and entry.turn == first.turn and entry.origin == NAME
        if first is entry or (is_one_answer and not has_form):
            continue
        if entry.type in IDLESS:
            plan.idless.add(entry.position)
        else:
            plan.left_out[entry.position] = ("duplicate_id", f"The id {item_id!r} was sent before.")


def used_call_ids(plan: InputPlan) -> set[str]:
    """The call ids of items, as they are sent."""
    return {sent_call_id(item) for item in (*plan.pairing.all_calls, *plan.pairing.unknown)}


def sent_call_id(entry: ItemEntry) -> str:
    """The call id that an item is sent with: of the right length, unless it goes back to the host that gave it."""
    is_kept = entry.origin == NAME or entry.type in NOT_BY_CALL_ID
    return entry.call_id or "" if is_kept else sized_call_id(entry.call_id)


def _use_call_ids_once(plan: InputPlan) -> None:
    """The service refuses a call id that comes twice; the later call and its output get a hash of it."""
    pairs = plan.pairing
    used = {sent_call_id(output) for output in pairs.unknown if output.position not in plan.left_out}
    for call in pairs.all_calls:
        if call.payload is None or call.type in NOT_BY_CALL_ID:
            continue
        call_id = sent_call_id(call)
        output = pairs.answers.get(call.position)
        if call_id in used:
            call_id = f"call_{tool_names.hashed(call_id, call.position)}"
            plan.call_ids[call.position] = call_id
            if output is not None:
                plan.call_ids[output.position] = call_id
        elif output is not None:
            # The service does not read it under the key of the SDK's type
            is_unread = output.type in RENAMED and output.item().get(CALL_ID) is None
            if is_unread or sent_call_id(output) != call_id:
                plan.answer_ids[output.position] = call_id
        used.add(call_id)


def ids_of(payloads: Iterable[bytes]) -> set[bytes]:
    """The ids of items that have one, each as it stands in the payload up to the first quote in it."""
    start = len(_ID)
    return {payload[: payload.find(b'"', start)] for payload in payloads}


def has_other_id(payload: bytes | None, kind: str, own_ids: Mapping[str, str]) -> bool:
    """Whether the id of an item is not of the form that the vendor's own have."""
    form = own_ids.get(kind)
    return form is not None and payload is not None and has_id(payload) and not payload.startswith(_ID + form.encode())


def have_other_ids(texts: Sequence[bytes], others: Iterable[Glance], own_ids: Mapping[str, str]) -> bool:
    """The same of items of which all but `others` are messages."""
    kinds = {index: kind for index, kind, _, _ in others}
    return any(has_other_id(text, kinds.get(index, "message"), own_ids) for index, text in enumerate(texts))
