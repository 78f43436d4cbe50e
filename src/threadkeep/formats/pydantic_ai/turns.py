"""The messages as they are written item by item.

* What came from Pydantic AI goes back as it came, calls without returns included: an agent goes on with them.
* Every other item of the user is a request, all items of an answer are a response. Pydantic AI joins neighbours.
* Returns stand directly behind the response of their calls, all of them; a call without an output gets one that says
  so. An output that came too late is sent as the user's text.
* Arguments go as JSON text; those that are not JSON become ``{}``, which is reported.
* A return is named after its call; one that failed says so in its outcome.
* Signed thinking of Claude and encrypted reasoning of OpenAI go with the name of the provider that can read them, to
  which Pydantic AI sends them back; of other reasoning the text goes alone.

Source: Pydantic AI's documentation, "Messages and chat history"; its API reference, `pydantic_ai.messages`.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain import response, tool_names
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.pydantic_ai import own, parts
from threadkeep.formats.pydantic_ai.fields import NAME, REQUEST, RESPONSE
from threadkeep.formats.pydantic_ai.parts import texts, user_content
from threadkeep.formats.shared import arguments, pairing
from threadkeep.formats.shared.claude import BEDROCK, REDACTED, REDACTED_IDS, signer_of, thinking_blocks
from threadkeep.formats.shared.makers import CLAUDE_PLATFORMS, provider_name, vendor_of
from threadkeep.formats.shared.pairing import LAYER, Pairing, placeholder_of
from threadkeep.formats.shared.parts import own_block, report_foreign
from threadkeep.formats.shared.rendering import WRITERS, Rendering, TurnWriter
from threadkeep.formats.shared.reports import Context

_FAILED: Final = ("failed", "incomplete")


def tool_call(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """A call."""
    if "native" in item:
        report_foreign(item, NAME, context, "native")
    is_custom = item["type"] == "custom_tool_call"
    args: Any = arguments.object_arguments(item, context) if is_custom else arguments.sent_arguments(item, context)
    return {"part_kind": "tool-call", "tool_name": context.called(item), "args": args, "tool_call_id": call_id}


def tool_return(item: JsonObject, call: JsonObject, call_id: str, context: Context) -> JsonObject:
    """What a call returned."""
    if "native" in item:
        report_foreign(item, NAME, context, "native")
    context.caller(item)
    output = item.get("output")
    content: Any = parts.user_content(output, context, "output") if isinstance(output, list) else output or ""
    if isinstance(content, list) and all(isinstance(one, str) for one in content):
        content = "\n".join(content)
    part = {"part_kind": "tool-return", "tool_name": _name(call, context), "content": content, "tool_call_id": call_id}
    return part | ({"outcome": "failed"} if item.get("status") in _FAILED else {})


def missing_return(call: JsonObject, call_id: str, context: Context) -> JsonObject:
    """What stands for the return of a call that has none."""
    part = {"part_kind": "tool-return", "tool_name": _name(call, context), "tool_call_id": call_id}
    return part | {"content": pairing.placeholder_of(call), "outcome": "interrupted"}


def _name(call: JsonObject, context: Context) -> str:
    """The name that the call was sent with."""
    is_own = call.get("origin") == NAME
    return str(call.get("name") or own.UNKNOWN) if is_own else context.names.wire(tool_names.qualified_name(call))


def thoughts(item: JsonObject, context: Context, maker: response.Maker) -> list[JsonObject]:
    """Reasoning as thinking parts; what no provider could read is reported."""
    if "native" in item:
        report_foreign(item, NAME, context, "native")
    if (signer := signer_of(item)) is not None:
        return _signed(item, _named_signer(item, signer, maker), context)
    blocks = _blocks(item)
    text = "\n\n".join(text for block in blocks if isinstance(text := block.get("text", block.get("thinking")), str))
    encrypted = item.get("encrypted_content")
    if item.get("origin") == "open_responses" and encrypted:
        return [_encrypted(item, text, maker)]
    if encrypted or not text:
        context.loss("reasoning", "", "Reasoning was left out that only its provider can read.")
    return [_thinking(text)] if text else []


def _blocks(item: JsonObject) -> list[JsonObject]:
    lists = [found for key in ("summary", "content") if isinstance(found := item.get(key), list)]
    return [block for found in lists for block in found if isinstance(block, dict)]


def _named_signer(item: JsonObject, signer: str, maker: response.Maker) -> str:
    """The signer of thinking: sellers of Claude are named after the client for it, others after themselves."""
    provider = None if maker.provider is None else provider_name(maker.provider)
    is_claudes = provider is None or provider in CLAUDE_PLATFORMS or item.get("origin") == NAME
    return signer if is_claudes else str(provider)


def _encrypted(item: JsonObject, text: str, maker: response.Maker) -> JsonObject:
    """Reasoning that OpenAI, or another one with its API, has encrypted."""
    provider = vendor_of(maker.model, "open_responses") if maker.provider is None else provider_name(maker.provider)
    signed = {"signature": item["encrypted_content"], "provider_name": provider}
    return _thinking(text) | signed | ({"id": item["id"]} if item.get("id") else {})


def _signed(item: JsonObject, signer: str, context: Context) -> list[JsonObject]:
    """Thinking of Claude's."""
    blocks = thinking_blocks(item)
    parts = [part for block in blocks if (part := _thought(block, signer)) is not None]
    if len(parts) < max(len(blocks), 1):
        context.loss("reasoning", "", "Reasoning was left out that holds nothing to read.")
    return parts


def _thought(block: JsonObject, signer: str) -> JsonObject | None:
    signed = {"provider_name": signer}
    if block.get("type") == REDACTED:
        data = block.get("data")
        data = _decoded(data) if signer == BEDROCK else data
        return _thinking("") | signed | {"id": REDACTED_IDS.get(signer, REDACTED), "signature": data} if data else None
    text, signature = block.get("thinking"), block.get("signature")
    if not isinstance(text, str) or not (text or signature):
        return None
    return _thinking(text) | (signed | {"signature": signature} if signature else {})


def _decoded(data: Any) -> str | None:
    """The text that the bytes are which Bedrock encrypted thinking in."""
    try:
        return b64decode(data, validate=True).decode()
    except (TypeError, ValueError):
        return None


def _thinking(text: str) -> JsonObject:
    return {"part_kind": "thinking", "content": text}


_ROLES = ("user", "assistant", "system", "developer")


@dataclass(slots=True)
class PydanticTurn:
    """A message that is being written."""

    kind: str
    number: int | None = None  # the wire turn that its items came in; None for those that the user built
    parts: list[JsonObject] = field(default_factory=list)
    items: list[JsonObject] | None = None  # of a message that came from Pydantic AI
    is_settled: bool = True  # no later output changes what follows

    def goes_on(self, kind: str, entry: ItemEntry) -> bool:
        """Whether an item of that kind of message may be of this one."""
        return self.kind == kind and self.number == entry.turn

    def message(self) -> JsonObject:
        """The message."""
        return own.message_of(self.items) if self.items is not None else {"kind": self.kind, "parts": self.parts}


def own_kind(item: JsonObject, last: PydanticTurn) -> str:
    """The kind of message that an item of Pydantic AI is of; blocks, some of which are in both, are of the last one."""
    is_told = item["type"] != "provider_item" and last.number is None
    return own.kind_of(item) if is_told else last.kind


class PydanticWriter(TurnWriter):
    """Writes `turns` item by item."""

    def __init__(self, rendering: Rendering, pairing: Pairing) -> None:
        super().__init__(rendering, pairing)
        self.turns: list[PydanticTurn] = []
        unanswered = {call.position for call in pairing.all_calls if call.position in pairing.alone}
        self._pending |= {position for position in unanswered if position > pairing.sent}
        self._calls: dict[int, tuple[str, JsonObject]] = {}  # calls that wait for their returns: position -> id, call
        self._written: set[int] = set()  # positions of all calls that were written
        self._results: tuple[PydanticTurn, int] | None = None  # the newest request of returns, and how many it has

    def write(self, entries: Sequence[ItemEntry]) -> None:
        """Write all items."""
        for entry in entries:
            self._context.position = entry.position
            if self._calls and entry.seen is not None and entry.turn != self.turns[-1].number:
                self._answer(None)  # the request of an answer has shown them, with their returns
            if entry.origin == NAME:
                self._own(entry.item(), entry)
            else:
                getattr(self, WRITERS.get(entry.type, "nothing"))(entry.item(), entry)
        self._answer(None)
        self._context.position = None

    def stable(self) -> int:
        """How many messages no later append changes."""
        unsettled = next((index for index, turn in enumerate(self.turns) if not turn.is_settled), len(self.turns))
        return max(min(unsettled, len(self.turns) - 1), 0)

    def _own(self, item: JsonObject, entry: ItemEntry) -> None:
        """An item that came from Pydantic AI, in the message that it came in."""
        # The message that an item of Pydantic AI belongs to: the last one, or a new one
        last = self.turns[-1] if self.turns else None
        is_first = own.fields_of(item) is not None
        if last is not None and last.items is not None and not is_first and last.goes_on(own_kind(item, last), entry):
            last.items.append(item)
            turn = last
        else:
            self._answer(entry if entry.position in self._pairing.calls else None)
            self.turns.append(PydanticTurn(own.kind_of(item), entry.turn, items=[item]))
            turn = self.turns[-1]
        if entry.type == "function_call":
            self._written.add(entry.position)
            turn.is_settled = turn.is_settled and entry.position not in self._pending
            answer = self._pairing.answers.get(entry.position)
            if answer is not None and answer.origin != NAME:
                self._calls[entry.position] = entry.call_id or "", item

    def _turn(self, kind: str, entry: ItemEntry) -> PydanticTurn:
        """The message that an item of another origin belongs to: the last one, or a new one."""
        last = self.turns[-1] if self.turns else None
        is_joined = kind == RESPONSE or entry.turn is not None
        if last is not None and last.items is None and is_joined and last.goes_on(kind, entry):
            return last
        self._answer(None)
        self.turns.append(PydanticTurn(kind, entry.turn))
        return self.turns[-1]

    def _answer(self, output: ItemEntry | None) -> None:
        """The returns of the calls that wait for them; `output` is the one that is met first where it stands."""
        waiting, self._calls = self._calls, {}
        context, answers = self._context, self._pairing.answers
        position, parts = context.position, []
        for answer, (call_id, item) in sorted(
            ((answers[call], waiting[call]) for call in waiting if call in answers), key=lambda pair: pair[0].position
        ):
            if answer.origin != NAME:
                context.position = answer.position
                parts.append(tool_return(answer.item(), item, call_id, context))
        for call in [call for call in waiting if call in self._pairing.unanswered]:
            context.missing_output(self._pairing.unanswered[call], placeholder_of(waiting[call][1]))
            parts.append(missing_return(waiting[call][1], waiting[call][0], context))
        context.position = position
        if parts:
            self.turns.append(PydanticTurn(REQUEST, None if output is None else output.turn, parts))
            self._results = (self.turns[-1], len(parts))

    def message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message; one of an unknown role is the user's."""
        role, context = item.get("role"), self._context
        if role not in _ROLES:
            context.repair("role", "role", f"The format has no role {role!r}; the message was sent as the user's.")
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        content = item.get("content") or ()
        if role in ("assistant", "system", "developer"):
            kind = "text" if role == "assistant" else "system-prompt"
            parts: list[JsonObject] = [
                {"part_kind": kind, "content": text} for text in texts(content, context, "content")
            ]
        else:
            sent = user_content(content, context, "content")
            said = sent[0] if len(sent) == 1 and isinstance(sent[0], str) else sent
            parts = [{"part_kind": "user-prompt", "content": said}] if sent else []
        if parts:
            turn = self._turn(RESPONSE if role == "assistant" else REQUEST, entry)
            turn.parts += parts
            turn.is_settled = turn.is_settled and entry.turn != LAYER

    def call(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call; an id that another call of the response has becomes a hash."""
        turn, call_id = self._turn(RESPONSE, entry), entry.call_id or ""
        if not call_id or call_id in {used for used, _ in self._calls.values()}:
            call_id = f"call_{tool_names.hashed(call_id, entry.position)}"
            self._context.repair("duplicate_call_id", "call_id", f"The call id {entry.call_id!r} came before.")
        turn.parts.append(tool_call(item, call_id, self._context))
        turn.is_settled = turn.is_settled and entry.position not in self._pending
        self._calls[entry.position] = call_id, item
        self._written.add(entry.position)

    def output(self, item: JsonObject, entry: ItemEntry) -> None:
        """An output: with all others of its turn where it answers a call in time."""
        position, pairing = entry.position, self._pairing
        if (message := self._told(item, entry)) is not None:
            self.message(message, entry._replace(origin=None))
        elif (call := pairing.calls.get(position)) is None or call.position not in self._written:
            self._context.orphan_output(entry)
        elif call.position in self._calls:
            self._answer(entry)
        elif self._results != (self.turns[-1], len(self.turns[-1].parts)):
            self._context.moved_output(entry)

    def reasoning(self, item: JsonObject, entry: ItemEntry) -> None:
        """Thinking."""
        if parts := thoughts(item, self._context, response.maker_from(entry.maker or "")):
            self._turn(RESPONSE, entry).parts += parts

    def block(self, item: JsonObject, entry: ItemEntry) -> None:
        """A part that the user built for this format; of other formats' blocks none can be sent."""
        part = own_block(item, NAME, self._context, "")
        if isinstance(part, dict):
            kind = RESPONSE if own.is_in_response(part) else REQUEST
            self._turn(kind, entry).parts.append(part)
