"""The one spelling of a Messages request among those that mean the same (contract, section 5).

Levelled: content and system text as a string or a list, `is_error: false`, `type: custom` of tools, empty citations,
nulls of the API's own keys, neighbouring messages of one role joined or not. Never: arguments, schemas, native blocks.
"""

from __future__ import annotations

from itertools import chain, groupby
from typing import Any

Json = dict[str, Any]

# kind of block -> the values of its keys that are the same as none
EMPTY: dict[str, dict[str, list[Any]]] = {"text": {"citations": [[]]}, "tool_result": {"is_error": [False]}}
KNOWN = {"text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"}


def usual(request: Json) -> Json:
    """A request in its usual spelling."""
    found = without_nulls(request)
    found["messages"] = joined([message(one) for one in found.get("messages", [])])
    if "system" in found:
        found["system"] = content(found["system"])
    if isinstance(found.get("tools"), list):
        found["tools"] = [tool(one) for one in found["tools"]]
    return found


def without_nulls(thing: Json) -> Json:
    return {key: value for key, value in thing.items() if value is not None}


def message(one: Json) -> Json:
    return {**without_nulls(one), "content": content(one.get("content") or [])}


def content(given: Any) -> Any:
    """Content as a list of blocks."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    return [block(one) for one in given] if isinstance(given, list) else given


def block(one: Any) -> Any:
    kind = one.get("type") if isinstance(one, dict) else None
    if not isinstance(kind, str) or kind not in KNOWN:
        return one
    empty = EMPTY.get(kind, {})
    found = {key: value for key, value in without_nulls(one).items() if value not in empty.get(key, [])}
    return found | {"content": content(found["content"])} if kind == "tool_result" and "content" in found else found


def tool(one: Any) -> Any:
    if not isinstance(one, dict) or one.get("type", "custom") != "custom":
        return one
    return {key: value for key, value in without_nulls(one).items() if key != "type"}


def joined(messages: list[Json]) -> list[Json]:
    """Messages with neighbours of one role joined, when they say nothing beside role and content."""
    groups = groupby(enumerate(messages), key=lambda pair: (pair[1]["role"], pair[0] if len(pair[1]) > 2 else -1))
    found = [[one for _, one in group] for _, group in groups]
    return [{**group[0], "content": list(chain.from_iterable(one["content"] for one in group))} for group in found]
