"""What messages, calls and outputs of Chat Completions look like, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.wire import Entry
from threadkeep.formats.chat_completion.content import PARTS, Mapper, wire_parts
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.chat_completion.parts import KEY, OWN_PARTS
from threadkeep.formats.chat_completion.spelling import (
    ABSENT,
    NULL,
    as_one_text,
    is_lone_text,
    item_spelling,
    merged,
    spell_nothing,
)
from threadkeep.formats.native import native_keys, report_foreign
from threadkeep.formats.reports import Context
from threadkeep.formats.turns import MISSING_OUTPUT


def item_of(entry: Entry) -> JsonObject:
    """The item; one that says nothing beyond its payload is read from that alone."""
    if entry.rest is not None or entry.codec or entry.payload is None:
        return entry.item()
    found: JsonObject = orjson.loads(entry.payload)
    return found


def message_keys(keys: JsonObject, *, is_whole: bool = False) -> JsonObject:
    """Keys of an assistant message as they are sent; of audio the service takes the id alone."""
    found = {key: value for key, value in keys.items() if key != "role"}
    audio = found.get("audio")
    if isinstance(audio, dict) and "id" in audio and not is_whole:
        found["audio"] = {"id": audio["id"]}
    return found


def extend(message: JsonObject, keys: JsonObject) -> None:
    """Put further keys onto a message; further content goes behind what it has."""
    before = message["content"]
    message.update(keys)
    if isinstance(before, list) and "content" in keys:
        message["content"] = [*before, *(keys["content"] or [])]


def with_native(item: JsonObject, message: JsonObject, entry: Entry, context: Context) -> JsonObject:
    """A message with the keys that it came with; an answer has no role yet."""
    report_foreign(item, NAME, context, "native")
    is_whole = "role" in message or "audio" in item_spelling(item, entry)
    return message | message_keys(native_keys(item, NAME), is_whole=is_whole)


def tool_message(call_id: str, output: Entry, context: Context, results: str = "parts") -> JsonObject:
    """What a tool returned, as the message that answers a call; `results` is how the vendor takes more than a text."""
    item = item_of(output)
    if item.get("status") in ("failed", "incomplete"):
        context.lose("status", "status", f"The format has no status {item['status']!r} of an output.")
    is_own = output.origin == NAME
    mappers = OWN_PARTS if is_own else PARTS["user" if results == "json" else "tool"]
    content = _written(output_content(item.get("output"), mappers, context), results)
    found = {"role": "tool", "tool_call_id": call_id, "content": content}
    if is_own:
        found |= {"name": item["name"]} if item.get("name") is not None else {}
        spell_nothing(found, item_spelling(item, output))
    return with_native(item, found, output, context) if "native" in item else found


def missing_message(call_id: str, results: str) -> JsonObject:
    """What stands for the answer of a tool that there is none of."""
    text = dumps({"error": MISSING_OUTPUT}).decode() if results == "json" else MISSING_OUTPUT
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _written(content: str | list[Any], results: str) -> str | list[Any]:
    """The content of a tool message as the vendor takes it."""
    if isinstance(content, str) or results == "parts":
        return content
    if results == "json":
        return dumps(content).decode()
    text = as_one_text(content)
    return text[0]["text"] if is_lone_text(text) else content


def spelled_call(call: JsonObject, keys: JsonObject, spelling: JsonObject) -> JsonObject:
    """A call with the keys that it came with, and without those that it did not have."""
    found: JsonObject = merged(call, keys)
    if "index" in spelling:
        found["index"] = spelling["index"]
    if spelling.get("type") == ABSENT:
        found.pop("type", None)
    if spelling.get("arguments") == NULL:
        found["function"]["arguments"] = None
    elif spelling.get("arguments") == ABSENT:
        found["function"].pop("arguments", None)
    return found


def own_keys(parts: Sequence[JsonObject]) -> tuple[Sequence[JsonObject], JsonObject]:
    """The parts that are content of a message that came from this format, and what has keys of its own beside it.

    These are annotations, and a refusal that came so or stands alone.
    """
    annotations = [one for part in parts for one in part.get("annotations") or ()]
    keys: JsonObject = {"annotations": annotations} if annotations else {}
    refusals = [part for part in parts if part["type"] == "refusal"]
    words = (KEY, None) if len(parts) == 1 else (KEY,)
    if apart := [part for part in refusals if part.get("spelling") in words]:
        keys["refusal"] = apart[0]["refusal"]
        parts = [part for part in parts if part is not apart[0]]
    return parts, keys


def output_content(output: Any, mappers: dict[str, Mapper], context: Context) -> str | list[Any]:
    """What a tool returned: text, or text parts; where only media was, a note says so."""
    if isinstance(output, str):
        return output
    if output is None or output == []:
        return ""
    if not isinstance(output, list):
        return dumps(output).decode()
    parts = wire_parts(output, mappers, context, "output")
    return parts or "[the output cannot be shown here]"
