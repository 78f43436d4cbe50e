"""The message list of Converse, and its system text.

* User and assistant alternate: neighbours of one role are joined. Calls of one response stay apart from another's.
* The results of all calls stand first in the user message directly behind them, wherever their items are.
* Thinking of a joined turn is left out, but for a turn that calls tools.
* Blank texts are left out, and messages that hold nothing else; a document has a text next to it.
* A filler of the user follows a last assistant message that the model would not continue.
* System items are hoisted, but for those that stood among the messages of the request.
* What stood in the very request that is sent again is sent as it came.
* Arguments of calls are an object; others become an empty one, which is reported.
* Reasoning is sent when it came from this format or from Anthropic's own, byte for byte; Claude requires a signature,
  which no other model takes, and some take no reasoning.

Source: Amazon Bedrock's API reference, "Message", "ToolUseBlock", "ToolResultBlock", "ReasoningContentBlock"; its error
messages, such as "This model doesn't support the reasoningContent.reasoningText.signature field" and "User messages
cannot contain reasoning content", as they were reported of these models.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.converse import parts
from threadkeep.formats.converse.fields import NAME, RESULT_STATUSES, ROLES, SYSTEM_ROLES
from threadkeep.formats.converse.parts import RESULT, WriteContext, blocks_of, is_blank, results_first
from threadkeep.formats.shared import arguments, claude, pairing, provider_rules
from threadkeep.formats.shared.claude import ANTHROPIC, BEDROCK, REDACTED, signer_of, thinking_blocks
from threadkeep.formats.shared.parts import MEDIA, native_keys, note, report_foreign
from threadkeep.formats.shared.rendering import WRITERS, Rendering, TurnWriter, needs_last_turn

_VALID_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_.:-]")
_SIGNERS: Final = (BEDROCK, ANTHROPIC)  # providers whose reasoning this service can read
SIGNED, UNSIGNED, NONE = "signed", "unsigned", "none"
# how a model that is not Claude is named -> the reasoning that it takes; others get what there is
TAKEN: Final = (
    (re.compile(r"nova|deepseek"), NONE),
    (re.compile(r"gpt-oss|qwen|kimi|minimax|glm|llama|mi[sx]tral|magistral|gemma|nemotron"), UNSIGNED),
)
# kind of reasoning that a model takes -> why other reasoning was left out
_REFUSALS: Final = {
    SIGNED: "Reasoning without a signature was left out.",
    UNSIGNED: "Reasoning with a signature was left out: it is Claude's, and the model is another one.",
    NONE: "Reasoning was left out: the model takes none back.",
}


def wire_id(call: ItemEntry, used: set[str], context: WriteContext) -> str:
    """The id of a call as it is sent: one that the service takes, and that was not used before."""
    original = call_id = call.call_id or ""
    if context.is_as_came:
        return original
    if not _VALID_ID.fullmatch(original):
        call_id = _REFUSED.sub("_", original)
        if not call_id.strip("_") or not _VALID_ID.fullmatch(call_id) or call_id in used:
            call_id = f"call_{hashed(original)}"
        context.repair("call_id", "call_id", f"The call id {original!r} was sent as {call_id!r}.")
    if call_id in used:
        while call_id in used:
            call_id = f"call_{hashed(call_id, call.position)}"
        context.repair("duplicate_call_id", "call_id", f"The call id {original!r} was sent before.")
    return call_id


def tool_use(item: JsonObject, name: Any, call_id: str, context: WriteContext) -> JsonObject:
    """The block of a call."""
    native = native_keys(item, NAME)
    value = {} if "input" in native else arguments.object_arguments(item, context)
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": value, **native}}


def tool_result(item: JsonObject, call_id: str, context: WriteContext) -> JsonObject:
    """The block of a tool's output."""
    context.caller(item)
    result: JsonObject = {"toolUseId": call_id}
    status = item.get("status")
    if isinstance(status, str) and status in RESULT_STATUSES:
        result["status"] = RESULT_STATUSES[status]
    elif status:
        context.loss("status", "status", f"Converse has no status {status!r} of an output.")
    result["content"] = _content(item, context)
    return {"toolResult": {**result, **native_keys(item, NAME)}}


def _content(item: JsonObject, context: WriteContext) -> list[JsonObject]:
    """The blocks of an output; where nothing of it can be sent, a text that says so."""
    output = item.get("output")
    if isinstance(output, dict):
        return [{"json": output}]
    if isinstance(output, list):
        blocks = blocks_of(output, RESULT, context, "output")
        notes = [{"text": note(part)} for part in output if part["type"] in MEDIA]
        if blocks or notes or context.is_as_came:
            return blocks or notes
    else:
        text = output if isinstance(output, str) else "" if output is None else dumps(output).decode()
        if text.strip() or context.is_as_came:
            return [{"text": text}]
    context.repair("blank_text", "output", f"An output without content was sent as {provider_rules.NO_OUTPUT!r}.")
    return [{"text": provider_rules.NO_OUTPUT}]


def reasoning_blocks(item: JsonObject, context: WriteContext) -> list[JsonObject]:
    """The blocks of a reasoning item that the service can read; the rest is reported."""
    content = thinking_blocks(item)
    if signer_of(item) not in _SIGNERS:
        context.loss("reasoning", "", "Reasoning was left out: it did not come from this service or from Anthropic's.")
        return []
    blocks = []
    kind = None if context.is_as_came else taken_by(context.model)
    for index, part in enumerate(content):
        block = _thinking(part, is_own=item.get("origin") == NAME, is_text=item.get("origin") == "pydantic_ai")
        is_signed = block is not None and ("redactedContent" in block or block["reasoningText"].get("signature"))
        if block is None or kind not in (None, SIGNED if is_signed else UNSIGNED):
            context.loss("reasoning", f"content[{index}]", _REFUSALS[kind or SIGNED])
        else:
            blocks.append({"reasoningContent": block})
    if not content:
        context.loss("reasoning", "", "Reasoning was left out: it holds nothing that the service can read.")
    return blocks


def taken_by(model: str) -> str | None:
    """The kind of reasoning that a model takes; None where that is not known."""
    return SIGNED if claude.is_claude(model) else next((kind for pattern, kind in TAKEN if pattern.search(model)), None)


def _thinking(part: JsonObject, *, is_own: bool, is_text: bool) -> JsonObject | None:
    """A block of reasoning; `is_text`: what is encrypted is held as the text that its bytes are."""
    if part.get("type") == REDACTED and isinstance(part.get("data"), str):
        return {"redactedContent": b64encode(part["data"].encode()).decode() if is_text else part["data"]}
    signature = part.get("signature")
    if part.get("type") != "thinking" or not (isinstance(signature, str) or is_own):
        return None
    signed = {} if signature is None else {"signature": signature}
    return {"reasoningText": {"text": part.get("thinking") or "", **signed}}


IN_HISTORY: Final = "messages"  # how a system item says that it stood among the messages


@dataclass(slots=True)
class ConverseTurn:
    """A message while it grows."""

    role: str
    turn: int | None  # the wire message or response of its newest item
    is_as_came: bool  # whether it is one message of the very request that is sent again
    blocks: list[JsonObject] = field(default_factory=list)
    calls: list[ItemEntry] = field(default_factory=list)  # those that need a result
    is_settled: bool = False
    opened_by: int | None = None  # the wire message or response of its oldest item
    position: int | None = None

    def takes(self, entry: ItemEntry, *, is_call: bool) -> bool:
        """Whether an item of the same role goes into it: not where calls of another turn wait for results."""
        if self.role not in ROLES:
            return self.turn is not None and self.turn == entry.turn
        return not self.calls or self.turn == entry.turn or (is_call and entry.turn is None)


class ConverseWriter(TurnWriter):
    """Writes messages item by item; the last of them may still grow."""

    def __init__(self, rendering: Rendering, context: WriteContext, *, thinks: bool) -> None:
        super().__init__(rendering, pairing.paired(rendering.entries, pairing.left_alone(rendering.snapshot, NAME)))
        self._context: WriteContext = context
        self._rules = rendering.rules
        self._thinks = thinks  # whether Claude does, which then continues no answer
        self.turns: list[ConverseTurn] = []
        self.system: list[JsonObject] = []
        self.names: dict[str, None] = {}  # of the functions that were called
        self._thinkers = {entry.turn for entry in self._pairing.all_calls}
        self._ids: dict[int, str] = {}  # position of a call -> its id on the wire
        self._used: set[str] = set()
        self._answered: set[int] = set()  # positions of calls whose result is written

    def write(self, entries: Sequence[ItemEntry]) -> tuple[list[JsonObject], int]:
        """The messages of all items, and how many of them no later append changes."""
        context = self._context
        for entry in entries:
            context.position = entry.position
            context.is_as_came = entry.origin == NAME and entry.position < self._imported
            last = self.turns[-1] if self.turns else None
            if last is not None and last.calls and entry.seen is not None and entry.turn != last.turn:
                self._settle(last)  # an answer follows, whether or not something of it is shown
            getattr(self, WRITERS.get(entry.type, "nothing"))(entry.item(), entry)
        while self.turns and not self.turns[-1].is_settled:
            self._settle(self.turns[-1])
        context.position, context.is_as_came = None, False
        messages = [{"role": turn.role, "content": turn.blocks} for turn in self.turns]
        stable = max(len(messages) - 1, 0)  # what comes next may be joined to the last message
        if self._unsettled is not None:
            stable = min(stable, self._unsettled)
        messages, stable = self._led_by_user(messages, stable)
        return self._ended_by_user(messages), stable

    def _ended_by_user(self, messages: list[JsonObject]) -> list[JsonObject]:
        last = next((turn for turn in reversed(self.turns) if turn.role in ROLES), None)
        if last is None or last.role == "user":
            return messages
        is_refused = self._thinks and not any("reasoningContent" in block for block in last.blocks[:1])
        if not needs_last_turn(self._rules, self._context, is_as_came=last.is_as_came, is_refused=is_refused):
            return messages
        return [*messages, {"role": "user", "content": [{"text": provider_rules.FILLER}]}]

    def _led_by_user(self, messages: list[JsonObject], stable: int) -> tuple[list[JsonObject], int]:
        first = next((turn for turn in self.turns if turn.role in ROLES), None)
        if first is None or first.role == "user" or first.is_as_came:
            return messages, stable
        self._repair(first.position, "leading_assistant", "A user message was put first: the service begins with one.")
        return [{"role": "user", "content": [{"text": provider_rules.FILLER}]}, *messages], stable + (stable > 0)

    # The message that an item goes to

    def _add(self, role: str, blocks: Sequence[JsonObject], entry: ItemEntry, *, is_call: bool = False) -> ConverseTurn:
        """Put the blocks of an item into its message."""
        turn = self._turn_for(role, entry, is_call=is_call)
        turn.is_as_came = turn.is_as_came and self._context.is_as_came and turn.turn == entry.turn
        turn.turn, turn.is_settled = entry.turn, False
        turn.blocks += blocks
        return turn

    def _turn_for(self, role: str, entry: ItemEntry, *, is_call: bool = False) -> ConverseTurn:
        while self.turns:
            last = self.turns[-1]
            if last.role == role and last.takes(entry, is_call=is_call):
                return last
            if last.is_settled and not (last.calls and role != "user"):
                break
            self._settle(last, role)
        turn = ConverseTurn(role, entry.turn, self._context.is_as_came, opened_by=entry.turn, position=entry.position)
        self.turns.append(turn)
        return turn

    def _settle(self, turn: ConverseTurn, follower: str = "") -> None:
        """Finish a message: answer the calls before it, and take it out when it is empty."""
        turn.is_settled = True
        if turn.calls and follower != "user":
            self.turns.append(ConverseTurn("user", None, is_as_came=False))
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
            # The service refuses a document without a text next to it
            kinds = {key for block in turn.blocks for key in block}
            if "document" in kinds and "text" not in kinds:
                turn.blocks.append({"text": provider_rules.FILLER})
                detail = "A text was added to the message of a document: it may not be alone."
                self._repair(turn.position, "document_text", detail)

    def _repair(self, position: int | None, code: str, detail: str) -> None:
        context, before = self._context, self._context.position
        context.position = position
        context.repair(code, "", detail)
        context.position = before

    def _answer(self, turn: ConverseTurn) -> None:
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
                text = pairing.placeholder_of(call.item())
                context.missing_output(call, text)
                content = [{"text": text}]
                results.append({"toolResult": {"toolUseId": self._ids[call.position], "content": content}})
            else:
                context.position, context.is_as_came = output.position, False
                context.moved_output(output)
                results += self._result(output.item(), self._ids[call.position])
        context.position, context.is_as_came = before
        turn.blocks[:0] = results

    # Items

    def message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message of any role."""
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
        mappers = parts.SYSTEM if role == "assistant" and not is_own else parts.USER
        blocks = blocks_of(item.get("content") or (), mappers, context, "content")
        if blocks or context.is_as_came:
            self._add(str(role), blocks, entry)
            if self._unsettled is None and entry.turn == pairing.LAYER:
                self._unsettled = len(self.turns) - 1

    def _say_as_system(self, item: JsonObject, entry: ItemEntry) -> None:
        spelling = item.get("spelling")
        blocks = blocks_of(item.get("content") or (), parts.SYSTEM, self._context, "content")
        if not isinstance(spelling, dict) or spelling.get(NAME) != IN_HISTORY:
            self.system += blocks
        elif blocks:
            self._add("system", blocks, entry)

    def call(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call, in the message of its turn."""
        context = self._context
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        name = context.called(item, is_own=entry.origin == NAME)
        self._ids[entry.position] = call_id = wire_id(entry, self._used, context)
        self._used.add(call_id)
        block = tool_use(item, name, call_id, context)
        turn = self._add("assistant", [block], entry, is_call=True)
        if isinstance(name, str):
            self.names.setdefault(name)
        if entry.position not in self._pairing.alone:
            turn.calls.append(entry)
        if self._unsettled is None and entry.position in self._pending:
            self._unsettled = len(self.turns) - 1

    def output(self, item: JsonObject, entry: ItemEntry) -> None:
        """What a tool returned: a result behind its call, and text where it comes too late."""
        pairs, context, position = self._pairing, self._context, entry.position
        if (message := self._told(item, entry)) is not None:
            self.message(message, entry)
        elif position in pairs.alone:
            self._add("user", self._result(item, entry.call_id or ""), entry)
        elif (call := pairs.calls.get(position)) is None or call.position not in self._ids:
            context.orphan_output(entry)
        elif call.position not in self._answered:  # else it was moved to its call
            turn = self._add("user", self._result(item, self._ids[call.position]), entry)
            self._answered.add(call.position)
            if not turn.is_as_came and results_first(turn.blocks) != turn.blocks:
                context.moved_output(entry)

    def _result(self, item: JsonObject, call_id: str) -> list[JsonObject]:
        if "native" in item:
            report_foreign(item, NAME, self._context, "native")
        return [tool_result(item, call_id, self._context), *parts.cache_point(item)]

    def reasoning(self, item: JsonObject, entry: ItemEntry) -> None:
        """Reasoning, before what it led to; thinking of a turn that was joined to another only with its calls."""
        blocks = reasoning_blocks(item, self._context)
        if not blocks:
            return
        turn = self._turn_for("assistant", entry)
        if turn.blocks and turn.opened_by != entry.turn and entry.turn not in self._thinkers:
            self._context.loss("reasoning", "", "Reasoning was left out: its message was joined to the one before.")
        else:
            self._add("assistant", blocks, entry)

    def block(self, item: JsonObject, entry: ItemEntry) -> None:
        """A block that only this format knows, where it stood."""
        payload = parts.own_object(item, self._context, "")
        if payload is not None:
            last = self.turns[-1].role if self.turns else "user"
            self._add(entry.role or last, [payload], entry)
