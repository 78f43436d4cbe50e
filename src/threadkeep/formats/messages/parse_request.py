"""Reading requests of the Messages API.

* System text is the instructions; system messages inside the history stay where they are.
* Each message is a turn. Keys of a message besides role and content go back with it.
* Keys that are not options, or whose value no option gives back, are `extra.messages`.

Source: Anthropic's API reference, "Messages", create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import body_object
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats.messages.fields import FIELDS, NAME
from threadkeep.formats.messages.joining import read_system
from threadkeep.formats.messages.parse_parts import items_of
from threadkeep.formats.messages.request import head
from threadkeep.formats.messages.tools import read_choice, tool_from_wire
from threadkeep.formats.messages.turns import LIST, TEXT
from threadkeep.formats.shared import parsing
from threadkeep.formats.shared.fields import read_fields
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.reports import Context

_APART: Final = frozenset({"messages", "system", "tools", "tool_choice"})


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Messages request; `model` and `stream` say what the payload does not."""
    body = parsing.request_object(payload, NAME, "messages")
    turns = _turns(body.get("messages"))
    settings, tools, native, spelling = _read({key: value for key, value in body.items() if value is not None})
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in body:
            settings[name] = value
    spelling |= _usual_content(turns)
    return parsing.session_of(NAME, turns, settings=settings, tools=tools, native=native, spelling=spelling)


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The item objects of messages, one turn each."""
    return parsing.items_of_turns(_turns(parsing.turns_in(turns, NAME)))


def _read(body: JsonObject) -> tuple[JsonObject, list[JsonObject], JsonObject, JsonObject]:
    """Settings, tools, native keys and spelling, such that rendering them gives the very keys."""
    settings, native = read_fields(FIELDS, {key: value for key, value in body.items() if key not in _APART})
    settings |= read_choice(body.get("tool_choice"))
    spelling: JsonObject = {} if "max_tokens" in body else {"absent": ["max_tokens"]}
    if (read := read_system(body.get("system"))) is not None:
        settings["instructions"], spelling["system"] = read
    elif "system" in body:
        place = spelling if body["system"] == [] else native
        place["system"] = body["system"]
    tools = _tools(body.get("tools"))
    if body.get("tools") == []:
        spelling["empty"] = ["tools"]
    rendered = _rendered(settings, tools, native, spelling)
    if rendered is None:  # settings that contradict each other, which some servers take
        settings = {name: settings[name] for name in ("model", "instructions") if name in settings}
        rendered = _rendered(settings, tools, native, spelling) or {}
    native |= {k: value for k, value in body.items() if k not in ("messages", "system") and rendered.get(k) != value}
    return settings, tools, native, spelling


def _tools(tools: Any) -> list[JsonObject]:
    listed = tools if isinstance(tools, list) else []
    return [tool_from_wire(tool if isinstance(tool, str) else body_object(tool)) for tool in listed]


def _rendered(
    settings: JsonObject, tools: list[JsonObject], native: JsonObject, spelling: JsonObject
) -> JsonObject | None:
    """The request that the settings give; None where they contradict each other."""
    try:
        return head({**settings, "extra": {NAME: native}} if native else settings, tools, spelling, Context())
    except CannotRender:
        return None


def _turns(messages: Any) -> list[list[JsonObject]]:
    if not isinstance(messages, list):
        raise CannotParse(f"The messages are {shortened(messages)}, not a list.", hint=parsing.SENT_REQUEST)
    return [_items(body_object(message), f"messages[{index}]") for index, message in enumerate(messages)]


def _items(message: Any, path: str) -> list[JsonObject]:
    """The item objects of a message; keys of its own are on the first item that is a message."""
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise CannotParse(f"{path} is {shortened(message)}, not a message.", hint="Pass an object with a role.")
    content = parsing.checked_content(message, path)
    if not isinstance(content, str | list | None):
        raise CannotParse(f"{path}.content is {shortened(content)}.", hint="Pass text, or a list of blocks.")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    items = items_of([wire if isinstance(wire, str) else body_object(wire) for wire in blocks], role)
    if isinstance(content, str):
        items[0]["spelling"] = TEXT
    keys = {key: value for key, value in message.items() if key not in ("role", "content") and value is not None}
    if keys or not items:
        _tell(items, role, keys)
    return items


def _tell(items: list[JsonObject], role: str, keys: JsonObject) -> None:
    """Note what a message says besides its blocks, or that it came without any."""
    if all(item["type"] != "message" for item in items):
        items.insert(0, {"type": "message", "role": role, "content": [], "origin": NAME})
    if keys:
        next(item for item in items if item["type"] == "message")["native"] = {NAME: keys}


def _usual_content(turns: Sequence[Sequence[JsonObject]]) -> JsonObject:
    """How most messages of one text are spelled, noted once for the request; the others have a note of their own."""
    messages = [turn[0] for turn in turns if len(turn) == 1 and turn[0]["type"] == "message"]
    lone = [item for item in messages if len(item["content"]) == 1 and item["content"][0].keys() == {"type", "text"}]
    strings = [item for item in lone if item.get("spelling") == TEXT]
    if not strings or len(strings) * 2 < len(lone):
        return {}
    for item in lone:
        if item.pop("spelling", None) is None:
            item["spelling"] = LIST
    return {"content": TEXT}
