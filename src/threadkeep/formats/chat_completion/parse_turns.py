"""The items of the messages that a request holds: each message is a turn, and goes back as it came.

* An assistant message is reasoning, then what it says, then its calls; keys without an item are a block of keys.
* A message whose keys are not of the types that the API has is a block as a whole, and so are those of the old role
  function, which name no call.

Source: OpenAI's API reference, "Chat Completions", messages; recorded requests to other servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.chat_completion.assistant import IN_PLACE_OF_CONTENT, is_blank_value, reasoning_of
from threadkeep.formats.chat_completion.calls import call_of_request, is_call
from threadkeep.formats.chat_completion.fields import MESSAGE_KEYS, NAME, REASONING_KEYS
from threadkeep.formats.chat_completion.parse_parts import read_content
from threadkeep.formats.chat_completion.spelling import ABSENT, EMPTY, EMPTY_LIST, KEY, NULL
from threadkeep.formats.shared.parts import block

# keys that are the same in all messages, where null is the same as no key
_COMMON: Final = frozenset({"role", "content"})
_NULLABLE: Final = MESSAGE_KEYS | {"name", "tool_call_id"}
_API_KEYS: Final = _NULLABLE | {*REASONING_KEYS}


def turns_of(messages: Iterable[JsonObject]) -> list[list[JsonObject]]:
    """The item objects of each message; all say how they were spelled where that is not the usual way."""
    return [_items_of(message) for message in messages]


def _items_of(message: JsonObject) -> list[JsonObject]:
    role = message.get("role")
    return _READERS.get(role, _message)(message) if isinstance(role, str) else _whole(message)


def _whole(message: JsonObject) -> list[JsonObject]:
    """A message that goes back as it is."""
    return [{**block(message, NAME), "origin": NAME, "spelling": {"whole": True}}]


def _message(message: JsonObject) -> list[JsonObject]:
    """A message of the user, the system or the developer, or of a role that only one server has."""
    content = message.get("content")
    if (not content and content != "") or not _is_content(content):
        return _whole(message)
    parts, word = read_content(content)
    item = {"type": "message", "role": message["role"], "content": parts, "origin": NAME}
    return [_noted(item, _strange(message, _COMMON), {"content": word} if word else {})]


def _is_content(content: Any) -> bool:
    return isinstance(content, str | None) or (isinstance(content, list) and None not in content)


def _output(message: JsonObject) -> list[JsonObject]:
    """What a tool returned."""
    call_id, content, name = (message.get(key) for key in ("tool_call_id", "content", "name"))
    if not isinstance(call_id, str) or not _is_content(content):
        return _whole(message)
    output: Any = content if isinstance(content, str) else read_content(content)[0] or ""
    item = {"type": "function_call_output", "call_id": call_id, "output": output, "origin": NAME}
    known = {"tool_call_id", *_COMMON}
    if isinstance(name, str):
        known.add("name")
        item["name"] = name
    word = None if content else _word_for_nothing(message)
    return [_noted(item, _strange(message, known), {"content": word} if word not in (None, EMPTY) else {})]


def _noted(item: JsonObject, native: JsonObject, spelling: JsonObject) -> JsonObject:
    """An item with its native keys and its spelling, where it has any."""
    if native:
        item["native"] = {NAME: native}
    if spelling:
        item["spelling"] = spelling
    return item


def _strange(thing: JsonObject, known: Iterable[str]) -> JsonObject:
    return {k: v for k, v in thing.items() if k not in known and not (v is None and k in _NULLABLE)}


# The assistant's


def _assistant(message: JsonObject) -> list[JsonObject]:
    """An assistant message: its reasoning, what it says, and its calls."""
    calls = message.get("tool_calls") or []
    if not _is_regular(message) or not all(map(is_call, calls)):
        return _whole(message)
    items = reasoning_of(message)
    rest = _rest(message)
    empty = {key: value for key, value in rest.items() if is_blank_value(value)}
    native = {key: value for key, value in rest.items() if key not in empty}
    items += _answer(message, native, is_needed=not items and not calls)
    items += map(call_of_request, calls)
    word = _content_word(message)
    if spelling := {**({"content": word} if word else {}), **({"keys": empty} if empty else {})}:
        items[-1]["spelling"] = {**spelling, **items[-1].get("spelling", {})}
    return items


def _is_regular(message: JsonObject) -> bool:
    """Whether the keys that become items are of the types that the API has."""
    annotations = message.get("annotations")
    if annotations is not None and not (
        isinstance(annotations, list) and all(isinstance(annotation, dict) for annotation in annotations)
    ):
        return False
    return (
        _is_content(message.get("content"))
        and isinstance(message.get("refusal"), str | None)
        and isinstance(message.get("tool_calls"), list | None)
    )


def _answer(message: JsonObject, native: JsonObject, *, is_needed: bool) -> list[JsonObject]:
    """What an assistant message has besides reasoning and calls; `is_needed`: it is all that there is."""
    content = message.get("content")
    is_text = bool(content) or (content == "" and is_needed and not native and not message.get("refusal"))
    parts, word = read_content(content, "assistant") if is_text else ([], None)
    if refusal := message.get("refusal"):
        parts.append({"type": "refusal", "refusal": refusal, "spelling": KEY})
    native = _annotated(parts, native)
    spelling = {key: value for key, value in {"content": word, "audio": "audio" in native or None}.items() if value}
    if parts:
        item = {"type": "message", "role": "assistant", "content": parts, "origin": NAME}
        return [_noted(item, native, spelling)]
    if native or is_needed:
        return [_noted({**block({"role": "assistant", **native}, NAME), "origin": NAME}, {}, spelling)]
    return []


def _annotated(parts: list[JsonObject], native: JsonObject) -> JsonObject:
    """Put annotations onto the first text, if there is one; the other keys."""
    first = next((part for part in parts if part["type"] == "output_text"), None)
    if first is None or "annotations" not in native:
        return native
    first["annotations"] = native["annotations"]
    return {key: value for key, value in native.items() if key != "annotations"}


def _rest(message: JsonObject) -> JsonObject:
    """The keys of an assistant message that no item stands for, annotations among them."""
    apart = {"role", "content", "tool_calls"}
    rest = {k: v for k, v in message.items() if k not in apart and not (v is None and k in _API_KEYS)}
    if rest.get("refusal"):
        del rest["refusal"]
    if rest.get("annotations") == []:
        del rest["annotations"]
    return {key: value for key, value in rest.items() if not (key in REASONING_KEYS and value)}


def _content_word(message: JsonObject) -> str | None:
    """How empty content is spelled, where it is not null next to calls or otherwise an empty text."""
    if message.get("content"):
        return None
    word = _word_for_nothing(message)
    has_calls = bool(message.get("tool_calls") or message.get("function_call"))
    usual = NULL if any(message.get(key) for key in IN_PLACE_OF_CONTENT) else EMPTY
    return None if word == usual or (has_calls and word == EMPTY_LIST) else word


def _word_for_nothing(message: JsonObject) -> str | None:
    if "content" not in message:
        return ABSENT
    content = message["content"]
    return NULL if content is None else EMPTY_LIST if content == [] else EMPTY


# role -> what reads its messages
_READERS: Final[dict[str, Callable[[JsonObject], list[JsonObject]]]] = {
    "assistant": _assistant,
    "tool": _output,
    "function": _whole,
}
