"""Bytes: boto3 gives and takes them as such, in JSON they are base64 text."""

from __future__ import annotations

import base64
from typing import Any, Final

from threadkeep.domain.jsontext import MAX_DEPTH, JsonObject
from threadkeep.errors import InvalidItem

# keys of a request that hold bytes in boto3
_BYTES: Final = frozenset({"bytes", "redactedContent"})
# keys below which everything belongs to users and models
_OPAQUE: Final = frozenset({"input", "json", "additionalModelRequestFields"})


def in_text(value: Any, depth: int = 0) -> Any:
    """A value with its bytes as base64 text; the value itself where there are none.

    Raises:
        InvalidItem: it is nested too deeply to be kept.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if depth > MAX_DEPTH:
        raise InvalidItem(f"JSON nested deeper than {MAX_DEPTH} levels cannot be stored. Send it as text instead.")
    if isinstance(value, dict):
        found = {key: in_text(inner, depth + 1) for key, inner in value.items()}
        return found if any(found[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        texts = [in_text(inner, depth + 1) for inner in value]
        return texts if any(one is not other for one, other in zip(texts, value, strict=True)) else value
    return value


def boto3_arguments(payload: JsonObject) -> JsonObject:
    """A request as boto3 takes it: ``client.converse(**boto3_arguments(payload))``, with bytes where JSON has text."""
    found: JsonObject = _in_bytes(payload, "")
    return found


def _in_bytes(value: Any, key: str) -> Any:
    if key in _OPAQUE:
        return value
    if isinstance(value, dict):
        return {name: _in_bytes(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_in_bytes(inner, "") for inner in value]
    return base64.b64decode(value) if key in _BYTES and isinstance(value, str) else value
