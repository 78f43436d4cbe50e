"""Tools of Chat Completions and the choice among them, in both directions.

Functions keep the keys and names that they came with. Custom tools come from the Responses API, whose grammar has an
object of its own here; OpenAI alone takes them. Other tools are known to this format only.

Source: OpenAI's API reference, "Chat Completions", tools and tool_choice; recorded requests to other servers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tool_names import is_valid_name
from threadkeep.errors import CannotRender
from threadkeep.formats.chat_completion.fields import CHOICES, LIMIT, NAME
from threadkeep.formats.chat_completion.parts import ANY, FUNCTIONS, MAX_TOKENS, UNTYPED, merged
from threadkeep.formats.shared import cache_marks, fields, parts
from threadkeep.formats.shared.dialects import STANDARD, Dialect
from threadkeep.formats.shared.reports import Context

# key of a function -> the type of its value
FUNCTION_KEYS: Final[dict[str, type]] = {"name": str, "description": str, "parameters": dict, "strict": bool}
CUSTOM: Final = "custom"
_CUSTOM_KEYS: Final = ("name", "description", "format")
GRAMMAR: Final = "grammar"


# Writing


def tool_keys(tools: Sequence[JsonObject], settings: JsonObject, context: Context, dialect: Dialect) -> JsonObject:
    """Tools, and the two settings that are sent only with them."""
    wire = fields.defined_tools(tools, NAME, context, partial(_tool, has_marks=dialect.marks != "none"), dialect.tools)
    keys = {name: settings[name] for name in ("tool_choice", "parallel_tool_calls") if settings.get(name) is not None}
    if not wire:
        for name in keys:
            context.repair("option", name, f"{name} was left out: there are no tools.")
        return {}
    if "tool_choice" in keys:
        keys["tool_choice"] = _wire_choice(keys["tool_choice"], context, dialect)
    return {"tools": wire, **{key: value for key, value in keys.items() if value is not None}}


def _tool(tool: JsonObject, context: Context, path: str, *, has_marks: bool) -> Any:
    if tool.get("type") == CUSTOM:
        return _custom(tool, context, path)
    native = parts.native_keys(tool, NAME)
    own = native.get("function")
    is_kept = isinstance(own, dict) and "name" in own
    name = tool.get("name") if is_kept else context.name(tool.get("name"), f"{path}.name")
    function = {key: tool[key] for key in FUNCTION_KEYS if tool.get(key) is not None} | {"name": name}
    sent: JsonObject = {"type": "function", "function": function}
    if has_marks and tool.get(cache_marks.MARK) is not None:
        sent[cache_marks.MARK] = tool[cache_marks.MARK]
    return merged(sent, native)


def _custom(tool: JsonObject, context: Context, path: str) -> JsonObject:
    custom = {key: tool[key] for key in _CUSTOM_KEYS if tool.get(key) is not None}
    form = custom.get("format")
    if isinstance(form, dict) and form.get("type") == GRAMMAR and GRAMMAR not in form:
        custom["format"] = {"type": GRAMMAR, GRAMMAR: _without(form, ("type",))}
    return {"type": CUSTOM, CUSTOM: custom | {"name": context.name(tool.get("name"), f"{path}.name")}}


def _wire_choice(choice: Any, context: Context, dialect: Dialect = STANDARD) -> Any:
    if isinstance(choice, dict) and choice.get("type") == CUSTOM and CUSTOM in dialect.tools:
        name = context.offered_name(choice)
        return None if name is None else {"type": CUSTOM, CUSTOM: {"name": name}}
    return context.tool_choice(choice, CHOICES, lambda name: {"type": "function", "function": {"name": name}})


def spell_body(body: JsonObject, spelling: JsonObject) -> None:
    """Give the token limit, the tools and the choice among them the names that the imported request used."""
    if spelling.get("max_output_tokens") == MAX_TOKENS and LIMIT in body:
        body[MAX_TOKENS] = body.pop(LIMIT)
    tools, word = body.get("tools"), spelling.get("tools")
    if not tools:
        return
    if spelling.get("tool_choice") == ANY and body.get("tool_choice") == "required":
        body["tool_choice"] = ANY
    if word == UNTYPED:
        body["tools"] = [_without(tool, ("type",)) if _is_function(tool) else tool for tool in tools]
    elif word == FUNCTIONS and all(_is_function(tool) and tool.keys() == {"type", "function"} for tool in tools):
        _use_functions(body)


def _use_functions(body: JsonObject) -> None:
    body["functions"] = [tool["function"] for tool in body.pop("tools")]
    if (choice := body.pop("tool_choice", None)) is not None:
        body["function_call"] = choice["function"] if isinstance(choice, dict) else choice


def _is_function(tool: Any) -> bool:
    """Whether a tool on the wire is a function, with or without its type."""
    return isinstance(tool, dict) and isinstance(tool.get("function"), dict)


def _without(thing: JsonObject, known: Collection[str]) -> JsonObject:
    return {key: value for key, value in thing.items() if key not in known}


# Reading


def read_tools(native: JsonObject, spelling: JsonObject) -> list[JsonObject]:
    """The tools of a request, taken out of its keys; how they are spelled is put to `spelling`."""
    tools, functions = native.get("tools"), native.get("functions")
    if tools == []:
        del native["tools"]
    elif isinstance(tools, list) and None not in tools:
        if all(_is_function(tool) and tool.get("type") is None for tool in tools):
            spelling["tools"] = UNTYPED
        return [_read_tool(tool) for tool in native.pop("tools")]
    elif tools is None and isinstance(functions, list) and functions:
        read = [_read_tool({"type": "function", "function": function}) for function in functions]
        if all(tool["type"] == "function" for tool in read):
            del native["functions"]
            spelling["tools"] = FUNCTIONS
            return read
    return []


def _read_tool(tool: Any) -> JsonObject:
    """A function with the keys that have no canonical name, or a custom tool; every other tool as it is."""
    if (custom := _read_custom(tool)) is not None:
        return custom
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") in (None, "function") else None
    if not isinstance(function, dict) or not function.get("name") or not _is_regular(function):
        return {"type": "provider_tool", "format": NAME, "payload": tool}
    inner = _without(function, FUNCTION_KEYS)
    if not is_valid_name(function["name"]):
        inner["name"] = function["name"]  # servers differ in the names that they take
    native = _without(tool, ("type", "function")) | ({"function": inner} if inner else {})
    known = {key: function[key] for key in FUNCTION_KEYS if function.get(key) is not None}
    return parts.with_native_keys({"type": "function", **known}, native, NAME)


def _read_custom(tool: Any) -> JsonObject | None:
    """A custom tool that goes back as it came; None for one that would not, and for every other tool."""
    custom = tool.get(CUSTOM) if isinstance(tool, dict) and tool.get("type") == CUSTOM else None
    if not isinstance(custom, dict):
        return None
    known = {key: value for key, value in custom.items() if value is not None}
    read = {"type": CUSTOM, **known}
    form = known.get("format")
    if isinstance(form, dict) and isinstance(form.get(GRAMMAR), dict):
        read["format"] = {"type": GRAMMAR, **form[GRAMMAR]}
    return read if _custom(read, Context([read]), "") == {**tool, CUSTOM: known} else None


def _is_regular(function: JsonObject) -> bool:
    return all(isinstance(function.get(key), kind | None) for key, kind in FUNCTION_KEYS.items())


def read_choice(native: JsonObject, tools: Sequence[JsonObject], spelling: JsonObject) -> JsonObject:
    """The tool choice and parallel calls, taken out of a request's keys; they are options where it has tools."""
    if not tools:
        return {}
    is_old = spelling.get("tools") == FUNCTIONS
    key = "function_call" if is_old else "tool_choice"
    choice = native.get(key)
    option = _choice_option(choice, is_old=is_old)
    settings: JsonObject = {}
    if option is not None and _is_offered(option, tools):
        settings["tool_choice"] = option
        del native[key]
        if choice == ANY:
            spelling["tool_choice"] = ANY
    if isinstance(native.get("parallel_tool_calls"), bool):
        settings["parallel_tool_calls"] = native.pop("parallel_tool_calls")
    return settings


def _choice_option(choice: Any, *, is_old: bool) -> Any:
    """The option for a tool choice; None where no option says it."""
    match choice:
        case {"type": "custom", "custom": {"name": str(name), **inner}, **others} if not (inner or others or is_old):
            return {"type": CUSTOM, "name": name}
        case "any" if not is_old:
            return "required"
        case str() if choice in CHOICES:
            return choice
        case {"name": str(name), **others} if is_old and not others:
            return {"type": "function", "name": name}
        case {"type": "function", "function": {"name": str(name), **inner}, **others} if not (inner or others):
            return {"type": "function", "name": name}
    return None


def _is_offered(option: Any, tools: Sequence[JsonObject]) -> bool:
    context = Context(tools)
    try:
        return _wire_choice(option, context) is not None and not context.repairs
    except CannotRender:
        return False
