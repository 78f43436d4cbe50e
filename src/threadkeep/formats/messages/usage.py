"""Token counts of the Messages API: input excludes what was read from or written to a cache, output includes thinking.

Source: Anthropic's API reference, "Messages", usage.
"""

from __future__ import annotations

from typing import Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import Usage
from threadkeep.formats.usage import count_at, inclusive

READ: Final = "cache_read_input_tokens"
WRITTEN: Final = "cache_creation_input_tokens"
# key of the usage -> its name in the details of the input
DETAILS: Final = {
    WRITTEN: WRITTEN,
    READ: "cached_tokens",
    "cache_creation": "cache_creation",
    "service_tier": "service_tier",
    "inference_geo": "inference_geo",
    "server_tool_use": "server_tool_use",
}
# where the reasoning stands; other servers say it as OpenAI does
REASONING: Final = ("output_tokens_details.thinking_tokens", "output_tokens_details.reasoning_tokens")


def usage_of(usage: JsonObject) -> Usage:
    """The token counts under the names of Open Responses."""
    given = usage.get("input_tokens_details")
    details = dict(given) if isinstance(given, dict) else {}
    details |= {name: usage[key] for key, name in DETAILS.items() if usage.get(key) is not None}
    taken, put_out = count_at(usage, "input_tokens"), count_at(usage, "output_tokens")
    read, written = count_at(usage, READ), count_at(usage, WRITTEN)
    counts = [count for count in (taken, put_out, read, written) if count is not None]
    outputs = usage.get("output_tokens_details")
    return Usage(
        input_tokens=taken,
        output_tokens=put_out,
        total_tokens=sum(counts) if counts else None,
        input_tokens_details=details or None,
        output_tokens_details=outputs if isinstance(outputs, dict) else None,
        raw=usage,
        normalized=inclusive(
            taken=None if taken is None else taken + (read or 0) + (written or 0),
            given=put_out,
            total=None,
            reasoning=count_at(usage, *REASONING),
            cached=count_at(usage, READ, "input_tokens_details.cached_tokens"),
            written=written,
        ),
    )
