"""JSON for people: long texts are cut, deep objects are left out, and each element of a list stands on its own line."""

from __future__ import annotations

import json
import textwrap
from typing import Any, Final

MAX_TEXT: Final = 48  # characters of a text
MAX_DEPTH: Final = 5  # levels of objects and lists
WIDTH: Final = 110


def shortened(value: Any, depth: int = 0) -> Any:
    """A JSON value with its long texts cut (each says how long it was) and what is nested too deeply left out."""
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT // 2]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        if depth > MAX_DEPTH and value:
            return {"…": len(value)}
        return {key: shortened(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return ["…"] if depth > MAX_DEPTH and value else [shortened(inner, depth + 1) for inner in value]
    return value


def preview_lines(value: dict[str, Any]) -> list[str]:
    """The lines of a shortened JSON object: one for each key, and one for each element of its lists."""
    lines = []
    for name, inner in shortened(value).items():
        if isinstance(inner, list) and inner:
            lines += [f"{name}:", *(line for element in inner for line in _wrap(f"- {_json(element)}", "  "))]
        else:
            lines += _wrap(f"{name}: {_json(inner)}", "")
    return lines


def preview_line(value: Any) -> str:
    """A shortened JSON value on one line."""
    return _json(shortened(value))


def _wrap(line: str, indent: str) -> list[str]:
    hanging = f"{indent}    "
    return textwrap.wrap(
        line, WIDTH, initial_indent=indent, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
