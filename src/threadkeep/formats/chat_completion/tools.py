"""Tools of Chat Completions: functions, and tools that only this format knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.chat_completion.fields import CHOICES, NAME
from threadkeep.formats.chat_completion.spelling import merged
from threadkeep.formats.native import native_keys, own_block, report_foreign
from threadkeep.formats.reports import Context
from threadkeep.formats.tools import offered_name

FUNCTION_KEYS: Final = ("description", "parameters", "strict")


def wire_tools(tools: Sequence[JsonObject], context: Context, carried: Sequence[str] = ()) -> list[Any]:
    """The tool definitions as the format sends them; `carried` are keys of functions that the vendor takes, too."""
    sent = [_tool(tool, context, f"tools[{index}]", carried) for index, tool in enumerate(tools)]
    return [tool for tool in sent if tool is not None]


def _tool(tool: JsonObject, context: Context, path: str, carried: Sequence[str]) -> Any:
    kind = tool.get("type", "function")
    if kind == "provider_tool":
        return own_block(tool, NAME, context, path)
    if kind != "function":
        context.lose("tool", path, f"Chat Completions has no tool of type {kind!r}.")
        return None
    report_foreign(tool, NAME, context, path)
    own = native_keys(tool, NAME).get("function")
    is_kept = isinstance(own, dict) and "name" in own
    function = {"name": tool.get("name") if is_kept else context.name(tool.get("name"), f"{path}.name")}
    function |= {key: tool[key] for key in FUNCTION_KEYS if tool.get(key) is not None}
    beside = {key: tool[key] for key in carried if tool.get(key) is not None}
    sent: JsonObject = merged({"type": "function", "function": function, **beside}, native_keys(tool, NAME))
    return sent


def tool_choice(choice: Any, context: Context, *, has_tools: bool) -> Any:
    """The tool choice; without tools there is none.

    Raises:
        CannotRender: a function is to be chosen, but the choice does not name it.
    """
    if choice is None:
        return None
    if not has_tools:
        context.mend("option", "tool_choice", "tool_choice was left out: there are no tools.")
        return None
    if isinstance(choice, str):
        return choice if choice in CHOICES else _lost(choice, context)
    if not isinstance(choice, dict) or choice.get("type") != "function":
        return _lost(choice, context)
    name = offered_name(choice, context)
    return None if name is None else {"type": "function", "function": {"name": name}}


def _lost(choice: Any, context: Context) -> None:
    kind = choice.get("type") if isinstance(choice, dict) else choice
    context.lose("tool_choice", "tool_choice", f"Chat Completions has no tool choice {kind!r} here.")
