"""JSON for people: long texts are cut, deep objects are left out, and each element of a list stands on its own line."""

from __future__ import annotations

import json
import textwrap
from typing import Any, Final

LONGEST: Final = 48  # characters of a text
DEEPEST: Final = 5  # levels of objects and lists
WIDTH: Final = 110


def shortened(value: Any, depth: int = 0) -> Any:
    """A JSON value with its long texts cut (each says how long it was) and what lies too deep left out."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[: LONGEST // 2]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        if depth > DEEPEST and value:
            return {"…": len(value)}
        return {key: shortened(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return ["…"] if depth > DEEPEST and value else [shortened(inner, depth + 1) for inner in value]
    return value


def outline(value: dict[str, Any]) -> list[str]:
    """The lines of a shortened JSON object: one for each key, and one for each element of its lists."""
    lines = []
    for name, inner in shortened(value).items():
        if isinstance(inner, list) and inner:
            lines += [f"{name}:", *(line for element in inner for line in _wrapped(f"- {_json(element)}", "  "))]
        else:
            lines += _wrapped(f"{name}: {_json(inner)}", "")
    return lines


def _wrapped(line: str, indent: str) -> list[str]:
    hanging = f"{indent}    "
    return textwrap.wrap(
        line, WIDTH, initial_indent=indent, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
