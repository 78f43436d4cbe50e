"""Tools of Converse: functions, tools that only this format knows, and what a history of calls needs.

* A description may not be empty, and parameters are a schema of an object.
* There is no choice `none`: the tools are left out, and calls of the history are sent as text.
* Calls of the history need tools in the request; where there are none, they are declared by name alone.

Source: Amazon Bedrock's API reference, "ToolConfiguration", "ToolSpecification", "ToolChoice"; its error messages.

What Anthropic's models refuse in a Converse request, as in one of Messages: see `formats.shared.claude`.

* A budget leaves room for the answer, and no tool can be forced with it.
* Where the thinking of the last calls is missing, as of another model's, nothing is thought with a budget.
* An imported request that keeps to them does so when its settings are changed, too; any other goes back as it came.

Source: Amazon Bedrock's user guide, "Anthropic Claude models", extended thinking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, value_at, with_value
from threadkeep.errors import CannotRender
from threadkeep.formats.converse import fields, parts
from threadkeep.formats.converse.turns import ConverseTurn
from threadkeep.formats.shared.claude import fit_sampling, fit_thinking, is_claude, thinking_type
from threadkeep.formats.shared.fields import object_schema, placed_tools, report_options
from threadkeep.formats.shared.parts import native_keys, own_block, report_foreign
from threadkeep.formats.shared.reports import Context

TOOL_BLOCKS: Final = ("toolUse", "toolResult")
# tool choice -> toolChoice
CHOICES: Final[dict[str, JsonObject]] = {"auto": {"auto": {}}, "required": {"any": {}}}


def wire_tools(tools: Sequence[JsonObject], context: Context) -> list[Any]:
    """The tool definitions as the format sends them."""
    return [sent for path, tool in placed_tools(tools, context) for sent in _tool(tool, context, path)]


def _tool(tool: JsonObject, context: Context, path: str) -> list[Any]:
    kind = tool.get("type", "function")
    if kind == "provider_tool":
        payload = own_block(tool, fields.NAME, context, path)
        return [] if payload is None else [payload]
    if kind != "function":
        context.loss("tool", path, f"Converse has no tool of type {kind!r}.")
        return []
    report_foreign(tool, fields.NAME, context, path)
    report_options(tool, context, path)
    native = native_keys(tool, fields.NAME)
    own = native.get("toolSpec") or {}
    name = own["name"] if "name" in own else context.name(tool.get("name"), f"{path}.name")
    keys = tool_keys(tool, Context() if "inputSchema" in own else context, path)
    spec = {"name": name, **keys, **own}
    sent = {"toolSpec": {key: value for key, value in spec.items() if value is not None}}
    return [{**native, **sent}, *parts.cache_point(tool)]


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
            filled = [part for part in content if isinstance(part, dict) and not parts.is_blank(part)]
            shown = [{"text": dumps(part["json"]).decode()} if "json" in part else part for part in filled]
            return [{"text": f"[{names.get(call_id, 'The tool')} returned]"}, *shown]
    if any(key in block for key in TOOL_BLOCKS):
        return [{"text": dumps(block).decode()}]
    return [block]


_THINKING: Final = "additionalModelRequestFields.thinking"
_CHOICE: Final = "toolConfig.toolChoice"
_OBJECTS: Final = ("inferenceConfig", "additionalModelRequestFields")
# key of a body of Messages -> where Converse has it
_KEYS: Final = {
    "max_tokens": "inferenceConfig.maxTokens",
    "temperature": "inferenceConfig.temperature",
    "top_p": "inferenceConfig.topP",
    "thinking": _THINKING,
}
UNFIT: Final = "unfit"  # how an imported request says that it does not keep to the rules
_FORCED: Final = frozenset({"any", "tool"})


def fitted(body: JsonObject, context: Context) -> JsonObject:
    """Return a request with settings that the model takes together; of other models as it is."""
    model = body.get("modelId")
    if not is_claude(model):
        return body
    given: JsonObject = {key: value for key, path in _KEYS.items() if (value := value_at(body, path)) is not None}
    sent: JsonObject = {"model": model, **given}
    fit_thinking(sent, context)
    budget, most = (sent.get("thinking") or {}).get("budget_tokens"), sent.get("max_tokens")
    if isinstance(budget, int) and isinstance(most, int) and most <= budget:
        raise CannotRender(
            f"The thinking budget of {budget} tokens leaves nothing of max_output_tokens {most}.",
            hint="Raise max_output_tokens.",
        )
    fit_sampling(sent, context)
    changed = [key for key in _KEYS if sent.get(key) != given.get(key)]
    for key in changed:
        body = with_value(body, _KEYS[key], sent.get(key))
    return _without_empty(body) if changed else body


def fits(body: JsonObject) -> bool:
    """Whether an imported request keeps to the rules, so that it can be held to them when its settings change."""
    thinking, limit, choice = (value_at(body, path) for path in (_THINKING, _KEYS["max_tokens"], _CHOICE))
    kinds = ((thinking, dict | None), (limit, int | None), (choice, dict | None))
    if not all(isinstance(value, kind) for value, kind in kinds):
        return False
    if thinking_type({"thinking": thinking}) == "enabled" and not isinstance(thinking.get("budget_tokens"), int):
        return False
    context = Context()
    try:
        agreed(fitted(body, context), (), context)
    except CannotRender:
        return False
    return not (context.losses or context.repairs)


def holds(spelling: JsonObject | None) -> bool:
    """Whether the rules hold for a request: a new one, or one that was imported and spelled so."""
    return spelling is None or UNFIT not in spelling


def agreed(body: JsonObject, turns: Sequence[ConverseTurn], context: Context) -> JsonObject:
    """Return a request whose thinking, messages and choice of a tool can stand together.

    Messages of an imported request go back as they came.
    """
    if not is_claude(body.get("modelId")) or thinking_type({"thinking": value_at(body, _THINKING)}) != "enabled":
        return body
    if _lacks_thought(turns):
        context.repair("option", "reasoning", "Thinking was left out: the last tool call came without its thinking.")
        return _without_empty(with_value(body, _THINKING, None))
    if _FORCED.isdisjoint(value_at(body, _CHOICE) or ()):
        return body
    context.loss("tool_choice", "tool_choice", "No tool can be forced while thinking has a budget.")
    return with_value(body, _CHOICE, {"auto": {}})


def _without_empty(body: JsonObject) -> JsonObject:
    return {key: value for key, value in body.items() if key not in _OBJECTS or value}


def _lacks_thought(turns: Sequence[ConverseTurn]) -> bool:
    """Whether the message before the last tool results lacks the thinking that a budget requires."""
    run = [turn for turn in turns if turn.role in ("assistant", "user")][-2:]
    if [turn.role for turn in run] != ["assistant", "user"] or all(turn.is_as_came for turn in run):
        return False
    leading = [turn.blocks[0] if turn.blocks else None for turn in run]
    first, after = (next(iter(block), None) if isinstance(block, dict) else None for block in leading)
    return after == "toolResult" and first != "reasoningContent"
