"""The response of the Gemini API.

* The first candidate counts; the service's own words for everything else are provider data, in snake case.
* Calls that Google's SDK answered by itself are items, with their outputs, before the items of the answer.
* A blocked prompt is a failed response without items.
* Why a response is not whole is said by `incomplete_details` and `error`, too.
* Thoughts are counted apart from the answer, input of server tools apart from the prompt.

Source: Google's Gemini API reference, "GenerateContentResponse" and "UsageMetadata".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse, StreamChunk
from threadkeep.formats.gemini import calls, spelling
from threadkeep.formats.gemini.fields import INCOMPLETE, NAME, NUMBERS, STATUSES, UNSPECIFIED
from threadkeep.formats.gemini.turns import CONTENT_KEYS, called_items, items_of, parts_of
from threadkeep.formats.shared import google
from threadkeep.formats.shared.parsing import ANSWERED, answer_parser, response_object, status_of
from threadkeep.formats.shared.provider_errors import SENT_BODY, not_a_response, provider_error, shortened

HISTORY: Final = "automaticFunctionCallingHistory"  # of calls that Google's SDK has answered by itself
# keys of the body that are fields of a response, and what Google's SDK adds to it
_OTHERS: Final = frozenset(
    {
        "candidates", "usageMetadata", "modelVersion", "responseId", "error",
        "sdkHttpResponse", HISTORY, "parsed",
    }
)  # fmt: skip
_CANDIDATE_KEYS: Final = frozenset({"content", "finishReason"})
# keys of a candidate that are kept whatever they hold
_KEPT: Final = frozenset({"index", "avgLogprobs"})


@answer_parser(NAME)
def parse_response(body: Any, _headers: Mapping[str, str] | None = None, *, calls_before: int = 0) -> Response:
    """Read a generateContent body; of a part of one with an id, `calls_before` are the calls in the parts before."""
    if isinstance(body, list) and any(isinstance(chunk, dict) and "candidates" in chunk for chunk in body):
        raise StreamChunk(NAME, "a list of chunks")
    body = response_object(body)
    candidate = _candidate(body)
    parts = parts_of(candidate.get("content"))
    response_id = body.get("responseId")
    ids = calls.Ids(response_id if is_id(response_id) else calls.seed_of(parts), calls_before)
    usage, called = body.get("usageMetadata"), called_items(body.get(HISTORY))
    return Response(
        id=response_id,
        model=body.get("modelVersion"),
        **_ending(body, candidate),
        output=[*called, *items_of(parts, ids)],
        usage=usage_of(usage) if isinstance(usage, dict) and usage else None,
        extra=_provider_data(body, candidate) | ({ANSWERED: len(called)} if called else {}),
        format=NAME,
    )


def is_id(value: Any) -> bool:
    """Whether a value can be the id of a response, by which its calls are named."""
    return isinstance(value, str) and bool(value)


def _candidate(body: JsonObject) -> JsonObject:
    """The first candidate, empty where there is none."""
    candidates = body.get("candidates")
    if candidates is None and "candidates" not in body:
        if (error := provider_error(body, NAME)) is not None:
            raise error
        if not isinstance(body.get("promptFeedback"), dict) and not isinstance(body.get("usageMetadata"), dict):
            raise not_a_response(body, NAME, "The body has no candidates")
    if not isinstance(candidates, list | None) or not all(isinstance(answer, dict) for answer in candidates or ()):
        raise CannotParse(f"candidates is {shortened(candidates)}, not a list of candidates.", hint=SENT_BODY)
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
    failure: JsonObject = {"status": "failed", "finish_reason": reason, "error": {"code": reason, "message": message}}
    why = INCOMPLETE.get(reason) if isinstance(reason, str) else None
    return failure if why is None else failure | {"incomplete_details": {"reason": why}}


def _provider_data(body: JsonObject, candidate: JsonObject) -> JsonObject:
    """What the body and its candidate say that no field of a response holds."""
    data = {spelling.snake(key): value for key, value in body.items() if key not in _OTHERS and value is not None}
    data |= {
        spelling.snake(key): value
        for key, value in candidate.items()
        if key not in _CANDIDATE_KEYS and (value is not None or key in _KEPT)
    }
    content = candidate.get("content")
    known = content if isinstance(content, dict) else {}
    strange = {key: value for key, value in known.items() if key not in CONTENT_KEYS}
    return data | ({"content": strange} if strange else {})


usage_of: Final = google.UsageKeys(
    input="promptTokenCount", tools="toolUsePromptTokenCount", output="candidatesTokenCount",
    thoughts="thoughtsTokenCount", cached="cachedContentTokenCount", total="totalTokenCount",
    input_details={
        "cached_tokens": "cachedContentTokenCount", "tool_use_prompt_tokens": "toolUsePromptTokenCount",
        "prompt_tokens_details": "promptTokensDetails", "cache_tokens_details": "cacheTokensDetails",
        "tool_use_prompt_tokens_details": "toolUsePromptTokensDetails",
    },
    output_details={
        "reasoning_tokens": "thoughtsTokenCount", "candidates_tokens_details": "candidatesTokensDetails",
    },
).read  # fmt: skip
