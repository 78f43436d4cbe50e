"""The items of an assistant message of Chat Completions: reasoning, then the message, then its calls."""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.arguments import arguments_text
from threadkeep.formats.chat_completion.fields import MESSAGE_KEYS, NAME, REASONING_KEYS
from threadkeep.formats.native import block, split_native

# keys of a call; its index is the order, and its type is the same for all functions
_CALL_KEYS: Final = frozenset({"id", "type", "function", "index"})
_FUNCTION_KEYS: Final = frozenset({"name", "arguments"})
_TEXT_KEYS: Final = frozenset({"type", "text"})
# keys of a message that are kept as they came
_KEPT: Final = ("audio", "function_call")


def items_of(choice: JsonObject) -> list[JsonObject]:
    """The items of a choice; a choice without a message has none."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return []
    found = _reasoning(message)
    parts = _parts(message)
    _note_first_text(parts, message, choice)
    native = _native(message, has_text=any(part["type"] == "output_text" for part in parts))
    if parts:
        kept = {"native": {NAME: native}} if native else {}
        found.append({"type": "message", "role": "assistant", "content": parts, "origin": NAME, **kept})
    elif native:
        found.append({**block({"role": "assistant", **native}, NAME), "origin": NAME})
    calls = message.get("tool_calls")
    return found + [call_item(call) for call in (calls if isinstance(calls, list) else ())]


def _reasoning(message: JsonObject) -> list[JsonObject]:
    """Reasoning beside the content; its keys go back as they came."""
    keys = {key: message[key] for key in REASONING_KEYS if message.get(key)}
    if not keys:
        return []
    return [reasoning_item(next((t for v in keys.values() if (t := readable(v))), ""), keys)]


def reasoning_item(text: str, keys: JsonObject) -> JsonObject:
    """A reasoning item that goes back to this format under the keys that it had."""
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return {"type": "reasoning", "summary": [], "content": content, "origin": NAME, "native": {NAME: keys}}


def readable(value: Any) -> str:
    """The readable text of a reasoning key: a string, or the texts of a list of details."""
    if isinstance(value, str):
        return value
    details = value if isinstance(value, list) else [value]
    texts = [one.get("text") or one.get("summary") or one.get("content") for one in details if isinstance(one, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _parts(message: JsonObject) -> list[JsonObject]:
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, str):
        parts = [{"type": "output_text", "text": content}] if content else []
    else:
        found = content if isinstance(content, list) else [] if content is None else [content]
        parts = [part for one in found if (part := _part(one)) is not None]
    if isinstance(refusal, str) and refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    return parts


def _part(one: Any) -> JsonObject | None:
    """A content block; empty texts are left out, unknown blocks kept as they are."""
    if isinstance(one, str):
        return {"type": "output_text", "text": one} if one else None
    kind = one.get("type") if isinstance(one, dict) else None
    if kind in (None, "text") and isinstance(one, dict) and isinstance(one.get("text"), str):
        return {**split_native(one, _TEXT_KEYS, NAME), "type": "output_text"} if one["text"] else None
    if kind == "refusal" and isinstance(one.get("refusal"), str):
        return split_native(one, ("type", "refusal"), NAME)
    return block(one, NAME)


def _note_first_text(parts: list[JsonObject], message: JsonObject, choice: JsonObject) -> None:
    """Annotations and log probabilities belong to the first text."""
    first = next((part for part in parts if part["type"] == "output_text"), None)
    logprobs = choice.get("logprobs")
    notes = {
        "annotations": message.get("annotations"),
        "logprobs": logprobs.get("content") if isinstance(logprobs, dict) else None,
    }
    for key, value in notes.items():
        if first is not None and isinstance(value, list) and value:
            first[key] = value


def _native(message: JsonObject, *, has_text: bool) -> JsonObject:
    """Keys of the message that have no canonical form; annotations have none without a text."""
    known = MESSAGE_KEYS.union(REASONING_KEYS)
    strange = {key: value for key, value in message.items() if key not in known and value is not None}
    if message.get("annotations") and not has_text:
        strange["annotations"] = message["annotations"]
    return strange | {key: message[key] for key in _KEPT if not says_nothing(message.get(key))}


def says_nothing(value: Any) -> bool:
    """Whether a value is empty through and through, as some servers fill the keys that they do not use."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending.extend(one.values())
        elif one:
            return False
    return True


def call_item(call: Any) -> JsonObject:
    """A tool call: a function call, or a block where it is of another kind."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") not in (None, "function"):
        return {**block(call, NAME), "origin": NAME, "spelling": {"call": True}}
    found: JsonObject = {
        "type": "function_call",
        "call_id": str(call.get("id") or ""),
        "name": str(function.get("name") or ""),
        "arguments": arguments_text(function.get("arguments")),
        "origin": NAME,
    }
    strange = _strange(call, _CALL_KEYS)
    if inner := _strange(function, _FUNCTION_KEYS):
        strange["function"] = inner
    return {**found, "native": {NAME: strange}} if strange else found


def _strange(thing: JsonObject, known: frozenset[str]) -> JsonObject:
    return {key: value for key, value in thing.items() if key not in known and not says_nothing(value)}
