"""Writing the UI message stream: of an answer that is being given, and of the parts of a message.

What `useChat` makes of the chunks is the message that a render of the stored answer gives, without the metadata of
providers: texts and reasoning are known by the positions of their items.

Source: the AI SDK, "Stream protocols", `UIMessageChunk`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain import tools
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared.answer_writing import CALLS, AnswerEnd, AnswerText, AnswerWriter, has_failed
from threadkeep.formats.shared.arguments import object_of
from threadkeep.formats.shared.pairing import placeholder_of
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.ui_messages import fields, hosted
from threadkeep.formats.ui_messages import parts as values

HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
_REASONS: Final = {"max_output_tokens": "length", "content_filter": "content-filter"}
_DECIDED: Final = (fields.REQUESTED, fields.RESPONDED)


@dataclass(slots=True)
class ChunkWriter(AnswerWriter):
    """Makes chunks of the events of an answer.

    Attributes:
        message_id: the id of the message; an answer goes on with one that is there.
    """

    message_id: str
    _files: set[AnswerText] = field(init=False, default_factory=set)  # texts that stand for an image or a file
    _texts: set[AnswerText] = field(init=False, default_factory=set)  # others that have begun
    _hosted: list[JsonObject] = field(init=False, default_factory=list)  # parts of tools that the provider runs

    def begin(
        self, parts: Sequence[JsonObject] = (), denied: Sequence[str] = (), *, has_step: bool = True
    ) -> Iterator[JsonObject]:
        """The first chunks.

        `parts` are those that the message has already, for a client that has none of them, and `denied` the ids of its
        calls that were denied just now. Without `has_step`, outputs of its last step come first.
        """
        yield {"type": "start", "messageId": self.message_id}
        yield from part_chunks(parts)
        for call_id in denied:
            yield {"type": "tool-output-denied", "toolCallId": call_id}
        if has_step:
            yield {"type": "start-step"}

    def text_begun(self, text: AnswerText) -> Iterator[JsonObject]:
        """Begin reasoning; a text begins with its first characters, which may stand for a file."""
        if text.kind == "reasoning":
            yield from self._start(text)

    def _start(self, text: AnswerText) -> Iterator[JsonObject]:
        self._texts.add(text)
        yield {"type": f"{text.kind}-start", "id": text.id}

    def text_grown(self, text: AnswerText, delta: str) -> Iterator[JsonObject]:
        """Add to a text or reasoning."""
        if text not in self._texts:
            part = hosted.text_part(delta)
            if part["type"] == "file":
                self._files.add(text)
                yield part
                return
            yield from self._start(text)
        yield {"type": f"{text.kind}-delta", "id": text.id, "delta": delta}

    def text_ended(self, text: AnswerText, item: JsonObject) -> Iterator[JsonObject]:
        """End a text or reasoning; a text that was cut off stays open, as pages have it that are left."""
        if text in self._files:
            return
        if text not in self._texts:
            yield from self._start(text)
        if text.kind == "reasoning" or item.get("status") != "incomplete":
            yield {"type": f"{text.kind}-end", "id": text.id}

    def message_ended(self, item: JsonObject, position: int) -> Iterator[JsonObject]:
        """Name what the texts of a message cite."""
        yield from hosted.sources_of(item, position)

    def other_ended(self, item: JsonObject, position: int) -> Iterator[JsonObject]:
        """Show a tool that the provider runs, or a picture."""
        if hosted.is_shown(item):
            yield from part_chunks([hosted.add(self._hosted, item, position)])

    def call_begun(self, item: JsonObject, _position: int) -> Iterator[JsonObject]:
        """Begin a call."""
        encoding = {} if item["type"] == CALLS[0] else {"inputEncoding": "text"}
        yield {"type": "tool-input-start", "toolCallId": item["call_id"], "toolName": item["name"], **encoding}

    def call_grown(self, call_id: str, delta: str) -> Iterator[JsonObject]:
        """Add to the input of a call."""
        yield {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": delta}

    def call_ended(self, item: JsonObject, _position: int) -> Iterator[JsonObject]:
        """The chunk of a call that has come whole, or was cut off."""
        given: Any = item.get("input") or "" if item["type"] != CALLS[0] else object_of(item["arguments"]) or {}
        call = {"toolCallId": item["call_id"], "toolName": item["name"], "input": given}
        if tools.was_cut_off(item):
            yield {"type": "tool-input-error", **call, "errorText": placeholder_of(item)}
        else:
            yield {"type": "tool-input-available", **call}

    def output_given(self, item: JsonObject, _position: int) -> Iterator[JsonObject]:
        """The output of a call, as the part of the call has it."""
        if has_failed(item):
            yield {"type": "tool-output-error", "toolCallId": item["call_id"], "errorText": item["output"]}
        else:
            value = values.output_value(item["output"], Context())
            yield {"type": "tool-output-available", "toolCallId": item["call_id"], "output": value}

    def decision_asked(self, item: JsonObject) -> Iterator[JsonObject]:
        """Ask for the approval of a call."""
        yield from _approval_chunks(item["call_id"], {"id": fields.approval_id(item["call_id"])}, is_decided=False)

    def next_answer(self, _end: AnswerEnd, *, is_moved: bool) -> Iterator[JsonObject]:  # noqa: ARG002 - pages know texts
        """End a step, and begin the next one."""
        yield {"type": "finish-step"}
        yield {"type": "start-step"}

    def ended(self, end: AnswerEnd) -> Iterator[JsonObject]:
        """Say how the answer ended."""
        if end.status == "cancelled":
            yield {"type": "abort", "reason": "The answer was stopped."}
            return
        reason = "tool-calls" if self.has_calls else "stop"
        if end.status == "incomplete":
            reason = _REASONS.get(str(end.reason), "other")
        if end.has_failed:
            reason = "error"
            yield {"type": "error", "errorText": end.error}
        yield {"type": "finish-step"}
        yield {"type": "finish", "finishReason": reason}


# Parts of a message


def part_chunks(parts: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The chunks of which `useChat` makes these parts."""
    for number, part in enumerate(parts):
        kind = part["type"]
        if part == fields.STEP:
            yield {"type": "start-step"}
        elif kind in ("text", "reasoning"):
            yield from _written(part, str(part.get("id", f"part:{number}")))
        elif kind == fields.DYNAMIC or kind.startswith(fields.STATIC):
            yield from _tool_chunks(part)
        else:
            yield part


def _written(part: JsonObject, id_: str) -> Iterator[JsonObject]:
    kind = part["type"]
    metadata = {key: part[key] for key in (fields.METADATA,) if key in part}
    yield {"type": f"{kind}-start", "id": id_, **metadata}
    if part["text"]:
        yield {"type": f"{kind}-delta", "id": id_, "delta": part["text"]}
    if part.get("state") != "streaming":
        yield {"type": f"{kind}-end", "id": id_} | {key: part[key] for key in ("citations",) if key in part}


def _tool_chunks(part: JsonObject) -> Iterator[JsonObject]:
    kind, state, call_id = part["type"], part["state"], part["toolCallId"]
    is_dynamic = kind == fields.DYNAMIC
    call: JsonObject = {"toolCallId": call_id, "toolName": part["toolName"] if is_dynamic else kind[5:]}
    call |= {"dynamic": True} if is_dynamic else {}
    call |= _named(part, providerExecuted="providerExecuted", title="title", toolMetadata="toolMetadata")
    call |= _named(part, providerMetadata=fields.CALL_METADATA)
    if state == fields.STREAMING:
        yield {"type": "tool-input-start", **call, **_named(part, inputEncoding="inputEncoding")}
        if part.get("rawInput"):
            yield {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": part["rawInput"]}
        return
    yield {"type": "tool-input-available", **call, "input": part.get("input", {})}
    if isinstance(approval := part.get("approval"), dict) and state in (*_DECIDED, fields.DENIED):
        yield from _approval_chunks(call_id, approval, is_decided=state == fields.RESPONDED)
    metadata = _named(part, providerMetadata="resultProviderMetadata")
    if state == fields.OUTPUT:
        said = _named(part, preliminary="preliminary")
        yield {"type": "tool-output-available", "toolCallId": call_id, "output": part.get("output"), **said, **metadata}
    elif state == fields.ERROR:
        yield {"type": "tool-output-error", "toolCallId": call_id, "errorText": part["errorText"], **metadata}
    elif state == fields.DENIED:
        yield {"type": "tool-output-denied", "toolCallId": call_id}


def _named(part: JsonObject, **names: str) -> JsonObject:
    """The keys of a chunk, from keys of a part that are there."""
    return {name: part[key] for name, key in names.items() if key in part}


def _approval_chunks(call_id: str, approval: JsonObject, *, is_decided: bool) -> Iterator[JsonObject]:
    asked = _named(approval, approvalDescriptor="descriptor", reason="requestReason", signature="signature")
    asked |= _named(approval, inputSchemaInput="inputSchemaInput", isAutomatic="isAutomatic")
    yield {"type": "tool-approval-request", "approvalId": approval["id"], "toolCallId": call_id, **asked}
    if is_decided:  # the end of a call says it otherwise: readers before version 7 refuse this chunk
        reason = _named(approval, reason="reason")
        yield {
            "type": "tool-approval-response", "approvalId": approval["id"], "approved": approval["approved"], **reason
        }  # fmt: skip
