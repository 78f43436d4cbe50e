"""Data URLs and base64: how pictures and files stand inside JSON."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from threadkeep.domain.jsontext import MAX_DEPTH
from threadkeep.errors import InvalidItem

DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
_SCHEME: Final = "data:"
_BASE64: Final = ";base64"


def data_url(data: bytes | bytearray | memoryview, media_type: str = DEFAULT_MEDIA_TYPE) -> str:
    """The ``data:`` URL that holds these bytes.

    >>> data_url(b"hello", "text/plain")
    'data:text/plain;base64,aGVsbG8='
    """
    return f"{_SCHEME}{media_type}{_BASE64},{base64.b64encode(data).decode('ascii')}"


def parse_data_url(url: object) -> tuple[str, str] | None:
    """The media type (without its parameters) and the base64 text of a data URL; None for everything else.

    A data URL that is not base64, or names no media type, is something else. The base64 text is not checked.

    >>> parse_data_url("data:text/plain;charset=utf-8;base64,aGVsbG8=")
    ('text/plain', 'aGVsbG8=')
    """
    media_type = base64_media_type(url)
    return None if media_type is None else (media_type, str(url).partition(",")[2])


def base64_media_type(url: object) -> str | None:
    """The media type of a base64 data URL, without copying its data; None for everything else."""
    if not isinstance(url, str) or not url.startswith(_SCHEME):
        return None
    head = url[len(_SCHEME) : max(url.find(","), 0)]
    return head.partition(";")[0] or None if head.endswith(_BASE64) else None


def url_bytes(url: object) -> bytes | None:
    """The bytes that a base64 data URL holds; None for everything else.

    Raises:
        InvalidItem: its text is not base64.
    """
    parsed = parse_data_url(url)
    if parsed is None:
        return None
    try:
        return base64.b64decode(parsed[1], validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidItem(f"The data URL does not hold base64: {error}. Make it with threadkeep.data_url().") from error


def bytes_as_text(value: Any, depth: int = 0) -> Any:
    """A value with its bytes as base64 text; the value itself where there are none.

    Raises:
        InvalidItem: it is nested too deeply to be kept.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if depth > MAX_DEPTH:
        raise InvalidItem(f"JSON nested deeper than {MAX_DEPTH} levels cannot be stored. Send it as text instead.")
    if isinstance(value, dict):
        found = {key: bytes_as_text(inner, depth + 1) for key, inner in value.items()}
        return found if any(found[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        texts = [bytes_as_text(inner, depth + 1) for inner in value]
        return texts if any(one is not other for one, other in zip(texts, value, strict=True)) else value
    return value
