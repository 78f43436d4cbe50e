"""Tools of Chat Completions and the choice among them, in both directions.

Functions keep the keys and names that they came with; other tools are known to this format only.

Source: OpenAI's API reference, "Chat Completions", tools and tool_choice; recorded requests to other servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.chat_completion.fields import CHOICES, NAME
from threadkeep.formats.chat_completion.parts import merged
from threadkeep.formats.chat_completion.spelling import ANY, FUNCTIONS, UNTYPED, is_function
from threadkeep.formats.shared.names import is_valid_name
from threadkeep.formats.shared.parts import native_keys, own_block, report_foreign
from threadkeep.formats.shared.reports import Context

FUNCTION_KEYS: Final = ("description", "parameters", "strict")


# Writing


def wire_tools(tools: Sequence[JsonObject], context: Context, carried: Sequence[str] = ()) -> list[Any]:
    """The tool definitions as the format sends them; `carried` are keys of functions that the vendor takes, too."""
    sent = [_wire_tool(tool, context, f"tools[{index}]", carried) for index, tool in enumerate(tools)]
    return [tool for tool in sent if tool is not None]


def _wire_tool(tool: JsonObject, context: Context, path: str, carried: Sequence[str]) -> Any:
    kind = tool.get("type", "function")
    if kind == "provider_tool":
        return own_block(tool, NAME, context, path)
    if kind != "function":
        context.loss("tool", path, f"Chat Completions has no tool of type {kind!r}.")
        return None
    report_foreign(tool, NAME, context, path)
    own = native_keys(tool, NAME).get("function")
    is_kept = isinstance(own, dict) and "name" in own
    function = {"name": tool.get("name") if is_kept else context.name(tool.get("name"), f"{path}.name")}
    function |= {key: tool[key] for key in FUNCTION_KEYS if tool.get(key) is not None}
    more = {key: tool[key] for key in carried if tool.get(key) is not None}
    sent: JsonObject = merged({"type": "function", "function": function, **more}, native_keys(tool, NAME))
    return sent


def tool_choice(choice: Any, context: Context, *, has_tools: bool) -> Any:
    """The tool choice; without tools there is none.

    Raises:
        CannotRender: a function is to be chosen, but the choice does not name it.
    """
    if not has_tools:
        context.repair("option", "tool_choice", "tool_choice was left out: there are no tools.")
        return None
    return context.tool_choice(choice, CHOICES, lambda name: {"type": "function", "function": {"name": name}})


# Reading


def read_tools(native: JsonObject, spelling: JsonObject) -> list[JsonObject]:
    """The tools of a request, taken out of its keys; how they are spelled is put to `spelling`."""
    tools, functions = native.get("tools"), native.get("functions")
    if tools == []:
        del native["tools"]
    elif isinstance(tools, list) and None not in tools:
        if all(is_function(tool) and tool.get("type") is None for tool in tools):
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
        return tool_choice(option, context, has_tools=True) is not None and not context.repairs
    except CannotRender:
        return False
