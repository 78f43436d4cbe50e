"""The UI message stream: chunks become the message that `useChat` makes of them.

* Texts and reasoning grow under the ids of their parts, inputs of tools under the ids of the calls. A chunk about a
  tool that came in an earlier step changes the part there.
* `reset-step` takes back what came since the step began; a data part replaces the one of its type and id, unless it is
  transient, which no message keeps.
* `finish` says that the message is whole; after `abort`, or without either, it was cut off.

Source: the AI SDK, "Stream protocols", `UIMessageChunk`, `readUIMessageStream`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic_core import from_json

from threadkeep.domain.items import changed_item
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse
from threadkeep.formats.shared import streams
from threadkeep.formats.ui_messages import fields
from threadkeep.formats.ui_messages.response import parse_response

_QUIET: Final = frozenset({"start", "start-step", "finish-step", "finish", "abort", "message-metadata", "error"})
_TOOL: Final = ("title", "toolMetadata", "providerExecuted")
_REQUEST: Final = {
    "approvalDescriptor": "descriptor", "inputSchemaInput": "inputSchemaInput", "reason": "requestReason",
    "isAutomatic": "isAutomatic", "signature": "signature",
}  # fmt: skip


# type of a chunk -> the method that takes it
_TAKERS: Final = {
    "start": "take_start",
    "message-metadata": "take_metadata",
    "finish": "take_finish",
    "abort": "take_abort",
    "start-step": "take_step",
    "reset-step": "take_reset",
    **dict.fromkeys(("text-start", "reasoning-start"), "take_begin"),
    **dict.fromkeys(("text-delta", "reasoning-delta"), "take_grow"),
    **dict.fromkeys(("text-end", "reasoning-end"), "take_end"),
    **dict.fromkeys(
        ("file", "reasoning-file", "source-url", "source-document", "custom", "steering-message"), "take_whole"
    ),
    "tool-input-start": "take_input_start",
    "tool-input-delta": "take_input_delta",
    **dict.fromkeys(("tool-input-available", "tool-input-error"), "take_input"),
    **dict.fromkeys(("tool-output-available", "tool-output-error"), "take_answered"),
    "tool-output-denied": "take_denied",
    "tool-approval-request": "take_asked",
    "tool-approval-response": "take_decided",
}


class UiAssembler(streams.StreamAssembler):
    """Puts chunks together; `feed` each of them, then take `response`."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(fields.NAME, parse_response, headers)
        self._message: JsonObject = {"role": "assistant"}
        self._parts: list[JsonObject] = []
        self._texts = streams.GrowingTexts()
        self._open: dict[tuple[str, str], JsonObject] = {}  # kind and id -> the part that grows
        self._inputs: dict[str, JsonObject] = {}  # id of a call -> its part, while its input comes
        self._reason: str | None = None
        self._is_aborted = False

    # What has come

    @property
    def body(self) -> JsonObject:
        """The message as far as it has come; not to be changed."""
        return self.body_between(0, None) if self.has_events else {}

    def body_between(self, first: int, last: int | None) -> JsonObject:
        """The message with these parts."""
        self._texts.settle_all()
        for part in self._inputs.values():
            if "rawInput" in part:
                text = part["rawInput"]
                given = text if part.get("inputEncoding") == "text" else _partial(text)
                part.update({} if given is None else {"input": given})
        return {**self._message, "parts": self._parts[first:last]}

    @property
    def element_count(self) -> int:
        """How many parts have come."""
        return len(self._parts)

    def is_whole(self, element: int) -> bool:
        """Whether a part will not grow, as far as the stream tells."""
        return self._parts[element].get("state") not in ("streaming", fields.STREAMING)

    def is_apart(self, element: int) -> bool:
        """Whether a step begins there: outputs of tools stand behind all that its step says."""
        return self._parts[element] == fields.STEP

    @property
    def open_calls(self) -> Collection[object]:
        """The ids of calls whose input is still coming."""
        return list(self._inputs)

    def parsed(self, body: JsonObject, first: int) -> Response:
        """The response of the parts from `first` on, and how it ended."""
        response = super().parsed(body, first)
        if first and response.output:
            item = response.output[0].to_object()
            spelling = {**item["spelling"], fields.UI: {**item["spelling"][fields.UI]}}
            spelling[fields.UI].pop("message", None)
            response = response.model_copy(
                update={"output": [changed_item(response.output[0], spelling=spelling), *response.output[1:]]}
            )
        if self._is_aborted:
            return response.model_copy(update={"status": "cancelled"})
        status = fields.STATUSES.get(self._reason or "", "completed") if self.is_ended else "incomplete"
        details = {"reason": fields.INCOMPLETE[self._reason]} if self._reason in fields.INCOMPLETE else None
        update = {"status": status, "finish_reason": self._reason, "incomplete_details": details}
        return response.model_copy(update=update)

    def output_in(self, event: JsonObject) -> bool:
        """Whether a chunk brings a part of the output."""
        kind = event.get("type")
        return not isinstance(kind, str) or kind not in _QUIET

    def error_in(self, event: JsonObject) -> Any:
        """The error of an `error` chunk."""
        return {"message": event.get("errorText")} if event.get("type") == "error" else None

    # Chunks

    def add(self, event: JsonObject) -> None:
        """Take a chunk into the message."""
        kind = event.get("type")
        if not isinstance(kind, str):
            raise CannotParse("The chunk has no type.", hint="Feed the chunks of a UI message stream.")
        if kind.startswith("data-"):
            self.take_data(event)
        elif kind in _TAKERS:
            getattr(self, _TAKERS[kind])(event)

    def take_start(self, event: JsonObject) -> None:
        """Begin the message, under an id if there is one."""
        if isinstance(event.get("messageId"), str):
            self._message["id"] = event["messageId"]
        self.take_metadata(event)

    def take_metadata(self, event: JsonObject) -> None:
        """Merge metadata of the message."""
        metadata = event.get("messageMetadata")
        if metadata is not None:
            self._message["metadata"] = _merged(self._message.get("metadata"), metadata)

    def take_finish(self, event: JsonObject) -> None:
        """End the message."""
        reason = event.get("finishReason")
        self._reason = reason if isinstance(reason, str) else self._reason
        self.take_metadata(event)
        self.is_ended = True

    def take_abort(self, _event: JsonObject) -> None:
        """End a message that was stopped."""
        self._is_aborted = self.is_ended = True

    def take_step(self, _event: JsonObject) -> None:
        """Begin a step."""
        self._parts.append(dict(fields.STEP))

    def take_reset(self, _event: JsonObject) -> None:
        """Take back what came since the step began."""
        begin = self._step_begin()
        self._texts.settle_all()
        self.note_change(begin)
        del self._parts[begin:]
        self._open.clear()
        self._inputs.clear()

    def _step_begin(self) -> int:
        """Where the parts of the current step begin."""
        return next((i + 1 for i in range(len(self._parts) - 1, -1, -1) if self._parts[i] == fields.STEP), 0)

    def take_begin(self, event: JsonObject) -> None:
        """Begin a text or reasoning."""
        kind = event["type"].removesuffix("-start")
        named = {"id": event["id"]} if kind == "reasoning" and isinstance(event.get("id"), str) else {}
        part = {"type": kind, **named, "text": "", **_only(event, fields.METADATA), "state": "streaming"}
        self._open[kind, str(event.get("id"))] = part
        self._parts.append(part)

    def take_grow(self, event: JsonObject) -> None:
        """Add to a text or reasoning."""
        if (part := self._growing(event)) is not None:
            self._texts.grow(part, "text", event.get("delta"))
            part |= _only(event, fields.METADATA)

    def take_end(self, event: JsonObject) -> None:
        """End a text or reasoning."""
        if (part := self._growing(event)) is not None:
            self._texts.settle(part, "text")
            part |= {"state": "done", **_only(event, fields.METADATA, "citations")}
            del self._open[part["type"], str(event.get("id"))]

    def _growing(self, event: JsonObject) -> JsonObject | None:
        """The part that a chunk is of; one that has not begun is a problem that is reported, as the SDK would fail."""
        kind = event["type"].partition("-")[0]
        part = self._open.get((kind, str(event.get("id"))))
        if part is None:
            self.problems.append(f"A {event['type']} of {event.get('id')!r} came without its start.")
        return part

    def take_whole(self, event: JsonObject) -> None:
        """A part that comes whole."""
        self._parts.append({key: value for key, value in event.items() if value is not None})

    def take_data(self, event: JsonObject) -> None:
        """Add a data part, or replace the one of its type and id."""
        if event.get("transient"):
            return
        for index, part in enumerate(self._parts if event.get("id") is not None else ()):
            if part["type"] == event["type"] and part.get("id") == event["id"]:
                part["data"] = event.get("data")
                self.note_change(index)
                return
        self._parts.append(dict(event))

    # Tools

    def take_input_start(self, event: JsonObject) -> None:
        """Begin the input of a tool."""
        part = self._tool(event, state=fields.STREAMING)
        if event.get("inputEncoding") is not None:
            part["inputEncoding"] = event["inputEncoding"]
        part.pop("input", None)
        self._inputs[str(event.get("toolCallId"))] = part

    def take_input_delta(self, event: JsonObject) -> None:
        """Add to the input of a tool."""
        part = self._inputs.get(str(event.get("toolCallId")))
        if part is None:
            self.problems.append(f"Input of {event.get('toolCallId')!r} came without its start.")
        else:
            self._texts.grow(part, "rawInput", event.get("inputTextDelta"))

    def take_input(self, event: JsonObject) -> None:
        """Take the whole input of a tool, or why it is none."""
        is_error = event["type"] == "tool-input-error"
        self._close_input(event)
        part = self._tool(event, state=fields.ERROR if is_error else fields.AVAILABLE, has_any_kind=is_error)
        part |= _only(event, "input", "errorText")

    def _close_input(self, event: JsonObject) -> None:
        part = self._inputs.pop(str(event.get("toolCallId")), None)
        for key in ("rawInput", "input", "inputEncoding"):
            if part is not None:
                self._texts.settle(part, key)
                part.pop(key, None)

    def _tool(self, event: JsonObject, *, state: str, has_any_kind: bool = False) -> JsonObject:
        """The part of a call in this step, with what a chunk says of it; a new one where there is none."""
        name, call_id = event.get("toolName"), event.get("toolCallId")
        is_dynamic = bool(event.get("dynamic"))
        parts = self._parts[self._step_begin() :]
        same = [part for part in parts if part.get("toolCallId") == call_id]
        part = next((one for one in same if has_any_kind or (one["type"] == fields.DYNAMIC) == is_dynamic), None)
        if part is None:
            part = {"type": "", "toolCallId": call_id}
            self._parts.append(part)
            part["type"] = fields.DYNAMIC if is_dynamic else f"{fields.STATIC}{name}"
        elif part["type"] != fields.DYNAMIC:
            part["type"] = f"{fields.STATIC}{name}"
        if part["type"] == fields.DYNAMIC:
            part["toolName"] = name
        part |= {"state": state, **_only(event, *_TOOL)}
        key = "resultProviderMetadata" if state in fields.ANSWERED else fields.CALL_METADATA
        return _with(part, key, event.get(fields.METADATA))

    def take_answered(self, event: JsonObject) -> None:
        """Take the output of a tool, or why there is none."""
        part = self._called(event)
        if part is None:
            return
        self._close_input(event)
        is_error = event["type"] == "tool-output-error"
        for key in ("output", "errorText", "preliminary", *(() if is_error else ("rawInput",))):
            part.pop(key, None)
        part |= {"state": fields.ERROR if is_error else fields.OUTPUT}
        part |= _only(event, "output", "errorText", "preliminary", "providerExecuted", "toolMetadata")
        _with(part, "resultProviderMetadata", event.get(fields.METADATA))

    def take_asked(self, event: JsonObject) -> None:
        """Take the request for an approval."""
        if (part := self._called(event)) is not None:
            keys = {name: event[key] for key, name in _REQUEST.items() if event.get(key) not in (None, False)}
            keys |= _only(event, "inputSchemaInput")
            part |= {"state": fields.REQUESTED, "approval": {"id": event.get("approvalId"), **keys}}

    def take_decided(self, event: JsonObject) -> None:
        """Take the decision about an approval."""
        approvals = ((index, part.get("approval")) for index, part in enumerate(self._parts))
        index = next(
            (i for i, one in approvals if isinstance(one, dict) and one["id"] == event.get("approvalId")), None
        )
        if index is None:
            self.problems.append(f"A decision about {event.get('approvalId')!r} came without its request.")
            return
        part = self._parts[index]
        part["approval"] = {**part["approval"], "approved": event.get("approved"), **_only(event, "reason")}
        part |= {"state": fields.RESPONDED, **_only(event, "providerExecuted")}
        _with(part, fields.CALL_METADATA, event.get(fields.METADATA))
        self.note_change(index)

    def take_denied(self, event: JsonObject) -> None:
        """Take that a tool was denied."""
        if (part := self._called(event)) is not None:
            part["state"] = fields.DENIED

    def _called(self, event: JsonObject) -> JsonObject | None:
        """The newest part of a call, in this step or an earlier one."""
        for index in range(len(self._parts) - 1, -1, -1):
            if self._parts[index].get("toolCallId") == event.get("toolCallId"):
                self.note_change(index)
                return self._parts[index]
        self.problems.append(f"A {event['type']} of {event.get('toolCallId')!r} came without its call.")
        return None


def _only(event: JsonObject, *keys: str) -> JsonObject:
    return {key: event[key] for key in keys if key in event and (event[key] is not None or key in ("input", "output"))}


def _with(part: JsonObject, key: str, value: Any) -> JsonObject:
    if value is not None:
        part[key] = value
    return part


def _partial(text: str) -> Any:
    """The value of JSON that has not come whole; None where it has not begun."""
    try:
        return from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return None


def _merged(known: Any, new: Any) -> Any:
    """Metadata with what came later: objects are merged, all else is replaced."""
    if not isinstance(known, dict) or not isinstance(new, dict):
        return new
    return {**known, **{key: _merged(known.get(key), value) for key, value in new.items()}}


def assembler(headers: Mapping[str, str] | None = None) -> UiAssembler:
    """Return an assembler, which combines the chunks of a stream into a response."""
    return UiAssembler(headers)
