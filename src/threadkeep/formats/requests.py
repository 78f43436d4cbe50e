"""What reading requests has in common in all formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from threadkeep.domain.items import item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import body_object
from threadkeep.domain.session import Session
from threadkeep.domain.wire import Imported
from threadkeep.errors import CannotParse
from threadkeep.formats.envelopes import shortened


def request_object(payload: Any, format_name: str, turn_list: str) -> JsonObject:
    """A request as a JSON object: given as such, as JSON text, or as an object of an SDK.

    Raises:
        CannotParse: it is none, or has no `messages` where the turns should be.
    """
    found = body_object(payload)
    if not isinstance(found, dict):
        raise CannotParse(
            f"The {format_name} request is {shortened(found)}, not a JSON object. Give the whole request body, "
            f"with the key {turn_list!r}."
        )
    if turn_list == "messages" and found.get(turn_list) is None:
        raise CannotParse(
            f"The request has no messages; its keys are {shortened(list(found))}. Is it of another format than "
            f"{format_name}?"
        )
    return found


def turns_in(turns: Any, format_name: str) -> list[Any]:
    """Turns as a list: one turn, several, or JSON text of these.

    Raises:
        CannotParse: it is neither.
    """
    found = body_object(turns)
    found = [found] if isinstance(found, dict) else found
    if isinstance(found, list | tuple):
        return [body_object(turn) for turn in found]
    raise CannotParse(f"The {format_name} turns are {shortened(found)}. Give a turn as a dict, or a list of turns.")


def checked_content(message: JsonObject, where: str) -> Any:
    """What a message says under `content`, if anything.

    Raises:
        CannotParse: it has `parts` in its place, which are Gemini's: all that it says would be lost.
    """
    content = message.get("content")
    if content is None and isinstance(message.get("parts"), list | dict):
        raise CannotParse(f"{where} has parts and no content: {shortened(message)}. Is it of the format gemini?")
    return content


def session_of(
    format_name: str,
    turns: Iterable[Sequence[JsonObject]],
    *,
    settings: JsonObject,
    tools: Sequence[JsonObject] = (),
    native: JsonObject | None = None,
    spelling: JsonObject | None = None,
) -> Session:
    """The session of a request: its settings and tools, and the item objects of each of its turns.

    `native` are the keys of the request that have no option; they go back to the format as they came.
    """
    session = Session(tools=tools)
    extra = {**(settings.get("extra") or {}), **({format_name: native} if native else {})}
    session.update(**{**settings, "extra": extra or None})
    for number, items in enumerate(turns):
        session.add_items([item_from_object(item) for item in items], turn=number)
    session.imported = Imported(format_name, len(session.items), spelling or {})
    return session
