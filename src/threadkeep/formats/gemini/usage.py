"""Token counts of the Gemini API: thoughts are counted beside the answer, input of server tools beside the prompt.

Source: Google's Gemini API reference, "UsageMetadata".
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import NormalizedUsage, Usage
from threadkeep.formats.usage import count_at, inclusive

# details of input -> key of usageMetadata
INPUT_DETAILS: Final = {
    "cached_tokens": "cachedContentTokenCount",
    "tool_use_prompt_tokens": "toolUsePromptTokenCount",
    "prompt_tokens_details": "promptTokensDetails",
    "cache_tokens_details": "cacheTokensDetails",
    "tool_use_prompt_tokens_details": "toolUsePromptTokensDetails",
}
# details of output -> key of usageMetadata
OUTPUT_DETAILS: Final = {
    "reasoning_tokens": "thoughtsTokenCount",
    "candidates_tokens_details": "candidatesTokensDetails",
}


def usage_of(usage: JsonObject) -> Usage:
    """The token counts under the names of Open Responses; the service's own object stays in `raw`."""
    return Usage(
        input_tokens=usage.get("promptTokenCount"),
        output_tokens=usage.get("candidatesTokenCount"),
        total_tokens=usage.get("totalTokenCount"),
        input_tokens_details=_details(usage, INPUT_DETAILS),
        output_tokens_details=_details(usage, OUTPUT_DETAILS),
        raw=usage,
        normalized=_normalized(usage),
    )


def _details(usage: JsonObject, keys: dict[str, str]) -> JsonObject | None:
    found: dict[str, Any] = {name: usage[key] for name, key in keys.items() if usage.get(key) is not None}
    return found or None


def _normalized(usage: JsonObject) -> NormalizedUsage:
    """Inclusive figures. The service leaves counts of zero out: what the total has beyond the parts decides."""
    total = count_at(usage, "totalTokenCount")
    thoughts = count_at(usage, "thoughtsTokenCount")
    taken = _sum(count_at(usage, "promptTokenCount"), count_at(usage, "toolUsePromptTokenCount"))
    given = _sum(count_at(usage, "candidatesTokenCount"), thoughts)
    if total is not None and (taken is not None or given is not None):
        given = max(total - (taken or 0), 0) if given is None else given
        taken = max(total - given, taken or 0)
    return inclusive(
        taken=taken,
        given=given,
        total=total,
        reasoning=thoughts,
        cached=count_at(usage, "cachedContentTokenCount"),
    )


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
