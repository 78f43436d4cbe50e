"""The response of Chat Completions.

* The first choice counts; further choices are provider data.
* Reasoning of any spelling is an item before the message, and keeps its keys.
* A refusal hides no content. Unknown content blocks and calls of other kinds are blocks of this format.
* What the body, the choice and the message say beyond that is kept: provider data, or keys of the message.

Source: OpenAI's API reference, "Chat Completions", the completion object; recorded answers of other servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage
from threadkeep.errors import CannotParse, StreamChunk
from threadkeep.formats.chat_completion.answer import items_of
from threadkeep.formats.chat_completion.fields import INCOMPLETE, NAME, STATUSES
from threadkeep.formats.envelopes import json_body, other_format, provider_error, shortened
from threadkeep.formats.statuses import status_of
from threadkeep.formats.usage import count_at, inclusive, positive_at

CHUNK: Final = "chat.completion.chunk"
# key of the body -> field of a response
ECHOED: Final = {
    "id": "id",
    "object": "object",
    "created": "created_at",
    "model": "model",
    "service_tier": "service_tier",
    "metadata": "metadata",
}
# where servers put the tokens that they read from or wrote to a cache; not all say it as OpenAI does
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
    "cache_creation_input_tokens",
)
_OTHERS: Final = frozenset({"choices", "usage", *ECHOED})
_CHOICE_KEYS: Final = frozenset({"index", "message", "finish_reason", "error"})


def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read a Chat Completions body.

    Raises:
        ProviderError: it is an error envelope.
        CannotParse: there are no choices.
    """
    body = json_body(body)
    if body.get("object") == CHUNK:
        raise StreamChunk(NAME, CHUNK)
    choice, others = _choices(body)
    usage, output = body.get("usage"), [] if choice is None else items_of(choice)
    return Response(
        **{field: body[key] for key, field in ECHOED.items() if key in body},
        **_ending(choice),
        output=output,
        usage=usage_of(usage) if isinstance(usage, dict) and usage else None,
        extra=_provider_data(body, _choice_data(choice or {}, output), others),
        format=NAME,
    )


def _choices(body: JsonObject) -> tuple[JsonObject | None, list[Any]]:
    choices = body.get("choices")
    if choices is None:
        if (error := provider_error(body)) is not None:
            raise error
        raise CannotParse(f"The body has no choices{other_format(body, NAME)}: {shortened(body)}")
    if not isinstance(choices, list) or (choices and not isinstance(choices[0], dict)):
        raise CannotParse(f"choices is {shortened(choices)}, not a list of choices. Pass the body as it came.")
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


def _provider_data(body: JsonObject, choice_data: JsonObject, others: list[Any]) -> JsonObject:
    found = {key: value for key, value in body.items() if key not in _OTHERS and value is not None}
    if others:
        found["choices"] = others
    if choice_data:
        found["choice"] = choice_data
    return found


def _choice_data(choice: JsonObject, output: list[JsonObject]) -> JsonObject:
    """What the choice says beside message and ending; log probabilities of its content are on a first text."""
    found = {key: value for key, value in choice.items() if key not in _CHOICE_KEYS}
    logprobs = found.get("logprobs")
    if isinstance(logprobs, dict):
        told = {"content"} if any("logprobs" in part for item in output for part in item.get("content") or ()) else ()
        found["logprobs"] = {k: v for k, v in logprobs.items() if k not in told and v not in (None, [])}
    return {key: value for key, value in found.items() if value not in (None, {}, [])}


def usage_of(usage: JsonObject) -> Usage:
    """The token counts under the names of Open Responses; every server's own object stays in `raw`."""
    normalized = inclusive(
        taken=count_at(usage, "prompt_tokens"),
        given=count_at(usage, "completion_tokens"),
        reasoning=count_at(usage, "completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
        total=count_at(usage, "total_tokens"),
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
