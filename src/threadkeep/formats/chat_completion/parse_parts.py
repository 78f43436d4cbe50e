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
from threadkeep.formats.shared.parts import Mapper, block, with_native_keys
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
        word = {"spelling": UNTYPED} if kind is None else {}
        return _with_rest({"type": text_type, "text": wire["text"], **word}, wire, "text")
    readers = _ASSISTANTS if text_type == "output_text" else _READERS
    reader = readers.get(kind) if isinstance(kind, str) else None
    return (None if reader is None else reader(wire)) or block(wire, NAME)


def _read_url(wire: JsonObject, key: str, part_type: str, more: str = "") -> JsonObject | None:
    """A picture or video, by its URL; `more` is another key that it may have."""
    thing = wire.get(key)
    if isinstance(thing, str):
        return _with_rest({"type": part_type, key: thing, "spelling": STRING}, wire, key)
    if not isinstance(thing, dict) or not isinstance(thing.get("url"), str):
        return None
    known = {more: thing[more]} if isinstance(thing.get(more), str) and more else {}
    return _with_rest({"type": part_type, key: thing["url"], **known}, wire, key, ("url", *known))


def _read_file(wire: JsonObject) -> JsonObject | None:
    file = wire.get("file")
    known = {key: file[key] for key in _FILE_KEYS if isinstance(file.get(key), str)} if isinstance(file, dict) else {}
    if not known:
        return None
    media_type = base64_media_type(known.get("file_data")) or ""
    word = {"spelling": FILE} if media_type.startswith("audio/") else {}
    return _with_rest({"type": "input_file", **known, **word}, wire, "file", known)


def _read_sound(wire: JsonObject) -> JsonObject | None:
    sound = wire.get("input_audio")
    if not isinstance(sound, dict):
        return None
    data, name = sound.get("data"), sound.get("format")
    if not isinstance(data, str) or not isinstance(name, str) or not _FORMAT.fullmatch(name):
        return None
    media_type = _SOUNDS.get(name, f"audio/{name}")
    if _format(media_type) != name:  # it would come back under another name
        return None
    part = {"type": "input_file", "file_data": f"data:{media_type};base64,{data}"}
    return _with_rest(part, wire, "input_audio", ("data", "format"))


def _format(media_type: str) -> str:
    return _FORMATS.get(media_type, media_type.removeprefix("audio/"))


def _read_document(wire: JsonObject) -> JsonObject | None:
    url = wire.get("document_url")
    if not isinstance(url, str):
        return None
    source = "file_data" if base64_media_type(url) else "file_url"
    return _with_rest({"type": "input_file", source: url, "spelling": DOCUMENT}, wire, "document_url")


def _read_refusal(wire: JsonObject) -> JsonObject | None:
    if not isinstance(wire.get("refusal"), str):
        return None
    return _with_rest({"type": "refusal", "refusal": wire["refusal"], "spelling": PART}, wire, "refusal")


def _with_rest(part: JsonObject, wire: JsonObject, key: str, known: Collection[str] | None = None) -> JsonObject:
    """A part with the native keys of its wire beside `key`, and of the object there beside those that are known."""
    strange = {k: v for k, v in wire.items() if k not in ("type", key) and not (v is None and k in PART_KEYS)}
    if isinstance(strange.get(_BREAKPOINT), dict) and part["type"] in _MARKED:
        part[_BREAKPOINT] = strange.pop(_BREAKPOINT)
    if known is not None and (inner := {k: v for k, v in wire[key].items() if k not in known and v is not None}):
        strange[key] = inner
    return with_native_keys(part, strange, NAME)


_ASSISTANTS: Final = {"refusal": _read_refusal}
# type of a part -> what reads it; texts are read apart
_READERS: Final[dict[str, Callable[[JsonObject], JsonObject | None]]] = {
    "image_url": lambda wire: _read_url(wire, "image_url", "input_image", "detail"),
    "file": _read_file,
    "input_audio": _read_sound,
    "video_url": lambda wire: _read_url(wire, "video_url", "input_video"),
    "document_url": _read_document,
    **_ASSISTANTS,
}


# Going back


def _text(part: JsonObject, _context: Context, _path: str) -> Any:
    word = part.get("spelling")
    if word == BARE:
        return part["text"]
    return {"text": part["text"]} if word == UNTYPED else {"type": "text", "text": part["text"]}


def _image(part: JsonObject, _context: Context, _path: str) -> JsonObject:
    detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
    url = part.get("image_url")
    return {"type": "image_url", "image_url": url if part.get("spelling") == STRING else {"url": url, **detail}}


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
