"""The items of the messages that a request holds: each message is a turn, and goes back as it came.

* An assistant message is reasoning, then what it says, then its calls; keys without an item are a block of keys.
* A message whose keys are not of the types that the API has is a block as a whole, and so are those of the old role
  function, which name no call.

Source: OpenAI's API reference, "Chat Completions", messages; recorded requests to other servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.arguments import arguments_text
from threadkeep.formats.chat_completion.answer import readable, reasoning_item, says_nothing
from threadkeep.formats.chat_completion.fields import MESSAGE_KEYS, NAME, REASONING_KEYS
from threadkeep.formats.chat_completion.parts import KEY, read_content
from threadkeep.formats.chat_completion.spelling import (
    ABSENT,
    EMPTY,
    EMPTY_LIST,
    NULL,
    SAYS_SOMETHING,
)
from threadkeep.formats.native import block

# keys that are the same in all messages, where null says nothing
_COMMON: Final = frozenset({"role", "content"})
_NULLABLE: Final = MESSAGE_KEYS | {"name", "tool_call_id"}
_API_KEYS: Final = _NULLABLE | {*REASONING_KEYS}
_CALL_KEYS: Final = frozenset({"id", "type", "function", "index"})
_FUNCTION_KEYS: Final = frozenset({"name", "arguments"})


def turns_of(messages: Iterable[JsonObject]) -> list[list[JsonObject]]:
    """The item objects of each message."""
    return [items_of_message(message) for message in messages]


def items_of_message(message: JsonObject) -> list[JsonObject]:
    """The item objects of a message; all say how it was spelled where that is not the usual way."""
    role = message.get("role")
    if not isinstance(role, str) or role == "function":
        return _whole(message)
    return {"assistant": _assistant, "tool": _output}.get(role, _said)(message)


def _whole(message: JsonObject) -> list[JsonObject]:
    return [{**block(message, NAME), "origin": NAME, "spelling": {"whole": True}}]


def _said(message: JsonObject) -> list[JsonObject]:
    """A message of the user, the system or the developer, or of a role that only one server has."""
    content = message.get("content")
    if (not content and content != "") or not _is_content(content):
        return _whole(message)
    parts, word = read_content(content)
    found = {"type": "message", "role": message["role"], "content": parts, "origin": NAME}
    return [_noted(found, _strange(message, _COMMON), {"content": word} if word else {})]


def _is_content(content: Any) -> bool:
    return isinstance(content, str | None) or (isinstance(content, list) and None not in content)


def _output(message: JsonObject) -> list[JsonObject]:
    call_id, content, name = (message.get(key) for key in ("tool_call_id", "content", "name"))
    if not isinstance(call_id, str) or not _is_content(content):
        return _whole(message)
    output: Any = content if isinstance(content, str) else read_content(content)[0] or ""
    found = {"type": "function_call_output", "call_id": call_id, "output": output, "origin": NAME}
    known = {"tool_call_id", *_COMMON}
    if isinstance(name, str):
        known.add("name")
        found["name"] = name
    word = None if content else _word_for_nothing(message)
    return [_noted(found, _strange(message, known), {"content": word} if word not in (None, EMPTY) else {})]


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
    calls = message.get("tool_calls") or []
    if not _is_regular(message) or not all(_is_call(call) for call in calls):
        return _whole(message)
    keys = {key: message[key] for key in REASONING_KEYS if message.get(key)}
    text = next((text for value in keys.values() if (text := readable(value))), "")
    found = [reasoning_item(text, keys)] if keys else []
    rest = {key: value for key, value in _rest(message).items() if key not in keys}
    hollow = {key: value for key, value in rest.items() if says_nothing(value)}
    native = {key: value for key, value in rest.items() if key not in hollow}
    found += _said_by_model(message, native, is_needed=not found and not calls)
    found += [_call(call) for call in calls]
    word = _content_word(message)
    if spelling := {**({"content": word} if word else {}), **({"keys": hollow} if hollow else {})}:
        found[-1]["spelling"] = {**spelling, **found[-1].get("spelling", {})}
    return found


def _is_regular(message: JsonObject) -> bool:
    """Whether the keys that become items are of the types that the API has."""
    match message.get("annotations"):
        case None:
            pass
        case [*annotations] if all(isinstance(one, dict) for one in annotations):
            pass
        case _:
            return False
    return (
        _is_content(message.get("content"))
        and isinstance(message.get("refusal"), str | None)
        and isinstance(message.get("tool_calls"), list | None)
    )


def _said_by_model(message: JsonObject, native: JsonObject, *, is_needed: bool) -> list[JsonObject]:
    """What an assistant message says beside reasoning and calls; `is_needed`: it is all that there is."""
    content = message.get("content")
    is_text = bool(content) or (content == "" and is_needed and not native and not message.get("refusal"))
    parts, word = read_content(content, "assistant") if is_text else ([], None)
    if refusal := message.get("refusal"):
        parts.append({"type": "refusal", "refusal": refusal, "spelling": KEY})
    native = _annotated(parts, native)
    spelling = {key: value for key, value in {"content": word, "audio": "audio" in native or None}.items() if value}
    if parts:
        found = {"type": "message", "role": "assistant", "content": parts, "origin": NAME}
        return [_noted(found, native, spelling)]
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
    """The keys of an assistant message that are no items, annotations among them."""
    apart = {"role", "content", "tool_calls"}
    found = {k: v for k, v in message.items() if k not in apart and not (v is None and k in _API_KEYS)}
    if found.get("refusal"):
        del found["refusal"]
    if found.get("annotations") == []:
        del found["annotations"]
    return found


def _content_word(message: JsonObject) -> str | None:
    """How content is spelled that says nothing, where it is not null beside calls and else an empty text."""
    if message.get("content"):
        return None
    word = _word_for_nothing(message)
    has_calls = bool(message.get("tool_calls") or message.get("function_call"))
    is_said = any(message.get(key) for key in SAYS_SOMETHING)
    usual = NULL if is_said else EMPTY
    return None if word == usual or (has_calls and word == EMPTY_LIST) else word


def _word_for_nothing(message: JsonObject) -> str | None:
    if "content" not in message:
        return ABSENT
    match message["content"]:
        case None:
            return NULL
        case []:
            return EMPTY_LIST
    return EMPTY


# Calls


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return False
    if call.get("type") in (None, "function"):
        function = call.get("function")
        return isinstance(function, dict) and isinstance(function.get("name"), str)
    return True


def _call(call: JsonObject) -> JsonObject:
    """A call as it is sent back: what only this format has of it is native."""
    if call.get("type") not in (None, "function"):
        return {**block(call, NAME), "origin": NAME, "spelling": {"call": True}}
    function = call["function"]
    arguments = function.get("arguments")
    native = {key: value for key, value in call.items() if key not in _CALL_KEYS}
    inner = {key: value for key, value in function.items() if key not in _FUNCTION_KEYS}
    if arguments is not None and not isinstance(arguments, str):
        inner["arguments"] = arguments
    found = {"type": "function_call", "call_id": call["id"], "name": function["name"]}
    found |= {"arguments": arguments_text(arguments), "origin": NAME}
    return _noted(found, native | ({"function": inner} if inner else {}), _call_spelling(call))


def _call_spelling(call: JsonObject) -> JsonObject:
    function = call["function"]
    found = {"index": call["index"]} if call.get("index") is not None else {}
    if function.get("arguments") is None:
        found["arguments"] = NULL if "arguments" in function else ABSENT
    if call.get("type") is None:
        found["type"] = ABSENT
    return found
