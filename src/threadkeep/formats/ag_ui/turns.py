"""The messages of a thread as they are written item by item.

* A message of an answer is one message, and calls are of the message before them if that is of the same answer. Each
  part of reasoning is a message of its own. Ids are made of positions.
* An output stands behind the message of its call, as clients put it there; a call that later messages have passed over
  gets one that says so.

Source: AG-UI 1.0, `Message`; its client, `TOOL_CALL_RESULT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from threadkeep.domain import tool_names, tools
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.ag_ui import fields, own, parts
from threadkeep.formats.canonical.blocks import media_text
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.canonical.view import canonical_item, named_thoughts
from threadkeep.formats.shared import arguments
from threadkeep.formats.shared.answer_writing import CALLS, free_id, has_failed
from threadkeep.formats.shared.pairing import LAYER, Pairing, placeholder_of, shown_placeholder_of
from threadkeep.formats.shared.parts import own_block, report_foreign, report_private
from threadkeep.formats.shared.rendering import WRITERS, Rendering, TurnWriter


@dataclass(slots=True)
class ThreadDraft:
    """A message that is being written."""

    message: JsonObject
    place: int  # the position of its first item
    turn: int | None = None  # of an answer
    is_settled: bool = True  # no later output changes what follows


class ThreadWriter(TurnWriter):
    """Writes `drafts` item by item."""

    def __init__(self, rendering: Rendering, pairing: Pairing, *, is_shown: bool = False) -> None:
        """`is_shown`: whether it is for people, who read something else in the place of an output that never came."""
        super().__init__(rendering, pairing)
        self._is_shown = is_shown
        self.drafts: list[ThreadDraft] = []
        self._callers: dict[int, ThreadDraft] = {}  # position of a call -> its message
        self._ids: set[str] = set()

    def write(self, entries: Sequence[ItemEntry]) -> None:
        """Write all items."""
        for entry in entries:
            self._context.position = entry.position
            item = entry.item()
            if parts.spelling_of(item) is not None or (entry.type == "provider_item" and entry.origin == fields.NAME):
                self._own(item, entry)
            else:
                getattr(self, WRITERS.get(entry.type, "nothing"))(item, entry)
        self._context.position = None
        for call in self._pairing.unanswered.values():
            self._pass_over(call)

    def stable(self) -> int:
        """How many messages no later append changes."""
        unsettled = next((index for index, one in enumerate(self.drafts) if not one.is_settled), len(self.drafts))
        return max(min(unsettled, len(self.drafts) - 1), 0)

    def _add(self, message: JsonObject, entry: ItemEntry, index: int | None = None) -> ThreadDraft:
        """Add a message, at the end or at an index; one of another origin gets an id."""
        if "id" not in message and parts.spelling_of(entry.item()) is None:
            message = {"id": free_id(entry.position, self._ids), **message}
        if isinstance(message.get("id"), str):
            self._ids.add(message["id"])
        draft = ThreadDraft(message, entry.position, entry.turn, is_settled=entry.turn != LAYER)
        self.drafts.insert(len(self.drafts) if index is None else index, draft)
        return draft

    def _caller(self, entry: ItemEntry) -> ThreadDraft:
        """The message of the assistant that a call is of."""
        last = self.drafts[-1] if self.drafts else None
        is_joined = last is not None and last.message["role"] == "assistant" and last.turn == entry.turn
        return last if is_joined and last is not None else self._add({"role": "assistant"}, entry)

    def _called(self, draft: ThreadDraft, entry: ItemEntry) -> None:
        self._callers[entry.position] = draft
        draft.is_settled = draft.is_settled and entry.position not in self._pairing.unanswered

    def _own(self, item: JsonObject, entry: ItemEntry) -> None:
        """An item that came from a message."""
        if entry.type == "provider_item":
            self.block(item, entry)
            return
        draft = self._add(own.keys_of(item), entry) if own.begins(item) else self._caller(entry)
        own.add_to(draft.message, item)
        if entry.type == "function_call":
            self._called(draft, entry)

    def message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message; one of an unknown role is the user's."""
        role, context = item.get("role"), self._context
        if "native" in item:
            report_foreign(item, fields.NAME, context, "native")
        if role not in (*fields.SPEAKERS, "assistant"):
            context.repair("role", "role", f"The format has no role {role!r}; the message was sent as the user's.")
            role = "user"
        content = item.get("content") or ()
        if role == "assistant":
            content = [self._as_text(part, f"content[{index}]") for index, part in enumerate(content)]
        written = parts.written_parts(content, context, "content")
        texts = [one for one in written if isinstance(one, dict) and one.keys() == {"type", "text"}]
        if role == "user" and len(texts) < len(written):
            self._add({"role": role, "content": written}, entry)
        elif written:
            text = parts.text_of(written, context, "content")
            if texts:
                self._add({"role": role, "content": text}, entry)

    def call(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call, which waits for its output."""
        context = self._context
        if "native" in item:
            report_foreign(item, fields.NAME, context, "native")
        if item["type"] == "custom_tool_call":
            given = dumps(arguments.object_arguments(item, context)).decode()
        else:
            given = arguments.sent_arguments(item, context)
        call_id = entry.call_id or f"call_{tool_names.hashed('', entry.position)}"
        function = {"name": context.called(item), "arguments": given}
        draft = self._caller(entry)
        draft.message.setdefault("toolCalls", []).append({"id": call_id, "type": "function", "function": function})
        self._called(draft, entry)

    def output(self, item: JsonObject, entry: ItemEntry) -> None:
        """An output, behind the message of its call."""
        context, output, pairing = self._context, item.get("output"), self._pairing
        if "native" in item:
            report_foreign(item, fields.NAME, context, "native")
        context.caller(item)
        is_named = entry.position in pairing.by_name and entry.seen is None
        if is_named and (message := self._told(item, entry)) is not None:
            self.message(message, entry._replace(origin=None))
            return
        call = pairing.calls.get(entry.position) or pairing.late.get(entry.position)
        if call is None or call.position not in self._callers:
            context.orphan_output(entry)
            return
        said: Any = output or ""
        if isinstance(output, list):
            said = parts.written_parts(output, context, "output")
            if all(isinstance(one, dict) and one.keys() == {"type", "text"} for one in said):
                said = parts.text_of(said, context, "output")
        is_failed = has_failed(item)
        self._answer(call, entry, said, is_failed=is_failed)

    def _answer(self, call: ItemEntry, entry: ItemEntry, said: Any, *, is_failed: bool) -> None:
        """Add the output of a call behind its message, and those that are there."""
        caller = self._callers[call.position]
        index = next(index for index, draft in enumerate(self.drafts) if draft is caller) + 1
        while index < len(self.drafts) and self.drafts[index].message["role"] == "tool":
            index += 1
        call_id = call.call_id or f"call_{tool_names.hashed('', call.position)}"
        error = {"error": said if isinstance(said, str) else "The call failed."} if is_failed else {}
        self._add({"role": "tool", "toolCallId": call_id, "content": said, **error}, entry, index)

    def _pass_over(self, call: ItemEntry) -> None:
        """Say of a call that was cut off, or that later messages have passed over, that its output never came."""
        draft = self._callers.get(call.position)
        rest = self.drafts[self.drafts.index(draft) + 1 :] if draft is not None else []
        is_last = all(one.message["role"] == "tool" or one.turn == call.turn is not None for one in rest)
        is_waiting = is_last and not tools.was_cut_off(call.item())
        if parts.spelling_of(call.item()) is not None or is_waiting:
            return
        text = shown_placeholder_of(call.item()) if self._is_shown else placeholder_of(call.item())
        self._context.missing_output(call, text)
        self._answer(call, call, text, is_failed=True)

    def reasoning(self, item: JsonObject, entry: ItemEntry) -> None:
        """Reasoning: a message for each part of its summary, or for each block."""
        context = self._context
        if "native" in item:
            report_foreign(item, fields.NAME, context, "native")
        blocks = [(name, block) for name, block in named_thoughts(item) if isinstance(block, dict)]
        texts = [
            (f"msg_{entry.position}:{name}", text)
            for name, block in blocks
            if isinstance(text := block.get("text", block.get("thinking")), str) and text
        ]
        sealed = ("signature", "data", "thought_signature")
        is_sealed = any(key in block for _, block in blocks for key in sealed)
        if not texts or item.get("encrypted_content") or is_sealed:
            context.loss("reasoning", "", "Reasoning was left out that only its provider can read.")
        for id_, text in texts:
            self._add({"id": id_, "role": "reasoning", "content": text}, entry)

    def block(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message that was kept as it is; of other formats' blocks those that say a text, or call a function."""
        said = canonical_item(entry, "") if item.get("format") != fields.NAME and entry.seen is not None else {}
        if isinstance(said, dict) and said.get("type") in CALLS:
            self.call(said, entry._replace(call_id=said["call_id"]))
            return
        if isinstance(said, dict) and said.get("role") == "assistant" and said.get("content"):
            self.message({"role": "assistant", "content": said["content"]}, entry)
            self._context.loss("provider_item", "", f"Clients see an item of type {entry.type!r} as a text.")
            return
        message = own_block(item, fields.NAME, self._context, "")
        if isinstance(message, dict) and isinstance(message.get("role"), str):
            self._add(dict(message), entry)

    def _as_text(self, part: JsonObject, path: str) -> JsonObject:
        """A part of an answer; for an image or file of another format, the text that stands for it."""
        text = None if parts.spelling_of(part) is not None else media_text(part)
        if text is None:
            return part
        media_type = part.get("media_type") or "unknown"
        detail = f"Messages of the model hold texts alone: where a medium of type {media_type} is was sent."
        self._context.loss("media", path, detail)
        report_private(part, fields.NAME, self._context, path)
        return {"type": "output_text", "text": text}
