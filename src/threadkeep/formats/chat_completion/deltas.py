"""How the deltas of a streamed message are put together.

* Texts grow piece by piece, but names and their kind are repeated: the last one counts.
* Elements of lists belong together by their index, or by standing next to each other with one type; what is only
  repeated is kept once.
* A call has its index or its id; servers that give neither send calls whole. An id that differs begins a new call,
  whatever its index.
* Content that comes as text and as parts is parts.

Source: OpenAI's API reference, "Chat Completions", the chunk object; recorded streams of other servers.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import json_copy

# texts that always grow; of those that are not listed an equal one is a repetition
_GROWING: Final = frozenset(
    {"text", "content", "refusal", "arguments", "input", "transcript", "reasoning", "reasoning_content", "thinking",
     "summary"}
)  # fmt: skip
# texts that are repeated
_TOLD: Final = frozenset({"role", "channel", "id", "type", "name", "format", "signature", "status", "url", "phase"})
# types of parts of which neighbours are one
_ONE_PIECE: Final = frozenset({"text", "thinking", "reasoning", "reasoning.text", "reasoning.summary"})


def add_delta(message: JsonObject, delta: JsonObject) -> None:
    """Take a delta into a message.

    Raises:
        InvalidItem: the delta is nested too deeply.
    """
    for key, value in delta.items():
        if key == "content":
            _add_content(message, value)
        elif key == "tool_calls" and isinstance(value, list):
            _add_calls(message, value)
        elif key == "audio" and isinstance(value, dict) and isinstance(message.get(key), dict):
            _add_audio(message[key], value)
        else:
            _add(message, key, value)


def add_message(message: JsonObject, other: JsonObject) -> None:
    """Take in the whole message so far, which some chunks hold, where that is more than the deltas."""
    for key, value in other.items():
        known = message.get(key)
        is_less = isinstance(value, str) and isinstance(known, str) and len(value) < len(known)
        if value and not is_less:
            message[key] = json_copy(value, key)


def _add(holder: JsonObject, key: str, value: Any) -> None:
    known = holder.get(key)
    if value is None:
        return
    if isinstance(known, str) and isinstance(value, str):
        holder[key] = _text(key, known, value)
    elif isinstance(known, list) and isinstance(value, list):
        _add_elements(known, value)
    elif isinstance(known, dict) and isinstance(value, dict):
        for name, inner in value.items():
            _add(known, name, inner)
    else:
        holder[key] = json_copy(value, key)


def _text(key: str, known: str, value: str) -> str:
    if key in _GROWING:
        return known + value
    if key in _TOLD:
        return value or known
    return known if value == known else known + value


def _add_elements(known: list[Any], added: list[Any]) -> None:
    for element in added:
        if not isinstance(element, dict):
            known.append(json_copy(element, "list"))
        elif (partner := _partner(known, element)) is not None:
            for key, value in element.items():
                _add(partner, key, value)
        elif element not in known:
            known.append(json_copy(element, "list"))


def _partner(known: list[Any], element: JsonObject) -> JsonObject | None:
    """The element that this one goes on with."""
    index, kind = element.get("index"), element.get("type")
    if type(index) is int:
        others = [element for element in known if isinstance(element, dict) and element.get("index") == index]
    else:
        is_one_piece = isinstance(kind, str) and kind in _ONE_PIECE
        others = [element for element in known[-1:] if isinstance(element, dict) and is_one_piece]
    partner = others[-1] if others else None
    return None if partner is None or _is_apart(partner, element) else partner


def _is_apart(known: JsonObject, new: JsonObject) -> bool:
    """Whether two elements cannot be pieces of one; what is encrypted comes whole."""
    is_encrypted = bool(known.get("data")) and bool(new.get("data"))
    return known.get("type") != new.get("type") or _differ(known, new, "id") or is_encrypted


def _differ(known: JsonObject, new: JsonObject, key: str) -> bool:
    return bool(known.get(key)) and bool(new.get(key)) and known[key] != new[key]


def _add_content(message: JsonObject, value: Any) -> None:
    known = message.get("content")
    if isinstance(known, list) and isinstance(value, str):
        value = [{"type": "text", "text": value}] if value else []
    elif isinstance(known, str) and isinstance(value, list):
        message["content"] = [{"type": "text", "text": known}] if known else []
    if isinstance(value, list):
        message.setdefault("content", [])
        value = [{"type": "text", "text": part} if isinstance(part, str) else part for part in value]
    _add(message, "content", value)


def _add_audio(known: JsonObject, value: JsonObject) -> None:
    """Sound comes in pieces of base64, each padded on its own."""
    for key, inner in value.items():
        if key == "data" and isinstance(inner, str) and isinstance(known.get(key), str):
            known[key] = _joined_base64(known[key], inner)
        else:
            _add(known, key, inner)


def _joined_base64(left: str, right: str) -> str:
    if not left.endswith("="):
        return left + right
    try:
        data = base64.b64decode(left, validate=True) + base64.b64decode(right, validate=True)
    except (binascii.Error, ValueError):
        return left + right
    return base64.b64encode(data).decode("ascii")


def _add_calls(message: JsonObject, pieces: list[Any]) -> None:
    if not isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = []
    calls = message["tool_calls"]
    for piece in pieces:
        call = _call_of(calls, piece) if isinstance(piece, dict) else None
        if call is None:
            calls.append(json_copy(piece, "tool_calls"))
            continue
        for key, value in piece.items():
            _add(call, key, value)


def _call_of(calls: list[Any], piece: JsonObject) -> JsonObject | None:
    """The call that a piece belongs to; None when it begins one."""
    candidates = [call for call in calls if isinstance(call, dict)]
    index, call_id = piece.get("index"), piece.get("id")
    if type(index) is int:
        candidates = [call for call in candidates if call.get("index") == index]
    elif call_id:
        candidates = [call for call in candidates if call.get("id") == call_id]
    elif _name(piece) and candidates and _name(candidates[-1]):
        return None
    return None if not candidates or _differ(candidates[-1], piece, "id") else candidates[-1]


def _name(call: JsonObject) -> Any:
    function = call.get("function")
    return function.get("name") if isinstance(function, dict) else None
