"""Content parts of Chat Completions, written and read, and how requests spelled them.

* Text of every kind is a text part; annotations and log probabilities are not sent as content.
* Pictures and files go into user messages only; what the format does not take is left out and reported.
* A textual file is sent as its text. Files with data need a name.
* Blocks that came from this format go back as they came.

Where Chat Completions has several spellings, each goes back as it came. What a request does throughout stands in
`ImportInfo.spelling`:

* `content`: lone texts are strings (``"string"``), in what is appended later, too.
* `instructions`: the leading system message is a list (``"list"``).
* `max_output_tokens`, `tool_choice`, `tools`: the older or other name that it used.
* `order`: tool messages stand elsewhere than directly behind their calls (``"kept"``).

What one message or part does differently is its own `spelling`. Of items: `content` (one of the words below), `index`
of a call, `type` and `arguments` of a call that lacks them, `audio` that is sent whole, `call` (a block that is a
call), `whole` (a block that is a whole message), `keys` that are empty. Of parts: one word.

An assistant message has reasoning, refusals and keys of servers next to its content. Reasoning stands under keys that
servers name in their own ways, or in parts that the content begins with (Mistral; behind a text, they are blocks); an
item keeps the keys and parts that it had. Keys without a canonical form are `native`.

Reading:

* Texts, pictures, files, sounds, videos and documents become canonical parts where these say all of it; keys without
  a canonical name are native. Everything else is a block of this format.
* A sound is a file with data of type audio/*, a document by URL (Mistral) a file with that URL.
* In assistant messages only texts and refusals are canonical.

Sources: OpenAI's API reference, "Chat Completions", messages; recorded responses of other servers; OpenAI's API
reference, "Chat Completions", messages; recorded requests to other servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from itertools import dropwhile, takewhile
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.chat_completion.fields import NAME, PART_KEYS, REASONING_KEYS
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.reports import Context

# of a request
ANY: Final = "any"
FUNCTIONS: Final = "functions"
KEPT: Final = "kept"
MAX_TOKENS: Final = "max_tokens"
UNTYPED: Final = "untyped"
# of content that is a lone text
STRING: Final = "string"
LIST: Final = "list"
# of empty content
ABSENT: Final = "absent"
NULL: Final = "null"
EMPTY: Final = "empty"
EMPTY_LIST: Final = "empty list"
# of parts
BARE: Final = "bare"  # a text that is a string in the list
KEY: Final = "key"  # a refusal in a key next to the content
TRANSCRIPT: Final = "transcript"  # a text that stands for the audio next to the content
PART: Final = "part"  # a refusal in it
FILE: Final = "file"  # a sound that is a file part
DOCUMENT: Final = "document_url"


def item_spelling(item: JsonObject, entry: ItemEntry) -> JsonObject:
    """How the message spelled things that an item came in."""
    spelling = item.get("spelling")
    return spelling if isinstance(spelling, dict) and entry.origin == NAME else {}


# Content


def spelled(content: Any, spelling: JsonObject, *, as_string: bool, is_joined: bool = False) -> Any:
    """Content as a string where it was one, or lone texts are (`is_joined`: several, too, line by line)."""
    word = spelling.get("content")
    is_string = word == STRING or (word != LIST and (as_string or is_joined))
    if not (is_string or is_joined) or not isinstance(content, list) or not all(map(_is_plain, content)):
        return content
    if not content or (len(content) > 1 and not is_joined):
        return content
    text = "\n".join(part["text"] for part in content)
    return text if is_string else [{"type": "text", "text": text}]


def _is_plain(part: Any) -> bool:
    is_text = isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"
    return is_text and isinstance(part["text"], str)


def spell_nothing(message: JsonObject, word: str | None) -> None:
    """Give a message without content one of that word, else an empty text."""
    if word == ABSENT:
        del message["content"]
    else:
        message["content"] = {NULL: None, EMPTY_LIST: []}.get(word or EMPTY, "")


def usual_nothing(message: JsonObject) -> str:
    """The word for content that an assistant message does not need: some keys let it go without."""
    others = ("tool_calls", "function_call", "refusal", "audio")
    return NULL if any(message.get(key) for key in others) else EMPTY


# Assistant messages


def reasoning_of(message: JsonObject) -> list[JsonObject]:
    """The reasoning before or next to the content as an item, if there is any; its keys go back as they came."""
    keys = {key: message[key] for key in REASONING_KEYS if message.get(key)}
    content = message.get("content")
    if thoughts := list(takewhile(is_thinking, content if isinstance(content, list) else ())):
        keys["content"] = thoughts
    if not keys:
        return []
    text = next((text for value in keys.values() if (text := _readable(value))), "")
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return [{"type": "reasoning", "summary": [], "content": content, "origin": NAME, "native": {NAME: keys}}]


def _readable(value: Any) -> str:
    """The readable text of a reasoning key: a string, or the texts of a list of details."""
    if isinstance(value, str):
        return value
    details = [detail for detail in (value if isinstance(value, list) else [value]) if isinstance(detail, dict)]
    pieces = [piece for detail in details for piece in (_thinking_pieces(detail) or [detail])]
    texts = [piece.get("text") or piece.get("summary") or piece.get("content") for piece in pieces]
    return "".join(text for text in texts if isinstance(text, str))


def _thinking_pieces(part: JsonObject) -> list[JsonObject]:
    thought = part.get("thinking")
    if isinstance(thought, list):
        return [piece for piece in thought if isinstance(piece, dict)]
    return [{"text": thought}] if thought else []


def is_thinking(part: Any) -> bool:
    """Whether a part of the content is reasoning (Mistral)."""
    return isinstance(part, dict) and part.get("type") == "thinking"


def content_of(message: JsonObject) -> Any:
    """The content without the reasoning that it begins with."""
    content = message.get("content")
    return [*dropwhile(is_thinking, content)] if isinstance(content, list) else content


def is_blank_value(value: Any) -> bool:
    """Whether a value holds nothing but empty values, which some servers send for keys that they do not use."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            pending.extend(current.values())
        elif current:
            return False
    return True


def message_keys(keys: JsonObject, *, is_whole: bool = False) -> JsonObject:
    """Keys of an assistant message as they are sent; of audio the service takes the id alone."""
    sent = {key: value for key, value in keys.items() if key != "role"}
    audio = sent.get("audio")
    if isinstance(audio, dict) and "id" in audio and not is_whole:
        sent["audio"] = {"id": audio["id"]}
    return sent


def transcript_of(audio: Any) -> str | None:
    """What is said in the audio of an answer, where the answer tells."""
    text = audio.get("transcript") if isinstance(audio, dict) else None
    return text if isinstance(text, str) and text else None


def audio_id_of(item: JsonObject) -> str | None:
    """The id of the audio of an answer, with which a client sends that back."""
    is_block = item["type"] == "provider_item" and item.get("format") == NAME
    keys = item.get("payload") if is_block else shared.native_keys(item, NAME)
    audio = keys.get("audio") if isinstance(keys, dict) else None
    name = audio.get("id") if isinstance(audio, dict) else None
    return name if isinstance(name, str) else None


def without_transcript(parts: Sequence[JsonObject]) -> list[JsonObject]:
    """Parts without the text that stands for the audio next to them."""
    return [part for part in parts if part.get("spelling") != TRANSCRIPT]


def without_audio(item: JsonObject) -> JsonObject:
    """An item without the audio that it came with."""
    keys = {key: value for key, value in shared.native_keys(item, NAME).items() if key != "audio"}
    return {**item, "native": {**item["native"], NAME: keys}}


def with_native(item: JsonObject, message: JsonObject, entry: ItemEntry, context: Context) -> JsonObject:
    """A message with the keys that it came with; a response has no role yet."""
    shared.report_foreign(item, NAME, context, "native")
    is_whole = "role" in message or "audio" in item_spelling(item, entry)
    return message | message_keys(shared.native_keys(item, NAME), is_whole=is_whole)


def own_keys(parts: Sequence[JsonObject]) -> tuple[Sequence[JsonObject], JsonObject]:
    """The content of a message of this format without what stands next to it: annotations, and a refusal that may."""
    annotations = [annotation for part in parts for annotation in part.get("annotations") or ()]
    keys: JsonObject = {"annotations": annotations} if annotations else {}
    words = (KEY, None) if len(parts) == 1 else (KEY,)
    apart = [part for part in parts if part["type"] == "refusal" and part.get("spelling") in words]
    if apart:
        keys["refusal"] = apart[0]["refusal"]
        parts = [part for part in parts if part is not apart[0]]
    return parts, keys


def spell_assistant(message: JsonObject, spelling: JsonObject, *, as_string: bool, is_joined: bool) -> None:
    """Give an assistant message its content as it was, and its empty keys."""
    if isinstance(keys := spelling.get("keys"), dict):
        message.update(keys)
    if message["content"]:
        message["content"] = spelled(message["content"], spelling, as_string=as_string, is_joined=is_joined)
        return
    word = spelling.get("content")
    spell_nothing(message, word if word in (ABSENT, NULL, EMPTY, EMPTY_LIST) else usual_nothing(message))


# media type -> format of an audio part
AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
CARRIED: Final = ("prompt_cache_breakpoint",)


def wire_parts(
    parts: Sequence[Any],
    mappers: dict[str, shared.Mapper],
    context: Context,
    path: str,
    carried: Sequence[str] = CARRIED,
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


def _image(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    url = shared.in_base64((part.get("image_url") or "").strip())
    if not url:
        if part.get("file_id"):
            shared.no_media(part, context, path)
            return None
        return _noted(part, context, path, "image_source", "The image has no URL.")
    if shared.is_broken(url):
        return _noted(part, context, path, "data_url", "The data URL of the image is broken.")
    detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _file(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    url = shared.url_of(part)
    own_type = base64_media_type(url)
    if own_type is None:
        if part.get("file_id"):
            return {"type": "file", "file": {key: part[key] for key in ("file_id", "filename") if part.get(key)}}
        if not url:
            return _noted(part, context, path, "file_source", "The file has neither file_id nor inline data.")
        shared.no_media(part, context, path)
        return None
    media_type = part.get("media_type") or own_type
    if shared.is_textual(media_type) and (text := shared.decoded_text(url)) is not None:
        return {"type": "text", "text": text}
    if shared.is_broken(url):
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
        name = f"file.{shared.ENDINGS.get(media_type, 'bin')}"
        context.repair("file_name", path, f"The file has no name and was sent as {name}: data needs one.")
    file = {"filename": name, "file_data": f"data:{media_type};base64,{data}"}
    return {"type": "file", "file": file | ({"file_id": part["file_id"]} if part.get("file_id") else {})}


def _noted(part: JsonObject, context: Context, path: str, code: str, why: str) -> JsonObject:
    context.loss(code, path, why)
    return {"type": "text", "text": shared.note(part)}


ANYWHERE: Final[dict[str, shared.Mapper]] = {
    **shared.NOT_SENT,
    "input_text": shared.plain_text,
    "output_text": shared.plain_text,
    "text": shared.plain_text,
    "provider_item": lambda part, context, path: shared.own_block(part, NAME, context, path),
}
# role -> part type -> mapper
PARTS: Final[dict[str, dict[str, shared.Mapper]]] = {
    "system": ANYWHERE,
    "developer": ANYWHERE,
    "assistant": ANYWHERE,
    "tool": ANYWHERE,
    "user": {**ANYWHERE, "input_image": _image, "input_file": _file},
}

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
    return (None if reader is None else reader(wire)) or shared.block(wire, NAME)


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
    """A part with the native keys of its wire next to `key`, and of the object there next to the known ones."""
    strange = {k: v for k, v in wire.items() if k not in ("type", key) and not (v is None and k in PART_KEYS)}
    if isinstance(strange.get(_BREAKPOINT), dict) and part["type"] in _MARKED:
        part[_BREAKPOINT] = strange.pop(_BREAKPOINT)
    if known is not None and (inner := {k: v for k, v in wire[key].items() if k not in known and v is not None}):
        strange[key] = inner
    return shared.with_native_keys(part, strange, NAME)


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


def _own_text(part: JsonObject, _context: Context, _path: str) -> Any:
    word = part.get("spelling")
    if word == BARE:
        return part["text"]
    return {"text": part["text"]} if word == UNTYPED else {"type": "text", "text": part["text"]}


def _own_image(part: JsonObject, _context: Context, _path: str) -> JsonObject:
    detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
    url = part.get("image_url")
    return {"type": "image_url", "image_url": url if part.get("spelling") == STRING else {"url": url, **detail}}


def _own_file(part: JsonObject, _context: Context, _path: str) -> JsonObject:
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
OWN_PARTS: Final[dict[str, shared.Mapper]] = {
    **ANYWHERE,
    "input_text": _own_text,
    "output_text": _own_text,
    "text": _own_text,
    "refusal": _refusal,
    "input_image": _own_image,
    "input_file": _own_file,
    "input_video": _video,
}
