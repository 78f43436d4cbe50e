"""The spelling of a request's head: how an imported request wrote its keys, words and lists.

What is noted is laid over the rendered head where it still says the same; see `ImportInfo.spelling`.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.fields import JSON_SCHEMA, SCHEMA, THINKING
from threadkeep.formats.gemini.schemas import json_schema
from threadkeep.formats.gemini.spelling import HEAD, respelled
from threadkeep.formats.gemini.tools import DECLARATIONS
from threadkeep.formats.shared.fields import value_at, with_value

# place of a word -> whether it is usually written in capitals
WORDS: Final = {
    f"{THINKING}.thinkingLevel": str.upper,
    "toolConfig.functionCallingConfig.mode": str.upper,
    "serviceTier": str.lower,
}


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
    if "tools" in body:
        body = {**body, "tools": _respelled_tools(body["tools"], spelling)}
    return respelled(body, spelling.get("snake", ()), HEAD)


def _respelled_tools(tools: Any, spelling: JsonObject) -> Any:
    """The entries of tools, with the key of the functions as it was; of other tools all keys are kept as they came."""
    if DECLARATIONS in spelling.get("snake", ()) and isinstance(tools, list):
        tools = [respelled(tool, (DECLARATIONS,), ()) if isinstance(tool, dict) else tool for tool in tools]
    is_alone = isinstance(tools, list) and len(tools) == 1 and "tools" in spelling.get("objects", ())
    return tools[0] if is_alone else tools


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
