"""Reading requests of the Gemini API.

* Keys are read in camel and snake case, words in any case, one element without its list; the spelling is noted.
* The first text of `systemInstruction` is `instructions`, what follows a system message.
* Function declarations are tools, all other tools blocks of this format.
* Keys that are not options, or whose value no option can say, are `extra.gemini`.

Source: Google's Gemini API reference, "generateContent".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import body_object
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats.gemini.fields import JSON_SCHEMA, NAME, NAMES, SCHEMA, WORDS, Family, family_of, fields_of
from threadkeep.formats.gemini.parse_turns import OpenCalls, oddities, parts_of, turns_of
from threadkeep.formats.gemini.parts import is_text, text_in
from threadkeep.formats.gemini.schemas import is_schema, json_schema
from threadkeep.formats.gemini.spelling import HEAD, levelled, noted, read_part
from threadkeep.formats.gemini.tools import choice_in, tool_config, tools_in
from threadkeep.formats.shared import parsing
from threadkeep.formats.shared.fields import read_fields, value_at, with_value
from threadkeep.formats.shared.parts import block
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.reports import Context

_CHOICE: Final = "toolConfig.functionCallingConfig"
_READ_APART: Final = ("contents", "tools", "systemInstruction")


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a generateContent request; `model` and `stream`, which stand in its address, are given with it."""
    names: set[str] = set()
    body = levelled(parsing.request_object(payload, NAME, "contents"), names, HEAD)
    contents, objects = _contents(body)
    model = body["model"] if model is None and isinstance(body.get("model"), str) else model
    settings, native, spelling = _settings(body, family_of(model))
    tools, strange, tool_objects = tools_in(body.get("tools"), names)
    settings |= _choice(native, tools)
    system, system_words = _system(body.get("systemInstruction"), settings, native)
    settings |= {key: value for key, value in (("model", model), ("stream", stream)) if value is not None}
    turns = system + turns_of(contents, OpenCalls())
    odd = _oddities(contents, turns[len(system) :], sum(map(len, system)))
    spelling |= noted(names, objects=objects + tool_objects, contents=odd).get("spelling", {}) | system_words
    return parsing.session_of(NAME, turns, settings=settings, tools=tools, native=native | strange, spelling=spelling)


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The item objects of contents, content by content; responses without an id go to the open calls of their name."""
    contents = parsing.turns_in(turns, NAME)
    for index, content in enumerate(contents):
        if not isinstance(content, dict) or "parts" not in content:
            what = f"contents[{index}] is {shortened(content)}, which has no parts."
            raise CannotParse(what, hint="Pass contents as they were sent.")
    return parsing.items_of_turns(turns_of(contents, OpenCalls(calls)))


def _contents(body: JsonObject) -> tuple[list[Any], list[str]]:
    """The contents as a list, and whether they were one."""
    contents = body_object(body.get("contents")) if not isinstance(body.get("contents"), str) else body["contents"]
    if isinstance(contents, dict):
        return [contents], ["contents"]
    contents = [content for content in contents if content is not None] if isinstance(contents, list) else contents
    if isinstance(contents, list) and contents:
        return contents, []
    if contents:
        raise CannotParse(f"contents is {shortened(contents)}, not a list of contents.", hint=parsing.SENT_REQUEST)
    raise parsing.no_turns(body, NAME, "contents")


def _oddities(contents: Sequence[Any], turns: Sequence[Sequence[Any]], first: int) -> JsonObject:
    """The spelling of contents that are spelled unusually, by the position of their first item."""
    oddities_by_position: JsonObject = {}
    for content, items in zip(contents, turns, strict=True):
        if items[0]["type"] != "provider_item" and (odd := oddities(content)):
            oddities_by_position[str(first)] = odd
        first += len(items)
    return oddities_by_position


def _settings(body: JsonObject, family: Family) -> tuple[JsonObject, JsonObject, JsonObject]:
    """The options that a request sets, the keys that say something else, and the spelling."""
    read = {key: value for key, value in body.items() if key not in _READ_APART}
    words = {path: word for path in WORDS if isinstance(word := value_at(read, path), str)}
    for path, word in words.items():
        read = with_value(read, path, WORDS[path](word))
    read, schema = _with_usual_schema(read)
    settings, native = read_fields(fields_of(family), read)
    if value_at(native, SCHEMA) is not None or value_at(native, JSON_SCHEMA) is not None:
        schema = {}
        for path in (SCHEMA, JSON_SCHEMA):
            native = with_value(native, path, value_at(body, path))
    for path, word in words.items():
        if value_at(native, path) is not None:
            native = with_value(native, path, word)
    odd_words = {path: word for path, word in words.items() if word != WORDS[path](word)}
    spelling = {key: value for key, value in {"words": odd_words, "schema": schema}.items() if value}
    return settings, native, spelling


def _with_usual_schema(body: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The schema of the answer as JSON schema, where the option would put it, and a note of how it came."""
    for path in (SCHEMA, JSON_SCHEMA):
        came = value_at(body, path)
        if came is not None:
            read = json_schema(came) if path == SCHEMA else came
            usual = SCHEMA if is_schema(read) else JSON_SCHEMA
            note = ({"path": path} if usual != path else {}) | ({"came": came} if read != came else {})
            return with_value(with_value(body, path, None), usual, read), note
    return body, {}


def _choice(native: JsonObject, tools: Sequence[JsonObject]) -> JsonObject:
    """The tool choice that a request states, taken out of its keys; none that the option would not give back."""
    config = value_at(native, _CHOICE)
    choice = choice_in(config) if isinstance(config, dict) else None
    context = Context(tools, NAMES)
    has_functions = any(tool["type"] == "function" for tool in tools)
    try:
        rendered = tool_config(choice, context, has_functions=has_functions)
    except CannotRender:
        return {}
    if rendered != {"functionCallingConfig": config} or context.repairs:
        return {}
    other = {key: value for key, value in native["toolConfig"].items() if key != "functionCallingConfig"}
    del native["toolConfig"]
    native |= {"toolConfig": other} if other else {}
    return {"tool_choice": choice}


def _system(system: Any, settings: JsonObject, native: JsonObject) -> tuple[list[list[JsonObject]], JsonObject]:
    """System text: the first text is put to `settings`, the rest is a turn; and its spelling."""
    if system is None:
        return [], {}
    parts = parts_of(system) if isinstance(system, dict) else []
    if not parts:
        native["systemInstruction"] = system
        return [], {}
    strange = {key: value for key, value in system.items() if key not in ("parts", "role") and value is not None}
    if strange:
        native["systemInstruction"] = strange
    words = {"role": system["role"]} if system.get("role") is not None else {}
    words |= {"parts": "object"} if isinstance(system["parts"], dict) else {}
    match parts[0]:
        case {"text": str(text), **others} if not others:
            settings["instructions"] = text
            parts = parts[1:]
    message = {"type": "message", "role": "system", "content": [_system_part(part) for part in parts], "origin": NAME}
    return [[message]] if parts else [], {"systemInstruction": words} if words else {}


def _system_part(part: Any) -> JsonObject:
    known, names = read_part(part)
    return text_in(known, names, "input_text") if is_text(known) else block(part, NAME)
