"""Parts of messages as content, and content of any origin as parts.

A part names its media by base64, a URL, or the id of a file of some provider, which is kept as it is and is no other
format's. What a part says besides is under `spelling.ag_ui` of its content part.

Source: AG-UI 1.0, `ContentPart`, `PartSource`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import parse_data_url
from threadkeep.formats.ag_ui import fields
from threadkeep.formats.canonical.entries import overlay
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.reports import Context

PARAGRAPH: Final = "\n\n"  # what parts the texts of a message that has several
_MEDIA_KEYS: Final = ("image_url", "video_url", "file_data", "file_url")


def spelling_of(thing: JsonObject) -> JsonObject | None:
    """What an item or content part keeps of its message; None for those of another origin."""
    spelling = thing.get("spelling")
    own = spelling.get(fields.SPELLED) if isinstance(spelling, dict) else None
    return own if isinstance(own, dict) else None


def with_spelling(thing: JsonObject, **keys: Any) -> JsonObject:
    """An item or content part that keeps something of its message."""
    return {**thing, "spelling": {fields.SPELLED: {key: value for key, value in keys.items() if value}}}


def split_keys(keys: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Keys that no model sees, and others."""
    silent = {key: value for key, value in keys.items() if key in fields.SILENT}
    return silent, {key: value for key, value in keys.items() if key not in silent}


# Read


def content_of(given: Any) -> list[JsonObject]:
    """The content of a message, a text or a list of parts, as content parts."""
    return [{"type": "input_text", "text": given}] if isinstance(given, str) else [_content(part) for part in given]


def _content(part: Any) -> JsonObject:
    kind = part.get("type") if isinstance(part, dict) else None
    content: JsonObject | None = None
    said: tuple[str, ...] = ()
    if kind == "text" and isinstance(part.get("text"), str):
        content, said = {"type": "input_text", "text": part["text"]}, ("type", "text")
    elif kind in fields.MEDIA and isinstance(part.get("source"), dict):
        content, said = _media(part, part["source"]), ("source",)
    if content is not None:
        silent, native = split_keys({key: value for key, value in part.items() if key not in said})
        content = with_spelling(content, part=silent, source=content.pop("source", None))
        content = shared.with_native_keys(content, native, fields.NAME)
        if overlay(part, own_part(content)) is None:
            return content
    return shared.block(part, fields.NAME)


def _media(part: JsonObject, source: JsonObject) -> JsonObject | None:
    """The content part of a picture, file or video; its source without what the URL says."""
    metadata = part.get("metadata")
    value, media_type = source.get("value"), source.get("mimeType")
    if source.get("type") not in ("data", "url") or not isinstance(value, str) or not value:
        return None
    is_data = source["type"] == "data"
    url = f"data:{media_type};base64,{value}" if is_data else value
    rest = {key: one for key, one in source.items() if key not in ("value", *(("mimeType",) if is_data else ()))}
    names = {"image": ("input_image", "image_url"), "video": ("input_video", "video_url")}
    type_, key = names.get(part["type"], ("input_file", "file_data" if is_data else "file_url"))
    stated = {"media_type": media_type} if not is_data and isinstance(media_type, str) else {}
    if isinstance(metadata, dict) and isinstance(metadata.get("filename"), str):
        stated["filename"] = metadata["filename"]
    return {"type": type_, key: url, **stated, "source": rest}


# Write


def own_part(part: JsonObject) -> Any:
    """The part that a content part was."""
    own = spelling_of(part) or {}
    if part["type"] == "provider_item":
        return part.get("payload")
    written = {**(own.get("part") or {}), **shared.native_keys(part, fields.NAME)}
    if part["type"] in shared.TEXTS:
        return {"type": "text", "text": part.get("text"), **written}
    url = next((part[key] for key in _MEDIA_KEYS if part.get(key)), "") or shared.url_of(part)
    return {**written, "source": _source(str(url), **(own.get("source") or {}))}


def _source(url: str, **kept: Any) -> JsonObject:
    parsed = parse_data_url(url)
    if parsed is not None and kept.get("type", "data") == "data":
        return {"type": "data", "value": parsed[1], "mimeType": parsed[0], **kept}
    return {"type": "url", "value": url, **kept, **({"type": "url"} if kept.get("type") == "data" else {})}


def written_parts(parts: Sequence[JsonObject], context: Context, path: str) -> list[Any]:
    """Content of any origin as parts of a message."""
    written = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        if spelling_of(part) is not None:
            written.append(own_part(part))
            continue
        value = _WRITTEN.get(part["type"], shared.unknown_part)(part, context, part_path)
        if not shared.PRIVATE.isdisjoint(part):
            shared.report_private(part, fields.NAME, context, part_path)
        if value is not None:
            written.append(value)
    return written


def text_of(parts: Sequence[Any], context: Context, path: str) -> str:
    """The texts of parts as one, where the format takes no others."""
    texts = []
    for index, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") == "text":
            texts.append(part["text"])
        else:
            context.loss("media", f"{path}[{index}]", "The format takes texts alone here.")
    return PARAGRAPH.join(texts)


def _file(part: JsonObject, context: Context, path: str) -> JsonObject:
    url = shared.shown_url(part, context, path)
    if url is None:
        return {"type": "text", "text": shared.note(part)}
    media_type = shared.shown_type(part, url)
    kind = {"input_image": "image", "input_video": "video"}.get(part["type"])
    if kind is None:
        kind = "audio" if (media_type or "").startswith("audio/") else "document"
    metadata = {key: part[key] for key in ("filename", "detail") if part.get(key) is not None}
    stated = {"mimeType": media_type} if media_type else {}
    return {"type": kind, "source": _source(url, **stated), **({"metadata": metadata} if metadata else {})}


_WRITTEN: Final[dict[str, shared.Mapper]] = {
    **shared.NOT_SENT,
    **dict.fromkeys(sorted(shared.TEXTS), shared.plain_text),
    **dict.fromkeys(sorted(shared.MEDIA), _file),
    "refusal": shared.shown_refusal,
    "provider_item": lambda part, context, path: shared.own_block(part, fields.NAME, context, path),
}
