"""Reading requests of the Messages API.

* System text is the instructions; system messages inside the history stay where they are.
* Each message is a turn. Keys of a message beside role and content go back with it.
* Keys that are no option, or whose value no option gives back, are `extra.messages`.

Source: Anthropic's API reference, "Messages", create.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import body_object
from threadkeep.domain.session import Session
from threadkeep.domain.wire import Call, Imported, Snapshot
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats.envelopes import shortened
from threadkeep.formats.fields import read_fields
from threadkeep.formats.messages.blocks import items_of
from threadkeep.formats.messages.fields import FIELDS, NAME
from threadkeep.formats.messages.request import head
from threadkeep.formats.messages.system import read_system
from threadkeep.formats.messages.tools import read_choice, tool_from_wire
from threadkeep.formats.messages.turns import LIST, TEXT
from threadkeep.formats.reports import Context
from threadkeep.formats.requests import checked_content, request_object, session_of, turns_in

_APART: Final = frozenset({"messages", "system", "tools", "tool_choice"})
_PLAIN: Final = frozenset({"type", "text"})


def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Messages request; `model` and `stream` say what the payload does not.

    Raises:
        CannotParse: it is no JSON object, or its messages are no list of objects.
    """
    body = request_object(payload, NAME, "messages")
    turns = _turns(body.get("messages"))
    found = _read({key: value for key, value in body.items() if value is not None})
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in body:
            found.settings[name] = value
    spelling = found.spelling | _usual_content(turns)
    return session_of(NAME, turns, settings=found.settings, tools=found.tools, native=found.native, spelling=spelling)


def parse_turns(turns: Any, _calls: Sequence[Call] = ()) -> list[list[JsonObject]]:
    """The item objects of messages, one turn each.

    Raises:
        CannotParse: they are no messages.
    """
    return _turns(turns_in(turns, NAME))


@dataclass(slots=True)
class Found:
    """What a request says beside its messages."""

    settings: JsonObject
    native: JsonObject
    tools: list[JsonObject] = field(default_factory=list)
    spelling: JsonObject = field(default_factory=dict)


def _read(body: JsonObject) -> Found:
    """Settings and tools, such that rendering them gives the very keys."""
    found = Found(*read_fields(FIELDS, {key: value for key, value in body.items() if key not in _APART}))
    found.settings |= read_choice(body.get("tool_choice"))
    if "max_tokens" not in body:
        found.spelling["absent"] = ["max_tokens"]
    _read_system(body, found)
    _read_tools(body, found)
    rendered = _rendered(found)
    if rendered is None:  # settings that contradict each other, which some servers take
        found.settings = {name: found.settings[name] for name in ("model", "instructions") if name in found.settings}
        rendered = _rendered(found) or {}
    for key, value in body.items():
        if key not in ("messages", "system") and rendered.get(key) != value:
            found.native[key] = value
    return found


def _read_system(body: JsonObject, found: Found) -> None:
    read = read_system(body.get("system"))
    if read is not None:
        found.settings["instructions"], found.spelling["system"] = read
    elif body.get("system") == []:
        found.spelling["system"] = []
    elif "system" in body:
        found.native["system"] = body["system"]


def _read_tools(body: JsonObject, found: Found) -> None:
    tools = body.get("tools")
    if isinstance(tools, list):
        found.tools = [tool_from_wire(body_object(tool) if not isinstance(tool, str) else tool) for tool in tools]
        if not tools:
            found.spelling["empty"] = ["tools"]


def _rendered(found: Found) -> JsonObject | None:
    extra = {"extra": {NAME: found.native}} if found.native else {}
    imported = Imported(NAME, 0, found.spelling)
    try:
        return head(Snapshot({**found.settings, **extra}, found.tools, (), imported=imported), Context())
    except CannotRender:
        return None


def _turns(messages: Any) -> list[list[JsonObject]]:
    if not isinstance(messages, list):
        raise CannotParse(
            f"The messages are {shortened(messages)}, not a list. Give the whole request, or its messages."
        )
    return [_items(body_object(message), f"messages[{index}]") for index, message in enumerate(messages)]


def _items(message: Any, path: str) -> list[JsonObject]:
    """The item objects of a message; keys of its own are on the first item that is a message."""
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise CannotParse(f"{path} is {shortened(message)}, not a message. Give an object with a role.")
    content = checked_content(message, path)
    if not isinstance(content, str | list | None):
        raise CannotParse(f"{path}.content is {shortened(content)}. Give text, or a list of blocks.")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    found = items_of([one if isinstance(one, str) else body_object(one) for one in blocks], role)
    if isinstance(content, str):
        found[0]["spelling"] = TEXT
    keys = {key: value for key, value in message.items() if key not in ("role", "content") and value is not None}
    if keys or not found:
        _tell(found, role, keys)
    return found


def _tell(items: list[JsonObject], role: str, keys: JsonObject) -> None:
    """Note what a message says beside its blocks, or that it came without any."""
    first = next((item for item in items if item["type"] == "message"), None)
    if first is None:
        first = {"type": "message", "role": role, "content": [], "origin": NAME}
        items.insert(0, first)
    if keys:
        first["native"] = {NAME: keys}


def _usual_content(turns: Sequence[Sequence[JsonObject]]) -> JsonObject:
    """How most messages of one text are spelled, said once for the request; the others say it themselves."""
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
