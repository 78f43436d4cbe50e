"""Reading answers: messages of the assistant, whole or as streams put them together.

* All steps of a message are one answer, outputs of tools included.
* A message says neither which model it is of, nor why it ended; a part that is still streaming was cut off.
* Usage is where the documentation of the AI SDK puts it, in the metadata: `usage` or `totalUsage`.

Source: the AI SDK, `UIMessage`, "Message metadata", `LanguageModelUsage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage
from threadkeep.errors import CannotParse
from threadkeep.formats.shared import parsing, provider_errors
from threadkeep.formats.shared.usage import count_at, usage_with
from threadkeep.formats.ui_messages import parts
from threadkeep.formats.ui_messages.fields import NAME

_USAGE: Final = ("totalUsage", "usage")
_COUNTS: Final = ("inputTokens", "outputTokens", "totalTokens")
_CACHED: Final = ("inputTokenDetails.cacheReadTokens", "cachedInputTokens")
_WRITTEN: Final = ("inputTokenDetails.cacheWriteTokens",)
_REASONING: Final = ("outputTokenDetails.reasoningTokens", "reasoningTokens")
_OPEN: Final = ("streaming", "input-streaming")


@parsing.answer_parser(NAME, states_reason=False)
def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read a message of the assistant."""
    body = _message(body)
    metadata = body.get("metadata")
    usage = _usage_in(metadata) if isinstance(metadata, dict) else None
    last = body["parts"][-1] if body["parts"] else None
    is_open = isinstance(last, dict) and last.get("state") in _OPEN
    return Response(
        id=body.get("id") if isinstance(body.get("id"), str) and body["id"] else None,
        status="incomplete" if is_open else "completed",
        output=[item for turn in parts.turns_of(body) for item in turn],
        usage=None if usage is None else usage_of(usage),
        format=NAME,
    )


def _message(given: Any) -> JsonObject:
    """The message of a body, alone or in a list."""
    body = parsing.response_object(given[0] if isinstance(given, list) and len(given) == 1 else given)
    if not isinstance(body.get("parts"), list) or not all(isinstance(part, dict) for part in body["parts"]):
        if (error := provider_errors.provider_error(body, NAME)) is not None:
            raise error
        raise provider_errors.not_a_response(body, NAME, "The body has no list of parts")
    typed = [part for part in body["parts"] if isinstance(part.get("type"), str)]
    if body.get("role") is None or len(typed) < len(body["parts"]):
        raise provider_errors.not_a_response(body, NAME, "The body is no UIMessage")
    if body["role"] != "assistant":
        hint = f'Append messages of others with add_input([…], "{NAME}").'
        raise CannotParse(f"The message is not the assistant's: {provider_errors.shortened(body)}.", hint=hint)
    return body


def _usage_in(metadata: JsonObject) -> JsonObject | None:
    """The usage in the metadata of a message, if the application puts it there."""
    for key in _USAGE:
        usage = metadata.get(key)
        if isinstance(usage, dict) and any(isinstance(usage.get(count), int) for count in _COUNTS):
            return usage
    return None


def usage_of(usage: JsonObject) -> Usage:
    """The token counts under the names of Open Responses."""
    given, output, total = (count_at(usage, key) for key in _COUNTS)
    cached, written, reasoning = (count_at(usage, *keys) for keys in (_CACHED, _WRITTEN, _REASONING))
    return usage_with(usage, given, output, total=total, reasoning=reasoning, cached=cached, written=written)
