"""Content in the shape of another format, or of MCP: converted, or an error; what has an origin is not changed.

Results of MCP tools become parts of a tool output: whole results and single blocks, objects of the SDK or JSON. The SDK
has the keys of the protocol in two spellings (`isError`, `is_error`). A text stays a text; pictures, sounds and blobs
become media; a text resource becomes a text under its URI, and a link its JSON, both of which models can read. What is
not for the model (`_meta`, `annotations`) is kept as native keys.

Source: the Model Context Protocol, "Tools"; the types of its Python SDK.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from posixpath import basename
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from threadkeep.domain.formats import get_format, other_event, other_message
from threadkeep.domain.jsontext import at, bytes_as_text, mismatch
from threadkeep.domain.media import DEFAULT_MEDIA_TYPE
from threadkeep.errors import CannotParse, InvalidItem

# types of parts -> the format that has them
TYPES: Final = {
    **dict.fromkeys(("image_url", "input_audio", "file", "video_url", "document_url"), "chat_completion"),
    **dict.fromkeys(("image", "document", "search_result", "tool_use", "tool_result"), "messages"),
}
# keys of parts that have no type -> the format that has them
_KEYS: Final = {
    **dict.fromkeys(("inlineData", "inline_data", "fileData", "file_data"), "gemini"),
    **dict.fromkeys(("functionCall", "function_call", "functionResponse", "function_response"), "gemini"),
    **dict.fromkeys(("image", "document", "video", "audio", "toolUse", "toolResult"), "converse"),
}
# keys of turns that messages do not have -> the format that has them
_TURN_KEYS: Final = {"parts": "gemini", "tool_calls": "chat_completion", "tool_call_id": "chat_completion"}


def check_message(keys: Iterable[str], path: str) -> None:
    """Reject a turn of another format, whose calls or parts a message would lose."""
    for key in keys:
        if (name := _TURN_KEYS.get(key)) is not None:
            hint = f'Append it with conversation.add_input([…], "{name}").'
            raise InvalidItem(f"is a turn of the format {name}: it has {key!r}.", argument=path or "item", hint=hint)


def check_item(value: Mapping[str, Any], path: str) -> None:
    """Reject a message or item of a format that is not read."""
    other = other_message(value)
    if other is None and "type" in value:
        other = other_event(value)
    if other is not None:
        raise InvalidItem(f"is of {other.name}, and no item.", argument=path or "item", hint=other.advice)


def own_content(content: Any, path: str) -> Any:
    """Return content with parts of other formats converted to ours."""
    if isinstance(content, list | tuple):
        return [own for index, part in enumerate(content) for own in _own_parts(part, f"{path}[{index}]")]
    parts = _own_parts(content, path)
    return parts if len(parts) > 1 else parts[0]


def _own_parts(part: Any, path: str) -> list[Any]:
    if isinstance(part, str):
        return [part]
    if (parts := block_parts(part, path)) is not None:
        return parts
    kind, name = part.get("type") if isinstance(part, Mapping) else "", None
    if kind is None:
        name = next((_KEYS[key] for key in part if key in _KEYS), None)
    elif isinstance(kind, str):
        name = TYPES.get(kind)
    if name is None:
        return [part]
    turn = {"role": "user", "parts" if name == "gemini" else "content": [bytes_as_text(dict(part))]}
    try:
        items = [item for items in get_format(name).parse_turns([turn]) for item in items]
    except CannotParse:
        items = []
    match [part.to_object() for item in items for part in getattr(item, "content", ())]:
        case [{"type": kind} as own] if kind != "provider_item":
            return [{key: value for key, value in own.items() if key != "spelling"}]
    hint = f'Append its turn with conversation.add_input([{{"role": "user", …}}], "{name}").'
    raise InvalidItem(f"has the shape of the format {name}, but cannot be read as content.", argument=path, hint=hint)


NAME: Final = "mcp"
# key of the SDK -> key of the protocol
_SPELLINGS: Final = {
    "is_error": "isError",
    "structured_content": "structuredContent",
    "result_type": "resultType",
    "mime_type": "mimeType",
    "meta": "_meta",
}
_OF_RESULTS: Final = frozenset({"isError", "structuredContent", "resultType", "_meta"})
_NOT_SHOWN: Final = ("annotations", "_meta")
_HIDDEN: Final = frozenset({*_NOT_SHOWN, "meta"})


def plain(value: Any) -> Any:
    """An object of the SDK as the JSON object that it stands for; anything else as it is."""
    if isinstance(value, Mapping) or not hasattr(type(value), "model_dump") or hasattr(value, "to_object"):
        return value
    return value.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)


def protocol_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the keys that the protocol has for it, without those that hold nothing."""
    return {_SPELLINGS.get(key, key): inner for key, inner in value.items() if inner is not None}


def is_result(value: object) -> bool:
    """Whether something is the whole result of a tool."""
    if not isinstance(value, Mapping) or "type" in value or "role" in value:
        return False
    keys = protocol_keys(value).keys()
    return ("content" in keys and keys <= {"content", *_OF_RESULTS}) or "structuredContent" in keys


def result_parts(result: Mapping[str, Any], path: str) -> tuple[list[Any], bool, dict[str, Any]]:
    """The content of a result, whether the tool failed, and keys that no model sees."""
    keys = protocol_keys(result)
    content = keys.get("content", [])
    if not isinstance(content, list | tuple):
        raise mismatch(InvalidItem, "a list of blocks", content, at(path, "content"))
    blocks = [plain(block) for block in content]
    parts = [{**block, "type": "input_text"} if _is_text(block) else block for block in blocks]
    structured = keys.get("structuredContent")
    if structured is not None and not any(_says(part, structured) for part in parts):
        parts.append({"type": "input_text", "text": _json(structured)})
    hidden = {key: keys[key] for key in ("_meta",) if keys.get(key)}
    return parts, keys.get("isError") is True, hidden


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and not _HIDDEN & block.keys()


def _says(part: Any, structured: Any) -> bool:
    """Whether a text is the JSON of a structured result, or of what SDKs put under `result` in one."""
    text = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        return False
    is_wrapped = isinstance(structured, Mapping) and structured.keys() == {"result"}
    if is_wrapped and text == structured["result"]:
        return True
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(value == structured or (is_wrapped and value == structured["result"]))


def block_parts(block: Any, path: str) -> list[dict[str, Any]] | None:
    """The parts that a block of MCP becomes; None for what is no such block."""
    found = plain(block)
    if not isinstance(found, Mapping) or not isinstance(found.get("type"), str):
        return None
    keys = protocol_keys(found)
    if keys["type"] == "text" and block is found and not _HIDDEN & found.keys():
        return None  # a text is one in other formats, too
    parts = _shown(keys, path)
    hidden = {key: keys[key] for key in _NOT_SHOWN if keys.get(key)}
    if not parts or not hidden or keys["type"] == "resource_link":  # the JSON of a link has all of it
        return parts
    return [{**parts[0], "native": {NAME: hidden}}, *parts[1:]]


def _shown(keys: Mapping[str, Any], path: str) -> list[dict[str, Any]] | None:
    """The parts that a block of a type of MCP is shown as; None for other types."""
    match keys:
        case {"type": "text", "text": str(text)}:
            return [{"type": "input_text", "text": text}]
        case {"type": "image" | "audio", "data": str(data), "mimeType": str(media_type)}:
            return [_media(media_type, data)]
        case {"type": "resource"}:
            return _resource(keys, path)
        case {"type": "resource_link"}:  # the client reads what it links to
            return [{"type": "input_text", "text": _json(keys)}]
    return None


def _media(media_type: str, data: str, filename: str | None = None) -> dict[str, Any]:
    url = f"data:{media_type};base64,{data}"
    if media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    return {"type": "input_file", "file_data": url, **({"filename": filename} if filename else {})}


def _resource(block: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """An embedded resource: its text under its URI, or its bytes as a picture or file behind it."""
    resource = plain(block.get("resource"))
    keys = protocol_keys(resource) if isinstance(resource, Mapping) else {}
    uri, text, blob = str(keys.get("uri") or ""), keys.get("text"), keys.get("blob")
    if isinstance(text, str):
        return [{"type": "input_text", "text": f"{uri}\n{text}" if uri else text}]
    if not isinstance(blob, str):
        raise mismatch(InvalidItem, "a resource with text or a blob", resource, at(path, "resource"))
    name = unquote(basename(urlsplit(uri).path)) or None
    media = _media(str(keys.get("mimeType") or DEFAULT_MEDIA_TYPE), blob, name)
    return [{"type": "input_text", "text": uri}, media] if uri else [media]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
