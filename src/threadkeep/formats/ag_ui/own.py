"""Messages as items, and items that came from messages as the messages that they were.

* A message is one item; one of an assistant an item for its text and one for each call. Activities, and messages of an
  unknown role, are blocks: no other format says them.
* The first item of a message has under `spelling.ag_ui` what no model sees of it, as `message`. Keys that are seen, or
  that this release does not know, are native keys, so that other formats report them. `is_text` says that content was
  a text and no list, and `call` is the same as `message` for a call.
* What would not come back equal is a block.

Source: AG-UI 1.0, `Message`, `ToolCall`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.ag_ui import fields
from threadkeep.formats.ag_ui.parts import content_of, own_part, spelling_of, split_keys, with_spelling
from threadkeep.formats.canonical.entries import overlay
from threadkeep.formats.shared.parts import block, native_keys, with_native_keys

_FUNCTION = ("name", "arguments")


def turns_of(messages: Iterable[JsonObject]) -> list[list[JsonObject]]:
    """The item objects of messages: a turn for each, but reasoning is of the turn of the assistant that follows it."""
    turns: list[list[JsonObject]] = []
    is_open = False
    for message in messages:
        items = items_of(message)
        if is_open and message.get("role") in ("reasoning", "assistant"):
            turns[-1] += items
        else:
            turns.append(items)
        is_open = message.get("role") == "reasoning"
    return turns


def items_of(message: JsonObject) -> list[JsonObject]:
    """The item objects of a message; a block where it would not come back."""
    items = _items(message)
    if not items or overlay(message, message_of(items)) is not None:
        return [{**block(message, fields.NAME), "origin": fields.NAME}]
    return items


def _items(message: JsonObject) -> list[JsonObject]:
    read = _READERS.get(str(message.get("role")))
    items, said = read(message, message.get("content")) if read is not None else ([], [])
    if not items:
        return []
    silent, native = split_keys({key: value for key, value in message.items() if key not in said})
    own = spelling_of(items[0]) or {}
    first = with_native_keys(items[0], {**native_keys(items[0], fields.NAME), **native}, fields.NAME)
    items[0] = with_spelling(first, **own, message=silent, is_text=isinstance(message.get("content"), str))
    return [{**item, "origin": fields.NAME} for item in items]


Read = tuple[list[JsonObject], list[str]]  # the items of a message, and the keys that they say


def _spoken(message: JsonObject, content: Any) -> Read:
    role = message["role"]
    if not isinstance(content, str) and (role != "user" or not _is_parts(content)):
        return [], []
    return [{"type": "message", "role": role, "content": content_of(content)}], ["content"]


def _thought(_message: JsonObject, content: Any) -> Read:
    if not isinstance(content, str):
        return [], []
    return [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": content}]}], ["content"]


def _answer(message: JsonObject, content: Any) -> Read:
    """The text of an assistant, and its calls."""
    calls = message.get("toolCalls")
    has_text = isinstance(content, str) and (content != "" or not calls)
    text = [{"type": "output_text", "text": content}]
    items: list[JsonObject] = [{"type": "message", "role": "assistant", "content": text}] if has_text else []
    said = ["content"] if has_text else []
    if isinstance(calls, list) and calls and all(map(_is_call, calls)):
        return [*items, *map(_call, calls)], [*said, "toolCalls"]
    return items, said


def _result(message: JsonObject, content: Any) -> Read:
    """An output; of a failed call that says nothing else, it is the error."""
    call_id, error = message.get("toolCallId"), message.get("error")
    if not isinstance(call_id, str) or not (isinstance(content, str) or _is_parts(content)):
        return [], []
    output = content if isinstance(content, str) else content_of(content)
    item: JsonObject = {"type": "function_call_output", "call_id": call_id, "output": output}
    if not isinstance(error, str):
        return [item], ["content", "toolCallId"]
    item["status"] = "failed"
    if content:
        return [item], ["content", "toolCallId"]
    return [with_spelling({**item, "output": error}, is_error=True)], ["content", "toolCallId", "error"]


_READERS: Final[dict[str, Callable[[JsonObject, Any], Read]]] = {
    **dict.fromkeys(fields.SPEAKERS, _spoken),
    "assistant": _answer,
    "reasoning": _thought,
    "tool": _result,
}


def _is_parts(content: Any) -> bool:
    return isinstance(content, list) and bool(content)


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and call.get("type", "function") == "function"
        and isinstance(call.get("id"), str)
        and all(isinstance(function.get(key), str) for key in _FUNCTION)
        and function["name"] != ""
    )


def _call(call: JsonObject) -> JsonObject:
    function = call["function"]
    rest = {key: value for key, value in function.items() if key not in _FUNCTION}
    silent, native = split_keys({key: value for key, value in call.items() if key not in ("id", "function")})
    item = {"type": "function_call", "call_id": call["id"], **{key: function[key] for key in _FUNCTION}}
    native |= {"function": rest} if rest else {}
    # The call may be the first item of a message, and have its keys, too
    prefixed = {f"toolCall.{key}": value for key, value in native.items()}
    # An empty `call` says that it came from here, too
    return with_native_keys({**item, "spelling": {fields.SPELLED: {"call": silent}}}, prefixed, fields.NAME)


# Back


def message_of(items: Sequence[JsonObject]) -> JsonObject:
    """The message that items were, of which the first is its first one."""
    message = keys_of(items[0])
    for item in items:
        add_to(message, item)
    return message


def keys_of(item: JsonObject) -> JsonObject:
    """What a message says besides its text and calls, from its first item; its role alone, if that was redacted."""
    own = spelling_of(item) or {}
    role = {"reasoning": "reasoning", "function_call_output": "tool", "function_call": "assistant"}
    native = {
        key: value
        for key, value in native_keys(item, fields.NAME).items()
        if not (item["type"] == "function_call" and key.startswith("toolCall."))
    }
    return {"role": role.get(item["type"], item.get("role")), **(own.get("message") or {}), **native}


def begins(item: JsonObject) -> bool:
    """Whether an item is the first one of its message."""
    return item["type"] != "function_call" or "message" in (spelling_of(item) or {})


def add_to(message: JsonObject, item: JsonObject) -> None:
    """Add the text, call or output that an item is to its message."""
    own = spelling_of(item) or {}
    if item["type"] == "function_call":
        message.setdefault("toolCalls", []).append(_called(item, own))
        return
    if item["type"] == "function_call_output":
        output = item.get("output")
        message |= {"toolCallId": item.get("call_id"), "content": _said(output, own)}
        if own.get("is_error"):
            message |= {"content": "", "error": output}
        return
    message["content"] = _said(item.get("content"), own)


def _said(content: Any, own: JsonObject) -> Any:
    if isinstance(content, str) or content is None:
        return content or ""
    if own.get("is_text"):
        return content[0].get("text") if content else ""
    return [own_part(part) for part in content]


def _called(item: JsonObject, own: JsonObject) -> JsonObject:
    native = {
        key.removeprefix("toolCall."): value
        for key, value in native_keys(item, fields.NAME).items()
        if key.startswith("toolCall.")
    }
    function = {key: item.get(key) for key in _FUNCTION} | native.pop("function", {})
    return {"id": item.get("call_id"), **own.get("call", {}), "function": function, **native}
