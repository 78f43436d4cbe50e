"""Tools and the choice between them.

* All functions are declared in one entry, which stands where the first of them does; other tools are entries of their
  own and known to this format only.
* Schemas that say more than the service's own Schema type go under `parametersJsonSchema`.
* What came from this format goes back as it came.

Source: Google's Gemini API reference, "Tool", "FunctionDeclaration", "FunctionCallingConfig".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.fields import NAME
from threadkeep.formats.gemini.schemas import is_schema
from threadkeep.formats.gemini.spelling import overlaid, respelled, spelling_of
from threadkeep.formats.native import native_keys, own_block, report_foreign
from threadkeep.formats.reports import Context
from threadkeep.formats.tools import offered_name

DECLARATIONS: Final = "functionDeclarations"
CHOICES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
NO_PARAMETERS: Final = {"type": "object", "properties": {}}
# mode of a choice among some of the tools -> mode here
_SOME: Final = {"required": "ANY", "auto": "VALIDATED"}


def wire_tools(tools: Sequence[JsonObject], context: Context) -> list[Any]:
    """The entries of `tools`."""
    entries: list[Any] = []
    declared: list[JsonObject] = []
    for index, tool in enumerate(tools):
        path, kind = f"tools[{index}]", tool.get("type", "function")
        if kind == "function":
            if not declared:
                entries.append({DECLARATIONS: declared})
            declared.append(declaration(tool, context, path))
        elif kind != "provider_tool":
            context.lose("tool", path, f"Gemini has no tool of type {kind!r}.")
        elif (payload := own_block(tool, NAME, context, path)) is not None:
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
    report_foreign(tool, NAME, context, path)
    found = {"name": context.name(tool.get("name"), f"{path}.name")}
    if tool.get("description") is not None:
        found["description"] = tool["description"]
    if tool.get("strict") is True:
        context.lose("option", f"{path}.strict", "Gemini has no strict functions; mode VALIDATED checks all of them.")
    schema = tool.get("parameters")
    schema = NO_PARAMETERS if schema is None else schema
    return found | {"parameters" if is_schema(schema) else "parametersJsonSchema": schema}


def own_declaration(tool: JsonObject) -> JsonObject:
    """A declaration that came from this format, as it came."""
    words = spelling_of(tool)
    found: JsonObject = {key: tool[key] for key in ("name", "description") if key in tool}
    if "parameters" in tool:
        found[words.get("key", "parameters")] = words.get("schema", tool["parameters"])
    return respelled(overlaid(found, native_keys(tool, NAME)), words.get("snake", ()))


def tool_config(choice: Any, context: Context, *, has_functions: bool) -> JsonObject:
    """`toolConfig` for a tool choice; without functions there is nothing to choose, except none.

    Raises:
        CannotRender: a function is to be chosen, but the choice does not name it.
    """
    if choice is None:
        return {}
    if not has_functions and choice != "none":
        context.mend("option", "tool_choice", "tool_choice was left out: there are no functions.")
        return {}
    found: JsonObject | None
    if isinstance(choice, str):
        found = {"mode": CHOICES[choice]} if choice in CHOICES else None
    elif isinstance(choice, dict) and choice.get("type") == "function":
        name = offered_name(choice, context)
        found = {} if name is None else {"mode": "ANY", "allowedFunctionNames": [name]}
    else:
        found = _some(choice, context)
    if found is None:
        kind = choice.get("type") if isinstance(choice, dict) else choice
        context.lose("tool_choice", "tool_choice", f"Gemini has no tool choice {kind!r}.")
    return {"functionCallingConfig": found} if found else {}


def _some(choice: Any, context: Context) -> JsonObject | None:
    """A choice among some of the tools."""
    match choice:
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(tools)} if tools:
            names = [one.get("name") for one in tools if isinstance(one, dict) and one.get("type") == "function"]
            offered = {tool.get("name") for tool in context.tools}
            if len(names) == len(tools) and all(isinstance(name, str) and name in offered for name in names):
                return {"mode": _SOME[mode], "allowedFunctionNames": [context.name(name) for name in names]}
    return None


def choice_in(config: JsonObject) -> Any:
    """The tool choice that a `functionCallingConfig` states; None for what no choice says."""
    mode, names = config.get("mode"), config.get("allowedFunctionNames")
    if names is None:
        return next((choice for choice, word in CHOICES.items() if word == mode), None)
    if not isinstance(names, list) or mode not in _SOME.values():
        return None
    if mode == "ANY" and len(names) == 1:
        return {"type": "function", "name": names[0]}
    word = next(choice for choice, found in _SOME.items() if found == mode)
    return {"type": "allowed_tools", "mode": word, "tools": [{"type": "function", "name": name} for name in names]}
