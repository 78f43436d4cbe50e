"""Writing the UI message stream: of an answer that is being given, and of the parts of a message.

An answer comes as the events of the Responses API, as the server has them of any upstream. What `useChat` makes of the
chunks is the message that a render of the stored answer gives, without the metadata of providers: texts and reasoning
are known by the positions of their items. What an event leaves out is in the item at its end, and is sent then.

Source: the AI SDK, "Stream protocols", `UIMessageChunk`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain import tools
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared.arguments import object_of
from threadkeep.formats.shared.pairing import placeholder_of
from threadkeep.formats.ui_messages import fields

HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
_CALLS: Final = ("function_call", "custom_tool_call")
# type of an event -> the list of its item that it is about, its index there, and the kind of part
_TEXTS: Final = {
    "response.output_text": ("content", "content_index", "text"),
    "response.refusal": ("content", "content_index", "text"),
    "response.reasoning_text": ("content", "content_index", "reasoning"),
    "response.reasoning_summary_text": ("summary", "summary_index", "reasoning"),
}
_ENDS: Final = {
    "response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed",
}  # fmt: skip
_REASONS: Final = {"max_output_tokens": "length", "content_filter": "content-filter"}
_DECIDED: Final = (fields.REQUESTED, fields.RESPONDED)


@dataclass(slots=True)
class _OpenItem:
    """What was sent of an item."""

    sent: dict[tuple[str, int], int] = field(default_factory=dict)  # list and index of a text -> characters
    call_id: str | None = None  # of a call whose input is coming


@dataclass(slots=True)
class ChunkWriter:
    """Makes chunks of the events of an answer.

    Attributes:
        message_id: the id of the message; an answer goes on with one that is there.
        place: the position of the first item of the answer.
    """

    message_id: str
    place: int
    _open: dict[int, _OpenItem] = field(default_factory=dict)
    _has_calls: bool = False

    def begin(self, parts: Sequence[JsonObject] = ()) -> Iterator[JsonObject]:
        """The first chunks; `parts` are those that the message has already, for a client that has none of them."""
        yield {"type": "start", "messageId": self.message_id}
        yield from part_chunks(parts)
        yield {"type": "start-step"}

    def take(self, event: JsonObject) -> Iterator[JsonObject]:
        """The chunks of an event."""
        kind, index = event["type"], event.get("output_index", 0)
        name, _, ending = kind.rpartition(".")
        if ending == "delta" and name in _TEXTS:
            key, place, part = _TEXTS[name]
            yield from self._text(index, key, event.get(place, 0), part, event["delta"])
        elif ending == "delta":
            yield from self._input(index, event)
        elif name == "response.output_item":
            yield from (self._call_begun if ending == "added" else self._done)(index, event["item"])
        elif kind in _ENDS or kind == "error":
            yield from self._end(event)

    def _text(self, index: int, key: str, place: int, part: str, delta: str) -> Iterator[JsonObject]:
        item = self._open.setdefault(index, _OpenItem())
        id_ = f"{self.place + index}:{key[0]}{place}"
        if (key, place) not in item.sent:
            item.sent[key, place] = 0
            yield {"type": f"{part}-start", "id": id_}
        if delta:
            item.sent[key, place] += len(delta)
            yield {"type": f"{part}-delta", "id": id_, "delta": delta}

    def _call_begun(self, index: int, item: JsonObject) -> Iterator[JsonObject]:
        if item["type"] in _CALLS:
            self._has_calls = True
            self._open.setdefault(index, _OpenItem()).call_id = item["call_id"]
            encoding = {} if item["type"] == _CALLS[0] else {"inputEncoding": "text"}
            yield {
                "type": "tool-input-start", "toolCallId": item["call_id"], "toolName": item["name"], **encoding
            }  # fmt: skip

    def _input(self, index: int, event: JsonObject) -> Iterator[JsonObject]:
        call_id = self._open.get(index, _OpenItem()).call_id
        if call_id is not None and event.get("delta"):
            yield {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": event["delta"]}

    def _done(self, index: int, item: JsonObject) -> Iterator[JsonObject]:
        """The rest of an item, and its end."""
        if item["type"] in _CALLS:
            self._has_calls = True
            yield _called(item)
            return
        kind = {"message": "text", "reasoning": "reasoning"}.get(item["type"])
        for key in ("summary", "content") if kind is not None else ():
            for place, part in enumerate(item.get(key) or ()):
                text = part.get("text", part.get("refusal")) or ""
                sent = self._open.get(index, _OpenItem()).sent.get((key, place), 0)
                if text or kind == "text":
                    yield from self._text(index, key, place, kind or "", text[sent:])
                    yield {"type": f"{kind}-end", "id": f"{self.place + index}:{key[0]}{place}"}

    def _end(self, event: JsonObject) -> Iterator[JsonObject]:
        response = event.get("response") or {}
        status = response.get("status") or _ENDS.get(event["type"])
        if status == "cancelled":
            yield {"type": "abort", "reason": "The answer was stopped."}
            return
        reason = "tool-calls" if self._has_calls else "stop"
        if status == "incomplete":
            details = response.get("incomplete_details")
            reason = _REASONS.get(str(details.get("reason")) if isinstance(details, dict) else "", "other")
        elif status != "completed":
            reason, error = "error", response.get("error") or event
            yield {"type": "error", "errorText": str(error.get("message") or "The answer failed.")}
        yield {"type": "finish-step"}
        yield {"type": "finish", "finishReason": reason}


def _called(item: JsonObject) -> JsonObject:
    """The chunk of a call that has come whole, or was cut off."""
    given: Any = item.get("input") or "" if item["type"] != _CALLS[0] else object_of(item["arguments"]) or {}
    call = {"toolCallId": item["call_id"], "toolName": item["name"], "input": given}
    if tools.was_cut_off(item):
        return {"type": "tool-input-error", **call, "errorText": placeholder_of(item)}
    return {"type": "tool-input-available", **call}


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
    if isinstance(approval := part.get("approval"), dict):
        yield from _approval_chunks(call_id, approval, is_decided=state != fields.REQUESTED)
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
    if is_decided:
        reason = _named(approval, reason="reason")
        yield {
            "type": "tool-approval-response", "approvalId": approval["id"], "approved": approval["approved"], **reason
        }  # fmt: skip
