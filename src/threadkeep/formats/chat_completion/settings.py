"""The options and tools of a Chat Completions request, and how it spelled them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.chat_completion.fields import (
    CHOICES,
    EXTRAS,
    FIELDS,
    NAME,
    STREAM_OPTIONS,
)
from threadkeep.formats.chat_completion.spelling import ANY, FUNCTIONS, MAX_TOKENS, UNTYPED, is_function
from threadkeep.formats.chat_completion.tools import FUNCTION_KEYS, tool_choice
from threadkeep.formats.fields import Field, Spread, read_fields
from threadkeep.formats.names import Names, is_valid_name
from threadkeep.formats.reports import Context

_MAX: Final = "max_completion_tokens"
# keys of requests that have a meaning in the API, so that null is the same as none
_API_KEYS: Final = frozenset(
    {
        *EXTRAS,
        *(row.target for row in FIELDS if isinstance(row, Field)),
        *(target for row in FIELDS if isinstance(row, Spread) for target in row.targets),
        "max_tokens", "tools", "tool_choice", "parallel_tool_calls", "stream_options", "functions", "function_call",
    }
)  # fmt: skip


@dataclass
class Found:
    """What a request says beside its messages.

    Attributes:
        native: keys that are no option; they go back as they came.
    """

    settings: JsonObject
    native: JsonObject
    tools: list[JsonObject] = field(default_factory=list)
    spelling: JsonObject = field(default_factory=dict)


def read_settings(body: JsonObject) -> Found:
    """The options and tools of a request without its messages."""
    given = dict(body)
    is_old = given.get("max_tokens") is not None and given.get(_MAX) is None
    if is_old:
        given[_MAX] = given.pop("max_tokens")
    settings, native = read_fields(FIELDS, given)
    found = Found(settings, native | {k: None for k, v in body.items() if v is None and k not in _API_KEYS})
    if is_old and _MAX in native:
        found.native["max_tokens"] = found.native.pop(_MAX)
    elif is_old:
        found.spelling["max_output_tokens"] = MAX_TOKENS
    _read_tools(found)
    _read_choice(found)
    _read_stream_options(found)
    return found


def _read_tools(found: Found) -> None:
    native = found.native
    given, functions = native.get("tools"), native.get("functions")
    if given == []:
        del native["tools"]
    elif isinstance(given, list) and None not in given:
        del native["tools"]
        found.tools = [_tool(tool) for tool in given]
        if all(is_function(tool) and tool.get("type") is None for tool in given):
            found.spelling["tools"] = UNTYPED
    elif given is None and isinstance(functions, list) and functions:
        tools = [_tool({"type": "function", "function": function}) for function in functions]
        if all(tool["type"] == "function" for tool in tools):
            del native["functions"]
            found.tools = tools
            found.spelling["tools"] = FUNCTIONS


def _tool(tool: Any) -> JsonObject:
    """A function with the keys that have no canonical name; every other tool as it is."""
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") in (None, "function") else None
    if not isinstance(function, dict) or not _is_regular(function):
        return {"type": "provider_tool", "format": NAME, "payload": tool}
    native = {key: value for key, value in tool.items() if key not in ("type", "function")}
    inner = {key: value for key, value in function.items() if key not in ("name", *FUNCTION_KEYS)}
    if not is_valid_name(function["name"]):
        inner["name"] = function["name"]  # servers differ in the names that they take
    native |= {"function": inner} if inner else {}
    known = {key: function[key] for key in ("name", *FUNCTION_KEYS) if function.get(key) is not None}
    return {"type": "function", **known} | ({"native": {NAME: native}} if native else {})


def _is_regular(function: JsonObject) -> bool:
    match function:
        case {"name": str(name)} if name:
            return (
                isinstance(function.get("description"), str | None)
                and isinstance(function.get("parameters"), dict | None)
                and isinstance(function.get("strict"), bool | None)
            )
    return False


def _read_choice(found: Found) -> None:
    """The tool choice and parallel calls, which are options where the request has tools."""
    native, is_old = found.native, found.spelling.get("tools") == FUNCTIONS
    key = "function_call" if is_old else "tool_choice"
    choice = native.get(key)
    option = _choice(choice, is_old=is_old)
    if found.tools and option is not None and _is_offered(option, found.tools):
        found.settings["tool_choice"] = option
        del native[key]
        if choice == ANY:
            found.spelling["tool_choice"] = ANY
    if found.tools and isinstance(native.get("parallel_tool_calls"), bool):
        found.settings["parallel_tool_calls"] = native.pop("parallel_tool_calls")


def _choice(choice: Any, *, is_old: bool) -> Any:
    """The option for a tool choice; None where no option says it."""
    match choice:
        case "any" if not is_old:
            return "required"
        case str() if choice in CHOICES:
            return choice
        case {"name": str(name), **others} if is_old and not others:
            return {"type": "function", "name": name}
        case {"type": "function", "function": {"name": str(name), **inner}, **others} if not (inner or others):
            return {"type": "function", "name": name}
    return None


def _is_offered(option: Any, tools: list[JsonObject]) -> bool:
    context = Context(Names(tool.get("name") for tool in tools), tools)
    try:
        return tool_choice(option, context, has_tools=True) is not None and not context.repairs
    except CannotRender:
        return False


def _read_stream_options(found: Found) -> None:
    options = found.native.get("stream_options")
    if not isinstance(options, dict) or not options or found.settings.get("stream") is not True:
        return
    if options.keys() <= {*STREAM_OPTIONS} and None not in options.values():
        found.settings["stream_options"] = found.native.pop("stream_options")
