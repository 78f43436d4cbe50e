"""Tools of OpenAI's agents as functions, which every provider takes, and the calls of these as calls of the tools.

Custom tools, tools in namespaces, searches for tools that the client runs, and tools that come as an item of the input:
each is sent as a function with a name of its own. Source: what Codex 0.171 sends; OpenAI's API reference, "Responses".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.tool_names import Names, qualified_name

FUNCTIONS: Final = "functions"  # key of what a request says of itself: its functions that stand for other tools
_INPUT: Final[JsonObject] = {
    "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": False,
}  # fmt: skip
_SEARCH: Final = "tool_search"
_FUNCTION: Final = ("type", "name", "description", "parameters", "strict")
# types of items that call a tool, and of those that answer a call -> that of a function
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "tool_search_call"})
_OUTPUTS: Final = {"custom_tool_call_output": "function_call_output", "tool_search_output": "function_call_output"}
# type of a tool -> the type, and the prefix of the id, of its calls
_KINDS: Final = {"custom": ("custom_tool_call", "ctc_"), _SEARCH: ("tool_search_call", "tsc_")}


class AgentTools:
    """The tools of a request, and the functions that stand for them."""

    def __init__(self, names: Mapping[str, Sequence[str | None]]) -> None:
        """Take what functions stand for: name -> type, namespace and name of a tool."""
        self.names = names

    @property
    def are_renamed(self) -> bool:
        """Whether any function stands for another tool."""
        return any((kind, space) != ("function", None) for kind, space, _ in self.names.values())

    def called(self, item: JsonObject) -> JsonObject:
        """Return an item of an answer, a call of a function as one of the tool for which that stands."""
        tool = self.names.get(str(item.get("name"))) if item.get("type") == "function_call" else None
        if tool is None:
            return item
        kind, space, name = tool
        named = {"name": name} if space is None else {"name": name, "namespace": space}
        if kind not in _KINDS:
            return {**item, **named}
        type_, prefix = _KINDS[str(kind)]
        arguments = _object(item.get("arguments"))
        call = {
            "id": prefix + str(item.get("id")).partition("_")[2], "type": type_, "call_id": item.get("call_id"),
            "status": item.get("status"),
        }  # fmt: skip
        if kind == _SEARCH:
            return {**call, "execution": "client", "arguments": arguments}
        text = arguments.get("input")
        return {**call, **named, "input": text if isinstance(text, str) else _unread(item)}


def _object(text: Any) -> JsonObject:
    try:
        value = loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _unread(item: JsonObject) -> str:
    """Arguments without an input: nothing while they come, and then as they are."""
    return str(item.get("arguments", "")) if item.get("status") == "completed" else ""


def as_functions(body: JsonObject) -> tuple[JsonObject, AgentTools]:
    """Return a request with functions only, as far as that can be, and what they stand for.

    What only OpenAI runs stays as it is, and is reported where it cannot be sent.
    """
    items, given = _listed(body.get("input")), _listed(body.get("tools"))
    tools = [*_flat([*given, *_tools_in(items)])]
    if all(starmap(_is_plain, tools)) and not any(map(_is_aside, items)):
        return body, AgentTools({})
    wire = Names([qualified_name(_placed(space, tool)) for space, tool in tools if _kind(tool) is not None])
    names, sent = dict[str, Sequence[str | None]](), list[JsonObject]()
    for space, tool in tools:
        kind = _kind(tool)
        if kind is None:
            sent.append(tool)
            continue
        name = wire.wire(qualified_name(_placed(space, tool)))
        if name in names:  # a search has found it again
            continue
        names[name] = kind, space, tool.get("name")
        sent.append(_function(tool, kind, name))
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("custom", "function"):
        choice = {"type": "function", "name": wire.wire(qualified_name(choice))}
    said = {"input": [_item(item, wire) for item in items if not _is_aside(item)]} if items else {}
    return {**body, "tools": sent, **said, **({} if choice is None else {"tool_choice": choice})}, AgentTools(names)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _tools_in(items: Sequence[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, dict) and (_is_aside(item) or item.get("type") == "tool_search_output"):
            yield from _listed(item.get("tools"))


def _is_aside(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "additional_tools"


def _flat(tools: Sequence[Any]) -> Iterator[tuple[str | None, Any]]:
    """Each tool with its namespace; those of a namespace one by one."""
    for tool in tools:
        match tool:
            case {"type": "namespace", "name": str(space), "tools": list(inner)}:
                yield from ((space, one) for one in inner)
            case _:
                yield None, tool


def _placed(space: str | None, tool: Mapping[str, Any]) -> JsonObject:
    return {"name": tool.get("name") or _SEARCH, "namespace": space}


def _kind(tool: Any) -> str | None:
    """The type of a tool that a function can stand for; None for any other."""
    match tool:
        case {"type": "custom" | "function" as kind, "name": str()}:
            return str(kind)
        case {"type": "tool_search", "execution": "client"}:
            return _SEARCH
    return None


def _is_plain(space: str | None, tool: Any) -> bool:
    """Whether a tool is sent as it is."""
    kind = _kind(tool)
    return kind is None or (kind == "function" and space is None)


def _function(tool: JsonObject, kind: str, name: str) -> JsonObject:
    if kind == "function":
        return {**{key: tool[key] for key in _FUNCTION if key in tool}, "name": name}
    parameters = tool.get("parameters") or {"type": "object", "properties": {}} if kind == _SEARCH else _INPUT
    texts = [tool.get("description") or "", *_grammar(tool.get("format"))]
    return {
        "type": "function", "name": name, "description": "\n\n".join(filter(None, texts)), "parameters": parameters,
        "strict": False,
    }  # fmt: skip


def _grammar(form: Any) -> Iterator[str]:
    match form:
        case {"type": "grammar", "syntax": str(syntax), "definition": str(definition)}:
            yield f"The input is text that this grammar ({syntax}) describes:\n\n{definition.strip()}"


def _item(item: Any, wire: Names) -> Any:
    """An item of the input as one of functions."""
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str):
        return item
    if kind in _CALLS and (kind != "tool_search_call" or item.get("execution") == "client"):
        return _call(item, wire)
    if kind not in _OUTPUTS or (kind == "tool_search_output" and item.get("execution") != "client"):
        return item
    output = item.get("output") if kind != "tool_search_output" else dumps({"tools": item.get("tools")}).decode()
    return {**_known(item, "call_id", "status"), "type": _OUTPUTS[kind], "output": output}


def _call(item: JsonObject, wire: Names) -> JsonObject:
    arguments: Any = {"input": item.get("input")} if item["type"] == "custom_tool_call" else item.get("arguments")
    text = arguments if isinstance(arguments, str) else dumps(arguments or {}).decode()
    name = wire.wire(qualified_name(_placed(item.get("namespace"), item)))
    own = _known(item, "id") if item["type"] == "function_call" else {}
    return {**own, **_known(item, "call_id", "status"), "type": "function_call", "name": name, "arguments": text}


def _known(item: JsonObject, *keys: str) -> JsonObject:
    return {key: item[key] for key in keys if item.get(key) is not None}
