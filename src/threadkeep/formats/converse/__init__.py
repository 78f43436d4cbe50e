"""Amazon Bedrock's Converse API."""

from __future__ import annotations

import base64
from typing import Any, Final

from threadkeep.domain.formats import Format
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.base import ErrorKeys, MediaUrls, Signs

__all__ = ["FORMAT", "boto3_arguments"]

FORMAT: Final = Format(
    name="converse",
    package=__name__,
    signs=Signs(turns="messages", body={"output": dict}, events={"messageStart": dict, "contentBlockDelta": dict}),
    error_keys=ErrorKeys(holders=("Output", "Error"), type="__type", code="Code", messages=("message", "Message")),
    media_urls=MediaUrls(
        {"input_image": "image/.+", "input_file": ".+", "input_video": "video/.+"},
        url=r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9]/.+",
        needs_type=True,
    ),
)

# keys of a request that hold bytes in boto3
_BYTES: Final = frozenset({"bytes", "redactedContent"})
# keys below which everything belongs to users and models
_OPAQUE: Final = frozenset({"input", "json", "additionalModelRequestFields"})


def boto3_arguments(payload: JsonObject) -> JsonObject:
    """A request as boto3 takes it: ``client.converse(**boto3_arguments(payload))``, with bytes where JSON has text."""
    arguments: JsonObject = _in_bytes(payload, "")
    return arguments


def _in_bytes(value: Any, key: str) -> Any:
    if key in _OPAQUE:
        return value
    if isinstance(value, dict):
        return {name: _in_bytes(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_in_bytes(inner, "") for inner in value]
    return base64.b64decode(value) if key in _BYTES and isinstance(value, str) else value
