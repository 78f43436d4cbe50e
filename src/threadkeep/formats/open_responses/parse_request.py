"""Reading requests of Open Responses.

* Items keep their keys and their spelling; what has not the form of its type goes back as a block, as it came.
* The items of a response (reasoning, messages and calls up to the next input item) are one turn; each input message is
  a turn of its own, and so are outputs that stand together.
* Keys that are not options, or whose value no option can say, are `extra.open_responses`.
* Server state is a setting; all input is new to the provider.

Source: OpenAI's API reference, "Responses", create; the Open Responses specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item, item_from_object, with_given
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.session import Session
from threadkeep.domain.tools import tool_from
from threadkeep.errors import CannotParse, CannotRender, InvalidOption
from threadkeep.formats.canonical.items import usual
from threadkeep.formats.canonical.keys import ITEM_KEYS, NAME
from threadkeep.formats.open_responses.fields import (
    FIELDS,
    INPUT_TYPES,
    TOOL_KEYS,
    stream_options,
    tool_choice,
    wire_tools,
)
from threadkeep.formats.open_responses.parse_response import item_object
from threadkeep.formats.shared import parsing
from threadkeep.formats.shared.fields import read_fields
from threadkeep.formats.shared.names import is_valid_name
from threadkeep.formats.shared.parts import block, split_native
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.reports import Context

# keys of which a request needs one
_HISTORIES: Final = ("input", "prompt", "previous_response_id", "conversation")
_READ_APART: Final = ("input", "tools", "tool_choice", "stream_options")
# keys of items that hold texts
_TEXTS: Final = ("id", "status", "phase", "created_by", "call_id", "name", "namespace", "encrypted_content")


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Responses request; `model` and `stream` say what the payload does not."""
    body = parsing.request_object(payload, NAME, "input")
    if all(body.get(key) is None for key in _HISTORIES):
        raise parsing.no_turns(body, NAME, "input")
    history = body.get("input")
    definitions = body.get("tools")
    tools = [_tool(tool) for tool in definitions] if isinstance(definitions, list) else []
    settings, native = _settings(body, tools)
    if definitions is not None and not isinstance(definitions, list):
        native["tools"] = definitions
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in native:
            settings.setdefault(name, value)
    return parsing.session_of(
        NAME,
        _turns(_elements(history)),
        settings=settings,
        tools=tools,
        native=native,
        spelling={"input": "text"} if isinstance(history, str) else {"input": "empty"} if history == [] else {},
    )


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The item objects of input items, turn by turn."""
    return parsing.items_of_turns(_turns(_elements(parsing.turns_in(turns, NAME))))


def _elements(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}]
    if isinstance(value, list):
        return value
    hint = parsing.SENT_REQUEST
    raise CannotParse(f"The input is {shortened(value)}, neither text nor a list of items.", hint=hint)


def _turns(elements: Iterable[Any]) -> list[list[Item]]:
    """The items of each turn, see the module's docstring."""
    turns: list[list[Item]] = []
    last = None
    for index, element in enumerate(elements):
        item = _item(element, index)
        side = _side(item)
        if side is None or side != last:
            turns.append([])
        turns[-1].append(with_given(item_from_object(item), element))
        last = side
    return turns


def _side(item: JsonObject) -> str | None:
    """Where an item came from: the model, or outputs of tools; None for what stands alone."""
    role = item.get("role")
    if item["type"] == "provider_item" and isinstance(item["payload"], dict):
        role = item["payload"].get("role")
    if isinstance(role, str):
        return "model" if role == "assistant" else None
    is_hosted = item.get("execution") == "server"  # searches for tools: their outputs come with the response
    return "tools" if item["type"] in INPUT_TYPES and not is_hosted else "model"


def _item(element: Any, index: int) -> JsonObject:
    """An element of the input as an item object."""
    if not isinstance(element, dict):
        raise CannotParse(
            f"input[{index}] is {shortened(element)}, which is not an item.", hint="Pass the items as they were sent."
        )
    item, words = usual(element)
    if not _is_whole(item):
        return {**block(element, NAME), "origin": NAME}
    parsed = item_object(item)
    return {**parsed, "spelling": words} if words else parsed


def _is_whole(item: JsonObject) -> bool:
    """Whether an item of a known type has what its type stands for."""
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in ITEM_KEYS:
        return True
    if not all(isinstance(item.get(key), str | None) for key in _TEXTS):
        return False
    match item:
        case {"type": "message", "role": str(), "content": list(parts)} | {
            "type": "function_call_output",
            "output": list(parts),
        }:
            return all(isinstance(part, dict) for part in parts)
        case {"type": "function_call", "call_id": str(), "name": str(), "arguments": str()}:
            return isinstance(item.get("async"), bool | None)
        case {"type": "function_call_output", "output": str()} | {"type": "item_reference", "id": str()}:
            return True
        case {"type": "reasoning"}:
            return all(isinstance(item.get(key), list | None) for key in ("summary", "content"))
    return kind == "compaction"


def _settings(body: JsonObject, tools: Sequence[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """The options that a request sets, and the keys that say something else."""
    settings, native = read_fields(FIELDS, {key: value for key, value in body.items() if key not in _READ_APART})
    targets = {getattr(row, "target", row.option) for row in FIELDS}
    native |= {key: None for key, value in body.items() if value is None and key not in targets | set(_READ_APART)}
    choice, options = body.get("tool_choice"), body.get("stream_options")
    if choice is not None:
        (settings if _is_said(choice, tools) else native)["tool_choice"] = choice
    if options is not None:
        is_said = options and stream_options({**settings, "stream_options": options}) == options
        (settings if is_said else native)["stream_options"] = options
    return settings, native


def _is_said(choice: Any, tools: Sequence[JsonObject]) -> bool:
    """Whether the option gives this very tool choice back."""
    context = Context(tools)
    try:
        return bool(tool_choice(choice, context) == choice)
    except CannotRender:
        return False


def _tool(tool: Any) -> JsonObject:
    """A tool definition, where it can be given back; else a block of this format."""
    if isinstance(tool, dict):
        is_function = tool.get("type") == "function"
        definition = split_native(tool, TOOL_KEYS, NAME) if is_function else tool
        if is_function and not is_valid_name(tool.get("name")):
            definition = {**definition, "origin": NAME}  # some hosts take names that others refuse
        try:
            kept = tool_from(definition).to_dict()
        except InvalidOption:
            kept = {}
        said = {key: value for key, value in tool.items() if value is not None} if is_function else tool
        if kept and wire_tools([kept], Context()) == [said]:
            return kept
    return {"type": "provider_tool", "format": NAME, "payload": tool}
