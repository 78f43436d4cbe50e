"""Data URLs and base64: how images and files are included in JSON; and media by the hash of their bytes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote

from threadkeep.domain.jsontext import mismatch
from threadkeep.errors import InvalidOption, shown

DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
REFERENCE: Final = "threadkeep-media:"  # and the hash: what `media="reference"` shows
_SCHEME: Final = "data:"
_BASE64: Final = ";base64"
_MEDIA_TYPE: Final = re.compile(r"[^\s,/;]+/[^\s,/;]+(?:;[^\s,]+)*")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s{}\x00-\x1f\x7f\ud800-\udfff]+")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_PLACES: Final = frozenset({"hash", "media_type", "extension"})
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_PLAIN_TYPE: Final = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")

# ending of a file name -> its media type; the first of several endings is the usual one
_TYPES: Final = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "bmp": "image/bmp", "tiff": "image/tiff", "svg": "image/svg+xml", "heic": "image/heic", "avif": "image/avif",
    "mp3": "audio/mpeg", "wav": "audio/wav", "flac": "audio/flac", "ogg": "audio/ogg", "opus": "audio/opus",
    "aac": "audio/aac", "m4a": "audio/mp4", "pcm16": "audio/pcm", "mp4": "video/mp4", "mov": "video/quicktime",
    "webm": "video/webm", "mkv": "video/x-matroska", "mpeg": "video/mpeg", "pdf": "application/pdf",
    "json": "application/json", "zip": "application/zip", "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "xls": "application/vnd.ms-excel", "csv": "text/csv", "html": "text/html", "md": "text/markdown",
    "txt": "text/plain",
}  # fmt: skip
_ENDINGS: Final = {media_type: ending for ending, media_type in reversed(_TYPES.items())}
# How files of a type begin: offset, bytes and type
_SIGNATURES: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"), (0, b"\xff\xd8\xff", "image/jpeg"), (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"), (8, b"WEBP", "image/webp"), (8, b"WAVE", "audio/wav"),
    (0, b"%PDF-", "application/pdf"), (0, b"ID3", "audio/mpeg"), (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"), (0, b"fLaC", "audio/flac"), (0, b"OggS", "audio/ogg"), (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"), (0, b"BM", "image/bmp"), (0, b"PK\x03\x04", "application/zip"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Media:
    """An image or file of an item, or one that was uploaded, as `Store.media` returns it.

    Attributes:
        content: the bytes.
        media_type: such as ``image/png``; None if unknown.
        size: the number of bytes.
        hash: their SHA-256, as 64 hexadecimal digits.
    """

    content: bytes = field(repr=False)
    media_type: str | None
    size: int
    hash: str


@dataclass(frozen=True, slots=True)
class UploadedMedia:
    """An image or file that `Store.upload_media` has stored; the same bytes again are the same upload.

    Attributes:
        media_type: such as ``image/png``; None if unknown.
        size: the number of bytes.
        hash: their SHA-256, as 64 hexadecimal digits.
        expires_at: when the upload is forgotten. What an item has by then stays.
    """

    media_type: str | None
    size: int
    hash: str
    expires_at: datetime

    @property
    def reference(self) -> str:
        """The reference that stands for the media."""
        return REFERENCE + self.hash


def media_hash(name: object) -> bytes:
    """Return the hash that a text names: 64 hexadecimal digits, or a reference; InvalidOption for other values."""
    text = name.removeprefix(REFERENCE) if isinstance(name, str) else ""
    if not _HASH.fullmatch(text):
        expected = f"64 hexadecimal digits, or a reference such as {REFERENCE}…"
        raise InvalidOption(f"must be {expected}, not {shown(name)}.", argument="hash")
    return bytes.fromhex(text)


def media_type_of(content: bytes, stated: Iterable[str]) -> str | None:
    """Return the media type of bytes: the first of `stated` that is one, or a format such as ``wav``; else a guess.

    >>> media_type_of(b"", ["messages", "mp3"]), media_type_of(b"%PDF-1.7", []), media_type_of(b"?", [])
    ('audio/mpeg', 'application/pdf', None)
    """
    types = filter(_PLAIN_TYPE.fullmatch, (_TYPES.get(word.lower(), word) for word in stated))
    media_type: str | None = next(types, None)
    if media_type not in (None, DEFAULT_MEDIA_TYPE):
        return media_type
    return next((kind for offset, begins, kind in _SIGNATURES if content.startswith(begins, offset)), media_type)


def check_media_url(template: str) -> None:
    """Check a template for the URLs of media; InvalidOption where `media_url` could not make a URL of it."""
    names = _PLACE.findall(template)
    is_url = _URL.fullmatch(_PLACE.sub("x", template)) is not None
    if not is_url or "hash" not in names or not _PLACES.issuperset(names):
        expected = "a URL with {hash}, and {media_type} and {extension} if you like"
        raise InvalidOption(f"must be {expected}, not {shown(template)}.", argument="media_url")


def media_url(template: str, name: str, media_type: str) -> str:
    """Return the URL of media, given by hash and type.

    >>> media_url("https://files.example/{hash}.{extension}", "0a", "image/png")
    'https://files.example/0a.png'
    """
    values = {"hash": name, "media_type": quote(media_type), "extension": ending_of(media_type)}
    return _PLACE.sub(lambda place: values[place[1]], template)


def ending_of(media_type: str) -> str:
    """Return the usual ending of the names of files of a type.

    >>> ending_of("image/jpeg"), ending_of("application/x-odd")
    ('jpg', 'bin')
    """
    return _ENDINGS.get(media_type, "bin")


def data_url(data: bytes | bytearray | memoryview, media_type: str = DEFAULT_MEDIA_TYPE) -> str:
    """Return a ``data:`` URL with these bytes.

    >>> data_url(b"hello", "text/plain")
    'data:text/plain;base64,aGVsbG8='

    Raises:
        InvalidOption: `media_type` is not a media type, or `data` are no bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise mismatch(InvalidOption, "bytes", data, "data", "Of a text, pass text.encode().")
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
