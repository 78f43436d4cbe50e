"""Items without their content: what is left where content was removed.

An item keeps its type, its ids and names, so that calls and outputs still belong together and every format can send it.
What only a provider could read, or is of a type that threadkeep does not know, becomes a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain.call_kinds import BY_CALL, BY_OUTPUT, KINDS
from threadkeep.domain.jsontext import JsonObject

REDACTED: Final = "[redacted]"
REMOVED: Final = "[removed]"

_KEPT: Final = ("type", "id", "call_id", "name", "namespace", "role", "status", "phase")


def without_content(
    item: JsonObject, marker: str, *, call_id: str | None = None, is_answer: bool = False
) -> JsonObject:
    """Return an item with a marker in place of its content.

    `call_id`: of a call, also where the item has it in the keys of its provider; `is_answer`: it came in a response.
    """
    kind = item["type"]
    if kind == "provider_item" and call_id is not None:
        return {"type": "function_call", "call_id": call_id, "name": _provider_name(item), "arguments": "{}"}
    write = _CONTENT.get(kind)
    if write is None:
        message = {"type": "message", "role": "assistant" if is_answer else "user"}
        return {**_kept(item, ("id",)), **message, **_message(message, marker)}
    return {**_kept(item, _KEPT), **write(item, marker)}


def _kept(item: JsonObject, keys: tuple[str, ...]) -> JsonObject:
    return {key: item[key] for key in keys if isinstance(item.get(key), str)}


def _provider_name(item: JsonObject) -> str:
    payload: Any = item.get("payload")
    named = [payload.get(key) for key in ("custom", "function")] if isinstance(payload, dict) else []
    names = [value.get("name") for value in named if isinstance(value, dict)]
    return next((name for name in names if isinstance(name, str)), "unknown")


def _message(item: JsonObject, marker: str) -> JsonObject:
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    return {"content": [{"type": kind, "text": marker}]}


def _compaction(item: JsonObject, marker: str) -> JsonObject:
    """A summary becomes the marker; without one, and without what only the provider can read, it covers nothing."""
    kept = {key: item[key] for key in ("upto", "summary", "keeps") if item.get(key) is not None}
    return kept | ({"summary": marker} if "summary" in kept else {})


def _blank_call(item: JsonObject, marker: str) -> JsonObject:
    """What is left of a call: the keys by which it belongs to its output, and who runs it."""
    blank = BY_CALL[item["type"]].blank_call
    kept = {key: item[key] for key in ("execution", "environment", "async", "caller") if item.get(key) is not None}
    return {**kept, **({} if blank is None else blank(marker))}


def _blank_output(item: JsonObject, marker: str) -> JsonObject:
    """What is left of an output: the call that it belongs to."""
    kind = BY_OUTPUT[item["type"]]
    content = kind.stand_in if kind.text_output is None else kind.text_output(marker)
    kept = {key: item[key] for key in (kind.output_key, "status", "approve") if item.get(key) is not None}
    return {**(content or {}), **kept}


# item type -> its content, with a marker
_CONTENT: Final[dict[str, Callable[[JsonObject, str], JsonObject]]] = {
    "message": _message,
    **{kind.call: _blank_call for kind in KINDS if kind.blank_call is not None},
    **{kind.output: _blank_output for kind in KINDS if kind.blank_call is not None},
    "reasoning": lambda _, marker: {"summary": [{"type": "summary_text", "text": marker}]},
    "compaction": _compaction,
    "compaction_undone": lambda item, _: {key: item[key] for key in ("compaction",) if key in item},
    "item_reference": lambda _, __: {},
}
