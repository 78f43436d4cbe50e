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
from threadkeep.formats.messages.content import OWN_PARTS, block_type
from threadkeep.formats.messages.fields import NAME, PLAIN_TEXT, THOUGHTS
from threadkeep.formats.native import block, native_keys, split_native


def part_of(one: Any, role: str) -> JsonObject:
    """A block as a content part; one that the part would not give back stays a block."""
    kind = block_type(one)
    read = READERS.get(kind) if kind is not None else None
    if read is None or (kind != "text" and role == "assistant"):
        return block(one, NAME)
    level = {key: value for key, value in one.items() if value is not None}
    found = read(level, role)
    if found is None or OWN_PARTS[found["type"]](found) | native_keys(found, NAME) != level:
        return block(one, NAME)
    return found


def _text(one: JsonObject, role: str) -> JsonObject | None:
    if not isinstance(one.get("text"), str):
        return None
    if role != "assistant":
        return split_native(one, ("type", "text"), NAME) | {"type": "input_text"}
    if one.get("citations") == []:
        del one["citations"]
    if not isinstance(one.get("citations", []), list):
        return None
    found = split_native(one, ("type", "text", "citations"), NAME) | {"type": "output_text"}
    citations = found.pop("citations", None)
    return found | ({"annotations": citations} if citations else {})


def _image(one: JsonObject, _role: str) -> JsonObject | None:
    source = _source_of(one)
    if source is None:
        return None
    return _with_native(one, ("type", "source")) | {"type": "input_image", _WORDS[source[0]][0]: source[1]}


def _document(one: JsonObject, _role: str) -> JsonObject | None:
    source, title = _source_of(one), one.get("title")
    if source is None or not isinstance(title, str | None):
        return None
    named = {} if title is None else {"filename": title}
    found = _with_native(one, ("type", "source", "title"))
    return found | {"type": "input_file", _WORDS[source[0]][1]: source[1]} | named


def _with_native(one: JsonObject, known: tuple[str, ...]) -> JsonObject:
    """A part with the keys of a block that have no canonical name."""
    return {key: value for key, value in split_native(one, known, NAME).items() if key not in known}


# where something is -> the key of an image and of a file that says so
_WORDS: Final = {
    "inline": ("image_url", "file_data"),
    "url": ("image_url", "file_url"),
    "file": ("file_id", "file_id"),
}


def _source_of(one: JsonObject) -> tuple[str, str] | None:
    """Where a picture or document is: inline as a data URL, at a URL, or in a file of the service."""
    match one.get("source"):
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


def call_of(one: JsonObject) -> JsonObject | None:
    """A tool_use block as an item; None where it is not whole."""
    if not isinstance(one.get("id"), str) or not isinstance(one.get("name"), str):
        return None
    given = one.get("input")
    if not isinstance(given, dict | str | None):
        return None
    arguments = given if isinstance(given, str) else dumps(given or {}).decode()
    left = {
        key: value for key, value in one.items() if value is not None and key not in ("type", "id", "name", "input")
    }
    found = {"type": "function_call", "call_id": one["id"], "name": one["name"], "arguments": arguments, "origin": NAME}
    return found | ({"native": {NAME: left}} if left else {})


def output_of(one: JsonObject) -> JsonObject | None:
    """A tool_result block as an item; None where the item would not give it back."""
    level = {key: value for key, value in one.items() if value is not None}
    call_id, content, is_error = level.get("tool_use_id"), level.get("content"), level.get("is_error")
    if (
        not isinstance(call_id, str)
        or not isinstance(content, str | list | None)
        or is_error not in (None, True, False)
    ):
        return None
    output = [part_of(inner, "tool") for inner in content] if isinstance(content, list) else content
    found = {"type": "function_call_output", "call_id": call_id, "output": output, "origin": NAME}
    if is_error is not None:
        found["status"] = "failed" if is_error else "completed"
    left = {key: value for key, value in level.items() if key not in ("type", "tool_use_id", "content", "is_error")}
    return found | ({"native": {NAME: left}} if left else {})


class Items:
    """Collects the items of one message; `blocks` of one kind in a row share an item."""

    def __init__(self, role: str) -> None:
        self.found: list[JsonObject] = []
        self._role = role
        self._message: JsonObject | None = None
        self._reasoning: JsonObject | None = None

    def add(self, one: Any) -> None:
        """Take in a block."""
        kind = block_type(one)
        if kind in THOUGHTS and self._role == "assistant":
            self._think(one)
        elif (item := self._item(kind, one)) is not None:
            self._close(item)
        else:
            self._say(part_of(one, self._role))

    def _item(self, kind: str | None, one: Any) -> JsonObject | None:
        """The call or output that a block is."""
        if kind == "tool_use" and self._role == "assistant":
            return call_of(one)
        return output_of(one) if kind == "tool_result" and self._role == "user" else None

    def _close(self, item: JsonObject) -> None:
        self.found.append(item)
        self._message = self._reasoning = None

    def _think(self, one: JsonObject) -> None:
        self._message = None
        if self._reasoning is None:
            self._reasoning = {"type": "reasoning", "content": [], "origin": NAME}
            self.found.append(self._reasoning)
        self._reasoning["content"].append(one)

    def _say(self, part: JsonObject) -> None:
        is_block = part["type"] == "provider_item"
        if is_block and self._message is None and self._role == "assistant":
            self._close({**part, "origin": NAME})
            return
        self._reasoning = None
        if self._message is None:
            self._message = {"type": "message", "role": self._role, "content": [], "origin": NAME}
            self.found.append(self._message)
        self._message["content"].append(part)


def items_of(blocks: Iterable[Any], role: str) -> list[JsonObject]:
    """The item objects of a message's blocks."""
    items = Items(role)
    for one in blocks:
        items.add(one)
    return items.found
