"""Content in the shape of another format, or of MCP: converted, or an error; what has an origin is not changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from threadkeep.domain import mcp_content
from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import bytes_as_text
from threadkeep.domain.other_formats import other_event, other_message
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
    parts = mcp_content.block_parts(part, path)
    return [_own_part(part, path)] if parts is None else parts


def _own_part(part: Any, path: str) -> Any:
    name = _format_of(part) if isinstance(part, Mapping) else None
    if name is None:
        return part
    turn = {"role": "user", "parts" if name == "gemini" else "content": [bytes_as_text(dict(part))]}
    try:
        items = [item for items in get_format(name).parse_turns([turn]) for item in items]
    except CannotParse:
        items = []
    match [part.to_object() for item in items for part in getattr(item, "content", ())]:
        case [{"type": kind} as own] if kind != "provider_item":
            return {key: value for key, value in own.items() if key != "spelling"}
    hint = f'Append its turn with conversation.add_input([{{"role": "user", …}}], "{name}").'
    raise InvalidItem(f"has the shape of the format {name}, but cannot be read as content.", argument=path, hint=hint)


def _format_of(part: Mapping[str, Any]) -> str | None:
    kind = part.get("type")
    if kind is None:
        return next((_KEYS[key] for key in part if key in _KEYS), None)
    return TYPES.get(kind) if isinstance(kind, str) else None
