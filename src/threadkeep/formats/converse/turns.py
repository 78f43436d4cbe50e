"""The message list of Converse, and its system text.

* User and assistant alternate: neighbours of one role are joined. Calls of one response stay apart from another's.
* The results of all calls stand first in the user message directly behind them, wherever their items are.
* Thinking of a joined turn is left out, but for a turn that calls tools.
* Messages that hold nothing but blanks are left out; a document has a text next to it.
* System items are hoisted, but for those that stood among the messages of the request.
* What stood in the very request that is sent again is sent as it came.

Source: Amazon Bedrock's API reference, "Message"; its error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.converse.calls import reasoning_blocks, tool_result, tool_use
from threadkeep.formats.converse.fields import NAME, ROLES, SYSTEM_ROLES
from threadkeep.formats.converse.joining import Turn, cleaned, is_blank, is_valid_id, joins, results_first
from threadkeep.formats.converse.parts import (
    ASSISTANT,
    OWN,
    SYSTEM,
    USER,
    WriteContext,
    blocks_of,
    cache_point,
    own_object,
)
from threadkeep.formats.shared.names import hashed
from threadkeep.formats.shared.pairing import (
    CALLS,
    LAYER,
    MISSING_OUTPUT,
    OUTPUTS,
    Pairing,
    late_output_message,
    left_alone,
    paired,
)
from threadkeep.formats.shared.parts import report_foreign
from threadkeep.formats.shared.rendering import Rendering

FILLER: Final = "..."  # the text where the service requires one and there is none
IN_HISTORY: Final = "messages"  # how a system item says that it stood among the messages


class Writer:
    """Writes messages item by item; the last of them may still grow."""

    def __init__(self, rendering: Rendering, context: WriteContext) -> None:
        self.turns: list[Turn] = []
        self.system: list[JsonObject] = []
        self.names: dict[str, None] = {}  # of the functions that were called
        self._context = context
        self._pairing: Pairing = paired(rendering.entries, left_alone(rendering.snapshot, NAME))
        self._pending = self._pairing.pending()
        self._imported = rendering.imported  # items before that go back as they came
        self._thinkers = {entry.turn for entry in self._pairing.all_calls}
        self._ids: dict[int, str] = {}  # position of a call -> its id on the wire
        self._used: set[str] = set()
        self._answered: set[int] = set()  # positions of calls whose result is written
        self._unsettled: int | None = None  # index of the first message that a later output may change

    def write(self, entries: Sequence[Entry]) -> tuple[list[JsonObject], int]:
        """The messages of all items, and how many of them no later append changes."""
        context = self._context
        for entry in entries:
            context.position = entry.position
            context.is_as_came = entry.origin == NAME and entry.position < self._imported
            last = self.turns[-1] if self.turns else None
            if last is not None and last.calls and entry.seen is not None and entry.turn != last.turn:
                self._settle(last)  # an answer follows, whether or not something of it is shown
            WRITERS.get(entry.type, Writer.nothing)(self, entry.item(), entry)
        while self.turns and not self.turns[-1].is_settled:
            self._settle(self.turns[-1])
        context.position, context.is_as_came = None, False
        messages = [{"role": turn.role, "content": turn.blocks} for turn in self.turns]
        stable = max(len(messages) - 1, 0)  # what comes next may be joined to the last message
        if self._unsettled is not None:
            stable = min(stable, self._unsettled)
        return self._led_by_user(messages, stable)

    def _led_by_user(self, messages: list[JsonObject], stable: int) -> tuple[list[JsonObject], int]:
        first = next((turn for turn in self.turns if turn.role in ROLES), None)
        if first is None or first.role == "user" or first.is_as_came:
            return messages, stable
        self._context.position = first.position
        self._context.repair("leading_assistant", "", "A user message was put first: the service begins with one.")
        self._context.position = None
        return [{"role": "user", "content": [{"text": FILLER}]}, *messages], stable + (stable > 0)

    # The message that an item goes to

    def _add(self, role: str, blocks: Sequence[JsonObject], entry: Entry, *, is_call: bool = False) -> Turn:
        """Put the blocks of an item into its message."""
        turn = self._turn_for(role, entry, is_call=is_call)
        turn.is_as_came = turn.is_as_came and self._context.is_as_came and turn.turn == entry.turn
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
        turn = Turn(role, entry.turn, self._context.is_as_came, opened_by=entry.turn, position=entry.position)
        self.turns.append(turn)
        return turn

    def _settle(self, turn: Turn, follower: str = "") -> None:
        """Finish a message: answer the calls before it, and take it out when it is empty."""
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
            self._repair(turn.position, "blank_text", "A message of white space was left out.")
        elif turn.role == "user":
            turn.blocks = results_first(turn.blocks)
            self._name_documents(turn)

    def _repair(self, position: int | None, code: str, detail: str) -> None:
        context, before = self._context, self._context.position
        context.position = position
        context.repair(code, "", detail)
        context.position = before

    def _name_documents(self, turn: Turn) -> None:
        """The service refuses a document without a text next to it."""
        kinds = {key for block in turn.blocks for key in block}
        if "document" in kinds and "text" not in kinds:
            turn.blocks.append({"text": FILLER})
            self._repair(
                turn.position,
                "document_text",
                "A text was added to the message of a document: it may not be alone.",
            )

    def _answer(self, turn: Turn) -> None:
        """Put the results of the calls of the message before, where they are missing, first."""
        calls = self.turns[-2].calls if len(self.turns) > 1 else []
        missing = [call for call in calls if call.position not in self._answered]
        if not missing:
            return
        context, before = self._context, (self._context.position, self._context.is_as_came)
        results: list[JsonObject] = []
        for call in missing:
            output = self._pairing.answers.get(call.position)
            self._answered.add(call.position)
            if output is None:
                context.missing_output(call, MISSING_OUTPUT)
                content = [{"text": MISSING_OUTPUT}]
                results.append({"toolResult": {"toolUseId": self._ids[call.position], "content": content}})
            else:
                context.position, context.is_as_came = output.position, False
                context.moved_output(output)
                results += self._result(output.item(), self._ids[call.position])
        context.position, context.is_as_came = before
        turn.blocks[:0] = results

    # Items

    def message(self, item: JsonObject, entry: Entry) -> None:
        """A message of anybody."""
        role, context = item.get("role"), self._context
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        if role in SYSTEM_ROLES:
            self._say_as_system(item, entry)
            return
        is_own = entry.origin == NAME
        if role not in ROLES:
            context.repair("role", "role", f"Converse has no role {role!r}; the message was sent as the user's.")
            role = "user"
        mappers = OWN if is_own else ASSISTANT if role == "assistant" else USER
        blocks = blocks_of(item.get("content") or (), mappers, context, "content")
        if blocks or context.is_as_came:
            self._add(str(role), blocks, entry)
            if self._unsettled is None and entry.turn == LAYER:
                self._unsettled = len(self.turns) - 1

    def _say_as_system(self, item: JsonObject, entry: Entry) -> None:
        spelling = item.get("spelling")
        blocks = blocks_of(item.get("content") or (), SYSTEM, self._context, "content")
        if not isinstance(spelling, dict) or spelling.get(NAME) != IN_HISTORY:
            self.system += blocks
        elif blocks:
            self._add("system", blocks, entry)

    def call(self, item: JsonObject, entry: Entry) -> None:
        """A call, in the message of its turn."""
        context = self._context
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        name = item.get("name") if entry.origin == NAME else context.name(item.get("name"))
        block = tool_use(item, name, self._call_id(entry), context)
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
        call_id = original
        if not self._context.is_as_came:
            if not is_valid_id(original):
                call_id = cleaned(original, self._used)
                self._context.repair("call_id", "call_id", f"The call id {original!r} was sent as {call_id!r}.")
            if call_id in self._used:
                while call_id in self._used:
                    call_id = f"call_{hashed(call_id, entry.position)}"
                self._context.repair("duplicate_call_id", "call_id", f"The call id {original!r} was sent before.")
        self._used.add(call_id)
        self._ids[entry.position] = call_id
        return call_id

    def output(self, item: JsonObject, entry: Entry) -> None:
        """What a tool returned: a result behind its call, and text where it comes too late."""
        pairing, context, position = self._pairing, self._context, entry.position
        if position in pairing.late:
            context.late_output(entry)
            self.message(late_output_message(item, pairing.late[position].item()), entry)
        elif position in pairing.alone:
            self._add("user", self._result(item, entry.call_id or ""), entry)
        elif (call := pairing.calls.get(position)) is None or call.position not in self._ids:
            context.orphan_output(entry)
        elif call.position not in self._answered:  # else it was moved to its call
            self._answer_in_place(item, entry, call)

    def _answer_in_place(self, item: JsonObject, entry: Entry, call: Entry) -> None:
        turn = self._add("user", self._result(item, self._ids[call.position]), entry)
        self._answered.add(call.position)
        if not turn.is_as_came and results_first(turn.blocks) != turn.blocks:
            self._context.moved_output(entry)

    def _result(self, item: JsonObject, call_id: str) -> list[JsonObject]:
        if "native" in item:
            report_foreign(item, NAME, self._context, "native")
        return [tool_result(item, call_id, self._context), *cache_point(item)]

    def reasoning(self, item: JsonObject, entry: Entry) -> None:
        """Reasoning, before what it led to; thinking of a turn that was joined to another only with its calls."""
        blocks = reasoning_blocks(item, self._context)
        if not blocks:
            return
        turn = self._turn_for("assistant", entry)
        if turn.blocks and turn.opened_by != entry.turn and entry.turn not in self._thinkers:
            self._context.loss("reasoning", "", "Reasoning was left out: its message was joined to the one before.")
        else:
            self._add("assistant", blocks, entry)

    def block(self, item: JsonObject, entry: Entry) -> None:
        """A block that only this format knows, where it stood."""
        payload = own_object(item, self._context, "")
        if payload is not None:
            last = self.turns[-1].role if self.turns else "user"
            self._add(entry.role or last, [payload], entry)

    def nothing(self, _item: JsonObject, entry: Entry) -> None:
        """An item that the format has no form for."""
        self._context.unknown_item(entry)


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
