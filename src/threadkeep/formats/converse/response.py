"""The response of Converse.

* The id stands in the header x-amzn-requestid; the model is known only where a router chose it.
* Input tokens leave out those that were read from or written to a cache; the total holds them.
* What the body has besides the message, the ending and the usage is provider data.
* Bytes, as boto3 gives them, become base64 text.

Source: Amazon Bedrock's API reference, "Converse", response; recorded answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, bytes_as_text, value_at
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage
from threadkeep.errors import CannotParse, StreamChunk
from threadkeep.formats.converse.fields import INCOMPLETE, NAME, STATUSES
from threadkeep.formats.converse.parts import BlockReader
from threadkeep.formats.shared.parsing import answer_parser, response_object, status_of
from threadkeep.formats.shared.provider_errors import SENT_BODY, not_a_response, provider_error, shortened
from threadkeep.formats.shared.usage import count_at, normalized_usage

REQUEST_ID: Final = "x-amzn-requestid"
EVENTS: Final = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)
# where the service puts the tokens that it read from or wrote to a cache, the newer names first
CACHED: Final = ("cacheReadInputTokens", "cacheReadInputTokenCount")
WRITTEN: Final = ("cacheWriteInputTokens", "cacheWriteInputTokenCount")
_OTHERS: Final = frozenset({"output", "stopReason", "usage"})
_MESSAGE_KEYS: Final = frozenset({"role", "content"})


@answer_parser(NAME)
def parse_response(body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Read a Converse body."""
    body = bytes_as_text(response_object(body))
    message = _message(body)
    word = body.get("stopReason")
    if word is None and not message.get("content"):
        raise CannotParse(f"The body has neither content nor stopReason: {shortened(body)}.", hint=SENT_BODY)
    return response_of(body, message, headers, status_of(word, STATUSES, NAME))


def response_of(body: JsonObject, message: JsonObject, headers: Any, status: str | None) -> Response:
    """The response of a body and its message."""
    word, usage, tier = body.get("stopReason"), body.get("usage"), body.get("serviceTier")
    model, content = value_at(body, "trace.promptRouter.invokedModelId"), message.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    reason = INCOMPLETE.get(word) if isinstance(word, str) else None
    return Response(
        id=_request_id(body, headers),
        model=model if isinstance(model, str) else None,
        status=status,
        finish_reason=word,
        incomplete_details=None if reason is None else {"reason": reason},
        service_tier=tier.get("type") if isinstance(tier, dict) else None,
        output=BlockReader("assistant", is_answer=True).read(blocks),
        usage=usage_of(usage) if isinstance(usage, dict) and usage else None,
        extra=_provider_data(body, message),
        format=NAME,
    )


def _message(body: JsonObject) -> JsonObject:
    """The message of a body; empty where the output has none."""
    output = body.get("output")
    if not isinstance(output, dict):
        if (kind := next((key for key in body if key in EVENTS), None)) is not None:
            raise StreamChunk(NAME, kind)
        if (error := provider_error(body, NAME)) is not None:
            raise error
        raise not_a_response(body, NAME, "The body has no output")
    message = output.get("message")
    return message if isinstance(message, dict) else {}


def _request_id(body: JsonObject, headers: Any) -> str | None:
    """The id of the request: in the headers (of any case), or where boto3 puts them."""
    metadata = body.get("ResponseMetadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for holder in (headers, metadata.get("HTTPHeaders"), {REQUEST_ID: metadata.get("RequestId")}):
        for name, value in holder.items() if isinstance(holder, Mapping) else ():
            first = value[0] if isinstance(value, list | tuple) and value else value
            if str(name).lower() == REQUEST_ID and isinstance(first, str) and (text := first.strip()):
                return text
    return None


def _provider_data(body: JsonObject, message: JsonObject) -> JsonObject:
    data = {key: value for key, value in body.items() if key not in _OTHERS and value is not None}
    strange = {key: value for key, value in message.items() if key not in _MESSAGE_KEYS}
    return {**data, "message": strange} if strange else data


def usage_of(usage: JsonObject) -> Usage:
    """The token counts under the names of Open Responses; a total may show that the input already holds the cache."""
    input_tokens, output_tokens = count_at(usage, "inputTokens"), count_at(usage, "outputTokens")
    total = count_at(usage, "totalTokens")
    cached, written = count_at(usage, *CACHED), count_at(usage, *WRITTEN)
    details = {"cached_tokens": cached, "cache_creation_input_tokens": written}
    stored = (cached or 0) + (written or 0)
    holds_cache = input_tokens is not None and stored <= input_tokens and total == input_tokens + (output_tokens or 0)
    if input_tokens is not None and not holds_cache:
        input_tokens += stored
    return Usage(
        input_tokens=usage.get("inputTokens"),
        output_tokens=usage.get("outputTokens"),
        total_tokens=usage.get("totalTokens"),
        input_tokens_details={key: value for key, value in details.items() if value is not None} or None,
        raw=usage,
        normalized=normalized_usage(
            input_tokens=input_tokens, output_tokens=output_tokens, total=total, cached=cached, written=written
        ),
    )
