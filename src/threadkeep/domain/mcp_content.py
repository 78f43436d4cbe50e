"""Results of MCP tools, as parts of a tool output: whole results and single blocks, as objects of the SDK or as JSON.

The SDK has the keys of the protocol in two spellings (`isError`, `is_error`). A text stays a text; pictures, sounds and
blobs become media; a text resource becomes a text under its URI, and a link its JSON, both of which models can read.
What is not for the model (`_meta`, `annotations`) is kept as native keys.

Source: the Model Context Protocol, "Tools"; the types of its Python SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from posixpath import basename
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from threadkeep.domain.media import DEFAULT_MEDIA_TYPE
from threadkeep.domain.objects import at, mismatch
from threadkeep.errors import InvalidItem

NAME: Final = "mcp"
# key of the SDK -> that of the protocol
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
