"""Content parts of Chat Completions, as they are written.

* Text of every kind is a text part; annotations and log probabilities are not sent as content.
* Pictures and files go into user messages only; what the format does not take is left out and reported.
* A textual file is sent as its text. Files with data need a name.
* Blocks that came from this format go back as they came, see `parse_parts`.

Source: OpenAI's API reference, "Chat Completions", messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.media import ENDINGS, decoded_text, in_base64, is_broken, is_textual, note, url_of
from threadkeep.formats.shared.parts import Mapper
from threadkeep.formats.shared.reports import Context

# media type -> format of an audio part
AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
CARRIED: Final = ("prompt_cache_breakpoint",)


def wire_parts(
    parts: Sequence[Any], mappers: dict[str, Mapper], context: Context, path: str, carried: Sequence[str] = CARRIED
) -> list[Any]:
    """The parts of a message or tool output, by the mappers of its role; `carried` are keys that each may have."""
    if len(parts) == 1 and len(part := parts[0]) == shared.TEXT_KEYS and part["type"] in shared.TEXTS:
        return [{"type": "text", "text": part["text"]}]
    wire = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        sent = mappers.get(part["type"], shared.unknown_part)(part, context, part_path)
        if not shared.PRIVATE.isdisjoint(part):
            shared.report_private(part, NAME, context, part_path)
            sent = merged(sent, shared.native_keys(part, NAME))
        if isinstance(sent, dict):
            sent = sent | {key: part[key] for key in carried if part.get(key) is not None}
        if sent is not None:
            wire.append(sent)
    return wire


def merged(sent: Any, keys: JsonObject) -> Any:
    """An object with the keys that it came with, in itself and in its own objects; what is not an object stays."""
    if not isinstance(sent, dict):
        return sent
    return sent | {
        key: {**sent[key], **value} if isinstance(value, dict) and isinstance(sent.get(key), dict) else value
        for key, value in keys.items()
    }


def _text(part: JsonObject, context: Context, path: str) -> JsonObject:
    if part.get("annotations"):
        context.loss("annotations", path, "The annotations of the text were left out.")
    return {"type": "text", "text": part["text"]}


def _image(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    url = in_base64((part.get("image_url") or "").strip())
    if not url:
        if part.get("file_id"):
            shared.no_media(part, context, path)
            return None
        return _noted(part, context, path, "image_source", "The image has no URL.")
    if is_broken(url):
        return _noted(part, context, path, "data_url", "The data URL of the image is broken.")
    detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _file(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    url = url_of(part)
    own_type = base64_media_type(url)
    if own_type is None:
        if part.get("file_id"):
            return {"type": "file", "file": {key: part[key] for key in ("file_id", "filename") if part.get(key)}}
        if not url:
            return _noted(part, context, path, "file_source", "The file has neither file_id nor inline data.")
        shared.no_media(part, context, path)
        return None
    media_type = part.get("media_type") or own_type
    if is_textual(media_type) and (text := decoded_text(url)) is not None:
        return {"type": "text", "text": text}
    if is_broken(url):
        return _noted(part, context, path, "data_url", "The data URL of the file is broken.")
    return _file_with_data(part, media_type, url.partition(",")[2], context, path)


def _file_with_data(part: JsonObject, media_type: str, data: str, context: Context, path: str) -> JsonObject | None:
    if media_type in AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data, "format": AUDIO[media_type]}}
    if media_type.startswith("image/"):
        context.repair("file_as_image", path, f"A file of type {media_type} was sent as an image.")
        return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
    if media_type.startswith(("audio/", "video/")):
        shared.no_media(part, context, path)
        return None
    name = part.get("filename")
    if not name:
        name = f"file.{ENDINGS.get(media_type, 'bin')}"
        context.repair("file_name", path, f"The file has no name and was sent as {name}: data needs one.")
    file = {"filename": name, "file_data": f"data:{media_type};base64,{data}"}
    return {"type": "file", "file": file | ({"file_id": part["file_id"]} if part.get("file_id") else {})}


def _noted(part: JsonObject, context: Context, path: str, code: str, why: str) -> JsonObject:
    context.loss(code, path, why)
    return {"type": "text", "text": note(part)}


ANYWHERE: Final[dict[str, Mapper]] = {
    **shared.NOT_SENT,
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "provider_item": lambda part, context, path: shared.own_block(part, NAME, context, path),
}
# role -> part type -> mapper
PARTS: Final[dict[str, dict[str, Mapper]]] = {
    "system": ANYWHERE,
    "developer": ANYWHERE,
    "assistant": ANYWHERE,
    "tool": ANYWHERE,
    "user": {**ANYWHERE, "input_image": _image, "input_file": _file},
}
