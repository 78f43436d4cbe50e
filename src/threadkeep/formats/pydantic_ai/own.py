"""Items that came from Pydantic AI as the parts and messages that they were; of redacted ones, what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.media import parse_data_url
from threadkeep.formats.pydantic_ai.fields import NAME, REQUEST, RESPONSE, RESPONSE_PARTS
from threadkeep.formats.shared.parts import TEXTS, native_keys

Words = Sequence[str]
_USUAL: Final = {
    "function_call": "tool-call",
    "function_call_output": "tool-return",
    "reasoning": "thinking",
    "compaction": "compaction",
}
UNKNOWN: Final = "unknown"  # the tool whose name is not known, which a return must have
URL_KINDS: Final = {"input_image": "image-url", "input_video": "video-url"}  # of others: document-url
_USUAL_OF_ROLES: Final = {"user": "user-prompt", "assistant": "text"}


def usual_kind(item: JsonObject) -> str | None:
    """The kind of part that an item usually is; None for what is no item."""
    if item["type"] == "message":
        return _USUAL_OF_ROLES.get(item.get("role", ""), "system-prompt")
    return _USUAL.get(item["type"])


def message_of(items: Sequence[JsonObject]) -> JsonObject:
    """The message of items that came in it."""
    fields = next((found for item in items if (found := fields_of(item)) is not None), None)
    return {**(fields or {"kind": kind_of(items[0])}), "parts": list(filter(None, map(part_of, items)))}


def fields_of(item: JsonObject) -> JsonObject | None:
    """What the message says besides its parts; None for an item that is not its first one."""
    if item["type"] == "provider_item":
        payload = item.get("payload")
        if isinstance(payload, dict) and payload.get("kind") in (REQUEST, RESPONSE):
            return {key: value for key, value in payload.items() if key != "parts"}
    spelling = item.get("spelling")
    fields = spelling.get("message") if isinstance(spelling, dict) else None
    return fields if isinstance(fields, dict) else None


def kind_of(item: JsonObject) -> str:
    """The kind of message that an item belongs to."""
    fields, part = fields_of(item), part_of(item) or {}
    if fields is not None and fields.get("kind") in (REQUEST, RESPONSE):
        return str(fields["kind"])
    is_response = is_in_response(part) or (part.get("part_kind") == "speech" and part.get("speaker") == "assistant")
    return RESPONSE if is_response else REQUEST


def is_in_response(part: JsonObject) -> bool:
    """Whether a part is of a kind that answers have."""
    kind = part.get("part_kind")
    return isinstance(kind, str) and kind in RESPONSE_PARTS


def part_of(item: JsonObject) -> JsonObject | None:
    """The part that an item was; None where the message had none."""
    if item["type"] == "provider_item":
        payload = item.get("payload")
        return payload if isinstance(payload, dict) and "part_kind" in payload else None
    spelling, kind = _spelling(item), usual_kind(item)
    kept = spelling.get("part") or {}
    kind = kept.get("part_kind", kind)
    writer = _WRITERS.get(kind)
    if writer is None:
        return None
    return {**writer(item, spelling.get("words") or ()), "part_kind": kind, **kept, **native_keys(item, NAME)}


def content_of(part: JsonObject) -> Any:
    """The element of a prompt or tool return that a content part was."""
    if part["type"] == "provider_item":
        return part.get("payload")
    spelling = _spelling(part)
    kept, words = spelling.get("part") or {}, spelling.get("words") or ()
    if part["type"] not in TEXTS:
        return {**_media(part, kept, words), **native_keys(part, NAME)}
    if "kind" in kept:
        return {"content": part.get("text"), **kept, **native_keys(part, NAME)}
    return loads(part["text"]) if "json" in words else part.get("text")


def _media(part: JsonObject, kept: JsonObject, words: Words) -> JsonObject:
    url = next((part[key] for key in ("image_url", "video_url", "file_data", "file_url") if part.get(key)), None)
    parsed = parse_data_url(url)
    if kept.get("kind") != "binary":
        return {"url": url, **kept}
    if parsed is None:  # the store renders a URL in place of the data
        return {"url": url, **kept, "kind": URL_KINDS.get(part["type"], "document-url")}
    media_type, data = parsed
    data = data if "standard" in words else data.replace("+", "-").replace("/", "_")
    return {"data": data, "media_type": media_type, **kept}


def _spelling(thing: JsonObject) -> JsonObject:
    spelling = thing.get("spelling")
    return spelling if isinstance(spelling, dict) else {}


def text_of(item: JsonObject) -> str:
    """The text of a message or of reasoning."""
    parts = item.get("content") or ()
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _text(item: JsonObject, words: Words) -> JsonObject:
    text = text_of(item)
    return {"content": loads(text) if "json" in words else text}


def _prompt(item: JsonObject, words: Words) -> JsonObject:
    content = item.get("content") or ()
    return {"content": [content_of(part) for part in content]} if "list" in words else _text(item, words)


def _return(item: JsonObject, words: Words) -> JsonObject:
    if item["type"] == "message":  # a retry that answers no call; its id is kept
        return _text(item, words)
    output = item.get("output")
    answer = {"tool_name": UNKNOWN, "tool_call_id": item.get("call_id"), "content": output}
    if isinstance(output, list):
        parts = [content_of(part) for part in output]
        return answer | {"content": parts[0] if words == ["one"] else parts}
    return answer | {"content": loads(output)} if "json" in words and isinstance(output, str) else answer


def _thinking(item: JsonObject, _words: Words) -> JsonObject:
    signature = item.get("encrypted_content")
    return {"content": text_of(item)} | ({} if signature is None else {"signature": signature})


def _call(item: JsonObject, words: Words) -> JsonObject:
    arguments = item.get("arguments")
    call = {"tool_name": item.get("name"), "tool_call_id": item.get("call_id")}
    if "none" in words:
        return call
    return call | {"args": loads(arguments) if "json" in words and isinstance(arguments, str) else arguments}


# kind of part -> what of it the item says
_WRITERS: Final[dict[Any, Callable[[JsonObject, Words], JsonObject]]] = {
    "system-prompt": _text,
    "user-prompt": _prompt,
    "tool-return": _return,
    "retry-prompt": _return,
    "retry-feedback": _text,
    "speech": lambda item, _: {"transcript": text_of(item)},
    "text": _text,
    "thinking": _thinking,
    "tool-call": _call,
    "compaction": lambda item, _: {"content": item.get("summary")},
}
