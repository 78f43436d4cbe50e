"""What the blocks of a message become: parts of one message, calls, outputs and reasoning, in their order.

A block without a canonical form is kept as it is: a part of the open message of its turn, or an item of its own, which
closes open reasoning. So is a block that would not come back as it was.

Source: Anthropic's API reference, "Messages", content blocks.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.media import parse_data_url
from threadkeep.formats.messages.fields import NAME, PLAIN_TEXT, THOUGHTS
from threadkeep.formats.messages.parts import OWN_PARTS
from threadkeep.formats.shared.parts import block, native_keys, split_native

_TEXT_KEYS: Final = frozenset({"type", "text"})


def part_of(wire: Any, role: str) -> JsonObject:
    """A block as a content part; one that the part would not give back stays a block."""
    kind = wire.get("type") if isinstance(wire, dict) else None
    if kind == "text" and wire.keys() == _TEXT_KEYS and isinstance(wire["text"], str):  # most blocks
        return {"type": "output_text" if role == "assistant" else "input_text", "text": wire["text"]}
    if kind not in (("text",) if role == "assistant" else tuple(READERS)):
        return block(wire, NAME)
    read = READERS[kind]
    keys = {key: value for key, value in wire.items() if value is not None}
    part = read(keys, role)
    return part if part is not None and _wire_keys(part) == keys else block(wire, NAME)


def _wire_keys(part: JsonObject) -> JsonObject:
    """The block that a part goes back as."""
    return OWN_PARTS[part["type"]](part) | native_keys(part, NAME)


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
    source = _source_of(wire)
    if source is None:
        return None
    return _with_native(wire, ("type", "source")) | {"type": "input_image", _WORDS[source[0]][0]: source[1]}


def _document(wire: JsonObject, _role: str) -> JsonObject | None:
    source, title = _source_of(wire), wire.get("title")
    if source is None or not isinstance(title, str | None):
        return None
    named = {} if title is None else {"filename": title}
    part = _with_native(wire, ("type", "source", "title"))
    return part | {"type": "input_file", _WORDS[source[0]][1]: source[1]} | named


def _with_native(wire: JsonObject, known: tuple[str, ...]) -> JsonObject:
    """A part with the keys of a block that have no canonical name."""
    return {key: value for key, value in split_native(wire, known, NAME).items() if key not in known}


# where something is -> the key of an image and of a file that says so
_WORDS: Final = {
    "inline": ("image_url", "file_data"),
    "url": ("image_url", "file_url"),
    "file": ("file_id", "file_id"),
}


def _source_of(wire: JsonObject) -> tuple[str, str] | None:
    """Where a picture or document is: inline as a data URL, at a URL, or in a file of the service."""
    match wire.get("source"):
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            url = f"data:{media_type};base64,{data}"
            return ("inline", url) if parse_data_url(url) == (media_type, data) else None
        case {"type": "text", "media_type": "text/plain", "data": str(data)}:
            return "inline", f"data:{PLAIN_TEXT};base64,{_encoded(data)}"
        case {"type": "url", "url": str(url)} if url:
            return "url", url
        case {"type": "file", "file_id": str(file_id)} if file_id:
            return "file", file_id
    return None


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")


# kind of block -> what reads it as a content part
READERS: Final[dict[str, Callable[[JsonObject, str], JsonObject | None]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
}


def call_of(wire: JsonObject) -> JsonObject | None:
    """A tool_use block as an item; None where it is not whole."""
    if not isinstance(wire.get("id"), str) or not isinstance(wire.get("name"), str):
        return None
    call_input = wire.get("input")
    if not isinstance(call_input, dict | str | None):
        return None
    arguments = call_input if isinstance(call_input, str) else dumps(call_input or {}).decode()
    native = {
        key: value for key, value in wire.items() if value is not None and key not in ("type", "id", "name", "input")
    }
    item = {
        "type": "function_call",
        "call_id": wire["id"],
        "name": wire["name"],
        "arguments": arguments,
        "origin": NAME,
    }
    return item | ({"native": {NAME: native}} if native else {})


def output_of(wire: JsonObject) -> JsonObject | None:
    """A tool_result block as an item; None where the item would not give it back."""
    level = {key: value for key, value in wire.items() if value is not None}
    call_id, content, is_error = level.get("tool_use_id"), level.get("content"), level.get("is_error")
    if (
        not isinstance(call_id, str)
        or not isinstance(content, str | list | None)
        or is_error not in (None, True, False)
    ):
        return None
    output = [part_of(inner, "tool") for inner in content] if isinstance(content, list) else content
    item = {"type": "function_call_output", "call_id": call_id, "output": output, "origin": NAME}
    if is_error is not None:
        item["status"] = "failed" if is_error else "completed"
    native = {key: value for key, value in level.items() if key not in ("type", "tool_use_id", "content", "is_error")}
    return item | ({"native": {NAME: native}} if native else {})


class Items:
    """Collects the items of one message; `blocks` of one kind in a row share an item."""

    def __init__(self, role: str) -> None:
        self.items: list[JsonObject] = []
        self._role = role
        self._message: JsonObject | None = None
        self._reasoning: JsonObject | None = None

    def add(self, wire: Any) -> None:
        """Take in a block."""
        kind = wire.get("type") if isinstance(wire, dict) else None
        if not isinstance(kind, str):
            kind = None
        if kind in THOUGHTS and self._role == "assistant":
            self._think(wire)
        elif (item := self._item(kind, wire)) is not None:
            self._close(item)
        else:
            self._say(part_of(wire, self._role))

    def _item(self, kind: str | None, wire: Any) -> JsonObject | None:
        """The call or output that a block is."""
        if kind == "tool_use" and self._role == "assistant":
            return call_of(wire)
        return output_of(wire) if kind == "tool_result" and self._role == "user" else None

    def _close(self, item: JsonObject) -> None:
        self.items.append(item)
        self._message = self._reasoning = None

    def _think(self, wire: JsonObject) -> None:
        self._message = None
        if self._reasoning is None:
            self._reasoning = {"type": "reasoning", "content": [], "origin": NAME}
            self.items.append(self._reasoning)
        self._reasoning["content"].append(wire)

    def _say(self, part: JsonObject) -> None:
        is_block = part["type"] == "provider_item"
        if is_block and self._message is None and self._role == "assistant":
            self._close({**part, "origin": NAME})
            return
        self._reasoning = None
        if self._message is None:
            self._message = {"type": "message", "role": self._role, "content": [], "origin": NAME}
            self.items.append(self._message)
        self._message["content"].append(part)


def items_of(blocks: Iterable[Any], role: str) -> list[JsonObject]:
    """The item objects of a message's blocks."""
    items = Items(role)
    for wire in blocks:
        items.add(wire)
    return items.items
