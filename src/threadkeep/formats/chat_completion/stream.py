"""The stream of Chat Completions: chunks are put together into the body of a response.

* The top-level keys of chunks are keys of the body; the last value counts. Padding is left out.
* Choices are told apart by their index. Some servers repeat the whole message next to the delta (Perplexity).
* The answer has ended when a choice has a finish reason; usage may come after that, or in every chunk.
* OpenAI's SDK has a `stream` of its own, whose events hold the chunks; the others hold nothing new.
* Groq's usage may lie under `x_groq`. An error is a chunk of its own, or stands next to the choices (OpenRouter).

Deltas:

* Texts grow piece by piece, but names and their kind are repeated: the last one counts.
* Elements of lists belong together by their index, or by standing next to each other with one type; what is only
  repeated is kept once.
* A call has its index or its id; servers that give neither send calls whole. An id that differs begins a new call,
  whatever its index.
* Content that comes as text and as parts is parts.

Source: OpenAI's API reference, "Chat Completions", the chunk object; recorded streams of other servers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import json_copy
from threadkeep.domain.response import Response
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.chat_completion.parse_response import CHUNK, parse_response
from threadkeep.formats.shared.fields import value_at
from threadkeep.formats.shared.media import joined_base64
from threadkeep.formats.shared.streams import GrowingList, StreamAssembler, growing
from threadkeep.formats.shared.usage import cumulative

_APART: Final = frozenset({"choices", "error", "object", "obfuscation", "p"})  # p: Mistral's padding
_OF_CHOICES: Final = frozenset({"index", "delta", "message"})
_TOLD_AGAIN: Final = (".delta", ".done")  # `content.delta`, `tool_calls.function.arguments.done` …
_COUNTING: Final = frozenset({"usage", "x_groq"})  # keys with cumulative counts
_LISTS: Final = frozenset({"logprobs", "token_ids"})  # keys of a choice whose lists grow chunk by chunk
# texts that always grow; of those that are not listed an equal one is a repetition
_GROWING: Final = frozenset(
    {"text", "content", "refusal", "arguments", "input", "transcript", "reasoning", "reasoning_content", "thinking",
     "summary"}
)  # fmt: skip
# texts that are repeated
_TOLD: Final = frozenset({"role", "channel", "id", "type", "name", "format", "signature", "status", "url", "phase"})
# types of parts of which neighbours are one
_ONE_PIECE: Final = frozenset({"text", "thinking", "reasoning", "reasoning.text", "reasoning.summary"})


def _parse(body: Any, headers: Mapping[str, str] | None) -> Response:
    """The response; a choice without a finish reason is not reported as one with an unknown word."""
    choices = body.get("choices")
    if not choices or choices[0]["finish_reason"] or choices[0].get("error"):
        return parse_response(body, headers)
    first = {**choices[0], "finish_reason": "stop"}
    response = parse_response({**body, "choices": [first, *choices[1:]]}, headers)
    return response.model_copy(update={"finish_reason": None})


class ChunkAssembler(StreamAssembler):
    """Puts chunks together; `feed` each of them, then take `response`."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(NAME, _parse, headers)
        self._top: JsonObject = {}
        self._choices: dict[int, JsonObject] = {}
        self._has_chunks = False

    @property
    def open_calls(self) -> Collection[object]:
        """The last call, where it has text instead of arguments: nothing tells whether more would come."""
        calls = [choice["message"].get("tool_calls") for _, choice in sorted(self._choices.items())]
        last = calls[0][-1] if calls and isinstance(calls[0], list) and calls[0] else None
        return [last.get("id")] if isinstance(last, dict) and "custom" in last else ()

    @property
    def body(self) -> JsonObject:
        """The completion as far as it has come; not to be changed."""
        body = dict(self._top)
        if "usage" not in body:  # Groq and Moonshot send usage unasked, each in a place of its own
            holders = (body.get("x_groq"), *self._choices.values())
            counts = (holder.get("usage") for holder in holders if isinstance(holder, dict))
            body |= next(({"usage": usage} for usage in counts if isinstance(usage, dict)), {})
        if self._has_chunks:
            body["choices"] = [_in_order(choice) for _, choice in sorted(self._choices.items())]
        return body

    def output_in(self, event: JsonObject) -> bool:
        """Whether a choice says more than the role."""
        choices = event["chunk"].get("choices") if isinstance(event.get("chunk"), dict) else event.get("choices")
        choices = choices if isinstance(choices, list) else ()
        deltas = (choice.get("delta") or choice.get("message") for choice in choices if isinstance(choice, dict))
        return any(
            value and key != "role" for delta in deltas if isinstance(delta, dict) for key, value in delta.items()
        )

    def error_in(self, event: JsonObject) -> Any:
        """The error that a chunk states; some servers send it without an envelope."""
        is_error = event.get("object") == "error" or (event.get("type") == "error" and "message" in event)
        return event.get("error") or (event if is_error else None)

    def add(self, event: JsonObject) -> None:
        """Take in a chunk."""
        if event.get("type") == "chunk" and isinstance(event.get("chunk"), dict):
            event = event["chunk"]
        elif "choices" not in event and str(event.get("type")).endswith(_TOLD_AGAIN):
            return
        for key, value in event.items():
            if key not in _APART:
                _set(self._top, key, value)
        if (kind := event.get("object")) is not None:
            self._top["object"] = "chat.completion" if kind == CHUNK else json_copy(kind, "object")
        choices = event.get("choices")
        if isinstance(choices, list):
            self._has_chunks = True
            for index, choice in enumerate(choices):
                if isinstance(choice, dict):
                    self._add_choice(choice, index)

    def _add_choice(self, choice: JsonObject, usual: int) -> None:
        stated = choice.get("index")
        index = stated if type(stated) is int else usual
        known = self._choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None})
        for key, value in choice.items():
            if key in _LISTS:
                _grow(known, key, value)
            elif key not in _OF_CHOICES:
                _set(known, key, value)
        if isinstance(choice.get("delta"), dict):
            _add_delta(known["message"], choice["delta"])
        if isinstance(choice.get("message"), dict):
            _add_message(known["message"], choice["message"])
        self.is_ended = self.is_ended or bool(known["finish_reason"])


assembler: Final = ChunkAssembler


def _in_order(choice: JsonObject) -> JsonObject:
    """A choice with its calls in the order of their indexes, whichever began first."""
    calls = choice["message"].get("tool_calls")
    if not isinstance(calls, list) or not all(isinstance(one, dict) and type(one.get("index")) is int for one in calls):
        return choice
    return {**choice, "message": {**choice["message"], "tool_calls": sorted(calls, key=itemgetter("index"))}}


def _set(holder: JsonObject, key: str, value: Any) -> None:
    """The last value counts; null is ignored, objects keep their earlier keys, and counts never fall."""
    known = holder.get(key)
    if key in _COUNTING:
        holder[key] = cumulative(known, value)
    elif isinstance(known, dict) and isinstance(value, dict):
        holder[key] = {**known, **json_copy(value, key)}
    elif value is not None:
        holder[key] = value if isinstance(value, str | int) else json_copy(value, key)


def _grow(holder: JsonObject, key: str, value: Any) -> None:
    known = holder.get(key)
    if isinstance(known, list) and isinstance(value, list):
        known.extend(json_copy(value, key))
    elif isinstance(known, dict) and isinstance(value, dict):
        for name, inner in value.items():
            _grow(known, name, inner)
    elif value is not None:
        holder[key] = json_copy(value, key)


# Deltas


def _add_delta(message: JsonObject, delta: JsonObject) -> None:
    for key, value in delta.items():
        if key == "content":
            _add_content(message, value)
        elif key == "tool_calls" and isinstance(value, list):
            _add_calls(message, value)
        elif key == "audio" and isinstance(value, dict) and isinstance(message.get(key), dict):
            _add_audio(message[key], value)
        else:
            _add(message, key, value)


def _add_message(message: JsonObject, other: JsonObject) -> None:
    """Take in the whole message so far, which some chunks hold, where that is more than the deltas."""
    for key, value in other.items():
        known = message.get(key)
        is_less = isinstance(value, str) and isinstance(known, str) and len(value) < len(known)
        if value and not is_less:
            message[key] = json_copy(value, key)


def _add(holder: JsonObject, key: str, value: Any) -> None:
    known = holder.get(key)
    if value is None:
        return
    if isinstance(known, str) and isinstance(value, str):
        holder[key] = _text(key, known, value)
    elif isinstance(known, list) and isinstance(value, list):
        _add_elements(growing(holder, key), value)
    elif isinstance(known, dict) and isinstance(value, dict):
        _add_object(known, value)
    else:
        holder[key] = json_copy(value, key)


def _add_object(known: JsonObject, added: JsonObject) -> None:
    for key, value in added.items():
        _add(known, key, value)


def _text(key: str, known: str, value: str) -> str:
    if key in _GROWING:
        return known + value
    if key in _TOLD:
        return value or known
    return known if value == known else known + value


def _add_elements(known: GrowingList, added: list[Any]) -> None:
    for element in added:
        if not isinstance(element, dict):
            known.append(json_copy(element, "list"))
        elif (partner := _partner(known, element)) is not None:
            _add_object(known[partner], element)
            known.note(partner)
        elif not known.holds(new := json_copy(element, "list")):
            known.append(new)


def _partner(known: GrowingList, element: JsonObject) -> int | None:
    """Where the element is that this one goes on with."""
    index, kind = element.get("index"), element.get("type")
    if type(index) is int:
        place = known.find("index", index)
    else:
        is_one_piece = isinstance(kind, str) and kind in _ONE_PIECE
        place = len(known) - 1 if known and is_one_piece and isinstance(known[-1], dict) else None
    return None if place is None or _is_apart(known[place], element) else place


def _is_apart(known: JsonObject, new: JsonObject) -> bool:
    """Whether two elements cannot be pieces of one; what is encrypted comes whole."""
    is_encrypted = bool(known.get("data")) and bool(new.get("data"))
    return known.get("type") != new.get("type") or _differ(known, new, "id") or is_encrypted


def _differ(known: JsonObject, new: JsonObject, key: str) -> bool:
    return bool(known.get(key)) and bool(new.get(key)) and known[key] != new[key]


def _add_content(message: JsonObject, value: Any) -> None:
    known = message.get("content")
    if isinstance(known, list) and isinstance(value, str):
        value = [{"type": "text", "text": value}] if value else []
    elif isinstance(known, str) and isinstance(value, list):
        message["content"] = [{"type": "text", "text": known}] if known else []
    if isinstance(value, list):
        message.setdefault("content", [])
        value = [{"type": "text", "text": part} if isinstance(part, str) else part for part in value]
    _add(message, "content", value)


def _add_audio(known: JsonObject, value: JsonObject) -> None:
    """Sound comes in pieces of base64, each padded on its own."""
    for key, inner in value.items():
        if key == "data" and isinstance(inner, str) and isinstance(known.get(key), str):
            known[key] = joined_base64(known[key], inner)
        else:
            _add(known, key, inner)


def _add_calls(message: JsonObject, pieces: list[Any]) -> None:
    calls = growing(message, "tool_calls")
    for piece in pieces:
        place = _call_of(calls, piece) if isinstance(piece, dict) else None
        if place is None:
            calls.append(json_copy(piece, "tool_calls"))
        else:
            _add_object(calls[place], piece)
            calls.note(place)


def _call_of(calls: GrowingList, piece: JsonObject) -> int | None:
    """Where the call is that a piece belongs to; None when it begins one."""
    index, call_id = piece.get("index"), piece.get("id")
    if type(index) is int:
        place = calls.find("index", index)
    elif call_id:
        place = calls.find("id", call_id)
    else:
        place = next((place for place in range(len(calls) - 1, -1, -1) if isinstance(calls[place], dict)), None)
        if place is not None and value_at(piece, "function.name") and value_at(calls[place], "function.name"):
            return None
    return None if place is None or _differ(calls[place], piece, "id") else place
