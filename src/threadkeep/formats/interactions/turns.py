"""The steps of a request, written item by item.

* Outputs follow directly behind the calls that they answer; so do the placeholders of calls without one. What an
  imported request had elsewhere stays there.
* System text is gathered: the service has one for the whole request.
* A late output is sent as the user's text.

Source: Google's Gemini API reference, "Interactions"; "Function calling".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from threadkeep.domain import tool_names
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.interactions import steps
from threadkeep.formats.interactions.fields import NAME, RESULT, STEPS, SYSTEM_ROLES, THOUGHT
from threadkeep.formats.shared.pairing import LAYER, Pairing, placeholder_of
from threadkeep.formats.shared.parts import TEXTS, own_block, report_foreign
from threadkeep.formats.shared.rendering import WRITERS, Rendering, TurnWriter

CALLS: Final = frozenset({"function_call", "custom_tool_call"})


class SentCall(NamedTuple):
    """A call that was written: its item, and what it is named in the request."""

    entry: ItemEntry
    name: str
    call_id: str


class WrittenStep(NamedTuple):
    """A step of the request, and the position of the item that it stands for."""

    step: Any
    position: int
    turn: int | None
    is_placeholder: bool = False


class StepWriter(TurnWriter):
    """Writes steps item by item; the calls of the last answer wait for their outputs."""

    def __init__(self, rendering: Rendering, pairing: Pairing) -> None:
        super().__init__(rendering, pairing)
        self.steps: list[WrittenStep] = []
        self.system: list[str] = []
        self._calls: dict[int, SentCall] = {}  # all that were written, by position
        self._waiting: list[SentCall] = []
        self._turn: int | None = None
        self._call_ids: set[str] = set()
        self._closed = (0, frozenset[int]())  # how many steps there were behind the newest outputs, and these

    def write(self, entries: Sequence[ItemEntry]) -> None:
        """Write all items."""
        for entry in entries:
            if self._waiting and entry.seen is not None and entry.turn != self._turn:
                self.close()
            self._context.position = entry.position
            if entry.position in self._pairing.calls:
                self._output_in_time(entry)
            else:
                getattr(self, WRITERS.get(entry.type, "nothing"))(entry.item(), entry)
        self.close()
        self._context.position = None

    def stable(self) -> int:
        """How many steps no later append changes."""
        return len(self.steps) if self._unsettled is None else self._unsettled

    def _put(self, step: Any, entry: ItemEntry, *, is_placeholder: bool = False) -> None:
        if self._unsettled is None and (entry.turn == LAYER or is_placeholder):
            self._unsettled = len(self.steps)
        self.steps.append(WrittenStep(step, entry.position, entry.turn, is_placeholder))

    def message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message; system text is put aside."""
        role, context, content = str(item.get("role")), self._context, item.get("content") or ()
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        if role != "assistant":
            self.close()
        if entry.origin == NAME and role in STEPS:
            self._put(steps.own_message(item, context), entry)
            return
        sent = steps.contents(content, role, context, "content")
        if role in SYSTEM_ROLES:
            if any(part.get("thought_signature") is not None for part in content):
                context.loss("signature", "content", "The signature of a thought was left out: instructions have none.")
            self.system += steps.texts_of(sent)
            return
        if role not in STEPS:
            context.repair("role", "role", f"The format has no role {role!r}; the message was sent as the user's.")
        for signature in filter(None, [steps.signature_of(part) for part in content if part["type"] in TEXTS]):
            self._sign(signature, entry)
        if sent:
            self._put({"type": STEPS.get(role, STEPS["user"]), "content": sent}, entry)

    def _sign(self, signature: str, entry: ItemEntry) -> None:
        """Put a signature in the thought before, if that is of the same turn and has none, else in one of its own."""
        last = self.steps[-1] if self.steps else None
        is_thought = last is not None and isinstance(last.step, dict) and last.step.get("type") == THOUGHT
        if last is not None and is_thought and last.turn == entry.turn and "signature" not in last.step:
            self.steps[-1] = last._replace(step={**last.step, "signature": signature})
        else:
            self._put({"type": THOUGHT, "signature": signature}, entry)

    def reasoning(self, item: JsonObject, entry: ItemEntry) -> None:
        """The thoughts of a turn of the model."""
        for step in steps.thoughts(item, self._context):
            self._put(step, entry)

    def block(self, item: JsonObject, entry: ItemEntry) -> None:
        """A step that only this format knows."""
        payload = own_block(item, NAME, self._context, "")
        if payload is not None:
            self._put(payload, entry)

    def call(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call; one that came from this format goes back as it came."""
        context, is_own = self._context, entry.origin == NAME
        name, call_id = str(context.called(item, is_own=is_own) or ""), entry.call_id or ""
        if (not call_id or call_id in self._call_ids) and entry.position >= self._imported:
            context.repair("duplicate_call_id", "call_id", f"The call id {call_id!r} came before and became a hash.")
            call_id = f"call_{tool_names.hashed(call_id, entry.position)}"
        self._call_ids.add(call_id)
        step = steps.call_step(item, name, call_id, context)
        if "native" in item:
            report_foreign(item, NAME, context, "native")
            step = steps.as_it_came(step, item)
        if self._unsettled is None and entry.position in self._pending:
            self._unsettled = len(self.steps)
        if not is_own and (signature := steps.signature_of(item)) is not None:
            self._sign(signature, entry)
        self._put(step, entry)
        self._turn = entry.turn
        self._calls[entry.position] = SentCall(entry, name, call_id)
        self._waiting.append(self._calls[entry.position])

    def close(self) -> None:
        """Put the outputs of the waiting calls behind them."""
        waiting, self._waiting = self._waiting, []
        answers, position = self._pairing.answers, self._context.position
        pairs = [(output, call) for call in waiting if (output := answers.get(call.entry.position)) is not None]
        pairs = sorted(pairs, key=lambda pair: pair[0].position)
        for output, call in pairs:
            if output.position >= self._imported:
                self._result(output, call)
        self._context.position = position
        for call in waiting:
            if call.entry.position in self._pairing.unanswered:
                text = placeholder_of(call.entry.item())
                self._context.missing_output(call.entry, text)
                step = {"type": RESULT, "call_id": call.call_id, "name": call.name, "result": text}
                self._put(step, call.entry, is_placeholder=True)
        if waiting:
            self._closed = len(self.steps), frozenset(output.position for output, _ in pairs)

    def _result(self, output: ItemEntry, call: SentCall) -> None:
        self._context.position, item = output.position, output.item()
        if "native" in item:
            report_foreign(item, NAME, self._context, "native")
        if output.origin == NAME:
            step = steps.own_result(item, call.call_id, self._context)
        else:
            step = steps.result_step(item, call.name, call.call_id, self._context)
        self._put(step, output)

    def output(self, item: JsonObject, entry: ItemEntry) -> None:
        """An output without a call, or one that came after its placeholder was sent."""
        if entry.position in self._pairing.alone or (entry.origin == NAME and entry.position < self._imported):
            self._put(steps.own_result(item, entry.call_id or "", self._context), entry)
        elif (message := self._told(item, entry)) is not None:
            self.message(message, entry._replace(origin=None))
        else:
            self._context.orphan_output(entry)

    def _output_in_time(self, entry: ItemEntry) -> None:
        """It is written behind its call when that answer is over, which an output shows."""
        call = self._calls.get(self._pairing.calls[entry.position].position)
        if call is None:
            self._context.loss("orphan_output", "", f"The call {entry.call_id!r} could not be sent.")
        elif entry.position < self._imported:
            self._result(entry, call)
        elif call in self._waiting:
            self.close()
        elif self._closed[0] != len(self.steps) or entry.position not in self._closed[1]:
            self._context.moved_output(entry)

    def sent(self, shown: set[int | None] | None) -> list[Any]:
        """The steps that are sent: all, or those of some items, and placeholders for calls that still wait."""
        return [
            one.step
            for one in self.steps
            if shown is None or one.position in shown or (one.is_placeholder and one.position > self._pairing.sent)
        ]


def is_plain_input(step: Any) -> bool:
    """Whether a step is nothing but contents of the user."""
    return isinstance(step, dict) and step.keys() == {"type", "content"} and step["type"] == STEPS["user"]
