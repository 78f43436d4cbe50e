"""Reading the messages of Pydantic AI: a list of them, or the arguments of an agent's run that has them.

* Each message is a turn. What it says besides its parts is with its first item.
* The instructions of the last request that has any are those of the conversation, if the arguments have none.

Source: Pydantic AI's API reference, `pydantic_ai.messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import body_object
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse
from threadkeep.formats.pydantic_ai.fields import FIELDS, HISTORY, NAME, REQUEST, RESPONSE, TOOLS
from threadkeep.formats.pydantic_ai.parse_parts import items_of
from threadkeep.formats.pydantic_ai.tools import tool_from_wire
from threadkeep.formats.shared import parsing
from threadkeep.formats.shared.fields import read_fields
from threadkeep.formats.shared.provider_errors import shortened

_HINT: Final = "Pass ModelMessagesTypeAdapter.dump_python(messages, mode='json')."


@parsing.parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a message history, alone or among the arguments of a run; `model` and `stream` say what these do not."""
    body = body_object(payload)
    body = {HISTORY: body} if isinstance(body, list) else parsing.request_object(body, NAME, HISTORY)
    messages = body.get(HISTORY)
    parsing.check_turns(messages, NAME, HISTORY)
    if not messages:
        raise parsing.no_turns(body, NAME, HISTORY)
    turns = _turns(messages)
    settings, native = read_fields(FIELDS, {key: body[key] for key in body if key not in (HISTORY, TOOLS)})
    tools = body.get(TOOLS) or ()
    if not isinstance(tools, list | tuple):
        raise CannotParse(f"The tools are {shortened(tools)}, not a list of definitions.", hint=parsing.SENT_REQUEST)
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in body:
            settings[name] = value
    spelling: JsonObject = {}
    instructions = None if "instructions" in body else _instructions(messages)
    if instructions is not None:
        settings["instructions"] = spelling["instructions"] = instructions
    definitions = [tool_from_wire(body_object(tool)) for tool in tools]
    return parsing.session_of(NAME, turns, settings=settings, tools=definitions, native=native, spelling=spelling)


@parsing.parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The item objects of messages, one turn each."""
    return parsing.items_of_turns(_turns(parsing.turns_in(turns, NAME)))


def _instructions(messages: Sequence[JsonObject]) -> str | None:
    """What the messages instruct the model to, which is what the last request says."""
    found = (message.get("instructions") for message in reversed(messages))
    return next((text for text in found if isinstance(text, str) and text), None)


def _turns(messages: Any) -> list[list[JsonObject]]:
    if not isinstance(messages, list):
        raise CannotParse(f"The messages are {shortened(messages)}, not a list.", hint=_HINT)
    return [items_of(_checked(message, f"{HISTORY}[{index}]")) for index, message in enumerate(messages)]


def _checked(message: Any, path: str) -> JsonObject:
    kind = message.get("kind") if isinstance(message, dict) else None
    if kind not in (REQUEST, RESPONSE):
        raise CannotParse(f"{path} is {shortened(message)}, not a message of Pydantic AI.", hint=_HINT)
    parts = message.get("parts")
    if not isinstance(parts, list | None) or not all(isinstance(part, dict) for part in parts or ()):
        raise CannotParse(f"{path}.parts is {shortened(parts)}, not a list of parts.", hint=_HINT)
    return dict(message)
