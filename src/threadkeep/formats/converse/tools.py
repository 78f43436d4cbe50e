"""Tools of Converse: functions, tools that only this format knows, and what a history of calls needs.

* A description may not be empty, and parameters are a schema of an object.
* There is no choice `none`: the tools are left out, and calls of the history are sent as text.
* Calls of the history need tools in the request; where there are none, they are declared by name alone.

Source: Amazon Bedrock's API reference, "ToolConfiguration", "ToolSpecification", "ToolChoice"; its error messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.converse.fields import NAME
from threadkeep.formats.converse.parts import cache_point, is_blank
from threadkeep.formats.shared.parts import native_keys, own_block, report_foreign
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.tools import object_schema, placed_tools, report_options

TOOL_BLOCKS: Final = ("toolUse", "toolResult")
# tool choice -> toolChoice
CHOICES: Final[dict[str, JsonObject]] = {"auto": {"auto": {}}, "required": {"any": {}}}


def wire_tools(tools: Sequence[JsonObject], context: Context) -> list[Any]:
    """The tool definitions as the format sends them."""
    return [sent for path, tool in placed_tools(tools, context) for sent in _tool(tool, context, path)]


def _tool(tool: JsonObject, context: Context, path: str) -> list[Any]:
    kind = tool.get("type", "function")
    if kind == "provider_tool":
        payload = own_block(tool, NAME, context, path)
        return [] if payload is None else [payload]
    if kind != "function":
        context.loss("tool", path, f"Converse has no tool of type {kind!r}.")
        return []
    report_foreign(tool, NAME, context, path)
    report_options(tool, context, path)
    native = native_keys(tool, NAME)
    own = native.get("toolSpec") or {}
    name = own["name"] if "name" in own else context.name(tool.get("name"), f"{path}.name")
    keys = tool_keys(tool, Context() if "inputSchema" in own else context, path)
    spec = {"name": name, **keys, **own}
    sent = {"toolSpec": {key: value for key, value in spec.items() if value is not None}}
    return [{**native, **sent}, *cache_point(tool)]


def tool_keys(tool: JsonObject, context: Context, path: str = "tools") -> JsonObject:
    """The keys of a toolSpec besides its name."""
    keys: JsonObject = {"description": tool["description"]} if tool.get("description") else {}
    keys["inputSchema"] = {"json": object_schema(tool.get("parameters"), context, path)}
    if tool.get("strict") is True:
        keys["strict"] = True
    return keys


def is_none(choice: Any) -> bool:
    """Whether no tool may be called."""
    return choice == "none" or (isinstance(choice, dict) and choice.get("type") == "none")


def tool_choice(choice: Any, context: Context) -> Any:
    """The tool choice, where there are tools."""
    return None if choice is None else context.tool_choice(choice, CHOICES, lambda name: {"tool": {"name": name}})


def holds_tool_blocks(messages: Iterable[JsonObject]) -> bool:
    """Whether a call or a result stands in a message."""
    return any(key in block for message in messages for block in message["content"] for key in TOOL_BLOCKS)


def text_of_calls(messages: Iterable[JsonObject]) -> list[JsonObject]:
    """The messages with calls and results as text; media of results stand next to it."""
    names: dict[str, str] = {}
    return [
        {**message, "content": [part for block in message["content"] for part in _as_text(block, names)]}
        for message in messages
    ]


def _as_text(block: JsonObject, names: dict[Any, Any]) -> list[JsonObject]:
    match block:
        case {"toolUse": {"toolUseId": str(call_id), "name": name, "input": value}}:
            names[call_id] = name
            return [{"text": f"[Called {name} with {dumps(value).decode()}]"}]
        case {"toolResult": {"toolUseId": str(call_id), "content": [*content]}}:
            told = [part for part in content if isinstance(part, dict) and not is_blank(part)]
            shown = [{"text": dumps(part["json"]).decode()} if "json" in part else part for part in told]
            return [{"text": f"[{names.get(call_id, 'The tool')} returned]"}, *shown]
    if any(key in block for key in TOOL_BLOCKS):
        return [{"text": dumps(block).decode()}]
    return [block]
