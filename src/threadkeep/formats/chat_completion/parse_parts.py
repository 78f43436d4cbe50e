"""Content parts that requests of Chat Completions hold: how they are read, and how they go back as they came.

* Texts, pictures, files, sounds, videos and documents become canonical parts where these say all of it; keys without
  a canonical name are native. Everything else is a block of this format.
* A sound is a file with data of type audio/*, a document by URL (Mistral) a file with that URL.
* In assistant messages only texts and refusals are canonical.

Source: OpenAI's API reference, "Chat Completions", messages; recorded requests to other servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.chat_completion.fields import NAME, PART_KEYS
from threadkeep.formats.chat_completion.parts import ANYWHERE
from threadkeep.formats.chat_completion.spelling import BARE, DOCUMENT, FILE, LIST, PART, STRING, UNTYPED
from threadkeep.formats.shared.parts import Mapper, block
from threadkeep.formats.shared.reports import Context

_BREAKPOINT: Final = "prompt_cache_breakpoint"
_MARKED: Final = ("input_text", "input_image", "input_file")  # types that have such a key
# format of a sound -> media type; all others are audio/<format>
_SOUNDS: Final = {"mp3": "audio/mpeg"}
_FORMATS: Final = {media_type: name for name, media_type in _SOUNDS.items()}
_FORMAT: Final = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_FILE_KEYS: Final = ("file_data", "file_id", "filename")


# Reading


def read_content(content: Any, role: str | None = None) -> tuple[list[JsonObject], str | None]:
    """The parts of a message's content, and how a lone text in it is spelled."""
    text_type = "output_text" if role == "assistant" else "input_text"
    if isinstance(content, str):
        return [{"type": text_type, "text": content}], STRING
    parts = [_read_part(wire, text_type) for wire in content] if isinstance(content, list) else []
    is_lone = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    return parts, LIST if is_lone else None


def _read_part(wire: Any, text_type: str) -> JsonObject:
    if isinstance(wire, str):
        return {"type": text_type, "text": wire, "spelling": BARE}
    kind = wire.get("type") if isinstance(wire, dict) else None
    if kind in (None, "text") and isinstance(wire, dict) and isinstance(wire.get("text"), str):
        return _read_text(wire, text_type)
    readers = _ASSISTANTS if text_type == "output_text" else _READERS
    reader = readers.get(kind) if isinstance(kind, str) else None
    return (None if reader is None else reader(wire)) or block(wire, NAME)


def _read_text(wire: JsonObject, text_type: str) -> JsonObject:
    part: JsonObject = {"type": text_type, "text": wire["text"]}
    if wire.get("type") is None:
        part["spelling"] = UNTYPED
    return _with_rest(part, wire, ("type", "text"))


def _read_image(wire: JsonObject) -> JsonObject | None:
    image = wire.get("image_url")
    if isinstance(image, str):
        return _with_rest({"type": "input_image", "image_url": image, "spelling": STRING}, wire, ("type", "image_url"))
    if not isinstance(image, dict) or not isinstance(image.get("url"), str):
        return None
    known = {key: image[key] for key in ("detail",) if isinstance(image.get(key), str)}
    part = {"type": "input_image", "image_url": image["url"], **known}
    return _with_rest(part, wire, ("type", "image_url"), {"image_url": _beside(image, ("url", *known))})


def _read_file(wire: JsonObject) -> JsonObject | None:
    file = wire.get("file")
    if not isinstance(file, dict):
        return None
    known = {key: file[key] for key in _FILE_KEYS if isinstance(file.get(key), str)}
    if not known:
        return None
    media_type = base64_media_type(known.get("file_data")) or ""
    word = {"spelling": FILE} if media_type.startswith("audio/") else {}
    return _with_rest(
        {"type": "input_file", **known, **word}, wire, ("type", "file"), {"file": _beside(file, tuple(known))}
    )


def _read_sound(wire: JsonObject) -> JsonObject | None:
    sound = wire.get("input_audio")
    if not isinstance(sound, dict):
        return None
    data, name = sound.get("data"), sound.get("format")
    if not isinstance(data, str) or not isinstance(name, str) or not _FORMAT.fullmatch(name):
        return None
    if _format(_media_type(name)) != name:  # it would come back under another name
        return None
    part = {"type": "input_file", "file_data": f"data:{_media_type(name)};base64,{data}"}
    return _with_rest(part, wire, ("type", "input_audio"), {"input_audio": _beside(sound, ("data", "format"))})


def _media_type(name: str) -> str:
    return _SOUNDS.get(name, f"audio/{name}")


def _format(media_type: str) -> str:
    return _FORMATS.get(media_type, media_type.removeprefix("audio/"))


def _read_video(wire: JsonObject) -> JsonObject | None:
    video = wire.get("video_url")
    if isinstance(video, str):
        return _with_rest({"type": "input_video", "video_url": video, "spelling": STRING}, wire, ("type", "video_url"))
    if not isinstance(video, dict) or not isinstance(video.get("url"), str):
        return None
    inner = {"video_url": _beside(video, ("url",))}
    return _with_rest({"type": "input_video", "video_url": video["url"]}, wire, ("type", "video_url"), inner)


def _read_document(wire: JsonObject) -> JsonObject | None:
    url = wire.get("document_url")
    if not isinstance(url, str):
        return None
    source = "file_data" if base64_media_type(url) else "file_url"
    return _with_rest({"type": "input_file", source: url, "spelling": DOCUMENT}, wire, ("type", "document_url"))


def _read_refusal(wire: JsonObject) -> JsonObject | None:
    if not isinstance(wire.get("refusal"), str):
        return None
    return _with_rest({"type": "refusal", "refusal": wire["refusal"], "spelling": PART}, wire, ("type", "refusal"))


def _beside(thing: JsonObject, known: Collection[str]) -> JsonObject:
    return {key: value for key, value in thing.items() if key not in known and value is not None}


def _with_rest(
    part: JsonObject, wire: JsonObject, known: Collection[str], inner: JsonObject | None = None
) -> JsonObject:
    """A part with the keys that it has beyond the known ones; a cache breakpoint has a name of its own."""
    strange = {k: v for k, v in wire.items() if k not in known and not (v is None and k in PART_KEYS)}
    if isinstance(strange.get(_BREAKPOINT), dict) and part["type"] in _MARKED:
        part[_BREAKPOINT] = strange.pop(_BREAKPOINT)
    strange |= {key: value for key, value in (inner or {}).items() if value}
    return {**part, "native": {NAME: strange}} if strange else part


_ASSISTANTS: Final[dict[str, Callable[[JsonObject], JsonObject | None]]] = {"refusal": _read_refusal}
# type of a part -> what reads it; texts are read apart
_READERS: Final[dict[str, Callable[[JsonObject], JsonObject | None]]] = {
    "image_url": _read_image,
    "file": _read_file,
    "input_audio": _read_sound,
    "video_url": _read_video,
    "document_url": _read_document,
    "refusal": _read_refusal,
}


# Going back


def _text(part: JsonObject, _context: Context, _path: str) -> Any:
    word = part.get("spelling")
    if word == BARE:
        return part["text"]
    return {"text": part["text"]} if word == UNTYPED else {"type": "text", "text": part["text"]}


def _image(part: JsonObject, _context: Context, _path: str) -> JsonObject:
    url = part.get("image_url")
    if part.get("spelling") == STRING:
        return {"type": "image_url", "image_url": url}
    detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _file(part: JsonObject, _context: Context, _path: str) -> JsonObject:
    data, word = part.get("file_data"), part.get("spelling")
    if word == DOCUMENT:
        return {"type": "document_url", "document_url": data or part.get("file_url")}
    media_type = base64_media_type(data) or ""
    if media_type.startswith("audio/") and word != FILE:
        sound = {"data": str(data).partition(",")[2], "format": _format(media_type)}
        return {"type": "input_audio", "input_audio": sound}
    return {"type": "file", "file": {key: part[key] for key in _FILE_KEYS if part.get(key) is not None}}


def _video(part: JsonObject, _context: Context, _path: str) -> JsonObject:
    url = part.get("video_url")
    return {"type": "video_url", "video_url": url if part.get("spelling") == STRING else {"url": url}}


def _refusal(part: JsonObject, _context: Context, _path: str) -> JsonObject:
    return {"type": "refusal", "refusal": part["refusal"]}


# parts of messages and outputs that came from this format
OWN_PARTS: Final[dict[str, Mapper]] = {
    **ANYWHERE,
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
    "input_video": _video,
}
