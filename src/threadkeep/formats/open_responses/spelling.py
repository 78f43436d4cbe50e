"""How a request spelled its input: what came from the wire goes back in the same words.

The words are kept under `spelling` of an item object, and mean nothing to other formats. That a whole input was a
string, or an empty list, is noted in `Imported.spelling`.

Source: OpenAI's API reference, "Responses", input items (EasyInputMessage, ItemReference); the Open Responses
specification, item params.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.wire import Entry, Snapshot
from threadkeep.formats.open_responses.fields import NAME

_TEXT_KEYS: Final = frozenset({"type", "text"})


def text_type(role: Any) -> str:
    """The part type that a text takes in a message of this role."""
    return "output_text" if role == "assistant" else "input_text"


def _untyped(item: JsonObject) -> JsonObject:
    return {key: value for key, value in item.items() if key != "type"}


def _as_text(item: JsonObject) -> JsonObject:
    match item.get("content"):
        case [{"type": kind, "text": str(text), **others}] if kind == text_type(item.get("role")) and not others:
            return {**item, "content": text}
    return item


def _as_object(item: JsonObject) -> JsonObject:
    arguments = loads(item["arguments"])
    return {**item, "arguments": arguments} if isinstance(arguments, dict) else item


def _unsummarized(item: JsonObject) -> JsonObject:
    return {key: value for key, value in item.items() if key != "summary" or value}


# word -> what it makes of an item in the usual spelling
WORDS: Final[dict[str, Callable[[JsonObject], JsonObject]]] = {
    "text": _as_text,  # content as a string
    "object": _as_object,  # arguments as an object
    "no summary": _unsummarized,  # reasoning without the key
    "untyped": _untyped,  # a message or item reference without `type`
}


def spelled(item: JsonObject, words: Any) -> JsonObject:
    """An item of this format as the request spelled it."""
    for word, write in WORDS.items():
        if isinstance(words, list) and word in words:
            item = write(item)
    return item


def usual(item: JsonObject) -> tuple[JsonObject, list[str]]:
    """An item of a request in the usual spelling, and the words for the one it had."""
    words = []
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference"
        item = {**item, "type": kind}
        words.append("untyped")
    if kind == "message" and isinstance(item.get("content"), str):
        item = {**item, "content": [{"type": text_type(item.get("role")), "text": item["content"]}]}
        words.append("text")
    elif kind == "function_call" and isinstance(item.get("arguments"), dict):
        item = {**item, "arguments": dumps(item["arguments"]).decode()}
        words.append("object")
    elif kind == "reasoning" and item.get("summary") is None:
        words.append("no summary")
    return item, words


def input_spelling(given: Any) -> JsonObject:
    """What to note of how a request gave its input."""
    if isinstance(given, str):
        return {"input": "text"}
    return {"input": "empty"} if given == [] else {}


def whole_input(snapshot: Snapshot, entries: Sequence[Entry]) -> bytes | None:
    """The `input` of a request that is no list of items, as JSON; None where it is one, as for nearly all."""
    imported = snapshot.imported
    if imported is None or imported.format != NAME or len(entries) > 1:
        return None
    word = imported.spelling.get("input")
    if word == "empty" and not entries:
        return b"[]"
    if word == "text" and len(entries) == 1 and entries[0].origin == NAME:
        match entries[0].item():
            case {"role": "user", "content": [{"type": "input_text", "text": str(text)}]}:
                return dumps(text)
    return None
