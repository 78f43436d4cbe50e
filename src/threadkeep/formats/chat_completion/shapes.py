"""What messages, calls and outputs of Chat Completions look like, one by one."""

from __future__ import annotations

from typing import Any

import orjson

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.wire import Entry
from threadkeep.formats.chat_completion.content import Mapper, wire_parts
from threadkeep.formats.reports import Context


def item_of(entry: Entry) -> JsonObject:
    """The item; one that says nothing beyond its payload is read from that alone."""
    if entry.rest is not None or entry.codec or entry.payload is None:
        return entry.item()
    found: JsonObject = orjson.loads(entry.payload)
    return found


def message_keys(keys: JsonObject) -> JsonObject:
    """Keys of an assistant message as they are sent; of audio the service takes the id alone."""
    found = {key: value for key, value in keys.items() if key != "role"}
    audio = found.get("audio")
    if isinstance(audio, dict) and "id" in audio:
        found["audio"] = {"id": audio["id"]}
    return found


def with_native_call(call: JsonObject, keys: JsonObject) -> JsonObject:
    """A call with the keys that it came with, beside the function and in it."""
    found = {**call, **keys}
    if isinstance(keys.get("function"), dict) and "function" in call:
        found["function"] = {**call["function"], **keys["function"]}
    return found


def own_content(content: list[JsonObject], item: JsonObject) -> JsonObject:
    """The content of a message that came from this format; a lone refusal and annotations have keys of their own."""
    annotations = [one for part in item["content"] for one in part.get("annotations") or ()]
    found: JsonObject = {"annotations": annotations} if annotations else {}
    if len(content) == 1 and item["content"][0]["type"] == "refusal":
        return {"content": None, "refusal": item["content"][0]["refusal"], **found}
    return {"content": content or None, **found}


def output_content(output: Any, mappers: dict[str, Mapper], context: Context) -> str | list[JsonObject]:
    """What a tool returned: text, or text parts; where only media was, a note says so."""
    if isinstance(output, str):
        return output
    if output is None or output == []:
        return ""
    if not isinstance(output, list):
        return dumps(output).decode()
    parts = wire_parts(output, mappers, context, "output")
    return parts or "[the output cannot be shown here]"
