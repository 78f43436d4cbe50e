"""Function calls of Chat Completions, and the tool messages that answer them, in both directions.

* A call keeps the keys that only its server has. One of another kind than function is a block of this format.
* What a tool returned is text, or text parts; vendors differ in how they take more than a text.

Source: OpenAI's API reference, "Chat Completions", messages; recorded requests to other servers.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.chat_completion.assistant import is_blank_value, with_native
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.chat_completion.parse_parts import OWN_PARTS
from threadkeep.formats.chat_completion.parts import PARTS, merged, wire_parts
from threadkeep.formats.chat_completion.spelling import (
    ABSENT,
    NULL,
    as_one_text,
    is_lone_text,
    item_spelling,
    spell_nothing,
)
from threadkeep.formats.shared.arguments import arguments_text
from threadkeep.formats.shared.pairing import MISSING_OUTPUT
from threadkeep.formats.shared.parts import Mapper, block
from threadkeep.formats.shared.reports import Context

# keys of a call; its index is the order, and its type is the same for all functions
_CALL_KEYS: Final = frozenset({"id", "type", "function", "index"})
_FUNCTION_KEYS: Final = frozenset({"name", "arguments"})


# Reading


def call_of_response(call: Any) -> JsonObject:
    """A call of a response, which may lack keys; empty keys are left out."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") not in (None, "function"):
        return _block(call)
    native = {key: value for key, value in call.items() if key not in _CALL_KEYS and not is_blank_value(value)}
    if inner := {k: value for k, value in function.items() if k not in _FUNCTION_KEYS and not is_blank_value(value)}:
        native["function"] = inner
    return _item(str(call.get("id") or ""), str(function.get("name") or ""), function.get("arguments"), native)


def is_call(call: Any) -> bool:
    """Whether a request's call can be kept as one."""
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return False
    if call.get("type") in (None, "function"):
        function = call.get("function")
        return isinstance(function, dict) and isinstance(function.get("name"), str)
    return True


def call_of_request(call: JsonObject) -> JsonObject:
    """A call of a request, which is sent back as it came: what only this format has of it is native."""
    if call.get("type") not in (None, "function"):
        return _block(call)
    function = call["function"]
    arguments = function.get("arguments")
    native = {key: value for key, value in call.items() if key not in _CALL_KEYS}
    inner = {key: value for key, value in function.items() if key not in _FUNCTION_KEYS}
    if arguments is not None and not isinstance(arguments, str):
        inner["arguments"] = arguments
    item = _item(call["id"], function["name"], arguments, native | ({"function": inner} if inner else {}))
    if spelling := _spelling_of(call):
        item["spelling"] = spelling
    return item


def _item(call_id: str, name: str, arguments: Any, native: JsonObject) -> JsonObject:
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments_text(arguments)}
    return {**item, "origin": NAME, "native": {NAME: native}} if native else {**item, "origin": NAME}


def _block(call: Any) -> JsonObject:
    return {**block(call, NAME), "origin": NAME, "spelling": {"call": True}}


def _spelling_of(call: JsonObject) -> JsonObject:
    function = call["function"]
    spelling = {"index": call["index"]} if call.get("index") is not None else {}
    if function.get("arguments") is None:
        spelling["arguments"] = NULL if "arguments" in function else ABSENT
    if call.get("type") is None:
        spelling["type"] = ABSENT
    return spelling


# Writing


def spelled_call(call: JsonObject, keys: JsonObject, spelling: JsonObject) -> JsonObject:
    """A call with the keys that it came with, and without those that it did not have."""
    sent: JsonObject = merged(call, keys)
    if "index" in spelling:
        sent["index"] = spelling["index"]
    if spelling.get("type") == ABSENT:
        sent.pop("type", None)
    if spelling.get("arguments") == NULL:
        sent["function"]["arguments"] = None
    elif spelling.get("arguments") == ABSENT:
        sent["function"].pop("arguments", None)
    return sent


def tool_message(call_id: str, output: Entry, context: Context, results: str = "parts") -> JsonObject:
    """What a tool returned, as the message that answers a call; `results` is how the vendor takes more than a text."""
    item = output.item()
    if item.get("status") in ("failed", "incomplete"):
        context.loss("status", "status", f"The format has no status {item['status']!r} of an output.")
    is_own = output.origin == NAME
    mappers = OWN_PARTS if is_own else PARTS["user" if results == "json" else "tool"]
    content = _for_vendor(_output_content(item.get("output"), mappers, context), results)
    message = {"role": "tool", "tool_call_id": call_id, "content": content}
    if is_own:
        message |= {"name": item["name"]} if item.get("name") is not None else {}
        spell_nothing(message, item_spelling(item, output))
    return with_native(item, message, output, context) if "native" in item else message


def missing_message(call_id: str, results: str) -> JsonObject:
    """The tool message that answers a call without an output."""
    text = dumps({"error": MISSING_OUTPUT}).decode() if results == "json" else MISSING_OUTPUT
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _output_content(output: Any, mappers: dict[str, Mapper], context: Context) -> str | list[Any]:
    """What a tool returned: text, or text parts; where only media was, a note says so."""
    if isinstance(output, str):
        return output
    if output is None or output == []:
        return ""
    if not isinstance(output, list):
        return dumps(output).decode()
    parts = wire_parts(output, mappers, context, "output")
    return parts or "[the output cannot be shown here]"


def _for_vendor(content: str | list[Any], results: str) -> str | list[Any]:
    """The content of a tool message as the vendor takes it."""
    if isinstance(content, str) or results == "parts":
        return content
    if results == "json":
        return dumps(content).decode()
    text = as_one_text(content)
    return text[0]["text"] if is_lone_text(text) else content
