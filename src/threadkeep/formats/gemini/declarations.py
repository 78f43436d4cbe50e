"""Reading the tools of a request: function declarations, and tools that only this format knows.

Source: Google's Gemini API reference, "Tool", "FunctionDeclaration".
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tools import tool_from
from threadkeep.errors import InvalidOption
from threadkeep.formats.gemini.fields import NAME
from threadkeep.formats.gemini.schemas import json_schema
from threadkeep.formats.gemini.spelling import camel, difference, levelled, noted
from threadkeep.formats.gemini.tools import DECLARATIONS, own_declaration

_SCHEMAS: Final = ("parameters", "parametersJsonSchema")


def tools_in(given: Any, names: set[str]) -> tuple[list[JsonObject], JsonObject, list[str]]:
    """The tools of a request, what is no list of them as a key of this format, and whether the list was an object.

    `names` gets the key of the declarations where it is in snake case.
    """
    if given is None:
        return [], {}, []
    entries = [given] if isinstance(given, dict) else given
    if not isinstance(entries, list) or not entries:
        return [], {"tools": given}, []
    tools = [tool for entry in entries for tool in _tools(entry, names)]
    return tools, {}, ["tools"] if isinstance(given, dict) else []


def _tools(entry: Any, names: set[str]) -> list[JsonObject]:
    """The tools of an entry; one of an odd form is a block."""
    key = next((key for key in entry if camel(key) == DECLARATIONS), None) if isinstance(entry, dict) else None
    declared = None if key is None else entry[key]
    found = [_function(one) for one in declared] if isinstance(declared, list) else []
    if not found or None in found:
        return [_block(entry)]
    if key != DECLARATIONS:
        names.add(DECLARATIONS)
    others = {name: value for name, value in entry.items() if name != key and value is not None}
    functions = [one for one in found if one is not None]
    return [*functions, _block(others) | noted((), beside=DECLARATIONS)] if others else functions


def _block(payload: Any) -> JsonObject:
    return {"type": "provider_tool", "format": NAME, "payload": payload}


def _function(given: Any) -> JsonObject | None:
    """A declaration as a tool; None where it has not the form of one."""
    if not isinstance(given, dict):
        return None
    names: set[str] = set()
    declaration = levelled(given, names)
    key = next((key for key in _SCHEMAS if isinstance(declaration.get(key), dict)), None)
    found = {name: declaration[name] for name in ("name", "description") if declaration.get(name) is not None}
    words: JsonObject = {}
    if key is not None:
        schema = declaration[key]
        found["parameters"] = json_schema(schema) if key == "parameters" else schema
        words = {"schema": schema} if found["parameters"] != schema else {}
        words |= {"key": key} if key != "parameters" else {}
    found |= {"type": "function", "origin": NAME, **noted(names, **words)}
    strange = difference(declaration, own_declaration({**found, "spelling": words}))
    if strange:
        found["native"] = {NAME: strange}
    try:
        kept = tool_from(found).to_dict()
    except InvalidOption:
        return None
    return (
        kept if own_declaration(kept) == {name: value for name, value in given.items() if value is not None} else None
    )
