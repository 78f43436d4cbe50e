"""Pictures, files and videos: `inlineData` with base64, `fileData` with an address.

* The media type is the one stated, else what the name's ending says, else what the kind of the part allows.
* What came from this format goes back as it came.

Source: Google's Gemini API reference, "Part", and "File input methods".
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import DEFAULT_MEDIA_TYPE, base64_media_type
from threadkeep.formats.gemini.spelling import base64_as, noted, spelling_of, standard_base64
from threadkeep.formats.shared.media import in_base64, is_base64, note, source_of
from threadkeep.formats.shared.reports import Context

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
_KINDS: Final = {"input_image": "image/", "input_video": "video/"}
# part type -> the loss that a part without a source is
_NO_SOURCE: Final = {"input_image": "image_source", "input_file": "file_source", "input_video": "media"}


def media_part(part: JsonObject, context: Context, path: str) -> JsonObject:
    """A picture, file or video as the format sends it; a text that says what is missing where it cannot be sent."""
    kind = part["type"]
    source = next((value for key in SOURCES[kind] if (value := str(part.get(key) or "").strip())), "")
    if not source:
        return _noted(part, _NO_SOURCE[kind], "The part has no source", context, path)
    url = in_base64(source)
    if base64_media_type(url) is not None or url.startswith("data:"):
        return _inline(part, url, context, path)
    media_type = part.get("media_type") or _ending(part, url) or _FALLBACKS.get(kind)
    if media_type is None:
        return _noted(part, "media", "Nothing says of what media type the file is", context, path)
    return {"fileData": {"mimeType": media_type, "fileUri": url}}


def _inline(part: JsonObject, url: str, context: Context, path: str) -> JsonObject:
    own_type, data = base64_media_type(url), url.partition(",")[2]
    if own_type is None or not is_base64(data):
        return _noted(part, "data_url", "The data URL is broken", context, path)
    is_stated = part["type"] == "input_file"  # the types of pictures are the ones of their data
    media_type = (part.get("media_type") if is_stated else None) or own_type
    if media_type == DEFAULT_MEDIA_TYPE:
        media_type = part.get("media_type") or _ending(part, "") or _FALLBACKS.get(part["type"])
    if media_type is None:
        return _noted(part, "media", "Nothing says of what media type the file is", context, path)
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _ending(part: JsonObject, url: str) -> str | None:
    """The media type by the ending of the file's name, else of its address."""
    beginning = _KINDS.get(part["type"], "")
    for name in (str(part.get("filename") or ""), url.partition("?")[0].partition("#")[0]):
        stem, dot, ending = name.rpartition("/")[2].rpartition(".")
        media_type = ENDINGS.get(ending.lower()) if stem and dot else None
        if media_type is not None and media_type.startswith(beginning):
            return media_type
    return None


def _noted(part: JsonObject, code: str, why: str, context: Context, path: str) -> JsonObject:
    context.loss(code, path, f"{why}: {source_of(part)}.")
    return {"text": note(part)}


def own_media(part: JsonObject) -> JsonObject:
    """A part that came from this format, as it came."""
    source = next(str(part[key]) for key in ("image_url", "video_url", "file_data", "file_url") if part.get(key))
    media_type = base64_media_type(source)
    if media_type is None:
        blob = {"mimeType": part.get("media_type"), "fileUri": source, "displayName": part.get("filename")}
        return {"fileData": {key: value for key, value in blob.items() if value is not None}}
    data = base64_as(source.partition(",")[2], spelling_of(part).get("base64", ()))
    blob = {"mimeType": media_type, "data": data, "displayName": part.get("filename")}
    return {"inlineData": {key: value for key, value in blob.items() if value is not None}}


def media_in(part: JsonObject, names: set[str]) -> JsonObject | None:
    """The canonical form of a part with `inlineData` or `fileData`; None for what has none. `names` is its spelling."""
    key = "inlineData" if "inlineData" in part else "fileData"
    if not isinstance(part.get(key), dict) or part.keys() >= {"inlineData", "fileData"}:
        return None
    holder: JsonObject = {name: value for name, value in part[key].items() if value is not None}
    media_type = holder.get("mimeType", "")
    source = _inline_source(holder, media_type) if key == "inlineData" else _address(holder)
    if source is None or not isinstance(media_type, str):
        return None
    media = _part(media_type, source[0]) | noted(names, base64=source[1])
    media |= {"media_type": media_type} if key == "fileData" and media_type else {}
    media |= {"filename": holder["displayName"]} if isinstance(holder.get("displayName"), str) else {}
    return media if own_media(media) == {key: holder} else None


def _inline_source(holder: JsonObject, media_type: Any) -> tuple[str, list[str]] | None:
    data = holder.get("data")
    standard = standard_base64(data) if isinstance(data, str) else None
    return None if standard is None else (f"data:{media_type};base64,{standard[0]}", standard[1])


def _address(holder: JsonObject) -> tuple[str, list[str]] | None:
    uri = holder.get("fileUri")
    return (uri, []) if isinstance(uri, str) and uri and not uri.startswith("data:") else None


def _part(media_type: str, url: str) -> JsonObject:
    for kind, beginning in _KINDS.items():
        if media_type.startswith(beginning):
            return {"type": kind, SOURCES[kind][0 if kind == "input_video" else 1]: url}
    return {"type": "input_file", "file_data" if base64_media_type(url) else "file_url": url}
