"""Items that came from UIMessages as the parts that they were; of redacted ones, what is left.

What a part says beyond its item stands under `spelling.ui` of the item (of a user's message: of its content part):

* `message` what the message says besides its parts, with its first item; `steps` how many steps begin before it.
* `part` keys that no model sees; others are native keys. `words` how the part spells what the item says.
* `provider` the key of the provider's metadata from which ids and signatures were taken, `parts` the same of each part
  of a reasoning item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.formats.canonical.view import named_thoughts
from threadkeep.formats.shared.parts import TEXTS, native_keys, url_of
from threadkeep.formats.ui_messages import fields


def spelling_of(thing: JsonObject) -> JsonObject | None:
    """What an item or content part keeps of its UIMessage; None for those of another origin."""
    spelling = thing.get("spelling")
    own = spelling.get(fields.UI) if isinstance(spelling, dict) else None
    return own if isinstance(own, dict) else None


def message_of(item: JsonObject) -> JsonObject | None:
    """What the message says besides its parts; None for an item that is not its first one."""
    if item["type"] == "provider_item" and is_message(item.get("payload")):
        return {key: value for key, value in item["payload"].items() if key != "parts"}
    message = (spelling_of(item) or {}).get("message")
    return message if isinstance(message, dict) else None


def is_message(payload: Any) -> bool:
    """Whether the payload of a block is a whole message: an empty one, or of a role that is not known."""
    return isinstance(payload, dict) and "role" in payload and isinstance(payload.get("parts"), list)


def parts_of(item: JsonObject) -> list[Any]:
    """The parts that an item was, but for outputs."""
    own = spelling_of(item) or {}
    if item["type"] == "provider_item":
        payload = item.get("payload")
        return payload["parts"] if isinstance(payload, dict) and is_message(payload) else [payload]
    if item["type"] == "message":
        parts = [content_of(part) for part in item.get("content") or ()]
        if item.get("role") != "assistant":
            kept = own.get("part")
            return parts if kept is None else [{**kept, "parts": parts}]
        return [_merged(with_metadata(part, own, item, "message"), native_keys(item, fields.NAME)) for part in parts]
    if item["type"] == "reasoning":
        return _thoughts(item, own)
    return [call_part(item)]


def content_of(part: JsonObject) -> Any:
    """The part of a message that a content part was."""
    own = spelling_of(part) or {}
    kept = own.get("part") or {}
    if part["type"] == "provider_item":
        return part.get("payload")
    if part["type"] in TEXTS:
        return {"type": "text", "text": part.get("text"), **kept, **native_keys(part, fields.NAME)}
    raw = next((part[key] for key in ("image_url", "video_url", "file_data", "file_url") if part.get(key)), "")
    return {"type": "file", "url": raw or url_of(part), **kept, **native_keys(part, fields.NAME)}


def with_metadata(part: JsonObject, own: JsonObject, item: JsonObject, kind: str) -> JsonObject:
    """A part with what was kept of it, and its provider's metadata with the ids and signatures of the item."""
    part = {**part, **(own.get("part") or {})}
    provider = own.get("provider")
    if provider is None:
        return part
    key = fields.CALL_METADATA if kind == "function_call" else fields.METADATA
    values = {
        name: value
        for name, ours in fields.LIFTED[kind].get(fields.FORMATS.get(provider, ""), {}).items()
        if name in own.get("words", ()) and (value := _lifted(item, ours)) is not None
    }
    return {**part, key: {provider: values}}


def _lifted(item: JsonObject, key: str) -> Any:
    """An id or signature of an item, which its only block or part may hold."""
    if key in item:
        return item[key]
    content = item.get("content")
    block = content[0] if isinstance(content, list) and content and isinstance(content[0], dict) else {}
    return block.get("thought_signature" if item["type"] == "message" else key)


def _thoughts(item: JsonObject, own: JsonObject) -> list[JsonObject]:
    """The parts of reasoning: one for each part of its summary, or its only block."""
    texts = [text_of(block) for _, block in named_thoughts(item)]
    kept: Sequence[JsonObject] = own.get("parts") or [own]
    texts += [""] * (len(kept) - len(texts))
    parts = []
    for index, text in enumerate(texts):
        one = kept[index] if index < len(kept) else {}
        part = with_metadata({"type": "reasoning", "text": text}, one, item, "reasoning")
        parts.append(_merged(part, one.get("native") or (native_keys(item, fields.NAME) if index == 0 else {})))
    return parts


def _merged(part: JsonObject, native: JsonObject) -> JsonObject:
    """A part with the keys that other formats lack; metadata stand beside what was taken from them."""
    merged = {**part, **native}
    for key in (fields.METADATA, fields.CALL_METADATA):
        if isinstance(native.get(key), dict) and isinstance(part.get(key), dict):
            both = {**native[key], **part[key]}
            merged[key] = {name: {**(native[key].get(name) or {}), **value} for name, value in both.items()}
    return merged


def openai_keys(item: JsonObject) -> JsonObject:
    """The metadata of a message or reasoning of OpenAI's."""
    keys = fields.LIFTED[item["type"]]["open_responses"]
    return {name: item[key] for name, key in keys.items() if item.get(key)}


def text_of(block: Any) -> str:
    """The text of a part of a message or of reasoning."""
    text = block.get("text", block.get("thinking")) if isinstance(block, dict) else None
    return text if isinstance(text, str) else ""


def call_part(item: JsonObject) -> JsonObject:
    """The part of a call, without its output."""
    own = spelling_of(item) or {}
    name, words = item.get("name"), own.get("words") or ()
    kept = own.get("part") or {}
    kind = kept.get("type") or f"{fields.STATIC}{name}"
    part: JsonObject = {"type": kind, "toolCallId": item.get("call_id")}
    if kind == fields.DYNAMIC:
        part["toolName"] = name
    if "no input" not in words:
        part["input"] = loads(item["arguments"]) if isinstance(item.get("arguments"), str) else item.get("arguments")
    return _merged(with_metadata(part, own, item, "function_call"), native_keys(item, fields.NAME))


def output_keys(item: JsonObject) -> JsonObject:
    """The keys of a part that its output was."""
    own = spelling_of(item) or {}
    words, output = own.get("words") or (), item.get("output")
    kept = native_keys(item, fields.NAME)
    if "denied" in words:
        return dict(kept)
    if "error" in words:
        return {"errorText": output, **kept}
    if "no output" in words:
        return dict(kept)
    return {"output": loads(output) if "json" in words and isinstance(output, str) else output, **kept}
