"""The single events of a response's stream: items, their parts, and the texts that grow in them.

Source: OpenAI's API reference, "Responses", streaming events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.keys import ITEM_STATUSES, STATUSES

# type of a part -> the key of its text, and what events about it are named after
_PARTS: Final = {
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
    "reasoning_text": ("text", "response.reasoning_text"),
    "summary_text": ("text", "response.reasoning_summary_text"),
}
# type of an item -> the key whose text grows, and what events about it are named after
_ARGUMENTS: Final = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
    "mcp_call": ("arguments", "response.mcp_call_arguments"),
}
_LISTS: Final = {"summary": "summary_index", "content": "content_index"}  # in the order in which they are sent
_ENDED: Final = frozenset({"completed", "incomplete"})  # statuses of items of which more may follow
_EMPTY: Final = "part"  # the kind of a part without text
# status of a response -> the type of its last event; of one that is completed: response.completed
ENDS: Final = {"failed": "response.failed", "incomplete": "response.incomplete", "cancelled": "response.incomplete"}


class Text(NamedTuple):
    """A text of an item that grows.

    Attributes:
        kind: the type of the part it is in, or of the item.
        holder: the list that has the part, or the item's key.
        place: the index of the part in its list.
    """

    kind: str
    holder: str
    place: int = 0


def texts_of(item: Mapping[str, Any], counts: Mapping[str, int] | None = None) -> Iterator[tuple[Text, str]]:
    """Yield the texts of an item that grow, in the order in which they are sent; "" for a part without text.

    `counts`: how many parts of each list are known, of which only the last one is looked at again.
    """
    kind = item.get("type")
    if kind in _ARGUMENTS:
        key = _ARGUMENTS[kind][0]
        yield Text(kind, key), item[key]
    elif kind in ("message", "reasoning"):
        for holder in _LISTS:
            parts = item.get(holder) or ()
            for index in range(max((counts or {}).get(holder, 0) - 1, 0), len(parts)):
                yield _text_in(holder, index, parts[index])


def text_at(item: Mapping[str, Any], text: Text) -> str | None:
    """Return what a text of an item says; None if there is no such text."""
    if text.kind in _ARGUMENTS:
        value = item.get(text.holder)
        return value if isinstance(value, str) else None
    parts = item.get(text.holder) or ()
    known, value = _text_in(text.holder, text.place, parts[text.place]) if text.place < len(parts) else (None, "")
    return value if known == text else None


def has_arguments(text: Text) -> bool:
    """Return whether a text is the input of a call."""
    return text.kind in _ARGUMENTS


def _text_in(holder: str, index: int, part: Mapping[str, Any]) -> tuple[Text, str]:
    known = _PARTS.get(part.get("type", ""))
    if known is None:
        return Text(_EMPTY, holder, index), ""
    return Text(part["type"], holder, index), part[known[0]]


def begun_item(item: JsonObject) -> JsonObject:
    """Return an item as it is announced: without what its texts bring."""
    begun = dict(item)
    kind = item.get("type")
    if kind in ("message", "reasoning"):
        begun |= {holder: [] for holder in _LISTS if isinstance(item.get(holder), list)}
    elif kind in _ARGUMENTS:
        begun[_ARGUMENTS[kind][0]] = ""
    if kind == "custom_tool_call":  # whose type has none in an answer
        begun.pop("status", None)
    elif begun.get("status") in _ENDED and "in_progress" in STATUSES.get(str(kind), ITEM_STATUSES):
        begun["status"] = "in_progress"
    return begun


def item_done(index: int, item: JsonObject) -> JsonObject:
    """Return the event for an item that is whole."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def text_begun(text: Text, item: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Yield the event that announces the part of a text."""
    if text.kind in _ARGUMENTS:
        return
    part = dict(item[text.holder][text.place])
    if text.kind != _EMPTY:
        part[_PARTS[text.kind][0]] = ""
        part |= {key: [] for key in ("annotations", "logprobs") if key in part}
    yield {"type": f"response.{_part_name(text)}.added", **_index(text), "part": part}


def text_delta(text: Text, delta: str) -> JsonObject:
    """Return the event for more of a text."""
    logprobs: JsonObject = {"logprobs": []} if text.kind == "output_text" else {}
    return {"type": f"{_name(text)}.delta", **_index(text), "delta": delta, **logprobs}


def text_done(text: Text, value: str, item: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Yield the events for a text that is whole, and its part."""
    if text.kind in _ARGUMENTS:
        yield {"type": f"{_name(text)}.done", text.holder: value}
        return
    part = item[text.holder][text.place]
    if text.kind == "output_text":
        for index, annotation in enumerate(part.get("annotations") or ()):
            added = {"annotation_index": index, "annotation": annotation}
            yield {"type": f"{_name(text)}.annotation.added", **_index(text), **added}
    if text.kind != _EMPTY:
        logprobs = {"logprobs": _logprobs(part.get("logprobs"))} if text.kind == "output_text" else {}
        yield {"type": f"{_name(text)}.done", **_index(text), _PARTS[text.kind][0]: value, **logprobs}
    yield {"type": f"response.{_part_name(text)}.done", **_index(text), "part": part}


def _logprobs(given: Any) -> list[JsonObject]:
    """The log probabilities of a text as events have them: without the bytes of tokens."""
    tops = ("token", "logprob")
    return [
        {
            **{key: one[key] for key in tops},
            "top_logprobs": [{key: top[key] for key in tops} for top in one["top_logprobs"]],
        }
        for one in given or ()
    ]


def _name(text: Text) -> str:
    return _ARGUMENTS[text.kind][1] if text.kind in _ARGUMENTS else _PARTS[text.kind][1]


def _part_name(text: Text) -> str:
    return "reasoning_summary_part" if text.holder == "summary" else "content_part"


def _index(text: Text) -> JsonObject:
    return {_LISTS[text.holder]: text.place} if text.holder in _LISTS else {}
