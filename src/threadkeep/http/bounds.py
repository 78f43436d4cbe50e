"""How many things a body may bring: one of a few megabytes can have so many that they keep the process busy for long.

The store itself has no such limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.http.problems import Problem

MAX_VALUES: Final = 50_000  # of a body, however deep they are
MAX_INPUT: Final = 2_000  # items with which a model is asked: all of them, for clients that keep the history themselves
MAX_PARTS: Final = 1_000  # of each list that an item has
MAX_TOOLS: Final = 512
MAX_LABELS: Final = 64  # of a conversation, and of an item: lists repeat them


def bounded(body: JsonObject, *, apart: str | None = None) -> JsonObject:
    """Return a body; Problem if it has too many values. Those in the key `apart` are not counted."""
    count, left = len(body), [value for key, value in body.items() if key != apart]
    while left and count <= MAX_VALUES:
        value = left.pop()
        if isinstance(value, dict | list):
            count += len(value)
            if count <= MAX_VALUES:
                left += value.values() if isinstance(value, dict) else value
    if count > MAX_VALUES:
        problem = f"The body has more than {MAX_VALUES:,} values: send it in several requests."
        raise Problem(413, problem, code="request_too_large")
    return body


def bounded_question(body: JsonObject) -> JsonObject:
    """Return a body with which a model is asked; Problem if it has too many values, or tools."""
    tools = bounded(body).get("tools")
    if isinstance(tools, list):
        check_length("tools", tools, MAX_TOOLS, "tools")
    return body


def check_length(name: str, values: Sequence[Any], most: int, kind: str) -> None:
    """Raise Problem for a list of more values than that; `kind` is what they are called."""
    if len(values) > most:
        problem = f"{name} has {len(values):,} {kind}; at most {most:,} are accepted in one request."
        raise Problem(400, problem, param=name, code="array_above_max_length")


def check_parts(name: str, item: JsonObject) -> None:
    """Raise Problem for an item with too many parts in one of its lists."""
    for key, value in item.items():
        if isinstance(value, list):
            check_length(f"{name}.{key}", value, MAX_PARTS, "parts")
