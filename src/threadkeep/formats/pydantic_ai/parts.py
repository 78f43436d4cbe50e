"""Content of prompts, answers and tool returns, written and read.

* Media are URLs, or binary content for data URLs; the file id of a provider says nothing without its name, and is a
  loss. A file name becomes the identifier.
* Answers hold texts alone. System text and texts of answers are a part each.

Reading: what an item has no place for stays with it, so that the part comes back equal: under `spelling` what no model
sees (times, ids), under `native` the rest. A part that has no canonical form, or would not come back, is a block.

Source: Pydantic AI's API reference, `pydantic_ai.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.canonical.entries import overlay
from threadkeep.formats.pydantic_ai import own
from threadkeep.formats.pydantic_ai.fields import NAME, SILENT
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.parts import is_broken, note, source_of, url_of
from threadkeep.formats.shared.reports import Context


def user_content(parts: Sequence[JsonObject], context: Context, path: str) -> list[Any]:
    """The elements of a prompt or tool return."""
    return _sent(parts, _USER, context, path)


def texts(parts: Sequence[JsonObject], context: Context, path: str) -> list[str]:
    """The texts of a system message or an answer."""
    return _sent(parts, _TEXTS, context, path)


def _sent(parts: Sequence[JsonObject], mappers: dict[str, shared.Mapper], context: Context, path: str) -> list[Any]:
    sent = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        value = mappers.get(part["type"], shared.unknown_part)(part, context, part_path)
        if not shared.PRIVATE.isdisjoint(part):
            shared.report_private(part, NAME, context, part_path)
        if value is not None:
            sent.append(value)
    return sent


def _text(part: JsonObject, context: Context, path: str) -> str:
    if part.get("annotations"):
        context.loss("annotations", path, "The annotations of the text were left out.")
    return str(part["text"])


def _media(part: JsonObject, context: Context, path: str) -> Any:
    url = url_of(part)
    named = {"identifier": part["filename"]} if isinstance(part.get("filename"), str) else {}
    media_type = base64_media_type(url)
    if not url:
        code = "image_source" if part["type"] == "input_image" else "file_source"
        context.loss(code, path, f"There is no URL: {source_of(part)}.")
        return note(part)
    if media_type is None:
        return {"kind": own.URL_KINDS.get(part["type"], "document-url"), "url": url, **named, **_detail(part)}
    if is_broken(url):
        context.loss("data_url", path, f"The data URL is broken: {source_of(part)}.")
        return note(part)
    return {"kind": "binary", "data": url.partition(",")[2], "media_type": media_type, **named, **_detail(part)}


def _detail(part: JsonObject) -> JsonObject:
    return {"vendor_metadata": {"detail": part["detail"]}} if part.get("detail") is not None else {}


def _block(part: JsonObject, context: Context, path: str) -> Any:
    return shared.own_block(part, NAME, context, path)


def _no_block(part: JsonObject, context: Context, path: str) -> None:
    """Leave a block out that stands where only texts do."""
    if shared.own_block(part, NAME, context, path) is not None:
        context.loss("provider_item", path, "A block has no place in a message of this role.")


_TEXTS: Final[dict[str, shared.Mapper]] = {
    **shared.NOT_SENT,
    **dict.fromkeys(sorted(shared.TEXTS), _text),
    "provider_item": _no_block,
}
_USER: Final[dict[str, shared.Mapper]] = {
    **_TEXTS,
    **dict.fromkeys(sorted(shared.MEDIA), _media),
    "provider_item": _block,
}

_NULLABLE: Final = "content"  # the only key of a part with a mapper in which null is a value


def items_of(message: JsonObject) -> list[JsonObject]:
    """The item objects of a message, one for each part; what the message says besides them is with the first."""
    fields = {key: value for key, value in message.items() if key != "parts" and value is not None}
    if isinstance(fields.get("usage"), dict):  # a count that is not there is zero
        fields["usage"] = {key: value for key, value in fields["usage"].items() if value not in (0, None, {})}
    items = [item_of(part) for part in message.get("parts") or ()]
    if not items:
        return [{**shared.block({**fields, "parts": []}, NAME), "origin": NAME}]
    items[0]["spelling"] = {**items[0].get("spelling", {}), "message": fields}
    return items


def item_of(part: Any) -> JsonObject:
    """The item object of a part."""
    kind = part.get("part_kind") if isinstance(part, dict) else None
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        kept = {key: value for key, value in part.items() if value is not None or key == _NULLABLE}
        read = reader(kept)
        item = None if read is None else _whole(kept, {**read[0], "origin": NAME}, read[1])
        if item is not None and overlay(kept, own.part_of(item)) is None:
            return item
    return {**shared.block(part, NAME), "origin": NAME}


def _whole(wire: JsonObject, thing: JsonObject, said: Collection[str]) -> JsonObject:
    """An item or content part with the keys of its wire that it does not say itself."""
    rest = {key: value for key, value in wire.items() if key not in said}
    if "part_kind" in rest and rest["part_kind"] == own.usual_kind(thing):
        del rest["part_kind"]
    native = {key: value for key, value in rest.items() if key not in SILENT and value is not None}
    silent = {key: value for key, value in rest.items() if key not in native}
    words = thing.pop("words", None)
    spelling = ({"part": silent} if silent else {}) | ({"words": words} if words else {})
    thing |= {"spelling": spelling} if spelling else {}
    return thing | ({"native": {NAME: native}} if native else {})


# Parts: the item, and the keys of the part that it says. `words` are how the part spells what the item says.
Read = tuple[JsonObject, tuple[str, ...]]


def _message(role: str, content: list[JsonObject], words: list[str] | None = None) -> JsonObject:
    return {"type": "message", "role": role, "content": content} | ({"words": words} if words else {})


def _said(role: str, key: str) -> Callable[[JsonObject], Read | None]:
    """A reader of a part that is a text."""
    kind = "output_text" if role == "assistant" else "input_text"

    def read(part: JsonObject) -> Read | None:
        text = part.get(key)
        return (_message(role, [{"type": kind, "text": text}]), (key,)) if isinstance(text, str) else None

    return read


def _prompt(part: JsonObject) -> Read | None:
    content = part.get("content")
    if isinstance(content, str):
        return _message("user", [{"type": "input_text", "text": content}]), ("content",)
    if not isinstance(content, list):
        return None
    return _message("user", list(map(content_of, content)), ["list"]), ("content",)


def _return(part: JsonObject) -> Read | None:
    call_id, content = part.get("tool_call_id"), part.get("content")
    if not isinstance(call_id, str) or "content" not in part:
        return None
    if not part.get("tool_name"):  # a retry that answers no call
        return _feedback(part)
    item: JsonObject = {"type": "function_call_output", "call_id": call_id}
    is_retry = part.get("part_kind") == "retry-prompt"
    if is_retry or part.get("outcome") not in (None, "success"):
        item["status"] = "failed"
    if isinstance(content, str):
        item["output"] = content
    elif any(map(_is_media, content if isinstance(content, list) else [content])):
        parts = content if isinstance(content, list) else [content]
        item |= {"output": [content_of(one) for one in parts], "words": ["list" if parts is content else "one"]}
    else:
        item |= {"output": dumps(content).decode(), "words": ["json"]}
    return item, ("tool_call_id", "content")


def _feedback(part: JsonObject) -> Read | None:
    content = part.get("content")
    if isinstance(content, str):
        return _message("user", [{"type": "input_text", "text": content}]), ("content",)
    return _message("user", [{"type": "input_text", "text": dumps(content).decode()}], ["json"]), ("content",)


def _summary(part: JsonObject) -> Read | None:
    """A compaction of which the text can be read; others are for their provider alone."""
    content = part.get("content")
    is_readable = isinstance(content, str) and content.strip()
    return ({"type": "compaction", "summary": content}, ("content",)) if is_readable else None


def _speech(part: JsonObject) -> Read | None:
    speaker = part.get("speaker")
    return _said(speaker, "transcript")(part) if speaker in ("user", "assistant") else None


def _thinking(part: JsonObject) -> Read | None:
    if not isinstance(part.get("content"), str) or not isinstance(part.get("signature", ""), str):
        return None
    item: JsonObject = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": part["content"]}]}
    item |= {"encrypted_content": part["signature"]} if "signature" in part else {}
    return item, ("content", "signature")


def _call(part: JsonObject) -> Read | None:
    name, call_id, args = part.get("tool_name"), part.get("tool_call_id"), part.get("args")
    if not isinstance(name, str) or not isinstance(call_id, str) or not isinstance(args, str | dict | None):
        return None
    item: JsonObject = {"type": "function_call", "call_id": call_id, "name": name}
    if isinstance(args, str):
        item["arguments"] = args
    else:
        word = "none" if args is None else "json"
        item |= {"arguments": dumps(args or {}).decode(), "words": [word]}
    return item, ("tool_name", "tool_call_id", "args")


_READERS: Final[dict[str, Callable[[JsonObject], Read | None]]] = {
    "system-prompt": _said("system", "content"),
    "user-prompt": _prompt,
    "tool-return": _return,
    "retry-prompt": _return,
    "retry-feedback": _feedback,
    "speech": _speech,
    "text": _said("assistant", "content"),
    "thinking": _thinking,
    "tool-call": _call,
    "compaction": _summary,
}


# The content of prompts and tool returns


def content_of(value: Any) -> JsonObject:
    """An element of a prompt or tool return as a content part."""
    if isinstance(value, str):
        return {"type": "input_text", "text": value}
    kind = value.get("kind") if isinstance(value, dict) else None
    reader = _CONTENT.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        read = reader(value)
        part = None if read is None else _whole(value, *read)
        if part is not None and overlay(value, own.content_of(part)) is None:
            return part
    if kind is None:  # any value that a tool returned with media
        return {"type": "input_text", "text": dumps(value).decode(), "spelling": {"words": ["json"]}}
    return shared.block(value, NAME)


def _is_media(value: Any) -> bool:
    kind = value.get("kind") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in _MEDIA


def _read_text(value: JsonObject) -> Read | None:
    text = value.get("content")
    return ({"type": "input_text", "text": text}, ("content",)) if isinstance(text, str) else None


def _url(kind: str, key: str) -> Callable[[JsonObject], Read | None]:
    def read(value: JsonObject) -> Read | None:
        url = value.get("url")
        return ({"type": kind, key: url}, ("url",)) if isinstance(url, str) and url else None

    return read


def _binary(value: JsonObject) -> Read | None:
    data, media_type = value.get("data"), value.get("media_type")
    if not isinstance(data, str) or not isinstance(media_type, str):
        return None
    standard = data.replace("-", "+").replace("_", "/")
    url = f"data:{media_type};base64,{standard}"
    part: JsonObject = {"type": "input_file", "file_data": url}
    if media_type.startswith("image/"):
        part = {"type": "input_image", "image_url": url}
    elif media_type.startswith("video/"):
        part = {"type": "input_video", "video_url": url}
    if standard == data and ("+" in data or "/" in data):  # else it is in the alphabet of URLs, as Pydantic writes it
        part["words"] = ["standard"]
    return part, ("data", "media_type")


_CONTENT: Final[dict[str, Callable[[JsonObject], Read | None]]] = {
    "text-content": _read_text,
    "structured-content": _read_text,
    "image-url": _url("input_image", "image_url"),
    "video-url": _url("input_video", "video_url"),
    "audio-url": _url("input_file", "file_url"),
    "document-url": _url("input_file", "file_url"),
    "binary": _binary,
}
_MEDIA: Final = _CONTENT.keys() - {"text-content", "structured-content"} | {"uploaded-file"}
