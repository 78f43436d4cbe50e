"""The spelling of a request's head: how an imported request wrote its keys, words and lists.

What is noted is laid over the rendered head where it still says the same; see `ImportInfo.spelling`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.fields import JSON_SCHEMA, SCHEMA, THINKING
from threadkeep.formats.gemini.schemas import json_schema
from threadkeep.formats.gemini.spelling import camel, snake
from threadkeep.formats.gemini.tools import DECLARATIONS
from threadkeep.formats.shared.fields import value_at

# objects of the head whose keys belong to the protocol
OBJECTS: Final = frozenset(
    {"generationConfig", "thinkingConfig", "toolConfig", "functionCallingConfig", "systemInstruction"}
)
# place of a word -> whether it is usually written in capitals
WORDS: Final = {
    f"{THINKING}.thinkingLevel": str.upper,
    "toolConfig.functionCallingConfig.mode": str.upper,
    "serviceTier": str.lower,
}
# key -> elements of which one may stand without its list
_LISTS: Final = ("tools",)


def with_value(body: JsonObject, path: str, value: Any) -> JsonObject:
    """A head with another value at a place; None takes it out. The head itself is not changed."""
    key, _, inner = path.partition(".")
    held = body.get(key)
    result = with_value(held if isinstance(held, dict) else {}, inner, value) if inner else value
    if result is None:
        return {name: other for name, other in body.items() if name != key}
    return {**body, key: result}


def levelled_head(body: JsonObject, names: set[str]) -> JsonObject:
    """A head with its keys in camel case; those that were not are put to `names`."""
    level: JsonObject = {}
    for key, value in body.items():
        name = camel(key)
        if name == key or name in body:
            name = key
        else:
            names.add(name)
        is_protocol = name in OBJECTS and isinstance(value, dict)
        level[name] = levelled_head(value, names) if is_protocol else value
    return level


def respelled_head(body: JsonObject, spelling: JsonObject) -> JsonObject:
    """A head in the spelling of the request that the conversation began with."""
    for path, word in spelling.get("words", {}).items():
        value = value_at(body, path)
        if isinstance(value, str) and path in WORDS and value == WORDS[path](word):
            body = with_value(body, path, word)
    schema, system = spelling.get("schema"), spelling.get("systemInstruction")
    if isinstance(schema, dict):
        body = _with_schema(body, schema)
    if isinstance(system, dict) and isinstance(body.get("systemInstruction"), dict):
        body = {**body, "systemInstruction": _respelled_system(body["systemInstruction"], system)}
    for key in spelling.get("objects", ()):
        if key in _LISTS and isinstance(body.get(key), list) and len(body[key]) == 1:
            body = {**body, key: body[key][0]}
    return _renamed(body, spelling.get("snake", ()))


def _respelled_system(system: JsonObject, spelling: JsonObject) -> JsonObject:
    parts: Any = system.get("parts")
    is_alone = isinstance(parts, list) and len(parts) == 1
    lone = {"parts": parts[0]} if is_alone and spelling.get("parts") == "object" else {}
    return {**system, **lone, **({"role": spelling["role"]} if "role" in spelling else {})}


def _with_schema(body: JsonObject, noted: JsonObject) -> JsonObject:
    """The schema of the answer under the key and in the words that it came in, while it is the same."""
    path = next((path for path in (SCHEMA, JSON_SCHEMA) if value_at(body, path) is not None), None)
    if path is None:
        return body
    schema = value_at(body, path)
    came = noted.get("came", schema)
    if "came" in noted and json_schema(came) != schema:
        return body
    return with_value(with_value(body, path, None), noted.get("path", path), came)


def _renamed(body: JsonObject, names: Collection[str]) -> JsonObject:
    if not names:
        return body
    renamed: JsonObject = {}
    for key, value in body.items():
        is_protocol = key in OBJECTS and isinstance(value, dict)
        renamed[snake(key) if key in names else key] = _renamed(value, names) if is_protocol else value
        if key == "tools":
            renamed[key] = [_entry(tool, names) for tool in value] if isinstance(value, list) else _entry(value, names)
    return renamed


def _entry(tool: Any, names: Collection[str]) -> Any:
    """An entry of tools: only the key of the functions is spelled here, other tools are kept as they came."""
    if not isinstance(tool, dict) or DECLARATIONS not in names:
        return tool
    return {snake(key) if key == DECLARATIONS else key: value for key, value in tool.items()}
