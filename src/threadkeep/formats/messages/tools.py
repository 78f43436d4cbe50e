"""Tools of the Messages API, and which of them is to be called.

* A tool listed twice is defined by the later definition, at the place of the first. Every schema is an object's.
* A choice needs tools, and the tool that it names. `parallel_tool_calls` is a key of the choice.
* Tools that only this format has go back as they came.

Source: Anthropic's API reference, "Messages", tools and tool_choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, value_at
from threadkeep.errors import CannotRender
from threadkeep.formats.messages.fields import NAME
from threadkeep.formats.shared import fields, parts
from threadkeep.formats.shared.reports import Context

# tool choice of Open Responses -> its type here
CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}
_PARALLEL: Final = "disable_parallel_tool_use"
# key here -> key of a function tool, and the type of its value
_KEYS: Final[dict[str, tuple[str, type]]] = {
    "name": ("name", str),
    "description": ("description", str),
    "input_schema": ("parameters", dict),
    "strict": ("strict", bool),
}


def wire_tools(tools: Sequence[JsonObject], context: Context) -> list[Any]:
    """The tool definitions as the format sends them."""
    return fields.tools_by_name(tools, NAME, context, _function)


def _function(tool: JsonObject, context: Context, path: str) -> JsonObject:
    if tool.get("origin") == NAME:  # as it came
        return fields.as_named(tool, _KEYS) | parts.native_keys(tool, NAME)
    wire = {
        "name": context.name(tool.get("name"), f"{path}.name"),
        "description": tool.get("description"),
        "input_schema": fields.object_schema(tool.get("parameters"), context, path),
        "strict": True if tool.get("strict") is True else None,
        "cache_control": tool.get("cache_control"),
    }
    return {key: value for key, value in wire.items() if value is not None}


def tool_from_wire(tool: Any) -> JsonObject:
    """The definition of a tool of this format."""
    is_function = isinstance(tool, dict) and tool.get("type") in (None, "custom") and tool.get("name")
    if not is_function or not all(isinstance(tool.get(key), kind | None) for key, (_, kind) in _KEYS.items()):
        return {**parts.block(tool, NAME), "type": "provider_tool"}
    left = {key: value for key, value in tool.items() if value is not None}
    function = {ours: left.pop(key) for key, (ours, _) in _KEYS.items() if key in left}
    return parts.with_native_keys({"type": "function", "origin": NAME, **function}, left, NAME)


def tool_choice(settings: JsonObject, tools: Sequence[Any], context: Context) -> JsonObject | None:
    """The tool choice with what `parallel_tool_calls` says; None where there is nothing to say."""
    option, parallel = settings.get("tool_choice"), settings.get("parallel_tool_calls")
    choice = None if option is None else _choice(option, tools, context)
    if not tools:
        for name in [name for name in ("tool_choice", "parallel_tool_calls") if settings.get(name) is not None]:
            context.repair("option", name, f"{name} was left out: there are no tools.")
        return None
    if choice is None:
        return {"type": "auto", _PARALLEL: True} if parallel is False else None
    return choice if parallel is None else _with_parallel(choice, is_parallel=parallel, context=context)


def _choice(option: Any, tools: Sequence[Any], context: Context) -> JsonObject | None:
    kind = CHOICES.get(option) if isinstance(option, str) else None
    if kind is not None:
        return {"type": kind}
    kind = option.get("type") if isinstance(option, dict) else None
    if kind in ("function", "tool"):
        return _named(option, tools, context)
    if kind in ("auto", "any", "none"):
        keys = ("type",) if kind == "none" else ("type", _PARALLEL)
        return {key: option[key] for key in keys if option.get(key) is not None}
    context.loss("tool_choice", "tool_choice", f"The format has no tool choice {kind or option!r}.")
    return None


def _named(option: JsonObject, tools: Sequence[Any], context: Context) -> JsonObject | None:
    name = option.get("name") or value_at(option, "function.name")
    if not isinstance(name, str) or not name:
        raise CannotRender(
            "tool_choice asks for a tool without naming it.", hint="Set {'type': 'function', 'name': …}."
        )
    names = [tool.get("name") for tool in tools if isinstance(tool, dict)]
    offered = {offer for offer in names if isinstance(offer, str)}
    sent = name if name in offered else context.name(name, "tool_choice.name")
    if sent in offered:
        return {"type": "tool", "name": sent} | {k: option[k] for k in (_PARALLEL,) if option.get(k) is not None}
    if offered:
        context.repair("tool_choice", "tool_choice", f"The choice of {name!r} was left out: no such tool is offered.")
    return None


def _with_parallel(choice: JsonObject, *, is_parallel: bool, context: Context) -> JsonObject:
    if choice["type"] == "none":
        context.loss("option", "parallel_tool_calls", "parallel_tool_calls has no effect when no tool may be called.")
        return choice
    if choice.get(_PARALLEL) is is_parallel:
        raise CannotRender("tool_choice and parallel_tool_calls disagree about parallel calls.", hint="Set one.")
    wire = {key: value for key, value in choice.items() if key != _PARALLEL}
    return wire if is_parallel else wire | {_PARALLEL: True}


def read_choice(choice: Any) -> JsonObject:
    """The options that a tool choice sets; empty where they cannot say it."""
    if not isinstance(choice, dict):
        return {}
    names = {kind: name for name, kind in CHOICES.items()}
    others = {key: value for key, value in choice.items() if value is not None}
    kind, is_single = others.pop("type", None), others.pop(_PARALLEL, None)
    options: JsonObject = {} if is_single is None else {"parallel_tool_calls": not is_single}
    if kind == "tool" and others.keys() == {"name"} and isinstance(others["name"], str):
        return {"tool_choice": {"type": "function", "name": others["name"]}, **options}
    if isinstance(kind, str) and kind in names and not others:
        return {"tool_choice": names[kind], **options}
    return {}
