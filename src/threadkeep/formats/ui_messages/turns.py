"""The messages as they are written item by item.

* What came from UIMessages goes back as it came. A call that was answered here since has its output in its part.
* All that the model says between two messages of the user is one message of the assistant, with a step for each answer
  and an id made of the position of its first item. Calls that wait for their output are `input-available`; those that
  were cut off, or that others than their output followed, are errors that say so.
* Ids, encrypted reasoning and signatures stand in the metadata of the provider that gave them, as its package of the AI
  SDK writes them.

Source: the AI SDK, `UIMessage`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from threadkeep.domain import response, tool_names, tools
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.running import Approval
from threadkeep.formats.canonical.blocks import made_medium
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.canonical.view import canonical_item, named_thoughts
from threadkeep.formats.shared import arguments, makers
from threadkeep.formats.shared.answer_writing import CALLS, free_id, has_failed
from threadkeep.formats.shared.pairing import LAYER, Pairing, placeholder_of, shown_placeholder_of
from threadkeep.formats.shared.parts import own_block, report_foreign
from threadkeep.formats.shared.rendering import WRITERS, Rendering, TurnWriter
from threadkeep.formats.ui_messages import fields, hosted, own, parts

_SYSTEM = ("system", "developer")


@dataclass(slots=True)
class DraftMessage:
    """A message that is being written."""

    role: str
    keys: JsonObject
    place: int  # the position of its first item
    parts: list[Any] = field(default_factory=list)
    turn: int | None = None  # of the last item of an answer
    has_outputs: bool = False  # whether an output has come since the last step began
    is_settled: bool = True  # no later output changes what follows

    def message(self) -> JsonObject:
        """The message."""
        return {**self.keys, "role": self.role, "parts": self.parts}


class UiWriter(TurnWriter):
    """Writes `messages` item by item."""

    def __init__(self, rendering: Rendering, pairing: Pairing, *, has_metadata: bool = True) -> None:
        """`has_metadata`: whether ids and signatures of providers are shown, of conversations of other origin.

        Without them, it is for people, who read something else in the place of an output that never came.
        """
        super().__init__(rendering, pairing)
        self._has_metadata = has_metadata
        self.decisions: Mapping[int, Approval] = {}  # about calls, by their positions
        self.asking: Collection[int] = ()  # positions of calls that run once they are approved
        self.messages: list[DraftMessage] = []
        self._calls: dict[int, tuple[DraftMessage, JsonObject]] = {}  # position of a call -> where it was written
        self._ids: set[str] = set()

    def write(self, entries: Sequence[ItemEntry]) -> None:
        """Write all items."""
        for entry in entries:
            self._context.position = entry.position
            item = entry.item()
            if own.spelling_of(item) is not None or (entry.type == "provider_item" and entry.origin == fields.NAME):
                self._own(item, entry)
            else:
                self._begin_answer(entry)
                getattr(self, WRITERS.get(entry.type, "nothing"))(item, entry)
        self._context.position = None
        for position, call in self._pairing.unanswered.items():
            if position in self._calls:
                self._unanswered(call, *self._calls[position])

    def stable(self) -> int:
        """How many messages no later append changes."""
        messages = self.messages
        unsettled = next((index for index, one in enumerate(messages) if not one.is_settled), len(messages))
        return max(min(unsettled, len(messages) - 1), 0)

    # Messages

    def _open(self, role: str, entry: ItemEntry, keys: JsonObject | None = None) -> DraftMessage:
        """Begin a message."""
        if keys is None:
            keys = {"id": free_id(entry.position, self._ids)}
        if isinstance(keys.get("id"), str):
            self._ids.add(keys["id"])
        self.messages.append(DraftMessage(role, keys, entry.position, is_settled=entry.turn != LAYER))
        return self.messages[-1]

    def _answer(self, entry: ItemEntry) -> DraftMessage:
        """The message of the assistant that an item is of, with the step that it begins."""
        last = self.messages[-1] if self.messages else None
        message = last if last is not None and last.role == "assistant" else self._open("assistant", entry)
        if message.has_outputs or (entry.turn is not None and entry.turn != message.turn):
            message.parts.append(dict(fields.STEP))
        message.turn, message.has_outputs = entry.turn, False
        return message

    def _begin_answer(self, entry: ItemEntry) -> None:
        """Begin the message or step of an answer with its first item, whether or not pages see that."""
        last = self.messages[-1] if self.messages else None
        is_begun = last is not None and last.role == "assistant" and last.turn == entry.turn
        if entry.seen is not None and not is_begun:
            self._answer(entry)

    def _own(self, item: JsonObject, entry: ItemEntry) -> None:
        """An item that came from a UIMessage."""
        spelled = own.spelling_of(item) or {}
        if entry.type == "function_call_output":
            self._put_output(item, entry, own.output_keys(item))
            return
        message = self._message_of(item, entry, is_steering="part" in spelled)
        message.parts += [dict(fields.STEP)] * spelled.get("steps", 0)
        written = own.parts_of(item)
        message.parts += written
        message.turn, message.has_outputs = entry.turn, False
        if entry.type == "function_call":
            self._put_call(entry, message, written[0])

    def _message_of(self, item: JsonObject, entry: ItemEntry, *, is_steering: bool) -> DraftMessage:
        """The message that an item of a UIMessage is of: the one that it begins, or the last one."""
        keys = own.message_of(item)
        if keys is not None:
            rest = {key: value for key, value in keys.items() if key != "role"}
            return self._open(str(keys.get("role") or ""), entry, rest)
        if entry.type == "message" and item.get("role") != "assistant" and not is_steering:
            return self._open(str(item.get("role")), entry)
        last = self.messages[-1] if self.messages else None
        return last if last is not None and last.role == "assistant" else self._open("assistant", entry)

    def message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message; one of an unknown role is the user's."""
        role, context = item.get("role"), self._context
        if "native" in item:
            report_foreign(item, fields.NAME, context, "native")
        written = parts.written_parts(item.get("content") or (), context, "content", is_annotated=role == "assistant")
        if role == "assistant":
            message = self._answer(entry) if written else None
            written = self._annotated(item, entry, written) + hosted.sources_in(item, entry)
        else:
            if role not in ("user", *_SYSTEM):
                context.repair("role", "role", f"The format has no role {role!r}; the message was sent as the user's.")
            if role in _SYSTEM:
                written = [part for part in written if self._is_system_text(part)]
            message = self._open("system" if role in _SYSTEM else "user", entry) if written else None
        if message is not None:
            message.parts += written

    def _is_system_text(self, part: Any) -> bool:
        if _is_of(part, "text"):
            return True
        self._context.loss("media", "content", "A system message has texts alone.")
        return False

    def _annotated(self, item: JsonObject, entry: ItemEntry, written: list[Any]) -> list[Any]:
        """The parts of an answer with what is known of its texts: the id of the item, and their annotations."""
        content = [part for part in item.get("content", ()) if part["type"] != "provider_item" or made_medium(part)]
        provider, values = self._provider(entry), own.openai_keys(item) if entry.origin == "open_responses" else {}
        for part, wire in zip(content, written, strict=False) if self._has_metadata else ():
            keys = {"annotations": "annotations", "thoughtSignature": "thought_signature"}
            said = values | {name: part[key] for name, key in keys.items() if part.get(key)}
            if said and _is_of(wire, "text", "file"):
                key = provider or ("google" if "thoughtSignature" in said else "openai")
                wire[fields.METADATA] = {**wire.get(fields.METADATA, {}), key: said}
        return [{**part, "state": _state_of(item)} if _is_of(part, "text") else part for part in written]

    def _provider(self, entry: ItemEntry) -> str | None:
        """The key of the metadata of the provider that gave an item; None where no package writes any."""
        if entry.origin not in fields.PROVIDERS:
            return None
        maker = response.maker_from(entry.maker or "")
        named = None if maker.provider is None else makers.provider_name(maker.provider)
        return fields.PROVIDERS[entry.origin] if named is None else named

    # Calls

    def _put_call(self, entry: ItemEntry, message: DraftMessage, part: JsonObject) -> None:
        message.is_settled = message.is_settled and entry.position not in self._pairing.unanswered
        self._calls[entry.position] = message, part
        if part.get("state") in fields.ANSWERED and entry.position not in self._pairing.answers:
            approval = part.pop("approval", None)
            is_asked = isinstance(approval, dict) and isinstance(approval.get("approved"), bool)
            part["state"] = fields.RESPONDED if is_asked else fields.AVAILABLE
            part |= {"approval": approval} if is_asked else {}
            for key in ("preliminary", "rawInput"):
                part.pop(key, None)
            part.setdefault("input", {})
        self._put_approval(entry, part)

    def _put_approval(self, entry: ItemEntry, part: JsonObject) -> None:
        """Say in a call that it waits for an approval, or what was decided about it."""
        asked: Any = part.get("approval")
        asked = asked if isinstance(asked, dict) else {"id": fields.approval_id(part["toolCallId"])}
        if entry.position in self.asking:
            part |= {"state": fields.REQUESTED, "approval": asked}
        if (decision := self.decisions.get(entry.position)) is not None:
            part["approval"] = {**asked, "approved": decision.decision == "approved"}
            if part["state"] in (fields.AVAILABLE, fields.REQUESTED) and part["approval"]["approved"]:
                part["state"] = fields.RESPONDED

    def call(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call, which waits for its output."""
        context = self._context
        if "native" in item:
            report_foreign(item, fields.NAME, context, "native")
        is_custom = item["type"] == "custom_tool_call"
        given: Any = item.get("input") or "" if is_custom else arguments.object_arguments(item, context)
        part: JsonObject = {
            "type": f"{fields.STATIC}{context.called(item)}",
            "toolCallId": entry.call_id or f"call_{tool_names.hashed('', entry.position)}",
            "state": fields.AVAILABLE,
            "input": given,
        }
        provider, values = self._provider(entry), {}
        if entry.origin == "open_responses" and item.get("id"):
            values["itemId"] = item["id"]
        if item.get("thought_signature") is not None:
            values["thoughtSignature"] = item["thought_signature"]
            provider = provider or "google"
        part |= {fields.CALL_METADATA: {provider: values}} if values and self._has_metadata else {}
        message = self._answer(entry)
        message.parts.append(part)
        self._put_call(entry, message, part)

    def output(self, item: JsonObject, entry: ItemEntry) -> None:
        """An output, which becomes part of its call."""
        context, output = self._context, item.get("output")
        if "native" in item:
            report_foreign(item, fields.NAME, context, "native")
        context.caller(item)
        is_named = entry.position in self._pairing.by_name and entry.seen is None
        if is_named and (message := self._told(item, entry)) is not None:
            self.message(message, entry._replace(origin=None))
            return
        value: Any = parts.output_value(output, context)
        is_failed = has_failed(item)
        said = output if isinstance(output, str) else value if isinstance(value, str) else dumps(value).decode()
        self._put_output(item, entry, {"errorText": said} if is_failed else {"output": value})

    def _put_output(self, item: JsonObject, entry: ItemEntry, keys: JsonObject) -> None:
        """Write an output into the part of its call."""
        call = self._pairing.calls.get(entry.position) or self._pairing.late.get(entry.position)
        if call is None or call.position not in self._calls:
            self._context.orphan_output(entry)
            return
        message, part = self._calls.pop(call.position)
        message.has_outputs = True
        if own.spelling_of(item) is None or part.get("state") not in (*fields.ANSWERED, fields.RESPONDED):
            part["state"] = fields.ERROR if "errorText" in keys else fields.OUTPUT
            part.setdefault("input", {})
            if isinstance(approval := part.get("approval"), dict):
                is_denied = "errorText" in keys and approval.get("approved") is not True
                part["approval"] = {**approval, "approved": not is_denied}
                if is_denied:
                    part["approval"]["reason"], part["state"], keys = keys["errorText"], fields.DENIED, {}
        part.update(keys)

    def _unanswered(self, call: ItemEntry, message: DraftMessage, part: JsonObject) -> None:
        """Say in a call that it was cut off, or that its output never came."""
        item = call.item()
        is_cut = tools.was_cut_off(item) and part["state"] != fields.STREAMING
        if own.spelling_of(item) is not None or not (is_cut or message is not self.messages[-1]):
            return
        text = placeholder_of(item) if self._has_metadata else shown_placeholder_of(item)
        self._context.missing_output(call, text)
        part |= {"state": fields.ERROR, "errorText": text}

    # Others

    def reasoning(self, item: JsonObject, entry: ItemEntry) -> None:
        """Reasoning: a part for each part of its summary, or for each block."""
        if "native" in item:
            report_foreign(item, fields.NAME, self._context, "native")
        encrypted = item.get("encrypted_content")
        provider, values = self._sealer(item, entry)
        blocks = named_thoughts(item) or [("s0", {})]
        place = entry.position
        written = [part for name, one in blocks if (part := _thought(f"{place}:{name}", one, provider, values))]
        if not written or (encrypted and provider is None):
            self._context.loss("reasoning", "", "Reasoning was left out that only its provider can read.")
        if written:
            self._answer(entry).parts += written

    def _sealer(self, item: JsonObject, entry: ItemEntry) -> tuple[str | None, JsonObject]:
        """The provider whose metadata reasoning has, and the metadata of all its parts."""
        if not self._has_metadata:
            return None, {}
        is_openai = entry.origin == "open_responses" or (entry.origin is None and item.get("encrypted_content"))
        provider = self._provider(entry)
        return (provider or "openai", own.openai_keys(item)) if is_openai else (provider, {})

    def block(self, item: JsonObject, entry: ItemEntry) -> None:
        """A part that the user built for this format; of other formats' blocks none can be sent."""
        if item.get("format") == fields.NAME or not self._show(entry):
            part = own_block(item, fields.NAME, self._context, "")
            if isinstance(part, dict):
                self._answer(entry).parts.append(part)

    def nothing(self, item: JsonObject, entry: ItemEntry) -> None:
        """An item that is no message of its own."""
        if not self._show(entry):
            super().nothing(item, entry)

    def _show(self, entry: ItemEntry) -> bool:
        """Write what pages see of a tool that a provider runs, of a picture, or of a block with a text, if anything."""
        full = entry.item()
        item = canonical_item(entry, str(full.get("id") or ""))
        kind = item.get("type") if isinstance(item, dict) else None
        if entry.type in hosted.ANSWERS and (entry.seen is None or entry.type == hosted.DECISION):
            written = self._noted(item)
        elif hosted.is_shown(item):
            written = [hosted.add(self._answer(entry).parts, item, entry.position)]
        elif kind == "message" and item["role"] == "assistant" and (written := _texts_of(item)):
            self._answer(entry).parts += written
        elif kind in CALLS:
            self.call(item, entry._replace(call_id=item["call_id"]))
            return True
        else:
            written = []
        if not written:
            return False
        lost = ", ".join(hosted.keys_lost(full.get("payload", full), written))
        self._context.loss("item", "", f"Pages see an item of type {entry.type!r} without what these keys say: {lost}.")
        return True

    def _noted(self, item: JsonObject) -> list[JsonObject]:
        """The part of the last message with a call that an item answers, with what that says; nothing without one."""
        last = self.messages[-1] if self.messages else None
        part = hosted.note(last.parts, item) if last is not None and last.role == "assistant" else None
        if last is None or part is None:
            return []
        last.has_outputs = True
        return [part]


def _is_of(part: Any, *types: str) -> bool:
    return isinstance(part, dict) and part.get("type") in types


def _state_of(item: JsonObject) -> str:
    """The state of the texts of a message: one that was cut off stays open, as pages have it that are left."""
    return "streaming" if item.get("status") == "incomplete" else "done"


def _thought(id_: str, block: Any, provider: str | None, values: JsonObject) -> JsonObject | None:
    """A part of reasoning with what its provider has signed; None where it holds nothing."""
    text = own.text_of(block)
    is_googles = provider is not None and fields.FORMATS.get(provider) == "gemini"
    names = {"signature": "thoughtSignature" if is_googles else "signature", "data": "redactedData"}
    if provider is not None and isinstance(block, dict):
        values = values | {name: block[key] for key, name in names.items() if isinstance(block.get(key), str)}
    if not text and not values:
        return None
    metadata = {fields.METADATA: {provider: values}} if values else {}
    return {"type": "reasoning", "id": id_, "text": text, "state": "done", **metadata}


def _texts_of(message: JsonObject) -> list[JsonObject]:
    """What the model said in a message, refusals too."""
    texts = (part.get("text", part.get("refusal")) for part in message["content"])
    return [hosted.text_part(text) for text in texts if isinstance(text, str)]
