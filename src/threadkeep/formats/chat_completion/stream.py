"""The stream of Chat Completions: chunks are put together into the body of a response.

* The top-level keys of chunks are keys of the body; the last value counts. Padding is left out.
* Choices are told apart by their index. Some servers repeat the whole message next to the delta (Perplexity).
* The answer has ended when a choice has a finish reason; usage may come after that, or in every chunk.
* OpenAI's SDK has a `stream` of its own, whose events hold the chunks; the others hold nothing new.
* Groq's usage may lie under `x_groq`. An error is a chunk of its own, or stands next to the choices (OpenRouter).

Source: OpenAI's API reference, "Chat Completions", the chunk object; recorded streams of other servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import json_copy
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse, InvalidItem
from threadkeep.formats.chat_completion.deltas import add_delta, add_message
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.chat_completion.parse_response import CHUNK, parse_response
from threadkeep.formats.shared.streams import StreamAssembler

_APART: Final = frozenset({"choices", "error", "object", "obfuscation", "p"})  # p: Mistral's padding
_OF_CHOICES: Final = frozenset({"index", "delta", "message"})
_HOLDS_CHUNK: Final = "chunk"
_TOLD_AGAIN: Final = (".delta", ".done")  # `content.delta`, `tool_calls.function.arguments.done` …
# keys of a choice whose lists grow chunk by chunk
_GROWING: Final = frozenset({"logprobs", "token_ids"})


def assembler(headers: Mapping[str, str] | None = None) -> ChunkAssembler:
    """An assembler for the chunks of one answer."""
    return ChunkAssembler(NAME, _parse, headers)


class ChunkAssembler(StreamAssembler):
    """Puts chunks together; `feed` each of them, then take `response`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._top: JsonObject = {}
        self._choices: dict[int, JsonObject] = {}
        self._has_chunks = False

    @property
    def body(self) -> JsonObject:
        """The completion as far as it has come; not to be changed."""
        body = dict(self._top)
        if "usage" not in body:  # Groq and Moonshot send usage unasked, each in a place of its own
            holders = (body.get("x_groq"), *self._choices.values())
            counts = (holder.get("usage") for holder in holders if isinstance(holder, dict))
            body |= next(({"usage": usage} for usage in counts if isinstance(usage, dict)), {})
        if self._has_chunks:
            body["choices"] = [choice for _, choice in sorted(self._choices.items())]
        return body

    def error_in(self, event: JsonObject) -> Any:
        """The error that a chunk states; some servers send it without an envelope."""
        is_error = event.get("object") == "error" or (event.get("type") == "error" and "message" in event)
        return event.get("error") or (event if is_error else None)

    def add(self, event: JsonObject) -> None:
        """Take in a chunk.

        Raises:
            CannotParse: it is nested too deeply.
        """
        if event.get("type") == _HOLDS_CHUNK and isinstance(event.get(_HOLDS_CHUNK), dict):
            event = event[_HOLDS_CHUNK]
        elif "choices" not in event and str(event.get("type")).endswith(_TOLD_AGAIN):
            return
        try:
            self._add_top(event)
            choices = event.get("choices")
            if isinstance(choices, list):
                self._has_chunks = True
                for index, choice in enumerate(choices):
                    if isinstance(choice, dict):
                        self._add_choice(choice, index)
        except InvalidItem as error:
            raise CannotParse(f"The {NAME} event cannot be kept: {error}") from error

    def _add_top(self, event: JsonObject) -> None:
        for key, value in event.items():
            if key not in _APART:
                _set(self._top, key, value)
        if (kind := event.get("object")) is not None:
            self._top["object"] = "chat.completion" if kind == CHUNK else json_copy(kind, "object")

    def _add_choice(self, choice: JsonObject, usual: int) -> None:
        stated = choice.get("index")
        index = stated if type(stated) is int else usual
        known = self._choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None})
        for key, value in choice.items():
            if key in _GROWING:
                _grow(known, key, value)
            elif key not in _OF_CHOICES:
                _set(known, key, value)
        if isinstance(choice.get("delta"), dict):
            add_delta(known["message"], choice["delta"])
        if isinstance(choice.get("message"), dict):
            add_message(known["message"], choice["message"])
        self.is_ended = self.is_ended or bool(known["finish_reason"])


def _set(holder: JsonObject, key: str, value: Any) -> None:
    """The last value counts; null is ignored, and objects keep their earlier keys."""
    known = holder.get(key)
    if isinstance(known, dict) and isinstance(value, dict):
        holder[key] = {**known, **json_copy(value, key)}
    elif value is not None:
        holder[key] = value if isinstance(value, str | int) else json_copy(value, key)


def _grow(holder: JsonObject, key: str, value: Any) -> None:
    known = holder.get(key)
    if isinstance(known, list) and isinstance(value, list):
        holder[key] = known + json_copy(value, key)
    elif isinstance(known, dict) and isinstance(value, dict):
        holder[key] = dict(known)
        for name, inner in value.items():
            _grow(holder[key], name, inner)
    elif value is not None:
        holder[key] = json_copy(value, key)


def _parse(body: Any, headers: Mapping[str, str] | None) -> Response:
    """The response; a choice without a finish reason is not reported as one with an unknown word."""
    choices = body.get("choices")
    if not choices or choices[0]["finish_reason"] or choices[0].get("error"):
        return parse_response(body, headers)
    first = {**choices[0], "finish_reason": "stop"}
    response = parse_response({**body, "choices": [first, *choices[1:]]}, headers)
    return response.model_copy(update={"finish_reason": None})
