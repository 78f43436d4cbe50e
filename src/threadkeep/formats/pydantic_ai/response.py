"""A response of Pydantic AI, `ModelResponse`.

* Input tokens include what was read from or written to a cache, output tokens include thinking.
* The usage may tell the cost of the response.
* What the response says beyond the fields of a response is provider data.

Source: Pydantic AI's API reference, `pydantic_ai.messages.ModelResponse` and `pydantic_ai.usage.RequestUsage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage
from threadkeep.errors import CannotParse
from threadkeep.formats.pydantic_ai.fields import INCOMPLETE, NAME, REQUEST, STATES, STATUSES, SUSPENDED
from threadkeep.formats.pydantic_ai.parts import items_of
from threadkeep.formats.shared import parsing, provider_errors
from threadkeep.formats.shared.usage import count_at, normalized_usage

_FIELDS: Final = frozenset(
    {"kind", "parts", "usage", "model_name", "provider_response_id", "vendor_id", "timestamp", "finish_reason"}
)
# names of today, and of versions 0 and 1, whose messages Pydantic AI still loads
_INPUT: Final = ("input_tokens", "request_tokens")
_OUTPUT: Final = ("output_tokens", "response_tokens")
_ID: Final = ("provider_response_id", "vendor_id")
_OLDER: Final = {"vendor_details": "provider_details"}
_DETAILS: Final = {"cache_read_tokens": "cached_tokens", "cache_write_tokens": "cache_write_tokens"}


@parsing.answer_parser(NAME, states_reason=False)
def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read a response."""
    body = _response(body)
    usage, word = body.get("usage"), body.get("finish_reason")
    return Response(
        id=next((body[key] for key in _ID if body.get(key) is not None), None),
        object=body.get("kind"),
        model=body.get("model_name"),
        status=_status(body),
        finish_reason=word,
        incomplete_details=_details(body),
        created_at=parsing.seconds_of(body.get("timestamp")),
        output=items_of({"kind": "response", **body}),
        usage=usage_of(usage) if isinstance(usage, dict) and any(usage.values()) else None,
        extra={_OLDER.get(key, key): value for key, value in body.items() if key not in _FIELDS and value is not None},
        format=NAME,
    )


def _response(given: Any) -> JsonObject:
    """The body of a response, alone or in a list, as the adapter for messages writes it."""
    body = parsing.response_object(given[0] if isinstance(given, list) and len(given) == 1 else given)
    parts = body.get("parts")
    if not isinstance(parts, list):
        if (error := provider_errors.provider_error(body, NAME)) is not None:
            raise error
        raise provider_errors.not_a_response(body, NAME, "The body has no parts")
    if body.get("kind") == REQUEST or not all(isinstance(part, dict) for part in parts):
        hint = "Append requests with add_input()."
        raise CannotParse(f"The body is no response of Pydantic AI: {provider_errors.shortened(body)}.", hint=hint)
    return body


def _status(body: JsonObject) -> str:
    state, word = body.get("state"), body.get("finish_reason")
    if isinstance(state, str) and state in STATES:
        return STATES[state]
    return "completed" if word is None else parsing.status_of(word, STATUSES, NAME)


def _details(body: JsonObject) -> JsonObject | None:
    word = body.get("finish_reason")
    if body.get("state") == SUSPENDED:
        return {"reason": SUSPENDED}
    return {"reason": INCOMPLETE[word]} if isinstance(word, str) and word in INCOMPLETE else None


def usage_of(usage: JsonObject) -> Usage:
    """The token counts under the names of Open Responses."""
    given, written = count_at(usage, *_INPUT), count_at(usage, *_OUTPUT)
    is_whole = not count_at(usage, "unmeasured_requests")  # else the counts are lower bounds
    figures = normalized_usage(
        input_tokens=given or 0 if is_whole else None,
        output_tokens=written or 0 if is_whole else None,
        total=None,
        reasoning=count_at(usage, "output_reasoning_tokens"),
        cached=count_at(usage, "cache_read_tokens"),
        written=count_at(usage, "cache_write_tokens"),
    )
    inputs = {name: usage[key] for key, name in _DETAILS.items() if usage.get(key)}
    reasoning = figures.reasoning_tokens
    return Usage(
        input_tokens=given,
        output_tokens=written,
        total_tokens=figures.total_tokens,
        input_tokens_details=inputs or None,
        output_tokens_details={"reasoning_tokens": reasoning} if reasoning else None,
        raw=usage,
        normalized=figures,
    )
