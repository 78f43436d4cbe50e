"""Pictures, documents, videos and sound of Converse: formats, sources, and names of documents.

* A source is base64 data or an object in S3; web addresses are not taken.
* The format comes from the part's `media_type`, else its data URL, else an ending of its name or URL.
* A textual file of another type is sent as plain text.
* Names of documents hold letters, digits, single spaces, hyphens and brackets, and are unique over the request.

Source: Amazon Bedrock's API reference, "ImageBlock", "DocumentBlock", "VideoBlock", "AudioBlock", "S3Location".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type, data_url
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.converse.fields import NAME
from threadkeep.formats.shared.parts import is_base64, is_textual

_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
PLAIN_TEXT: Final = "txt"

_S3: Final = re.compile(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?", re.DOTALL)
_LONGEST_URI: Final = 1024
_REFUSED: Final = re.compile(r"[^A-Za-z0-9 \-()\[\]]")
_SPACES: Final = re.compile(r" {2,}")
_LONGEST_NAME: Final = 200


class Kind(NamedTuple):
    """A kind of media: its block, and the media types and endings of names that stand for its formats."""

    block: str
    types: Mapping[str, str]
    endings: Mapping[str, str]
    part: str = "input_file"  # the type of its part
    source: str = "file_data"  # the key of that part with the source


IMAGE: Final = Kind(
    "image",
    {"image/jpeg": "jpeg", "image/jpg": "jpeg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"},
    {"jpg": "jpeg", "jpeg": "jpeg", "png": "png", "gif": "gif", "webp": "webp"},
    "input_image", "image_url",
)  # fmt: skip
_DOCUMENTS: Final = {
    "application/pdf": "pdf", "text/csv": "csv", "text/html": "html", "text/plain": "txt", "text/markdown": "md",
    "application/msword": "doc", f"{_OFFICE}.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls", f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
}  # fmt: skip
_DOCUMENT_ENDINGS: Final = {ending: ending for ending in _DOCUMENTS.values()}
DOCUMENT: Final = Kind("document", _DOCUMENTS, {**_DOCUMENT_ENDINGS, "htm": "html", "markdown": "md"})
VIDEO: Final = Kind(
    "video",
    {
        "video/x-matroska": "mkv", "video/quicktime": "mov", "video/mp4": "mp4", "video/webm": "webm",
        "video/x-flv": "flv", "video/mpeg": "mpeg", "video/x-ms-wmv": "wmv", "video/3gpp": "three_gp",
    },
    {
        "mkv": "mkv", "mov": "mov", "mp4": "mp4", "webm": "webm", "flv": "flv", "mpeg": "mpeg", "mpg": "mpeg",
        "wmv": "wmv", "3gp": "three_gp",
    },
    "input_video", "video_url",
)  # fmt: skip
AUDIO: Final = Kind(
    "audio",
    {
        "audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav", "audio/aac": "aac",
        "audio/flac": "flac", "audio/ogg": "ogg", "audio/opus": "opus", "audio/mp4": "mp4", "audio/m4a": "m4a",
        "audio/webm": "webm",
    },
    {ending: ending for ending in ("mp3", "wav", "aac", "flac", "ogg", "opus", "m4a")},
)  # fmt: skip
MEDIA: Final = {kind.block: kind for kind in (IMAGE, DOCUMENT, VIDEO, AUDIO)}


def kind_of_file(part: JsonObject, url: str) -> Kind:
    """Documents are files; pictures, videos and sound that are given as files are what they are."""
    media_type = _media_type(part) or base64_media_type(url) or ""
    return next((kind for kind in (IMAGE, VIDEO, AUDIO) if media_type.startswith(f"{kind.block}/")), DOCUMENT)


def format_of(part: JsonObject, url: str, kind: Kind) -> str | None:
    """The format of a medium; None when nothing names one that the service has."""
    own_type = base64_media_type(url)
    for media_type in (_media_type(part), own_type):
        if media_type is not None and media_type in kind.types:
            return kind.types[media_type]
    for name in (part.get("filename"), None if own_type else url):
        ending = _ending(name) if isinstance(name, str) else ""
        if ending in kind.endings:
            return kind.endings[ending]
    return None


def is_text_document(part: JsonObject, url: str) -> bool:
    """Whether a document of a type without a format is text, so that it can go as plain text."""
    return any(is_textual(media_type) for media_type in (_media_type(part), base64_media_type(url)) if media_type)


def source_block(url: str) -> JsonObject | None:
    """The source: data or an S3 location; None for any other URL, and for data that is broken."""
    if base64_media_type(url) is not None:
        data = url.partition(",")[2]
        return {"bytes": data} if is_base64(data) else None
    is_in_s3 = len(url) <= _LONGEST_URI and _S3.fullmatch(url) is not None
    return {"s3Location": {"uri": url}} if is_in_s3 else None


class DocumentNames:
    """The names of the documents of one request: each is used once."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def keep(self, name: str) -> None:
        """Note a name that is sent as it came."""
        self._counts[name] = self._counts.get(name, 0) + 1

    def unique(self, name: str) -> str:
        """The name; where it is used already, with a number behind it."""
        for number in count(self._counts.get(name, 0) + 1):
            ending = f"-{number}" if number > 1 else ""
            unique = f"{name[: _LONGEST_NAME - len(ending)]}{ending}" if ending else name
            if unique not in self._counts:
                break
        self._counts[name] = number
        self._counts.setdefault(unique, 0)
        return unique


def document_name(part: JsonObject, url: str) -> str:
    """A name that the service takes: from the file's name or place, else a neutral one.

    >>> document_name({"filename": "my_report.v2.pdf"}, "")
    'my-report-v2'
    """
    named = part.get("filename")
    source = named if isinstance(named, str) and named else ("" if base64_media_type(url) else url)
    stem = source.rpartition("/")[2]
    if "." in stem[1:]:
        stem = stem[: stem.rindex(".")]
    clean = _SPACES.sub(" ", _REFUSED.sub("-", stem))[:_LONGEST_NAME].strip()
    return clean or f"document-{hashed(url or str(part.get('file_id')))[:8]}"


def _media_type(part: JsonObject) -> str | None:
    media_type: Any = part.get("media_type")
    return media_type if isinstance(media_type, str) else None


def _ending(name: str) -> str:
    stem, dot, ending = name.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot and stem else ""


# Reading


def media_part(block: str, content: Any) -> JsonObject | None:
    """The part of a block of media, strange keys under `native`; None where its source is of an unknown kind."""
    kind = MEDIA[block]
    source = content.get("source") if isinstance(content, dict) else None
    if not isinstance(source, dict):
        return None
    part: JsonObject = {"type": kind.part}
    if kind is DOCUMENT and isinstance(content.get("name"), str):
        ending = content.get("format")
        part["filename"] = f"{content['name']}.{ending}" if isinstance(ending, str) else content["name"]
    url = _url(source, kind, content.get("format"))
    if url is None:
        return None
    is_data = base64_media_type(url) is not None
    part["file_url" if kind.source == "file_data" and not is_data else kind.source] = url
    if not is_data and format_of(part, url, kind) != content.get("format"):
        part["media_type"] = type_of(kind, content.get("format"))
    return part | _strange(part, url, kind, content)


def _url(source: JsonObject, kind: Kind, media_format: Any) -> str | None:
    """The URL of a source: data, an S3 location, or text."""
    match source:
        case {"bytes": str(data)} if data:
            return f"data:{type_of(kind, media_format)};base64,{data}"
        case {"s3Location": {"uri": str(uri)}}:
            return uri
        case {"text": str(text)}:
            return data_url(text.encode("utf-8", "surrogatepass"), "text/plain")
        case {"content": [*pieces]} if all(isinstance(piece, dict) for piece in pieces):
            texts = [piece["text"] for piece in pieces if isinstance(piece.get("text"), str)]
            return data_url("\n".join(texts).encode("utf-8", "surrogatepass"), "text/plain")
    return None


def type_of(kind: Kind, media_format: Any) -> str:
    """The media type of a format."""
    known = next((name for name, name_of_format in kind.types.items() if name_of_format == media_format), None)
    return known or f"{'application' if kind is DOCUMENT else kind.block}/{media_format or 'octet-stream'}"


def _strange(part: JsonObject, url: str, kind: Kind, content: JsonObject) -> JsonObject:
    """What the block says beyond, or other than, what its part would become; null for what it does not say."""
    plain: JsonObject = {"format": format_of(part, url, kind), "source": source_block(url)}
    if kind is DOCUMENT:
        plain["name"] = document_name(part, url)
    strange = {key: value for key, value in content.items() if key not in plain or plain[key] != value}
    strange |= {key: None for key in plain if key not in content and (plain[key] is not None or key == "format")}
    return {"native": {NAME: {kind.block: strange}}} if strange else {}
