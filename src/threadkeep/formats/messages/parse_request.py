"""Reading requests of the Messages API.

* System text is the instructions; system messages inside the history stay where they are.
* Each message is a turn. Keys of a message besides role and content go back with it.
* Keys that are not options, or whose value no option gives back, are `extra.messages`.

Source: Anthropic's API reference, "Messages", create.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import body_object
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats.messages.fields import FIELDS, NAME
from threadkeep.formats.messages.parse_parts import items_of
from threadkeep.formats.messages.request import head
from threadkeep.formats.messages.system import read_system
from threadkeep.formats.messages.tools import read_choice, tool_from_wire
from threadkeep.formats.messages.turns import LIST, TEXT
from threadkeep.formats.shared.fields import read_fields
from threadkeep.formats.shared.parsing import (
    SENT_REQUEST,
    checked_content,
    items_of_turns,
    parser,
    request_object,
    session_of,
    turns_in,
)
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.reports import Context

_APART: Final = frozenset({"messages", "system", "tools", "tool_choice"})
_PLAIN: Final = frozenset({"type", "text"})


@parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Messages request; `model` and `stream` say what the payload does not.

    Raises:
        CannotParse: it is not a JSON object, or its messages are not a list of objects.
    """
    body = request_object(payload, NAME, "messages")
    turns = _turns(body.get("messages"))
    parsed = _read({key: value for key, value in body.items() if value is not None})
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in body:
            parsed.settings[name] = value
    spelling = parsed.spelling | _usual_content(turns)
    return session_of(
        NAME, turns, settings=parsed.settings, tools=parsed.tools, native=parsed.native, spelling=spelling
    )


@parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The item objects of messages, one turn each.

    Raises:
        CannotParse: they are not messages.
    """
    return items_of_turns(_turns(turns_in(turns, NAME)))


@dataclass(slots=True)
class ParsedSettings:
    """What a request says besides its messages."""

    settings: JsonObject
    native: JsonObject
    tools: list[JsonObject] = field(default_factory=list)
    spelling: JsonObject = field(default_factory=dict)


def _read(body: JsonObject) -> ParsedSettings:
    """Settings and tools, such that rendering them gives the very keys."""
    parsed = ParsedSettings(*read_fields(FIELDS, {key: value for key, value in body.items() if key not in _APART}))
    parsed.settings |= read_choice(body.get("tool_choice"))
    if "max_tokens" not in body:
        parsed.spelling["absent"] = ["max_tokens"]
    _read_system(body, parsed)
    _read_tools(body, parsed)
    rendered = _rendered(parsed)
    if rendered is None:  # settings that contradict each other, which some servers take
        parsed.settings = {name: parsed.settings[name] for name in ("model", "instructions") if name in parsed.settings}
        rendered = _rendered(parsed) or {}
    for key, value in body.items():
        if key not in ("messages", "system") and rendered.get(key) != value:
            parsed.native[key] = value
    return parsed


def _read_system(body: JsonObject, parsed: ParsedSettings) -> None:
    read = read_system(body.get("system"))
    if read is not None:
        parsed.settings["instructions"], parsed.spelling["system"] = read
    elif body.get("system") == []:
        parsed.spelling["system"] = []
    elif "system" in body:
        parsed.native["system"] = body["system"]


def _read_tools(body: JsonObject, parsed: ParsedSettings) -> None:
    tools = body.get("tools")
    if isinstance(tools, list):
        parsed.tools = [tool_from_wire(body_object(tool) if not isinstance(tool, str) else tool) for tool in tools]
        if not tools:
            parsed.spelling["empty"] = ["tools"]


def _rendered(parsed: ParsedSettings) -> JsonObject | None:
    settings = {**parsed.settings, "extra": {NAME: parsed.native}} if parsed.native else parsed.settings
    try:
        return head(settings, parsed.tools, parsed.spelling, Context())
    except CannotRender:
        return None


def _turns(messages: Any) -> list[list[JsonObject]]:
    if not isinstance(messages, list):
        raise CannotParse(f"The messages are {shortened(messages)}, not a list.", hint=SENT_REQUEST)
    return [_items(body_object(message), f"messages[{index}]") for index, message in enumerate(messages)]


def _items(message: Any, path: str) -> list[JsonObject]:
    """The item objects of a message; keys of its own are on the first item that is a message."""
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise CannotParse(f"{path} is {shortened(message)}, not a message.", hint="Pass an object with a role.")
    content = checked_content(message, path)
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
    first = next((item for item in items if item["type"] == "message"), None)
    if first is None:
        first = {"type": "message", "role": role, "content": [], "origin": NAME}
        items.insert(0, first)
    if keys:
        first["native"] = {NAME: keys}


def _usual_content(turns: Sequence[Sequence[JsonObject]]) -> JsonObject:
    """How most messages of one text are spelled, noted once for the request; the others have a note of their own."""
    lone = [turn[0] for turn in turns if len(turn) == 1 and _is_lone_text(turn[0])]
    strings = [item for item in lone if item.get("spelling") == TEXT]
    if not strings or len(strings) * 2 < len(lone):
        return {}
    for item in lone:
        if item.pop("spelling", None) is None:
            item["spelling"] = LIST
    return {"content": TEXT}


def _is_lone_text(item: JsonObject) -> bool:
    content = item.get("content") if item["type"] == "message" else None
    return content is not None and len(content) == 1 and content[0].keys() == _PLAIN
