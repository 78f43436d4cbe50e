"""Small builders for the tests of the Messages API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.formats.factories import Json, answer, render
from threadkeep.formats.messages.joining import later_blocks

FORMAT: Final = "messages"
MODEL = "claude-sonnet-4-5"
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "ZW5j"}


def rendered(*items: Any, **settings: Any) -> Any:
    return render(FORMAT, *items, **{"model": MODEL, **settings})


def sent(*items: Any, **settings: Any) -> list[Any]:
    messages: list[Any] = rendered(*items, **settings).payload["messages"]
    return messages


def shape(messages: list[Any]) -> list[str]:
    """Roles, each with its blocks: texts as they are, calls and results by their ids, others by their types."""

    def word(block: dict[str, Any]) -> str:
        return str(block.get("text") or block.get("id") or block.get("tool_use_id") or block["type"])

    return [" ".join([message["role"], *map(word, message["content"])]) for message in messages]


def own(*items: dict[str, Any], seen: int | None = None) -> Any:
    return answer(*items, origin=FORMAT, seen=seen)


def thought(*blocks: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"type": "reasoning", "content": list(blocks) or [SIGNED], **keys}


def merged(messages: Sequence[Json]) -> list[Json]:
    """Messages of the wire with neighbours of one role joined; those that have no such neighbour are not touched."""
    found: list[Json] = []
    for message in messages:
        if found and message.get("role") is not None and found[-1].get("role") == message["role"]:
            blocks = [*_blocks(found[-1]), *later_blocks(message["role"], _blocks(message))]
            found[-1] = {**message, **found[-1], "content": blocks}
        else:
            found.append(message)
    return found


def _blocks(message: Json) -> list[Any]:
    content = message.get("content")
    if isinstance(content, list):
        return content
    return [] if content is None else [{"type": "text", "text": content}]
