"""Data URLs and base64: how images and files are included in JSON."""

from __future__ import annotations

import base64
import re
from typing import Final

from threadkeep.errors import InvalidOption, shown

DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
_SCHEME: Final = "data:"
_BASE64: Final = ";base64"
_MEDIA_TYPE: Final = re.compile(r"[^\s,/;]+/[^\s,/;]+(?:;[^\s,]+)*")


def data_url(data: bytes | bytearray | memoryview, media_type: str = DEFAULT_MEDIA_TYPE) -> str:
    """Return a ``data:`` URL with these bytes.

    >>> data_url(b"hello", "text/plain")
    'data:text/plain;base64,aGVsbG8='

    Raises:
        InvalidOption: `media_type` is not a media type.
    """
    if not _MEDIA_TYPE.fullmatch(str(media_type)):  # what is no text looks like no type
        raise InvalidOption(f"must be a media type such as image/png, not {shown(media_type)}.", argument="media_type")
    return f"{_SCHEME}{media_type}{_BASE64},{base64.b64encode(data).decode('ascii')}"


def parse_data_url(url: object) -> tuple[str, str] | None:
    """Return the media type (without parameters) and the unchecked text of a base64 data URL, or None for others."""
    media_type = base64_media_type(url)
    return None if media_type is None else (media_type, str(url).partition(",")[2])


def base64_media_type(url: object) -> str | None:
    """Return the media type of a base64 data URL, without copying its data; None for anything else."""
    if not isinstance(url, str) or not url.startswith(_SCHEME):
        return None
    head = url[len(_SCHEME) : max(url.find(","), 0)]
    return head.partition(";")[0] or None if head.endswith(_BASE64) else None
