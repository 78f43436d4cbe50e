"""The stream of Chat Completions: chunks become the body that would have come whole.

* What a chunk says at its top level counts for the body, the last word each; padding is left out.
* Choices are told apart by their index. Some servers repeat the whole message beside the delta (Perplexity).
* The answer has ended when a choice has a finish reason; usage may come after that, or in every chunk.
* OpenAI's SDK has a `stream` of its own, whose events hold the chunks; what it tells beside them is no news.
* Groq's usage may lie under `x_groq`. An error is a chunk of its own, or stands beside the choices (OpenRouter).

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
from threadkeep.formats.chat_completion.response import CHUNK, parse_response
from threadkeep.formats.streams import StreamAssembler

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
        found = dict(self._top)
        if "usage" not in found:  # Groq and Moonshot count unasked, each in a place of its own
            holders = (found.get("x_groq"), *self._choices.values())
            counts = (holder.get("usage") for holder in holders if isinstance(holder, dict))
            found |= next(({"usage": usage} for usage in counts if isinstance(usage, dict)), {})
        if self._has_chunks:
            found["choices"] = [choice for _, choice in sorted(self._choices.items())]
        return found

    def error_in(self, event: JsonObject) -> Any:
        """The error that a chunk tells; some servers send it without an envelope."""
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
                for place, choice in enumerate(choices):
                    if isinstance(choice, dict):
                        self._add_choice(choice, place)
        except InvalidItem as error:
            raise CannotParse(f"The {NAME} event cannot be kept: {error}") from error

    def _add_top(self, event: JsonObject) -> None:
        for key, value in event.items():
            if key not in _APART:
                _tell(self._top, key, value)
        if (kind := event.get("object")) is not None:
            self._top["object"] = "chat.completion" if kind == CHUNK else json_copy(kind, "object")

    def _add_choice(self, choice: JsonObject, place: int) -> None:
        given = choice.get("index")
        index = given if type(given) is int else place
        found = self._choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None})
        for key, value in choice.items():
            if key in _GROWING:
                _grow(found, key, value)
            elif key not in _OF_CHOICES:
                _tell(found, key, value)
        if isinstance(choice.get("delta"), dict):
            add_delta(found["message"], choice["delta"])
        if isinstance(choice.get("message"), dict):
            add_message(found["message"], choice["message"])
        self.is_ended = self.is_ended or bool(found["finish_reason"])


def _tell(found: JsonObject, key: str, value: Any) -> None:
    """The last word counts; what is null says nothing, and objects keep what they said before."""
    known = found.get(key)
    if isinstance(known, dict) and isinstance(value, dict):
        found[key] = {**known, **json_copy(value, key)}
    elif value is not None:
        found[key] = json_copy(value, key)


def _grow(found: JsonObject, key: str, value: Any) -> None:
    known = found.get(key)
    if isinstance(known, list) and isinstance(value, list):
        found[key] = known + json_copy(value, key)
    elif isinstance(known, dict) and isinstance(value, dict):
        found[key] = dict(known)
        for name, inner in value.items():
            _grow(found[key], name, inner)
    elif value is not None:
        found[key] = json_copy(value, key)


def _parse(body: Any, headers: Mapping[str, str] | None) -> Response:
    """The response; that a choice has no finish reason yet is no unknown word."""
    choices = body.get("choices")
    if not choices or choices[0]["finish_reason"] or choices[0].get("error"):
        return parse_response(body, headers)
    first = {**choices[0], "finish_reason": "stop"}
    found = parse_response({**body, "choices": [first, *choices[1:]]}, headers)
    return found.model_copy(update={"finish_reason": None})
