"""What the blocks of a message become: parts of one message, calls, outputs and reasoning, in their order.

A block without a canonical form is kept as it is: a part of the open message of its turn, or an item of its own, which
closes open reasoning. So is a block that would not come back as it was.

Source: Anthropic's API reference, "Messages", content blocks.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.media import parse_data_url
from threadkeep.formats.messages.fields import NAME, PLAIN_TEXT, THOUGHTS
from threadkeep.formats.messages.parts import OWN_PARTS, block_type
from threadkeep.formats.shared.parts import block, native_keys, open_parts, split_native


def part_of(wire: Any, role: str) -> JsonObject:
    """A block as a content part; one that the part would not give back stays a block."""
    kind = wire.get("type") if isinstance(wire, dict) else None
    if kind == "text" and wire.keys() == {"type", "text"} and isinstance(wire["text"], str):  # most blocks
        return {"type": "output_text" if role == "assistant" else "input_text", "text": wire["text"]}
    if kind not in (("text",) if role == "assistant" else tuple(READERS)):
        return block(wire, NAME)
    keys = {key: value for key, value in wire.items() if value is not None}
    part = READERS[kind](keys, role)
    if part is None or OWN_PARTS[part["type"]](part) | native_keys(part, NAME) != keys:
        return block(wire, NAME)
    return part


def _text(wire: JsonObject, role: str) -> JsonObject | None:
    if not isinstance(wire.get("text"), str):
        return None
    if role != "assistant":
        return split_native(wire, ("type", "text"), NAME) | {"type": "input_text"}
    if wire.get("citations") == []:
        del wire["citations"]
    if not isinstance(wire.get("citations", []), list):
        return None
    part = split_native(wire, ("type", "text", "citations"), NAME) | {"type": "output_text"}
    citations = part.pop("citations", None)
    return part | ({"annotations": citations} if citations else {})


def _image(wire: JsonObject, _role: str) -> JsonObject | None:
    key, source = _source_of(wire)
    if key is None:
        return None
    native = _native(wire, ("type", "source"))
    return {**native, "type": "input_image", "file_id" if key == "file_id" else "image_url": source}


def _document(wire: JsonObject, _role: str) -> JsonObject | None:
    (key, source), title = _source_of(wire), wire.get("title")
    if key is None or not isinstance(title, str | None):
        return None
    named = {} if title is None else {"filename": title}
    return {**_native(wire, ("type", "source", "title")), "type": "input_file", key: source, **named}


def _native(wire: JsonObject, known: Collection[str]) -> JsonObject:
    """The keys of a block that have no canonical name, as a key of its part or item."""
    strange = {key: value for key, value in wire.items() if key not in known and value is not None}
    return {"native": {NAME: strange}} if strange else {}


def _source_of(wire: JsonObject) -> tuple[str | None, str]:
    """Where a document is, as the key of a file and its value: a data URL, a URL, or a file of the service."""
    match wire.get("source"):
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            url = f"data:{media_type};base64,{data}"
            return ("file_data" if parse_data_url(url) == (media_type, data) else None), url
        case {"type": "text", "media_type": "text/plain", "data": str(data)}:
            encoded = base64.b64encode(data.encode("utf-8", "replace")).decode("ascii")
            return "file_data", f"data:{PLAIN_TEXT};base64,{encoded}"
        case {"type": "url", "url": str(url)} if url:
            return "file_url", url
        case {"type": "file", "file_id": str(file_id)} if file_id:
            return "file_id", file_id
    return None, ""


# kind of block -> what reads it as a content part
READERS: Final[dict[str, Callable[[JsonObject, str], JsonObject | None]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
}


def call_of(wire: JsonObject) -> JsonObject | None:
    """A tool_use block as an item; None where it is not whole."""
    call_id, name, given = wire.get("id"), wire.get("name"), wire.get("input")
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(given, dict | str | None):
        return None
    arguments = given if isinstance(given, str) else dumps(given or {}).decode()
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, "origin": NAME}
    return item | _native(wire, ("type", "id", "name", "input"))


def output_of(wire: JsonObject) -> JsonObject | None:
    """A tool_result block as an item; None where the item would not give it back."""
    call_id, content, is_error = wire.get("tool_use_id"), wire.get("content"), wire.get("is_error")
    is_regular = isinstance(call_id, str) and isinstance(content, str | list | None)
    if not is_regular or is_error not in (None, True, False):
        return None
    output = [part_of(inner, "tool") for inner in content] if isinstance(content, list) else content
    item = {"type": "function_call_output", "call_id": call_id, "output": output, "origin": NAME}
    if is_error is not None:
        item["status"] = "failed" if is_error else "completed"
    return item | _native(wire, ("type", "tool_use_id", "content", "is_error"))


def items_of(blocks: Iterable[Any], role: str) -> list[JsonObject]:
    """The item objects of a message's blocks; those of one kind in a row share an item."""
    items: list[JsonObject] = []
    for wire in blocks:
        kind = block_type(wire)
        if kind in THOUGHTS and role == "assistant":
            open_parts(items, "reasoning", NAME).append(wire)
            continue
        reader = _ITEMS.get((kind, role))
        item = None if reader is None else reader(wire)
        if item is None:
            part = part_of(wire, role)
            is_in_message = bool(items) and items[-1]["type"] == "message"
            if part["type"] != "provider_item" or role != "assistant" or is_in_message:
                open_parts(items, "message", NAME, role=role).append(part)
                continue
            item = {**part, "origin": NAME}
        items.append(item)
    return items


def compaction_of(wire: JsonObject) -> JsonObject | None:
    """A compaction block as an item; None for one that failed, which means nothing."""
    summary = wire.get("content")
    if not isinstance(summary, str) or not summary.strip():
        return None
    return {"type": "compaction", "summary": summary, "origin": NAME} | _native(wire, ("type", "content"))


# kind of block and role of its message -> what reads it as an item
_ITEMS: Final[dict[tuple[Any, str], Callable[[JsonObject], JsonObject | None]]] = {
    ("tool_use", "assistant"): call_of,
    ("tool_result", "user"): output_of,
    ("compaction", "assistant"): compaction_of,
}
