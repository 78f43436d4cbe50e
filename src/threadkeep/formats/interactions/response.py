"""The answer of the Interactions API: an interaction.

* Each step is an item; the service's own words for everything else are provider data.
* What the SDK derives from the steps is left out.
* Thoughts are counted apart from the answer, input of server tools apart from the prompt.

Source: the types of google-genai, `Interaction` and `Usage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.items import Item, item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse, StreamChunk
from threadkeep.formats.interactions.fields import INCOMPLETE, NAME, STATUSES
from threadkeep.formats.interactions.steps import item_in
from threadkeep.formats.shared import google, parsing, provider_errors

# keys of the body that are fields of a response
_FIELDS: Final = frozenset(
    {"id", "object", "model", "status", "created", "steps", "usage", "previous_interaction_id", "service_tier"}
)
_ELSEWHERE: Final = frozenset({"output", "choices", "content", "candidates", "error"})  # keys of other formats' answers
# what the SDK adds to it
DERIVED: Final = frozenset({"output_text", "output_audio", "output_image", "output_video"})


@parsing.answer_parser(NAME, states_reason=False)
def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read an interaction."""
    body = parsing.response_object(body)
    steps, word, usage = _steps(body), body.get("status"), body.get("usage")
    status = parsing.status_of(word, STATUSES, NAME)
    reason = INCOMPLETE.get(word) if isinstance(word, str) else None
    return Response(
        id=body.get("id") or None,
        object=body.get("object"),
        model=body.get("model"),
        status=status,
        finish_reason=word,
        incomplete_details=None if reason is None else {"reason": reason},
        error=_error(body) if status == "failed" else None,
        created_at=parsing.seconds_of(body.get("created")),
        previous_response_id=body.get("previous_interaction_id"),
        service_tier=body.get("service_tier"),
        output=[item_of(step) for step in steps],
        usage=usage_of(usage) if isinstance(usage, dict) and usage else None,
        extra={key: value for key, value in body.items() if key not in _FIELDS | DERIVED and value is not None},
        format=NAME,
    )


def item_of(step: JsonObject) -> Item:
    """A step as an item."""
    return item_from_object(item_in(step))


def _steps(body: JsonObject) -> list[JsonObject]:
    steps = body.get("steps")
    if isinstance(body.get("event_type"), str):
        raise StreamChunk(NAME, body["event_type"])
    if steps is None:
        is_stated = isinstance(body.get("id"), str) and isinstance(body.get("status"), str)
        is_one = body.get("object") == "interaction" or (is_stated and _ELSEWHERE.isdisjoint(body))
        if not is_one and (error := provider_errors.provider_error(body, NAME)) is not None:
            raise error
        if not is_one:
            raise provider_errors.not_a_response(body, NAME, "The body has no steps")
        return []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        problem = f"steps is {provider_errors.shortened(steps)}, not a list of steps."
        raise CannotParse(problem, hint=provider_errors.SENT_BODY)
    return steps


def _error(body: JsonObject) -> Any:
    """Why an interaction failed: what it states itself, else the error of its last output."""
    errors = body.get("errors")
    if isinstance(errors, list) and errors:
        return errors[0]
    return next((step["error"] for step in reversed(body.get("steps") or ()) if step.get("error")), None)


usage_of: Final = google.UsageKeys(
    input="total_input_tokens", tools="total_tool_use_tokens", output="total_output_tokens",
    thoughts="total_thought_tokens", cached="total_cached_tokens", total="total_tokens",
    input_details={
        "cached_tokens": "total_cached_tokens", "tool_use_tokens": "total_tool_use_tokens",
        "input_tokens_by_modality": "input_tokens_by_modality",
        "cached_tokens_by_modality": "cached_tokens_by_modality",
        "tool_use_tokens_by_modality": "tool_use_tokens_by_modality",
    },
    output_details={
        "reasoning_tokens": "total_thought_tokens", "output_tokens_by_modality": "output_tokens_by_modality",
    },
).read  # fmt: skip
