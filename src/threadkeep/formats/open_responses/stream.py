"""Streams of Open Responses.

* The response in the last event is the body; where a host leaves its output out, the items that were streamed are it.
  Opaque reasoning comes from the item's own event, which clients send back.
* A stream that breaks off has the items as far as they came: from their deltas, from whole parts, from whole items.
* Deltas without an item or part that was announced begin one.

Source: OpenAI's API reference, "Responses", streaming events; the Open Responses specification (`response.reasoning`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject, json_copy
from threadkeep.errors import CannotParse
from threadkeep.formats.canonical.items import NAME
from threadkeep.formats.open_responses.output import Output
from threadkeep.formats.open_responses.response import parse_response
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.streams import StreamAssembler, list_in
from threadkeep.formats.shared.usage import cumulative


class TextRow(NamedTuple):
    """A text that comes in deltas: the type of its item, its key, and the list and type of the part that holds it."""

    item: str
    key: str
    parts: str | None = None
    place: str = ""  # the event's key for the place of the part in the list
    part: str = ""


_REASONING: Final = TextRow("reasoning", "text", "content", "content_index", "reasoning_text")
_SUMMARY: Final = TextRow("reasoning", "text", "summary", "summary_index", "summary_text")
# what an event is about -> the text that grows
TEXTS: Final = {
    "output_text": TextRow("message", "text", "content", "content_index", "output_text"),
    "refusal": TextRow("message", "refusal", "content", "content_index", "refusal"),
    **dict.fromkeys(("reasoning_text", "reasoning"), _REASONING),
    **dict.fromkeys(("reasoning_summary_text", "reasoning_summary"), _SUMMARY),
    "function_call_arguments": TextRow("function_call", "arguments"),
    "mcp_call_arguments": TextRow("mcp_call", "arguments"),
    "custom_tool_call_input": TextRow("custom_tool_call", "input"),
    "code_interpreter_call_code": TextRow("code_interpreter_call", "code"),
    "code_interpreter_call.code": TextRow("code_interpreter_call", "code"),
}
# what an event is about -> the type of its item, the list in it that the part belongs to, the event's key for its place
PARTS: Final = {
    "content_part": ("message", "content", "content_index"),
    "reasoning_part": ("reasoning", "content", "content_index"),
    "reasoning_summary_part": ("reasoning", "summary", "summary_index"),
}
BEGINNINGS: Final = frozenset({"created", "queued", "in_progress"})
# last word of the event that ends a stream -> status of a response that does not state one
ENDINGS: Final = {word: word for word in ("completed", "incomplete", "failed", "cancelled")} | {"done": "completed"}
PREFIX: Final = "response."  # of the types of events that are about the response
LAST: Final = frozenset(f"response.{word}" for word in ENDINGS)
_STREAMS: Final = ("stdout", "stderr")
_PICTURE_KEYS: Final = ("background", "output_format", "quality", "size")
_NO_ERROR_KEYS: Final = frozenset({"type", "sequence_number", "error"})


class ResponsesAssembler(StreamAssembler):
    """Puts the events of a Responses stream together."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(NAME, parse_response, headers)
        self._response: JsonObject = {}
        self._output = Output()
        self._lane: Any = None  # of the WebSocket, where that has several

    @property
    def open_calls(self) -> Collection[object]:
        """The ids of calls without an event that says they are done."""
        return self._output.open_calls

    @property
    def body(self) -> JsonObject:
        """The response object as far as it has come; not to be changed."""
        body = {"object": "response", "status": "in_progress", **self._response}
        items, last = self._output.items(), body.pop("output", None)
        if isinstance(last, list) and all(isinstance(item, dict) for item in last):
            by_id = {str(item.get("id")): item for item in reversed(items)}
            body["output"] = [as_streamed(item, by_id) for item in last] if self.is_ended else last
        elif last is not None:
            body["unread_output"] = last  # so that the items of other events can be read
        if items and not (self.is_ended and body.get("output")):
            body["output"] = items
        return body

    def is_last(self, event: JsonObject) -> bool:
        """Whether an event brings the whole response."""
        return str(event.get("type")) in LAST and self.is_ended and isinstance(event.get("response"), dict)

    @property
    def element_count(self) -> int:
        """How many items have come, if they came in order, and no event has brought all of them."""
        is_apart = self._output.is_ordered and self._response.get("output") in (None, [])
        return len(self._output) if is_apart else 0

    def is_whole(self, element: int) -> bool:
        """Whether an item came as a whole."""
        return self._output.is_done(element)

    def body_between(self, first: int, last: int | None) -> JsonObject:
        """The response object with these items."""
        others = {key: value for key, value in self._response.items() if key != "output"}
        return {"object": "response", "status": "in_progress", **others, "output": self._output.items(first, last)}

    def output_in(self, event: JsonObject) -> bool:
        """Whether it is a delta, something that is done, or a response with output."""
        if str(event.get("type")).endswith((".delta", ".done", ".partial_image")):
            return True
        response = event.get("response")
        return isinstance(response, dict) and bool(response.get("output"))

    def error_in(self, event: JsonObject) -> Any:
        """The error of an `error` event, whose keys may stand in the event itself; others are about something else."""
        if isinstance(kind := event.get("type"), str) and kind.startswith(PREFIX):
            return None
        error = super().error_in(event)
        if error is None and kind == "error":
            return {key: value for key, value in event.items() if key not in _NO_ERROR_KEYS and value is not None}
        return error

    def check(self, event: JsonObject) -> None:
        """Refuse an event of another response: of another lane of a WebSocket, or of the one that follows."""
        lane, response = event.get("stream_id"), event.get("response")
        if lane is not None and self._lane is not None and lane != self._lane:
            problem = f"The event is of the lane {shortened(lane)}; this response is of {shortened(self._lane)}"
            raise CannotParse(f"{problem}: {shortened(event)}.", hint="Use a recorder or assembler for each stream_id.")
        if event.get("type") == f"{PREFIX}created" and isinstance(response, dict):
            known, begun = self._response.get("id"), response.get("id")
            if known is not None and begun is not None and begun != known:
                problem = f"The event begins another response, {shortened(begun)}; this one is {shortened(known)}."
                raise CannotParse(problem, hint="Leave this recorder or assembler, and feed it to a new one.")
        self._lane = lane if self._lane is None else self._lane

    def add(self, event: JsonObject) -> None:
        """Take an event into the body."""
        kind = event.get("type")
        if not isinstance(kind, str) or not kind.startswith(PREFIX):
            return
        about, _, step = kind.removeprefix(PREFIX).rpartition(".")
        if about:
            EVENTS.get(about, status)(self._output, event, about, step)
            self.note_change(self._output.take_touched())
        elif step in BEGINNINGS or step in ENDINGS:
            response = event.get("response")
            if isinstance(response, dict):
                usage = cumulative(self._response.get("usage"), response.get("usage"))
                self._response = {key: value for key, value in response.items() if value is not None}
                if usage is not None:
                    self._response["usage"] = usage
            if step in ENDINGS:
                self.is_ended = True
                if not isinstance(response, dict) or response.get("status") is None:
                    self._response = {**self._response, "status": ENDINGS[step]}


assembler: Final = ResponsesAssembler


def as_streamed(item: Any, items: Mapping[str, JsonObject]) -> Any:
    """An item of the last event, which encrypts reasoning anew, with the opaque reasoning of its own event."""
    if not isinstance(item, dict) or item.get("id") is None or "encrypted_content" not in item:
        return item
    content = items.get(str(item["id"]), {}).get("encrypted_content")
    return {**item, "encrypted_content": content} if isinstance(content, str) and content else item


def item(output: Output, event: JsonObject, _about: str, step: str) -> None:
    """An item that is announced, or whole."""
    if isinstance(event.get("item"), dict):
        output.take(event, is_done=step == "done")


def part(output: Output, event: JsonObject, about: str, step: str) -> None:
    """A part that is announced, or whole."""
    kind, parts, index_key = PARTS[about]
    if isinstance(event.get("part"), dict):
        output.put(
            list_in(output.item(event, kind), parts), event.get(index_key), event["part"], is_whole=step == "done"
        )


def text(output: Output, event: JsonObject, about: str, step: str) -> None:
    """A piece of a text, or the whole; with the likelihoods of its tokens."""
    row = TEXTS[about]
    holder = output.item(event, row.item)
    if row.parts is not None:
        first = {"type": row.part, row.key: ""}
        holder = output.element(list_in(holder, row.parts), event.get(row.place), first)
    if step == "delta":
        output.grow(holder, row.key, event.get("delta"))
    else:
        output.say(holder, row.key, event.get(row.key))
    logprobs = event.get("logprobs")
    if isinstance(logprobs, list) and logprobs:
        if step != "delta":
            holder["logprobs"] = []
        list_in(holder, "logprobs").extend(json_copy(logprobs, "The event"))


def annotation(output: Output, event: JsonObject, _about: str, _step: str) -> None:
    """An annotation of a text."""
    parts = list_in(output.item(event, "message"), "content")
    holder = output.element(parts, event.get("content_index"), {"type": "output_text", "text": ""})
    if event.get("annotation") is not None:
        output.put(list_in(holder, "annotations"), event.get("annotation_index"), event["annotation"])


def command(output: Output, event: JsonObject, _about: str, step: str) -> None:
    """A command for a shell, or a piece of one."""
    call = output.item(event, "shell_call")
    if not isinstance(call.get("action"), dict):
        call["action"] = {}
    commands = list_in(call["action"], "commands")
    spot = output.spot(commands, event.get("command_index"))
    if spot == len(commands):
        commands.append("")
    if step == "delta":
        output.grow(commands, spot, event.get("delta"))
    else:
        output.say(commands, spot, event.get("command"))


def command_output(output: Output, event: JsonObject, _about: str, step: str) -> None:
    """What a command wrote, or a piece of it."""
    outputs = list_in(output.item(event, "shell_call_output"), "output")
    if step == "done" and isinstance(event.get("output"), list):
        spot = output.spot(outputs, event.get("command_index"))
        outputs[spot : spot + 1] = json_copy(event["output"], "The event")
    elif isinstance(event.get("delta"), dict):
        holder = output.element(outputs, event.get("command_index"), dict.fromkeys(_STREAMS, ""))
        for stream in _STREAMS:
            output.grow(holder, stream, event["delta"].get(stream))


def picture(output: Output, event: JsonObject, about: str, step: str) -> None:
    """A picture as far as it is drawn: it stands where the whole one will stand."""
    if step != "partial_image":
        status(output, event, about, step)
    elif isinstance(event.get("partial_image_b64"), str):
        keys = {key: event[key] for key in _PICTURE_KEYS if isinstance(event.get(key), str)}
        output.item(event, about).update(keys, result=event["partial_image_b64"])


def status(output: Output, event: JsonObject, about: str, step: str) -> None:
    """What a tool that the provider runs is doing."""
    streamed = output.find(event.get("item_id"), event.get("output_index"))
    if streamed is not None and streamed.item.get("type") == about and "status" in streamed.item:
        streamed.item["status"] = step


# what an event is about -> what it does to the output; all others state the status of an item
EVENTS: Final[dict[str, Callable[[Output, JsonObject, str, str], None]]] = {
    "output_item": item,
    "output_text.annotation": annotation,
    "output_text_annotation": annotation,
    "shell_call_command": command,
    "shell_call_output_content": command_output,
    "image_generation_call": picture,
    **dict.fromkeys(TEXTS, text),
    **dict.fromkeys(PARTS, part),
}
