"""Small builders for the tests of the Messages API."""

from __future__ import annotations

from typing import Any

from tests.formats.factories import answer, render

FORMAT = "messages"
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
