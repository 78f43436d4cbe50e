"""Content parts of Chat Completions.

* Text of every kind is a text part; annotations and log probabilities are not sent as content.
* Pictures and files go into user messages only; what the format does not take is left out and reported.
* A textual file is sent as its text. Files with data need a name.
* Blocks that came from this format go back as they came.

Source: OpenAI's API reference, "Chat Completions", messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.chat_completion.spelling import merged
from threadkeep.formats.media import decoded_text, file_name, in_base64, is_base64, is_textual, note, source_of
from threadkeep.formats.native import native_keys, own_block, report_foreign
from threadkeep.formats.reports import Context

Mapper = Callable[[JsonObject, Context, str], Any]
TEXTS: Final = frozenset({"input_text", "output_text", "text"})
# media type -> format of an audio part
AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
CARRIED: Final = ("prompt_cache_breakpoint",)
_PLAIN: Final = 2  # keys of a part that is only text: its type and the text
_NO_FILES: Final = ("audio/", "video/")


def is_one_text(parts: Sequence[Any]) -> bool:
    """Whether content is one text that says nothing else: most content is."""
    return len(parts) == 1 and len(parts[0]) == _PLAIN and parts[0]["type"] in TEXTS


def wire_parts(
    parts: Sequence[Any], mappers: dict[str, Mapper], context: Context, path: str, carried: Sequence[str] = CARRIED
) -> list[Any]:
    """The parts of a message or tool output, by the mappers of its role; `carried` are keys that each may have."""
    if is_one_text(parts):
        return [{"type": "text", "text": parts[0]["text"]}]
    found = []
    for index, part in enumerate(parts):
        place = f"{path}[{index}]"
        sent = mappers.get(part["type"], _unknown)(part, context, place)
        if "native" in part:
            report_foreign(part, NAME, context, place)
            sent = merged(sent, native_keys(part, NAME))
        if isinstance(sent, dict):
            sent = sent | {key: part[key] for key in carried if part.get(key) is not None}
        if sent is not None:
            found.append(sent)
    return found


def _text(part: JsonObject, context: Context, path: str) -> JsonObject:
    if part.get("annotations"):
        context.lose("annotations", path, "The annotations of the text were left out.")
    return {"type": "text", "text": part["text"]}


def _image(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    url = in_base64((part.get("image_url") or "").strip())
    if not url:
        if part.get("file_id"):
            _lost(part, context, path)
            return None
        context.lose("image_source", path, "The image has no URL.")
        return _note(part)
    if _is_broken(url):
        context.lose("data_url", path, "The data URL of the image is broken.")
        return _note(part)
    image = {"url": url}
    if part.get("detail") is not None:
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _file(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    url = in_base64((part.get("file_data") or part.get("file_url") or "").strip())
    own_type = base64_media_type(url)
    file_id = part.get("file_id")
    if own_type is None:
        return _file_without_data(part, file_id, url, context, path)
    media_type = part.get("media_type") or own_type
    if is_textual(media_type) and (text := decoded_text(url)) is not None:
        return {"type": "text", "text": text}
    if _is_broken(url):
        context.lose("data_url", path, "The data URL of the file is broken.")
        return _note(part)
    return _file_with_data(part, media_type, url.partition(",")[2], context, path)


def _file_without_data(part: JsonObject, file_id: Any, url: str, context: Context, path: str) -> JsonObject | None:
    if file_id:
        name = part.get("filename")
        return {"type": "file", "file": {"file_id": file_id} | ({"filename": name} if name else {})}
    if url:
        _lost(part, context, path)
        return None
    context.lose("file_source", path, "The file has neither file_id nor inline data.")
    return _note(part)


def _file_with_data(part: JsonObject, media_type: str, data: str, context: Context, path: str) -> JsonObject | None:
    if media_type in AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data, "format": AUDIO[media_type]}}
    if media_type.startswith("image/"):
        context.mend("file_as_image", path, f"A file of type {media_type} was sent as an image.")
        return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
    if media_type.startswith(_NO_FILES):
        _lost(part, context, path)
        return None
    name = part.get("filename")
    if not name:
        name = file_name(media_type)
        context.mend("file_name", path, f"The file has no name and was sent as {name}: data needs one.")
    file = {"filename": name, "file_data": f"data:{media_type};base64,{data}"}
    return {"type": "file", "file": file | ({"file_id": part["file_id"]} if part.get("file_id") else {})}


def _refusal(_part: JsonObject, context: Context, path: str) -> None:
    context.lose("refusal", path, "The refusal was left out.")


def _thought(_part: JsonObject, context: Context, path: str) -> None:
    context.lose("reasoning", path, "A text of reasoning was left out.")


def _block(part: JsonObject, context: Context, path: str) -> Any:
    return own_block(part, NAME, context, path)


def _lost(part: JsonObject, context: Context, path: str) -> None:
    context.lose("media", path, f"The format does not take this {part['type']} here: {source_of(part)}.")


def _unknown(part: JsonObject, context: Context, path: str) -> None:
    context.lose("part", path, f"The format has no part of type {part['type']!r}.")


def _note(part: JsonObject) -> JsonObject:
    return {"type": "text", "text": note(part)}


def _is_broken(url: str) -> bool:
    return base64_media_type(url) is not None and not is_base64(url.partition(",")[2])


ANYWHERE: Final[dict[str, Mapper]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "reasoning_text": _thought,
    "summary_text": _thought,
    "refusal": _refusal,
    "provider_item": _block,
    "input_image": _lost,
    "input_file": _lost,
    "input_video": _lost,
}
# role -> part type -> mapper
PARTS: Final[dict[str, dict[str, Mapper]]] = {
    "system": ANYWHERE,
    "developer": ANYWHERE,
    "assistant": ANYWHERE,
    "tool": ANYWHERE,
    "user": {**ANYWHERE, "input_image": _image, "input_file": _file},
}
