"""Definitions of tools, for formats that send each of them by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tool_names import qualified_name
from threadkeep.formats.shared.parts import OURS, Mapper, own_block, report_foreign
from threadkeep.formats.shared.reports import Context

NAMESPACE: Final = "namespace"  # type of a tool that holds others
# keys of a namespace that its tools take over, in their names and descriptions
_SPREAD: Final = frozenset({"type", "name", "description", "tools"})
FUNCTIONS: Final = frozenset({"function"})


def defined_tools(
    tools: Sequence[JsonObject], name: str, context: Context, define: Mapper, kinds: Collection[str] = FUNCTIONS
) -> list[Any]:
    """The tools as the format of that name sends them: `define` makes `kinds` of them, its own go back as they came."""
    sent = [_tool(tool, name, context, path, define, kinds) for path, tool in placed_tools(tools, context)]
    return [tool for tool in sent if tool is not None]


def placed_tools(tools: Sequence[JsonObject], context: Context | None = None) -> Iterator[tuple[str, JsonObject]]:
    """The tools, and those in namespaces under their qualified names, each with its place; reported in a context."""
    for index, tool in enumerate(tools):
        path, inner = f"tools[{index}]", tool.get("tools")
        if tool.get("type") != NAMESPACE or not isinstance(inner, list) or not inner:
            yield path, tool
            continue
        if context is not None:
            name, others = tool.get("name"), sorted(tool.keys() - _SPREAD - OURS)
            context.repair(
                "namespace", path, f"The tools of the namespace {name!r} were sent with its name before theirs."
            )
            if others:
                context.loss("tool", path, f"Keys of the namespace {name!r} were left out: {', '.join(others)}.")
        for number, one in enumerate(inner):
            yield f"{path}.tools[{number}]", _in_namespace(one, tool)


def _in_namespace(tool: Any, namespace: JsonObject) -> JsonObject:
    """A tool of a namespace as one that stands alone; what is no definition has no type that a format knows."""
    if not isinstance(tool, dict):
        return {"type": type(tool).__name__}
    named = {"name": qualified_name({**tool, "namespace": namespace.get("name")})} if "name" in tool else {}
    texts = [text for text in (namespace.get("description"), tool.get("description")) if isinstance(text, str) and text]
    return {**tool, **named, **({"description": "\n\n".join(texts)} if texts else {})}


def _tool(tool: JsonObject, name: str, context: Context, path: str, define: Mapper, kinds: Collection[str]) -> Any:
    kind = tool.get("type", "function")
    if kind == "provider_tool":
        return own_block(tool, name, context, path)
    if kind not in kinds:
        context.loss("tool", path, f"The format has no tool of type {kind!r}.")
        return None
    report_foreign(tool, name, context, path)
    report_options(tool, context, path)
    return define(tool, context, path)


def report_options(tool: JsonObject, context: Context, path: str, *, has_output_schema: bool = False) -> None:
    """Report what only the Responses API can say of a function or custom tool."""
    if tool.get("async") is True:
        context.loss("option", f"{path}.async", "The format has no asynchronous tools: calls wait for their outputs.")
    if tool.get("output_schema") is not None and not has_output_schema:
        context.loss("option", f"{path}.output_schema", "The format has no schema of what a tool returns.")


def tools_by_name(tools: Sequence[JsonObject], name: str, context: Context, define: Mapper) -> list[Any]:
    """The same for a format that takes each name once: the later definition, at the place of the first."""
    sent: dict[Any, Any] = {}
    for index, tool in enumerate(defined_tools(tools, name, context, define)):
        own = tool.get("name") if isinstance(tool, dict) else None
        sent[own if isinstance(own, str) else index] = tool
    return list(sent.values())


def object_schema(parameters: Any, context: Context, path: str) -> JsonObject:
    """The schema of a function's arguments, for formats that take an object's alone."""
    if not isinstance(parameters, dict):
        return {"type": "object", "properties": {}}
    if parameters.get("type") == "object":
        return parameters
    context.repair("schema", f"{path}.parameters", "The schema was sent as an object's: arguments are objects.")
    return {**parameters, "type": "object"}


def as_named(tool: JsonObject, keys: Mapping[str, tuple[str, type]]) -> JsonObject:
    """What a function tool has, under the keys of a format: key there -> key of the tool, and the type of its value."""
    return {key: tool[ours] for key, (ours, _) in keys.items() if tool.get(ours) is not None}
