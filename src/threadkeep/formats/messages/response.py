"""The response of the Messages API.

* Blocks become items in their order; server tools and what they gave stay blocks of this format.
* A refusal is an error in the words of the service.
* What the body says beyond the fields of a response is provider data.
* Input tokens exclude what was read from or written to a cache; output tokens include thinking.

Source: Anthropic's API reference, "Messages", the message object and usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, value_at
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage, figure
from threadkeep.errors import StreamChunk
from threadkeep.formats.messages.fields import INCOMPLETE, NAME, STATUSES
from threadkeep.formats.messages.parts import items_of
from threadkeep.formats.shared import parsing, provider_errors
from threadkeep.formats.shared.usage import READ, WRITTEN, added, beyond_total, messages_figures

EVENTS: Final = ("message_", "content_block_", "ping")  # how the types of events of a stream begin
_FIELDS: Final = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})


@parsing.answer_parser(NAME)
def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read a Messages body."""
    body = parsing.response_object(body)
    content = _content(body)
    usage = body.get("usage")
    return Response(
        id=body.get("id"),
        object=body.get("type"),
        model=body.get("model"),
        **_ending(body),
        output=items_of(map(_whole, content), "assistant"),
        usage=usage_of(usage) if isinstance(usage, dict) and usage else None,
        extra={key: value for key, value in body.items() if key not in _FIELDS and value is not None},
        format=NAME,
    )


def _content(body: JsonObject) -> list[Any]:
    content = body.get("content")
    if isinstance(content, list):
        return content
    kind = body.get("type")
    if isinstance(kind, str) and kind.startswith(EVENTS):
        raise StreamChunk(NAME, kind)
    if content is None and (error := provider_errors.provider_error(body, NAME)) is not None:
        raise error
    if content is None and "content" in body:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    raise provider_errors.not_a_response(body, NAME, "The body has no content")


def _whole(block: Any) -> Any:
    """A thinking block with both its keys, whatever the server left out."""
    if not isinstance(block, dict) or block.get("type") != "thinking":
        return block
    return {**block, "thinking": block.get("thinking") or "", "signature": block.get("signature")}


def _ending(body: JsonObject) -> JsonObject:
    """Status, finish reason, and what more there is to say about the end."""
    word, facts = body.get("stop_reason"), body.get("stop_details")
    details = {key: body[key] for key in ("stop_sequence", "stop_details", "container") if body.get(key) is not None}
    if isinstance(word, str) and word in INCOMPLETE:
        details["reason"] = INCOMPLETE[word]
    error = {"type": "refusal", "code": value_at(facts, "category"), "message": value_at(facts, "explanation")}
    return {
        "status": parsing.status_of(word, STATUSES, NAME),
        "finish_reason": word,
        "incomplete_details": details or None,
        "error": {key: value for key, value in error.items() if value is not None} if word == "refusal" else None,
    }


# key of the usage -> its name in the details of the input
DETAILS: Final = {
    WRITTEN: WRITTEN,
    READ: "cached_tokens",
    **{key: key for key in ("cache_creation", "service_tier", "inference_geo", "server_tool_use")},
}


def usage_of(usage: JsonObject) -> Usage:
    """The token counts under the names of Open Responses; the normalized ones include all iterations."""
    inputs, outputs = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    details = dict(inputs) if isinstance(inputs, dict) else {}
    details |= {name: usage[key] for key, name in DETAILS.items() if usage.get(key) is not None}
    figures = messages_figures(usage)
    fresh, output, read = figure(usage.get("input_tokens")), figures.output_tokens, figure(usage.get(READ))
    counts = [count for count in (fresh, output, read, figures.cache_write_tokens) if count is not None]
    return Usage(
        input_tokens=fresh,
        output_tokens=output,
        total_tokens=sum(counts) if counts else None,
        input_tokens_details=details or None,
        output_tokens_details=outputs if isinstance(outputs, dict) else None,
        raw=usage,
        normalized=added(figures, beyond_total(usage)) if usage.get("iterations") else figures,
    )
