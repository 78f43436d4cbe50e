"""The response of Chat Completions.

* The first choice counts; further choices are provider data.
* Reasoning of any spelling is an item before the message, and keeps its keys.
* What is said in audio alone is a text, too: its transcript.
* A refusal hides no content. Unknown content blocks and calls of other kinds are blocks of this format.
* What the body, the choice and the message say beyond that is kept: provider data, or keys of the message.
* Servers put the tokens that they read from or wrote to a cache in places of their own.

Source: OpenAI's API reference, "Chat Completions", the completion object; recorded responses of other servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, value_at
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage
from threadkeep.errors import CannotParse, StreamChunk
from threadkeep.formats.chat_completion import parts as spellings
from threadkeep.formats.chat_completion.calls import read_call
from threadkeep.formats.chat_completion.fields import INCOMPLETE, MESSAGE_KEYS, NAME, REASONING_KEYS, STATUSES
from threadkeep.formats.chat_completion.parts import is_blank_value, reasoning_of
from threadkeep.formats.shared.parsing import answer_parser, response_object, status_of
from threadkeep.formats.shared.parts import block, split_native, with_native_keys
from threadkeep.formats.shared.provider_errors import SENT_BODY, not_a_response, provider_error, shortened
from threadkeep.formats.shared.usage import count_at, normalized_usage, positive_at

CHUNK: Final = "chat.completion.chunk"
# key of the body -> field of a response
ECHOED: Final = {key: key for key in ("id", "object", "model", "service_tier", "metadata")} | {"created": "created_at"}
_OTHERS: Final = frozenset({"choices", "usage", *ECHOED})
_CHOICE_KEYS: Final = frozenset({"index", "message", "finish_reason", "error"})
_KNOWN_KEYS: Final = MESSAGE_KEYS | {*REASONING_KEYS}


@answer_parser(NAME)
def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read a Chat Completions body."""
    body = response_object(body)
    if body.get("object") == CHUNK:
        raise StreamChunk(NAME, CHUNK)
    choice, others = _choices(body)
    usage, output = body.get("usage"), [] if choice is None else _items_of(choice)
    extra = {key: value for key, value in body.items() if key not in _OTHERS}
    extra |= {"choices": others or None, "choice": _choice_data(choice or {}, output) or None}
    return Response(
        **{field: body[key] for key, field in ECHOED.items() if key in body},
        **_ending(choice),
        output=output,
        usage=usage_of(usage) if isinstance(usage, dict) and usage else None,
        extra={key: value for key, value in extra.items() if value is not None},
        format=NAME,
    )


def _choices(body: JsonObject) -> tuple[JsonObject | None, list[Any]]:
    choices = body.get("choices")
    if choices is None:
        if (error := provider_error(body, NAME)) is not None:
            raise error
        raise not_a_response(body, NAME, "The body has no choices")
    if not isinstance(choices, list) or (choices and not isinstance(choices[0], dict)):
        raise CannotParse(f"choices is {shortened(choices)}, not a list of choices.", hint=SENT_BODY)
    if not choices:
        return None, []
    if "message" not in choices[0] and isinstance(choices[0].get("delta"), dict):
        raise StreamChunk(NAME, CHUNK)
    return choices[0], choices[1:]


def _ending(choice: JsonObject | None) -> JsonObject:
    """Status, finish reason, and why the response is not whole."""
    if choice is None:
        return {"status": None}
    word, error = choice.get("finish_reason"), choice.get("error")
    status = "failed" if error and word is None else status_of(word, STATUSES, NAME)
    reason = INCOMPLETE.get(word) if isinstance(word, str) else None
    details = None if reason is None else {"reason": reason}
    return {"status": status, "finish_reason": word, "incomplete_details": details, "error": error}


def _choice_data(choice: JsonObject, output: list[JsonObject]) -> JsonObject:
    """What the choice has besides message and ending; log probabilities of its content are on a first text."""
    data = {key: value for key, value in choice.items() if key not in _CHOICE_KEYS}
    logprobs = data.get("logprobs")
    if isinstance(logprobs, dict):
        kept = {"content"} if any("logprobs" in part for item in output for part in item.get("content") or ()) else ()
        data["logprobs"] = {k: v for k, v in logprobs.items() if k not in kept and v not in (None, [])}
    return {key: value for key, value in data.items() if value not in (None, {}, [])}


# The items of a choice: reasoning, then the message, then its calls


def _items_of(choice: JsonObject) -> list[JsonObject]:
    """The items of a choice; a choice without a message has none."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return []
    items = reasoning_of(message)
    parts = _parts(message)
    if heard := spellings.transcript_of(message.get("audio")):
        parts.append({"type": "output_text", "text": heard, "spelling": spellings.TRANSCRIPT})
    first = next((part for part in parts if part["type"] == "output_text"), None)
    if first is not None:
        notes = {
            "annotations": message.get("annotations"),
            "logprobs": value_at(choice, "logprobs.content") if choice.get("logprobs") else None,
        }
        first.update({key: value for key, value in notes.items() if isinstance(value, list) and value})
    native = _native(message, has_text=first is not None)
    if parts:
        item = {"type": "message", "role": "assistant", "content": parts, "origin": NAME}
        items.append(with_native_keys(item, native, NAME) if native else item)
    elif native:
        items.append({**block({"role": "assistant", **native}, NAME), "origin": NAME})
    calls = message.get("tool_calls")
    return items + [read_call(call) for call in (calls if isinstance(calls, list) else ())]


def _parts(message: JsonObject) -> list[JsonObject]:
    content, refusal = spellings.content_of(message), message.get("refusal")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    parts = [part for wire in blocks if (part := _part(wire)) is not None]
    if isinstance(refusal, str) and refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    return parts


def _part(wire: Any) -> JsonObject | None:
    """A content block; empty texts are left out, unknown blocks kept as they are."""
    if isinstance(wire, str):
        return {"type": "output_text", "text": wire} if wire else None
    kind = wire.get("type") if isinstance(wire, dict) else None
    if kind in (None, "text") and isinstance(wire, dict) and isinstance(wire.get("text"), str):
        return {**split_native(wire, ("type", "text"), NAME), "type": "output_text"} if wire["text"] else None
    if kind == "refusal" and isinstance(wire.get("refusal"), str):
        return split_native(wire, ("type", "refusal"), NAME)
    return block(wire, NAME)


def _native(message: JsonObject, *, has_text: bool) -> JsonObject:
    """Keys of the message that have no canonical form; annotations have none without a text."""
    native = {key: value for key, value in message.items() if key not in _KNOWN_KEYS and value is not None}
    if message.get("annotations") and not has_text:
        native["annotations"] = message["annotations"]
    kept = {key: message[key] for key in ("audio", "function_call") if key in message}
    return native | {key: value for key, value in kept.items() if not is_blank_value(value)}


CACHED: Final = (
    "prompt_tokens_details.cached_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "num_cached_tokens",
    "cache_read_input_tokens",
)
WRITTEN: Final = (
    "prompt_tokens_details.cache_write_tokens",
    "prompt_tokens_details.cache_creation_tokens",
    "prompt_tokens_details.cache_creation_input_tokens",
    "cache_creation_input_tokens",
)


def usage_of(usage: JsonObject) -> Usage:
    """The token counts under the names of Open Responses; every server's own object stays in `raw`.

    Cached tokens are part of the input, also where a server states more of them than input. Where the stated total is
    larger than its parts, the gap is input if it is the audio of the prompt, and else output (thinking, behind the
    compatible endpoint of Gemini).
    """
    input_tokens, output_tokens, total = (
        count_at(usage, key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    if input_tokens is not None and output_tokens is not None and total is not None:
        gap = max(total - input_tokens - output_tokens, 0)
        is_audio = gap == count_at(usage, "prompt_tokens_details.audio_tokens")
        input_tokens, output_tokens = (
            (input_tokens + gap, output_tokens) if is_audio else (input_tokens, output_tokens + gap)
        )
    normalized = normalized_usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        reasoning=count_at(usage, "completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
        total=total,
        cached=positive_at(usage, *CACHED),
        written=positive_at(usage, *WRITTEN),
    )
    return Usage(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        total_tokens=usage.get("total_tokens"),
        input_tokens_details=usage.get("prompt_tokens_details"),
        output_tokens_details=usage.get("completion_tokens_details"),
        raw=usage,
        normalized=normalized,
    )
