"""Function calls of Chat Completions, and the tool messages that answer them, in both directions.

* A call keeps the keys that only its server has. One of another kind than function is a block of this format.
* What a tool returned is text, or text parts; vendors differ in how they take more than a text. Pictures and files go
  into a user message behind the tool messages.

Source: OpenAI's API reference, "Chat Completions", messages; recorded requests to other servers.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.chat_completion import parts as spellings
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.chat_completion.parts import OWN_PARTS, PARTS, merged, wire_parts
from threadkeep.formats.shared import dialects, parts
from threadkeep.formats.shared.arguments import arguments_text, object_arguments
from threadkeep.formats.shared.reports import Context

# keys of a call; its index is the order, and its type is the same for all functions
_CALL_KEYS: Final = frozenset({"id", "type", "function", "index"})
_FUNCTION_KEYS: Final = frozenset({"name", "arguments"})
MEDIA_PARTS: Final = frozenset({"image_url", "input_audio", "file"})  # types of parts that only users send
MOVED: Final = "[The output is in the next user message.]"


# Reading


def is_call(call: Any) -> bool:
    """Whether a request's call can be kept as one."""
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return False
    if call.get("type") in (None, "function"):
        function = call.get("function")
        return isinstance(function, dict) and isinstance(function.get("name"), str)
    return True


def read_call(call: Any, *, is_sent: bool = False) -> JsonObject:
    """A call as an item: one of a response, which may lack keys, or one that a request sent and that goes back so."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") not in (None, "function"):
        return {**parts.block(call if is_sent else _unplaced(call), NAME), "origin": NAME, "spelling": {"call": True}}
    arguments = function.get("arguments")
    native = _strange(call, _CALL_KEYS, is_sent=is_sent)
    inner = _strange(function, _FUNCTION_KEYS, is_sent=is_sent)
    if is_sent and not isinstance(arguments, str | None):
        inner["arguments"] = arguments
    item = {
        "type": "function_call",
        "call_id": str(call.get("id") or ""),
        "name": str(function.get("name") or ""),
        "arguments": arguments_text(arguments),
        "origin": NAME,
    }
    item = parts.with_native_keys(item, {**native, "function": inner} if inner else native, NAME)
    spelling = _spelling_of(call) if is_sent else {}
    return {**item, "spelling": spelling} if spelling else item


def _unplaced(call: Any) -> Any:
    """A call of a response without the index that it has in a stream."""
    return {key: value for key, value in call.items() if key != "index"} if isinstance(call, dict) else call


def _strange(thing: JsonObject, known: frozenset[str], *, is_sent: bool) -> JsonObject:
    """The keys that have no canonical name; empty ones of a response say nothing."""
    strange = {key: value for key, value in thing.items() if key not in known}
    return strange if is_sent else {k: value for k, value in strange.items() if not spellings.is_blank_value(value)}


def _spelling_of(call: JsonObject) -> JsonObject:
    function = call["function"]
    spelling = {"index": call["index"]} if call.get("index") is not None else {}
    if function.get("arguments") is None:
        spelling["arguments"] = spellings.NULL if "arguments" in function else spellings.ABSENT
    if call.get("type") is None:
        spelling["type"] = spellings.ABSENT
    return spelling


# Writing


def spelled_call(call: JsonObject, keys: JsonObject, spelling: JsonObject) -> JsonObject:
    """A call with the keys that it came with, and without those that it did not have."""
    sent: JsonObject = merged(call, keys)
    if "index" in spelling:
        sent["index"] = spelling["index"]
    if spelling.get("type") == spellings.ABSENT:
        sent.pop("type", None)
    if spelling.get("arguments") == spellings.NULL:
        sent["function"]["arguments"] = None
    elif spelling.get("arguments") == spellings.ABSENT:
        sent["function"].pop("arguments", None)
    return sent


def custom_call(item: JsonObject, call_id: str, context: Context, dialect: dialects.Dialect) -> JsonObject:
    """A call with free text instead of arguments; of a function where the vendor knows no others."""
    name, text = context.called(item), item.get("input") or ""
    if "custom" in dialect.tools:
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": text}}
    arguments = dumps(object_arguments(item, context)).decode()
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_message(
    call_id: str, output: ItemEntry, context: Context, results: str = "parts", media: list[Any] | None = None
) -> JsonObject:
    """What a tool returned, as the message that answers a call; `results` is how the vendor takes more than a text.

    Pictures and files, which such messages do not hold, are added to `media`.
    """
    item = output.item()
    if item.get("status") in ("failed", "incomplete"):
        context.loss("status", "status", f"The format has no status {item['status']!r} of an output.")
    context.caller(item)
    is_own = output.origin == NAME
    content = _output_content(item.get("output"), OWN_PARTS if is_own else PARTS["user"], context)
    if media is not None and results != "json" and isinstance(content, list):
        content = _without_media(content, media, context)
    content = _for_vendor(content, results)
    message = {"role": "tool", "tool_call_id": call_id, "content": content}
    if is_own:
        message |= {"name": item["name"]} if item.get("name") is not None else {}
        if not content:
            spellings.spell_nothing(message, spellings.item_spelling(item, output).get("content"))
    return spellings.with_native(item, message, output, context) if "native" in item else message


def missing_message(call_id: str, text: str, results: str) -> JsonObject:
    """The tool message that answers a call without an output."""
    content = dumps({"error": text}).decode() if results == "json" else text
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _output_content(output: Any, mappers: dict[str, parts.Mapper], context: Context) -> str | list[Any]:
    """What a tool returned: text, or text parts; where only media was, a note says so."""
    if isinstance(output, str):
        return output
    if output is None or output == []:
        return ""
    if not isinstance(output, list):
        return dumps(output).decode()
    return wire_parts(output, mappers, context, "output") or "[the output cannot be shown here]"


def _without_media(content: list[Any], media: list[Any], context: Context) -> list[Any]:
    """The parts of an output that tool messages hold; the others go into a user message."""
    moved = [part for part in content if isinstance(part, dict) and part.get("type") in MEDIA_PARTS]
    if not moved:
        return content
    media += moved
    context.repair("tool_media", "output", "Images and files of the output were sent in a user message after it.")
    return [part for part in content if part not in moved] or [{"type": "text", "text": MOVED}]


def _for_vendor(content: str | list[Any], results: str) -> Any:
    """The content of a tool message as the vendor takes it."""
    if isinstance(content, str) or results == "parts":
        return content
    if results == "json":
        return dumps(content).decode()
    return spellings.spelled(content, {}, as_string=True, is_joined=True)
