"""Requests of Converse, read: options, tools, and the items of each turn.

* A lone system text is the instructions; other system content is a system message that comes first.
* A system message among the messages stays there.
* What has no option goes back as it came.

Source: Amazon Bedrock's API reference, "Converse", request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject, bytes_as_text, dumps
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse
from threadkeep.formats.converse import claude
from threadkeep.formats.converse.fields import FIELDS, NAME, SCHEMA, schema_of
from threadkeep.formats.converse.parse_parts import Reader
from threadkeep.formats.converse.tools import CHOICES, holds_tool_blocks, tool_keys
from threadkeep.formats.converse.turns import IN_HISTORY
from threadkeep.formats.shared import parsing
from threadkeep.formats.shared.fields import read_fields, value_at, with_value
from threadkeep.formats.shared.names import is_valid_name
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.reports import Context

_APART: Final = frozenset({"messages", "system", "toolConfig"})


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Converse request; the model usually stands in its path."""
    body = bytes_as_text(parsing.request_object(payload, NAME, "messages"))
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise CannotParse(f"messages is {shortened(messages)}, not a list.", hint=parsing.SENT_REQUEST)
    others = {key: value for key, value in body.items() if key not in _APART}
    spelling = _spelling(others, body, messages)
    if not claude.fits({**body, **({} if model is None else {"modelId": model})}):
        spelling[claude.UNFIT] = True
    settings, native = read_fields(FIELDS, _levelled(others))
    settings |= {key: value for key, value in (("model", model), ("stream", stream)) if value is not None}
    system, turns = _system(body.get("system"), settings), _turns(messages)
    tools = _tools(body.get("toolConfig"), settings, native)
    return parsing.session_of(NAME, [*system, *turns], settings=settings, tools=tools, native=native, spelling=spelling)


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The item objects of each message."""
    return parsing.items_of_turns(_turns(turns))


def _turns(turns: Any) -> list[list[JsonObject]]:
    return [_items(bytes_as_text(turn)) for turn in parsing.turns_in(turns, NAME)]


def _items(message: Any) -> list[JsonObject]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise CannotParse(f"A converse message is {shortened(message)}.", hint="Pass a dict with `role` and `content`.")
    content = parsing.checked_content(message, "A converse message")
    blocks = [{"text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list | None):
        raise CannotParse(f"The content of a converse message is {shortened(content)}, not a list of blocks.")
    if not (items := Reader(role).read(blocks or ())):
        return [{"type": "message", "role": role, "content": [], "origin": NAME}]
    return [{**item, "spelling": {NAME: IN_HISTORY}} for item in items] if role == "system" else items


def _system(system: Any, settings: JsonObject) -> list[list[JsonObject]]:
    """The system content: a lone text becomes the instructions."""
    match system:
        case None | []:
            return []
        case [{"text": str(text), **others}] if text and not others:
            settings["instructions"] = text
            return []
        case [*blocks]:
            return [Reader("system").read(blocks)]
    raise CannotParse(f"system is {shortened(system)}, not a list of blocks.", hint=parsing.SENT_REQUEST)


def _spelling(others: JsonObject, body: JsonObject, messages: list[Any]) -> JsonObject:
    """How the request spells what could be spelled otherwise: the schema's text, and calls without tools."""
    spelling: JsonObject = {}
    text = value_at(others, SCHEMA)
    if isinstance(text, str) and isinstance(schema_of(text), dict) and _plain_schema(text) != text:
        spelling["schema"] = text
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    blocks = [wire for content in contents if isinstance(content, list) for wire in content if isinstance(wire, dict)]
    has_blocks = holds_tool_blocks([{"content": blocks}])
    if has_blocks and not body.get("toolConfig"):
        spelling["untooled"] = True
    return spelling


def _plain_schema(text: str) -> str:
    """The text of a schema as it is written when it is new."""
    schema = schema_of(text)
    return schema if isinstance(schema, str) else dumps(schema).decode()


def _levelled(body: JsonObject) -> JsonObject:
    """The request with its schema as it is written when it is new, and without empty settings."""
    kept = {key: value for key, value in body.items() if not (key == "inferenceConfig" and value == {})}
    text = value_at(kept, SCHEMA)
    return with_value(kept, SCHEMA, _plain_schema(text)) if isinstance(text, str) else kept


def _tools(config: Any, settings: JsonObject, native: JsonObject) -> list[JsonObject]:
    """The tool definitions; what else the configuration says goes into the settings or to the native keys."""
    if not isinstance(config, dict):
        if config is not None:
            native["toolConfig"] = config
        return []
    definitions = config.get("tools")
    tools = [_tool(tool) for tool in definitions] if isinstance(definitions, list) else []
    choice = _choice(config.get("toolChoice"), {tool.get("name") for tool in tools})
    if choice is not None:
        settings["tool_choice"] = choice
    known = {"tools" if tools else "", "toolChoice" if choice is not None else ""}
    left = {key: value for key, value in config.items() if key not in known and value is not None}
    if left:
        native["toolConfig"] = left
    return tools


def _choice(choice: Any, names: set[Any]) -> Any:
    for option, wire in CHOICES.items():
        if choice == wire:
            return option
    match choice:
        case {"tool": {"name": str(name), **others}, **more} if not others and not more and name in names:
            return {"type": "function", "name": name}
    return None


def _tool(tool: Any) -> JsonObject:
    """A function; anything else is a tool of this format."""
    match tool:
        case {"toolSpec": {"name": str(name)} as spec, **others} if is_valid_name(name):
            function: JsonObject = {"type": "function", "name": name, **_function_keys(spec)}
            plain = {"name": name, **tool_keys(function, Context())}
            strange = {key: value for key, value in spec.items() if key not in plain or plain[key] != value}
            strange |= {key: None for key in plain if key not in spec}
            native: Any = {**others, **({"toolSpec": strange} if strange else {})}
            return {**function, **({"native": {NAME: native}} if native else {})}
    return {"type": "provider_tool", "format": NAME, "payload": tool}


def _function_keys(spec: JsonObject) -> JsonObject:
    keys = (
        ("description", spec.get("description"), str),
        ("parameters", value_at(spec, "inputSchema.json"), dict),
        ("strict", spec.get("strict"), bool),
    )
    return {key: value for key, value, kind in keys if isinstance(value, kind)}
