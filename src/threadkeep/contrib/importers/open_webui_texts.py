"""Answers of Open WebUI as texts with blocks of HTML: what they thought, and which tools they called.

Older releases have nothing else: ``<details type="reasoning" …>`` with quoted lines, and ``<details type="tool_calls"
id="…" name="…" arguments="…" result="…">``, whose attributes are JSON with HTML's escapes.
"""

from __future__ import annotations

import html
import re
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads

_DETAILS: Final = re.compile(r'<details type="(\w+)"([^>]*)>\n?(.*?)\n?</details>\n?', re.DOTALL)
_ATTRIBUTE: Final = re.compile(r'([\w-]+)="([^"]*)"')
_SUMMARY: Final = re.compile(r"<summary>.*?</summary>\n?", re.DOTALL)
_QUOTE: Final = re.compile(r"^> ?", re.MULTILINE)


def items_of(text: str) -> list[JsonObject]:
    """The items of a text: messages, reasoning, calls and their outputs, in order."""
    items: list[JsonObject] = []
    end = 0
    for block in _DETAILS.finditer(text):
        items += _said(text[end : block.start()])
        kind, attributes = block[1], {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(block[2])}
        body = _QUOTE.sub("", html.unescape(_SUMMARY.sub("", block[3]))).strip()
        if kind == "reasoning":
            items += [reasoning(body)] if body else []
        elif kind == "tool_calls":
            items += _call(attributes)
        else:
            items += _said(body)
        end = block.end()
    return items + _said(text[end:])


def reasoning(text: str) -> JsonObject:
    """What a model thought."""
    return {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]}


def _said(text: str) -> list[JsonObject]:
    part = {"type": "output_text", "text": text.strip("\n")}
    return [{"type": "message", "role": "assistant", "content": [part]}] if text.strip() else []


def _call(attributes: dict[str, str]) -> list[JsonObject]:
    name = attributes.get("name") or "unknown"
    call_id = attributes.get("id") or name
    call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": _text(attributes.get("arguments"))}
    if attributes.get("done") != "true":
        return [call]
    return [call, {"type": "function_call_output", "call_id": call_id, "output": _text(attributes.get("result"))}]


def _text(value: str | None) -> str:
    """The text that an attribute has, as JSON or as it is; of other JSON, its text."""
    if not value:
        return ""
    try:
        found: Any = loads(value)
    except ValueError:
        return value
    return found if isinstance(found, str) else dumps(found).decode()
