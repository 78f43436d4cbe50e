"""The message list of Converse, and its system text.

* User and assistant alternate: neighbours of one role are joined. Calls of one response stay apart from another's.
* The results of all calls stand first in the user message directly behind them, wherever their items are.
* Thinking of a joined turn is left out, but for a turn that calls tools.
* Messages that hold nothing but blanks are left out; a document has a text beside it.
* System items are hoisted, but for those that stood among the messages of the request.
* What stood in the very request that is sent again is sent as it came.

Source: Amazon Bedrock's API reference, "Message"; its error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Entry, Snapshot
from threadkeep.formats.converse.content import ASSISTANT, OWN, SYSTEM, USER, Place, blocks_of, cache_point, own_object
from threadkeep.formats.converse.fields import NAME, ROLES, SYSTEM_ROLES
from threadkeep.formats.converse.items import reasoning_blocks, tool_result, tool_use
from threadkeep.formats.converse.turns import Turn, cleaned, is_blank, is_valid_id, joins, results_first
from threadkeep.formats.names import hashed
from threadkeep.formats.native import report_foreign
from threadkeep.formats.turns import CALLS, MISSING_OUTPUT, OUTPUTS, Pairing, is_layer, left_alone, paired, told

FILLER: Final = "..."  # what is said where the service wants a text, and there is none
IN_HISTORY: Final = "messages"  # how a system item says that it stood among the messages


class Writer:
    """Writes messages item by item; the last of them may still grow."""

    def __init__(self, snapshot: Snapshot, entries: Sequence[Entry], place: Place) -> None:
        imported = snapshot.imported
        self.turns: list[Turn] = []
        self.system: list[JsonObject] = []
        self.names: dict[str, None] = {}  # of the functions that were called
        self._place = place
        self._pairing: Pairing = paired(entries, left_alone(snapshot, NAME))
        self._pending = self._pairing.pending()
        self._came = imported.count if imported is not None and imported.format == NAME else 0
        self._thinkers = {entry.turn for entry in self._pairing.made}
        self._ids: dict[int, str] = {}  # position of a call -> its id on the wire
        self._used: set[str] = set()
        self._answered: set[int] = set()  # positions of calls whose result is written
        self._unsettled: int | None = None  # index of the first message that a later output may change

    def write(self, entries: Sequence[Entry]) -> tuple[list[JsonObject], int]:
        """The messages of all items, and how many of them no later append changes."""
        place = self._place
        for entry in entries:
            place.position = entry.position
            place.is_as_came = entry.origin == NAME and entry.position < self._came
            last = self.turns[-1] if self.turns else None
            if last is not None and last.calls and entry.seen is not None and entry.turn != last.turn:
                self._settle(last)  # an answer follows, whether or not something of it is shown
            WRITERS.get(entry.type, Writer.nothing)(self, entry.item(), entry)
        while self.turns and not self.turns[-1].is_settled:
            self._settle(self.turns[-1])
        place.position, place.is_as_came = None, False
        messages = [{"role": turn.role, "content": turn.blocks} for turn in self.turns]
        stable = max(len(messages) - 1, 0)  # whatever comes next may be joined to the last
        if self._unsettled is not None:
            stable = min(stable, self._unsettled)
        return self._led_by_user(messages, stable)

    def _led_by_user(self, messages: list[JsonObject], stable: int) -> tuple[list[JsonObject], int]:
        first = next((turn for turn in self.turns if turn.role in ROLES), None)
        if first is None or first.role == "user" or first.is_as_came:
            return messages, stable
        self._place.position = first.position
        self._place.mend("leading_assistant", "", "A user message was put first: the service begins with one.")
        self._place.position = None
        return [{"role": "user", "content": [{"text": FILLER}]}, *messages], stable + (stable > 0)

    # The message that an item goes to

    def _add(self, role: str, blocks: Sequence[JsonObject], entry: Entry, *, is_call: bool = False) -> Turn:
        """Put the blocks of an item into its message."""
        turn = self._turn_for(role, entry, is_call=is_call)
        turn.is_as_came = turn.is_as_came and self._place.is_as_came and turn.turn == entry.turn
        turn.turn, turn.is_settled = entry.turn, False
        turn.blocks += blocks
        return turn

    def _turn_for(self, role: str, entry: Entry, *, is_call: bool = False) -> Turn:
        while self.turns:
            last = self.turns[-1]
            if last.role == role and joins(last, entry, is_call=is_call):
                return last
            if last.is_settled and not (last.calls and role != "user"):
                break
            self._settle(last, role)
        turn = Turn(role, entry.turn, self._place.is_as_came, opened_by=entry.turn, position=entry.position)
        self.turns.append(turn)
        return turn

    def _settle(self, turn: Turn, follower: str = "") -> None:
        """Finish a message: answer the calls before it, and take it out when it says nothing."""
        turn.is_settled = True
        if turn.calls and follower != "user":
            self.turns.append(Turn("user", None, is_as_came=False))
            return
        if turn.role == "user":
            self._answer(turn)
        if turn.is_as_came or turn.role not in ROLES:
            return
        if all(is_blank(block) for block in turn.blocks):
            self.turns.pop()
            self._mend(turn.position, "blank_text", "A message of blanks was left out.")
        elif turn.role == "user":
            turn.blocks = results_first(turn.blocks)
            self._name_documents(turn)

    def _mend(self, position: int | None, code: str, detail: str) -> None:
        place, before = self._place, self._place.position
        place.position = position
        place.mend(code, "", detail)
        place.position = before

    def _name_documents(self, turn: Turn) -> None:
        """The service refuses a document without a text beside it."""
        kinds = {key for block in turn.blocks for key in block}
        if "document" in kinds and "text" not in kinds:
            turn.blocks.append({"text": FILLER})
            self._mend(turn.position, "document_text", "A text was put beside a document: the service wants one.")

    def _answer(self, turn: Turn) -> None:
        """Put the results of the calls of the message before, where they are missing, first."""
        calls = self.turns[-2].calls if len(self.turns) > 1 else []
        missing = [call for call in calls if call.position not in self._answered]
        if not missing:
            return
        place, before = self._place, (self._place.position, self._place.is_as_came)
        found: list[JsonObject] = []
        for call in missing:
            output = self._pairing.answers.get(call.position)
            self._answered.add(call.position)
            if output is None:
                detail = f"The call {call.call_id!r} has no output; {MISSING_OUTPUT!r} was sent."
                self._mend(call.position, "missing_output", detail)
                content = [{"text": MISSING_OUTPUT}]
                found.append({"toolResult": {"toolUseId": self._ids[call.position], "content": content}})
            else:
                place.position, place.is_as_came = output.position, False
                place.mend("moved_output", "", f"The output of {output.call_id!r} was moved behind its call.")
                found += self._result(output.item(), self._ids[call.position])
        place.position, place.is_as_came = before
        turn.blocks[:0] = found

    # Items

    def message(self, item: JsonObject, entry: Entry) -> None:
        """A message of anybody."""
        role, place = item.get("role"), self._place
        if "native" in item:
            report_foreign(item, NAME, place, "native")
        if role in SYSTEM_ROLES:
            self._say_as_system(item, entry)
            return
        is_own = entry.origin == NAME
        if role not in ROLES:
            place.mend("role", "role", f"Converse has no role {role!r}; the message was sent as the user's.")
            role = "user"
        mappers = OWN if is_own else ASSISTANT if role == "assistant" else USER
        blocks = blocks_of(item.get("content") or (), mappers, place, "content")
        if blocks or place.is_as_came:
            self._add(str(role), blocks, entry)
            if self._unsettled is None and is_layer(entry):
                self._unsettled = len(self.turns) - 1

    def _say_as_system(self, item: JsonObject, entry: Entry) -> None:
        spelling = item.get("spelling")
        blocks = blocks_of(item.get("content") or (), SYSTEM, self._place, "content")
        if not isinstance(spelling, dict) or spelling.get(NAME) != IN_HISTORY:
            self.system += blocks
        elif blocks:
            self._add("system", blocks, entry)

    def call(self, item: JsonObject, entry: Entry) -> None:
        """A call, in the message of its turn."""
        place = self._place
        if "native" in item:
            report_foreign(item, NAME, place, "native")
        name = item.get("name") if entry.origin == NAME else place.name(item.get("name"))
        block = tool_use(item, name, self._call_id(entry), place)
        turn = self._add("assistant", [block], entry, is_call=True)
        if isinstance(name, str):
            self.names.setdefault(name)
        if entry.position not in self._pairing.alone:
            turn.calls.append(entry)
        if self._unsettled is None and entry.position in self._pending:
            self._unsettled = len(self.turns) - 1

    def _call_id(self, entry: Entry) -> str:
        """The id of a call on the wire: valid, and not used before."""
        original = entry.call_id or ""
        found = original
        if not self._place.is_as_came:
            if not is_valid_id(original):
                found = cleaned(original, self._used)
                self._place.mend("call_id", "call_id", f"The call id {original!r} was sent as {found!r}.")
            if found in self._used:
                while found in self._used:
                    found = f"call_{hashed(found, entry.position)}"
                self._place.mend("duplicate_call_id", "call_id", f"The call id {original!r} was sent before.")
        self._used.add(found)
        self._ids[entry.position] = found
        return found

    def output(self, item: JsonObject, entry: Entry) -> None:
        """What a tool returned: a result behind its call, and text where it comes too late."""
        pairing, place, position = self._pairing, self._place, entry.position
        if position in pairing.late:
            detail = f"The output of {entry.call_id!r} came late and was sent as the user's text."
            place.mend("late_output", "", detail)
            self.message(told(item, pairing.late[position].item()), entry)
        elif position in pairing.alone:
            self._add("user", self._result(item, entry.call_id or ""), entry)
        elif (call := pairing.calls.get(position)) is None or call.position not in self._ids:
            place.lose("orphan_output", "", f"There is no unanswered call {entry.call_id!r} before the output.")
        elif call.position not in self._answered:  # else it was moved to its call
            self._answer_in_place(item, entry, call)

    def _answer_in_place(self, item: JsonObject, entry: Entry, call: Entry) -> None:
        turn = self._add("user", self._result(item, self._ids[call.position]), entry)
        self._answered.add(call.position)
        if not turn.is_as_came and results_first(turn.blocks) != turn.blocks:
            self._place.mend("moved_output", "", f"The output of {entry.call_id!r} was moved behind its call.")

    def _result(self, item: JsonObject, call_id: str) -> list[JsonObject]:
        if "native" in item:
            report_foreign(item, NAME, self._place, "native")
        return [tool_result(item, call_id, self._place), *cache_point(item)]

    def reasoning(self, item: JsonObject, entry: Entry) -> None:
        """Reasoning, before what it led to; thinking of a turn that was joined to another only with its calls."""
        blocks = reasoning_blocks(item, self._place)
        if not blocks:
            return
        turn = self._turn_for("assistant", entry)
        if turn.blocks and turn.opened_by != entry.turn and entry.turn not in self._thinkers:
            self._place.lose("reasoning", "", "Reasoning was left out: its message was joined to the one before.")
        else:
            self._add("assistant", blocks, entry)

    def block(self, item: JsonObject, entry: Entry) -> None:
        """A block that only this format knows, where it stood."""
        payload = own_object(item, self._place, "")
        if payload is not None:
            last = self.turns[-1].role if self.turns else "user"
            self._add(entry.role or last, [payload], entry)

    def nothing(self, _item: JsonObject, entry: Entry) -> None:
        """An item that the format has no form for."""
        self._place.lose("item", "", f"Converse has no item of type {entry.type!r}.")


# item type -> what writes it
WRITERS: Final[dict[str, Callable[[Writer, JsonObject, Entry], Any]]] = {
    "message": Writer.message,
    **dict.fromkeys(CALLS, Writer.call),
    **dict.fromkeys(OUTPUTS, Writer.output),
    "provider_item": Writer.block,
    "reasoning": Writer.reasoning,
    "compaction": Writer.nothing,
    "item_reference": Writer.nothing,
}
