"""How many things a body may bring: one of a few megabytes can have so many that they keep the process busy for long.

The store itself has no such limits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.server.problems import Problem
from threadkeep.store.work.states import MAX_STATE_BYTES

MAX_VALUES: Final = 50_000  # of a body, however deep they are
MAX_INPUT: Final = 2_000  # items with which a model is asked: all of them, for clients that keep the history themselves
MAX_PARTS: Final = 1_000  # of each list that an item has
MAX_TOOLS: Final = 512
MAX_LABELS: Final = 64  # of a conversation, and of an item: lists repeat them
MAX_METADATA_BODY: Final = 256 * 1024  # bytes of a body with metadata alone: twice what these need with all escaped
MAX_STATE_BODY: Final = 3 * MAX_STATE_BYTES + 1024  # of one with a state: escapes make a text three times as long …
MAX_STATE_VALUES: Final = MAX_STATE_BYTES // 2  # … and there is not room for more in what is stored

_BLANKS: Final = b" \t\r\n"
_OTHERS: Final = bytes(set(range(256)) - set(b'",[{'))
_PIECE: Final = re.compile(rb'"[^"]*+"?+|(?P<mark>[,\[{])')
_MAX_STEPS: Final = 3  # strings and marks for each value: more have only texts that are no JSON


def check_values(text: bytes, most: int = MAX_VALUES) -> None:
    """Raise Problem for the JSON text of a body with more values than that, before anything is made of it.

    They are counted by what stands before each of them: a comma, or the bracket of what it is in.
    """
    if text.count(b",") + text.count(b"[") + text.count(b"{") <= most:
        return
    count = 0
    for steps, found in enumerate(_PIECE.finditer(_structure(text))):
        count += found.lastgroup is not None
        if count > most or steps > _MAX_STEPS * most:
            problem = f"The body has more than {most:,} values: send less at once."
            raise Problem(413, problem, code="request_too_large")


def _structure(text: bytes) -> bytes:
    """The quotes, commas and opening brackets of a JSON text, without escaped quotes and what is empty."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return text.translate(None, _BLANKS).replace(b"[]", b"").replace(b"{}", b"").translate(None, _OTHERS)


def check_tools(body: JsonObject) -> None:
    """Raise Problem for a body with too many tools with which a model is asked."""
    tools = body.get("tools")
    if isinstance(tools, list):
        check_length("tools", tools, MAX_TOOLS, "tools")


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
