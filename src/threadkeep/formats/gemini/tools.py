"""Tools and the choice among them, in both directions.

* All functions are declared in one entry, which stands where the first of them does; other tools are entries of their
  own and known to this format only.
* The service takes each name once: a tool listed twice is defined by the later definition, at the place of the first.
* Schemas that say more than the service's own Schema type go under `parametersJsonSchema`.
* What came from this format goes back as it came.

Source: Google's Gemini API reference, "Tool", "FunctionDeclaration", "FunctionCallingConfig".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tools import tool_from
from threadkeep.errors import InvalidOption
from threadkeep.formats.gemini.fields import NAME, is_schema, json_schema
from threadkeep.formats.gemini.spelling import camel, difference, noted, overlaid, read_part, respelled, spelling_of
from threadkeep.formats.shared import fields, parts
from threadkeep.formats.shared.reports import Context

DECLARATIONS: Final = "functionDeclarations"
CHOICES: Final = {"auto": {"mode": "AUTO"}, "none": {"mode": "NONE"}, "required": {"mode": "ANY"}}
NO_PARAMETERS: Final = {"type": "object", "properties": {}}
# mode of a choice among some of the tools -> mode here, and back
_SOME: Final = {"required": "ANY", "auto": "VALIDATED"}
_SOME_BACK: Final = {mode: word for word, mode in _SOME.items()}


def wire_tools(tools: Sequence[JsonObject], context: Context) -> list[Any]:
    """The entries of `tools`."""
    entries: list[Any] = []
    declared: list[JsonObject] = []
    for path, tool in fields.placed_tools(tools, context):
        kind = tool.get("type", "function")
        if kind == "function":
            if not declared:
                entries.append({DECLARATIONS: declared})
            function = declaration(tool, context, path)
            names = [] if tool.get("origin") == NAME else [before.get("name") for before in declared]
            if function.get("name") in names:  # the service refuses a name twice: the later definition stands
                declared[names.index(function.get("name"))] = function
            else:
                declared.append(function)
        elif kind != "provider_tool":
            context.loss("tool", path, f"Gemini has no tool of type {kind!r}.")
        elif (payload := parts.own_block(tool, NAME, context, path)) is not None:
            _add(entries, tool, payload)
    return entries


def _add(entries: list[Any], tool: JsonObject, payload: Any) -> None:
    """Add a tool that only this format knows; one that stood in the entry of the functions is put there."""
    functions = next((entry for entry in entries if isinstance(entry, dict) and DECLARATIONS in entry), {})
    stood_there = spelling_of(tool).get("beside") == DECLARATIONS and isinstance(payload, dict)
    if stood_there and functions and not functions.keys() & payload.keys():
        functions.update(payload)
    else:
        entries.append(payload)


def declaration(tool: JsonObject, context: Context, path: str) -> JsonObject:
    """A function as the format declares it; strictness and the keys of other formats are not sent."""
    if tool.get("origin") == NAME:
        return own_declaration(tool)
    parts.report_foreign(tool, NAME, context, path)
    fields.report_options(tool, context, path)
    declared = {"name": context.name(tool.get("name"), f"{path}.name")}
    if tool.get("description") is not None:
        declared["description"] = tool["description"]
    if tool.get("strict") is True:
        context.loss("option", f"{path}.strict", "Gemini has no strict functions; mode VALIDATED checks all of them.")
    schema = tool.get("parameters")
    schema = NO_PARAMETERS if schema is None else schema
    return declared | {"parameters" if is_schema(schema) else "parametersJsonSchema": schema}


def own_declaration(tool: JsonObject) -> JsonObject:
    """A declaration that came from this format, as it came."""
    words = spelling_of(tool)
    declared: JsonObject = {key: tool[key] for key in ("name", "description") if key in tool}
    if "parameters" in tool:
        declared[words.get("key", "parameters")] = words.get("schema", tool["parameters"])
    return respelled(overlaid(declared, parts.native_keys(tool, NAME)), words.get("snake", ()))


def tool_config(choice: Any, context: Context, *, has_functions: bool) -> JsonObject:
    """`toolConfig` for a tool choice; without functions there is nothing to choose, except none."""
    if choice is None:
        return {}
    if not has_functions and choice != "none":
        context.repair("option", "tool_choice", "tool_choice was left out: there are no functions.")
        return {}
    config = _some(choice, context) or context.tool_choice(
        choice, CHOICES, lambda name: {"mode": "ANY", "allowedFunctionNames": [name]}
    )
    return {"functionCallingConfig": config} if config else {}


def _some(choice: Any, context: Context) -> JsonObject | None:
    match choice:
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(tools)} if tools:
            names = [tool.get("name") for tool in tools if isinstance(tool, dict) and tool.get("type") == "function"]
            offered = [tool.get("name") for tool in context.tools]
            if len(names) == len(tools) and all(isinstance(name, str) and name in offered for name in names):
                return {"mode": _SOME[mode], "allowedFunctionNames": [context.name(name) for name in names]}
    return None


def choice_in(config: JsonObject) -> Any:
    """The tool choice that a `functionCallingConfig` states; None for what no choice says."""
    mode, names = config.get("mode"), config.get("allowedFunctionNames")
    if names is None:
        return next((choice for choice, words in CHOICES.items() if words["mode"] == mode), None)
    if not isinstance(names, list) or not isinstance(mode, str) or mode not in _SOME_BACK:
        return None
    if mode == "ANY" and len(names) == 1:
        return {"type": "function", "name": names[0]}
    tools = [{"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": _SOME_BACK[mode], "tools": tools}


# Reading


def tools_in(value: Any, names: set[str]) -> tuple[list[JsonObject], JsonObject, list[str]]:
    """The tools of a request, what is no list of them, and the note of a lone object; `names` gets snake keys."""
    if value is None:
        return [], {}, []
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list) or not entries:
        return [], {"tools": value}, []
    tools = [tool for entry in entries for tool in _tools(entry, names)]
    return tools, {}, ["tools"] if isinstance(value, dict) else []


def _tools(entry: Any, names: set[str]) -> list[JsonObject]:
    """The tools of an entry; one of an odd form is a block."""
    key = next((key for key in entry if camel(key) == DECLARATIONS), None) if isinstance(entry, dict) else None
    declared = None if key is None else entry[key]
    declared = declared if isinstance(declared, list) else []
    functions = [tool for tool in map(_function, declared) if tool is not None]
    if not functions or len(functions) < len(declared):
        return [_block(entry)]
    if key != DECLARATIONS:
        names.add(DECLARATIONS)
    others = {name: value for name, value in entry.items() if name != key and value is not None}
    return [*functions, _block(others) | noted((), beside=DECLARATIONS)] if others else functions


def _block(payload: Any) -> JsonObject:
    return {"type": "provider_tool", "format": NAME, "payload": payload}


def _function(declared: Any) -> JsonObject | None:
    """A declaration as a tool; None where it does not have the form of one."""
    if not isinstance(declared, dict):
        return None
    declaration, names = read_part(declared)
    keys = ("parameters", "parametersJsonSchema")
    key = next((key for key in keys if isinstance(declaration.get(key), dict)), None)
    tool = {name: declaration[name] for name in ("name", "description") if declaration.get(name) is not None}
    words: JsonObject = {}
    if key is not None:
        schema = declaration[key]
        tool["parameters"] = json_schema(schema) if key == "parameters" else schema
        words = {"schema": schema} if tool["parameters"] != schema else {}
        words |= {"key": key} if key != "parameters" else {}
    tool |= {"type": "function", "origin": NAME, **noted(names, **words)}
    strange = difference(declaration, own_declaration({**tool, "spelling": words}))
    if strange:
        tool["native"] = {NAME: strange}
    try:
        kept = tool_from(tool).to_dict()
    except InvalidOption:
        return None
    same = {name: value for name, value in declared.items() if value is not None}
    return kept if own_declaration(kept) == same else None
