"""Tools of Open Responses: functions, and tools that the provider runs itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.keys import NAME
from threadkeep.formats.open_responses.fields import TOOL_KEYS
from threadkeep.formats.shared.parts import native_keys, own_block, own_keys
from threadkeep.formats.shared.reports import Context


def wire_tools(tools: Sequence[JsonObject], context: Context) -> list[Any]:
    """The tool definitions as the format sends them."""
    sent = [_tool(tool, context, f"tools[{index}]") for index, tool in enumerate(tools)]
    return [tool for tool in sent if tool is not None]


def _tool(tool: JsonObject, context: Context, path: str) -> Any:
    kind = tool.get("type", "function")
    if kind == "provider_tool":
        return own_block(tool, NAME, context, path)
    if kind != "function":
        return own_keys(tool) | native_keys(tool, NAME)
    kept = {key: value for key, value in tool.items() if key in TOOL_KEYS and value is not None}
    if tool.get("origin") != NAME:  # what a request of this format had goes back as it came
        kept["name"] = context.name(tool.get("name"), f"{path}.name")
    return {"type": "function"} | kept | native_keys(tool, NAME)


def tool_choice(choice: Any, context: Context) -> Any:
    """The tool choice; the choice of a function that is not offered is left out."""
    if not isinstance(choice, dict) or choice.get("type") != "function":
        return choice
    name = context.offered_name(choice)
    return None if name is None else {"type": "function", "name": name}
