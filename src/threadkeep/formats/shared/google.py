"""What both of Google's APIs have: names, signatures, usage, and media as base64 or an address with a media type.

The media type is the one stated, else what the ending of the name says, else what the kind of the part allows.

Source: Google's Gemini API reference, "File input methods"; "Interactions".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import DEFAULT_MEDIA_TYPE, base64_media_type
from threadkeep.domain.tool_names import REFUSED_BY_ALL, NameRule
from threadkeep.domain.usage import Usage
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.usage import count_at, normalized_usage

READS: Final = frozenset({None, "gemini", "interactions"})  # origins of signatures that the service reads
# names of functions: a letter or `_`, then letters, digits and `_ . : -`
NAMES: Final = NameRule(
    longest=128,
    valid=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*"),
    refused=REFUSED_BY_ALL,
    prefix="_",
    alphabet="A-Z a-z 0-9 _ . : -, beginning with a letter or _",
    room=128,
)

# ending of a name -> media type
ENDINGS: Final = {
    "pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown", "markdown": "text/markdown",
    "html": "text/html", "htm": "text/html", "csv": "text/csv", "json": "application/json", "xml": "application/xml",
    "rtf": "application/rtf", "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp",
    "heic": "image/heic", "heif": "image/heif", "mp3": "audio/mpeg", "wav": "audio/wav", "aiff": "audio/aiff",
    "aac": "audio/aac", "ogg": "audio/ogg", "flac": "audio/flac", "mp4": "video/mp4", "mov": "video/quicktime",
    "mpeg": "video/mpeg", "mpg": "video/mpeg", "webm": "video/webm", "mkv": "video/x-matroska", "flv": "video/x-flv",
    "wmv": "video/x-ms-wmv", "3gp": "video/3gpp",
}  # fmt: skip
# part type -> its keys with a source, in the order in which one is taken
SOURCES: Final = {
    "input_image": ("file_id", "image_url"),
    "input_file": ("file_id", "file_data", "file_url"),
    "input_video": ("video_url", "file_id"),
}
# part type -> media type where nothing says which
_FALLBACKS: Final = {"input_image": "image/jpeg", "input_video": "video/mp4"}
# part type -> what the media types of its kind begin with
KINDS: Final = {"input_image": "image/", "input_video": "video/"}
# part type -> the loss that a part without a source is
_NO_SOURCE: Final = {"input_image": "image_source", "input_file": "file_source", "input_video": "media"}


class SentMedia(NamedTuple):
    """A picture, file or video that can be sent: `content` is base64, or an address."""

    media_type: str
    content: str
    is_inline: bool


def sent_media(part: JsonObject, context: Context, path: str) -> SentMedia | None:
    """What is sent of a picture, file or video; None, and a loss, where a note must stand for it."""
    kind = part["type"]
    source = next((value for key in SOURCES[kind] if (value := str(part.get(key) or "").strip())), "")
    url = shared.url_of(part) if source == str(part.get("file_data")).strip() else shared.in_base64(source)
    content, is_inline = url.partition(",")[2], url.startswith("data:")
    media_type = _media_type(part, url)
    if not source:
        problem = (_NO_SOURCE[kind], "The part has no source")
    elif is_inline and (base64_media_type(url) is None or not shared.is_base64(content)):
        problem = ("data_url", "The data URL is broken")
    elif media_type is None:
        problem = ("media", "Nothing says of what media type the file is")
    else:
        if kind == "input_file" and part.get("filename"):  # which the Developer API refuses
            detail = f"The name {part['filename']!r} was left out: the format has none."
            context.loss("title", f"{path}.filename", detail)
        return SentMedia(media_type, content if is_inline else url, is_inline)
    context.loss(problem[0], path, f"{problem[1]}: {shared.source_of(part)}.")
    return None


def _media_type(part: JsonObject, url: str) -> str | None:
    """The media type of a picture, file or video; the types of inline pictures are the ones of their data."""
    is_inline, stated = url.startswith("data:"), part.get("media_type")
    usual = stated if stated and (part["type"] == "input_file" or not is_inline) else base64_media_type(url)
    if usual not in (None, DEFAULT_MEDIA_TYPE):
        return str(usual)
    return stated or _by_ending(part, "" if is_inline else url) or _FALLBACKS.get(part["type"])


def _by_ending(part: JsonObject, url: str) -> str | None:
    """The media type by the ending of the file's name, else of its address."""
    beginning = KINDS.get(part["type"], "")
    for name in (str(part.get("filename") or ""), url.partition("?")[0].partition("#")[0]):
        stem, dot, ending = name.rpartition("/")[2].rpartition(".")
        media_type = ENDINGS.get(ending.lower()) if stem and dot else None
        if media_type is not None and media_type.startswith(beginning):
            return media_type
    return None


def media_of(media_type: str, url: str) -> JsonObject:
    """The part that stands for media of a type."""
    for kind, beginning in KINDS.items():
        if media_type.startswith(beginning):
            return {"type": kind, SOURCES[kind][0 if kind == "input_video" else 1]: url}
    return {"type": "input_file", "file_data" if base64_media_type(url) else "file_url": url}


# Usage


class UsageKeys(NamedTuple):
    """The keys of a usage object: counts, and details, by their canonical names. Output is without thoughts."""

    input: str
    tools: str
    output: str
    thoughts: str
    cached: str
    total: str
    input_details: Mapping[str, str]
    output_details: Mapping[str, str]

    def read(self, usage: JsonObject) -> Usage:
        """Return the counts under the names of Open Responses; the service's own object stays in `raw`.

        Counts of zero may be left out: what the total has beyond the parts decides.
        """
        given, tools, written, thoughts, cached, total = (count_at(usage, key) for key in self[:6])
        input_tokens, output_tokens = _sum(given, tools), _sum(written, thoughts)
        if total is not None and (input_tokens is not None or output_tokens is not None):
            output_tokens = max(total - (input_tokens or 0), 0) if output_tokens is None else output_tokens
            input_tokens = max(total - output_tokens, input_tokens or 0)
        return Usage(
            input_tokens=usage.get(self.input),
            output_tokens=usage.get(self.output),
            total_tokens=usage.get(self.total),
            input_tokens_details=_details(usage, self.input_details),
            output_tokens_details=_details(usage, self.output_details),
            raw=usage,
            normalized=normalized_usage(
                input_tokens=input_tokens, output_tokens=output_tokens, total=total, reasoning=thoughts, cached=cached
            ),
        )


def _details(usage: JsonObject, keys: Mapping[str, str]) -> JsonObject | None:
    return {name: usage[key] for name, key in keys.items() if usage.get(key) is not None} or None


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
