"""The response of the Gemini API.

* The first candidate counts; the service's own words for everything else are provider data, in snake case.
* A blocked prompt is a failed response without items.
* Why a response is not whole is said by `incomplete_details` and `error`, too.

Source: Google's Gemini API reference, "GenerateContentResponse".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse, StreamChunk
from threadkeep.formats.envelopes import json_body, other_format, provider_error, shortened
from threadkeep.formats.gemini.answer import Ids, items_of, seed_of
from threadkeep.formats.gemini.fields import INCOMPLETE, NAME, NUMBERS, STATUSES, UNSPECIFIED
from threadkeep.formats.gemini.history import parts_of
from threadkeep.formats.gemini.spelling import snake
from threadkeep.formats.gemini.usage import usage_of
from threadkeep.formats.statuses import status_of

# keys of the body that are fields of a response, and what Google's SDK adds to it
_OTHERS: Final = frozenset(
    {
        "candidates", "usageMetadata", "modelVersion", "responseId", "error",
        "sdkHttpResponse", "automaticFunctionCallingHistory", "parsed",
    }
)  # fmt: skip
_CANDIDATE_KEYS: Final = frozenset({"content", "finishReason"})
# keys of a candidate that are kept whatever they hold
_KEPT: Final = frozenset({"index", "avgLogprobs"})


def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read a generateContent body.

    Raises:
        ProviderError: it is an error envelope.
        CannotParse: there are neither candidates nor a reason why there are none; StreamChunk for a list of chunks.
    """
    if isinstance(body, list) and any(isinstance(chunk, dict) and "candidates" in chunk for chunk in body):
        raise StreamChunk(NAME, "a list of chunks")
    body = json_body(body)
    candidate = _candidate(body)
    content = candidate.get("content")
    parts = parts_of(content) if isinstance(content, dict) else []
    response_id = body.get("responseId")
    usage = body.get("usageMetadata")
    return Response(
        id=response_id,
        model=body.get("modelVersion"),
        **_ending(body, candidate),
        output=items_of(parts, Ids(response_id if isinstance(response_id, str) and response_id else seed_of(parts))),
        usage=usage_of(usage) if isinstance(usage, dict) and usage else None,
        extra=_provider_data(body, candidate),
        format=NAME,
    )


def _candidate(body: JsonObject) -> JsonObject:
    """The first candidate, empty where there is none."""
    candidates = body.get("candidates")
    if candidates is None and "candidates" not in body:
        if (error := provider_error(body)) is not None:
            raise error
        if not isinstance(body.get("promptFeedback"), dict) and not isinstance(body.get("usageMetadata"), dict):
            raise CannotParse(f"The body has no candidates{other_format(body, NAME)}: {shortened(body)}")
    if not isinstance(candidates, list | None) or not all(isinstance(one, dict) for one in candidates or ()):
        raise CannotParse(f"candidates is {shortened(candidates)}, not a list of candidates. Pass the body as it came.")
    return candidates[0] if candidates else {}


def _ending(body: JsonObject, candidate: JsonObject) -> JsonObject:
    """Status, finish reason, and why the response is not whole."""
    match body.get("promptFeedback"):
        case {"blockReason": reason, **others} if reason is not None and not candidate:
            return _failure(reason, others.get("blockReasonMessage"))
    word = candidate.get("finishReason")
    reason = NUMBERS.get(word, "OTHER") if isinstance(word, int) else word
    if reason in (None, "", UNSPECIFIED):
        return {"status": None, "finish_reason": word}
    status = status_of(reason, STATUSES, NAME)
    if status == "failed":
        return _failure(reason, candidate.get("finishMessage")) | {"finish_reason": word}
    details = {"reason": INCOMPLETE[reason]} if status == "incomplete" else None
    return {"status": status, "finish_reason": word, "incomplete_details": details}


def _failure(reason: Any, message: Any) -> JsonObject:
    found: JsonObject = {"status": "failed", "finish_reason": reason, "error": {"code": reason, "message": message}}
    why = INCOMPLETE.get(reason) if isinstance(reason, str) else None
    return found if why is None else found | {"incomplete_details": {"reason": why}}


def _provider_data(body: JsonObject, candidate: JsonObject) -> JsonObject:
    """What the body and its candidate say that no field of a response holds."""
    found = {snake(key): value for key, value in body.items() if key not in _OTHERS and value is not None}
    found |= {
        snake(key): value
        for key, value in candidate.items()
        if key not in _CANDIDATE_KEYS and (value is not None or key in _KEPT)
    }
    content = candidate.get("content")
    strange = (
        {key: value for key, value in content.items() if key not in ("parts", "role")}
        if isinstance(content, dict)
        else {}
    )
    return found | ({"content": strange} if strange else {})
