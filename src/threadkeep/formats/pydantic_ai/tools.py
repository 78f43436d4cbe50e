"""Tool definitions of Pydantic AI, `ToolDefinition`: those of tools that run outside of the agent.

* A tool listed twice is defined by the later definition, at the place of the first.
* Tools that only this format has go back as they came.

Source: Pydantic AI's API reference, `pydantic_ai.tools.ToolDefinition` and `pydantic_ai.toolsets.ExternalToolset`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.pydantic_ai.fields import NAME
from threadkeep.formats.shared.parts import block, native_keys, with_native_keys
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.tools import as_named, tools_by_name

# key here -> key of a function tool, and the type of its value
_KEYS: Final[dict[str, tuple[str, type]]] = {
    "name": ("name", str),
    "description": ("description", str),
    "parameters_json_schema": ("parameters", dict),
    "strict": ("strict", bool),
}


def wire_tools(tools: Sequence[JsonObject], context: Context) -> list[Any]:
    """The tool definitions as the format has them."""
    return tools_by_name(tools, NAME, context, _function)


def _function(tool: JsonObject, context: Context, path: str) -> JsonObject:
    wire = as_named(tool, _KEYS)
    if tool.get("origin") != NAME:
        wire["name"] = context.name(tool.get("name"), f"{path}.name")
    wire.setdefault("parameters_json_schema", {"type": "object", "properties": {}})
    return wire | native_keys(tool, NAME)


def tool_from_wire(tool: Any) -> JsonObject:
    """A definition of a request as a tool; one that would not come back stays a block."""
    is_regular = isinstance(tool, dict) and all(
        isinstance(tool.get(key), kind) or (tool.get(key) is None and key in ("description", "strict"))
        for key, (_, kind) in _KEYS.items()
    )
    if not is_regular:
        return {**block(tool, NAME), "type": "provider_tool"}
    ours = {name: tool[key] for key, (name, _) in _KEYS.items() if tool.get(key) is not None}
    strange = {key: value for key, value in tool.items() if key not in _KEYS and value is not None}
    return with_native_keys({"type": "function", **ours, "origin": NAME}, strange, NAME)
