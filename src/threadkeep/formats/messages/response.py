"""The response of the Messages API.

* Blocks become items in their order; server tools and what they gave stay blocks of this format.
* A refusal is an error in the words of the service. What stopped the answer is also told beside a whole one.
* What the body says beyond the fields of a response is provider data.

Source: Anthropic's API reference, "Messages", the message object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse, StreamChunk
from threadkeep.formats.envelopes import json_body, other_format, provider_error, shortened
from threadkeep.formats.messages.blocks import items_of
from threadkeep.formats.messages.content import block_type
from threadkeep.formats.messages.fields import INCOMPLETE, NAME, STATUSES
from threadkeep.formats.messages.usage import usage_of
from threadkeep.formats.statuses import status_of

# keys of the body that say more about its end
ENDINGS: Final = ("stop_sequence", "stop_details", "container")
EVENTS: Final = frozenset(
    {
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop", "ping",
    }
)  # fmt: skip
_FIELDS: Final = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})


def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read a Messages body.

    Raises:
        ProviderError: it is an error envelope.
        CannotParse: there is no content.
    """
    body = json_body(body)
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
    if isinstance(kind, str) and kind in EVENTS:
        raise StreamChunk(NAME, kind)
    if content is None and (error := provider_error(body)) is not None:
        raise error
    if content is None and "content" in body:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    raise CannotParse(f"The body has no content{other_format(body, NAME)}: {shortened(body)}")


def _whole(block: Any) -> Any:
    """A thinking block with both its keys, whatever the server left out."""
    if block_type(block) != "thinking":
        return block
    return {**block, "thinking": block.get("thinking") or "", "signature": block.get("signature")}


def _ending(body: JsonObject) -> JsonObject:
    """Status, finish reason, and what more there is to say about the end."""
    word = body.get("stop_reason")
    details = {key: body[key] for key in ENDINGS if body.get(key) is not None}
    if isinstance(word, str) and word in INCOMPLETE:
        details["reason"] = INCOMPLETE[word]
    return {
        "status": status_of(word, STATUSES, NAME),
        "finish_reason": word,
        "incomplete_details": details or None,
        "error": _refusal(body.get("stop_details")) if word == "refusal" else None,
    }


def _refusal(details: Any) -> JsonObject:
    """A refusal as an error: its category and explanation, where the service gives them."""
    given = details if isinstance(details, dict) else {}
    found = {"type": "refusal", "code": given.get("category"), "message": given.get("explanation")}
    return {key: value for key, value in found.items() if value is not None}
