"""The items of contents: the turns of a request.

* A content is a turn. Texts and media of the user are one message; what has no canonical form is a block in it.
* A response goes to the call of its id, else to the first open call of its name, in the newest turn that has one.
* Of the model's, neighbouring thoughts are one reasoning item, neighbouring texts one message. What is neither thought,
  text nor call is a block: a part of the open message, else an item of its own.
* A content of another form goes back whole, as it came.

Source: Google's Gemini API reference, "Content".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.gemini import calls as own_calls
from threadkeep.formats.gemini.calls import MADE, Ids, is_nameless, seed_of
from threadkeep.formats.gemini.fields import MODEL, NAME, ROLES
from threadkeep.formats.gemini.parts import is_text, is_thought, media_in, text_in, thought_in, with_native
from threadkeep.formats.gemini.spelling import noted, read_part
from threadkeep.formats.shared.arguments import object_of
from threadkeep.formats.shared.parts import block, open_parts
from threadkeep.formats.shared.reports import Context

CONTENT_KEYS: Final = frozenset({"role", "parts"})
_MEDIA_KEYS: Final = frozenset({"inlineData", "fileData"})


@dataclass(slots=True)
class _Waiting:
    """A call that waits for its response; `wire_id`: the id that the wire has."""

    call_id: str
    name: str
    wire_id: str | None
    is_open: bool = True


class OpenCalls:
    """The calls that wait for their responses, found by id and by name, turn by turn."""

    def __init__(self, calls: Sequence[OpenCall] = ()) -> None:
        # the calls of an id, or of a name, in each turn that has some; those that are open no longer are dropped later
        self._turns: dict[tuple[str, str], list[deque[_Waiting]]] = {}
        groups = groupby(calls, lambda call: call.call_id.rpartition("_")[0] if call.call_id.startswith(MADE) else "")
        for seed, group in groups:
            self._add([_Waiting(call.call_id, call.name, None if seed else call.call_id) for call in group])

    def add(self, items: Iterable[JsonObject]) -> None:
        """Take in the calls of a turn."""
        calls = [item for item in items if item["type"] == "function_call"]
        self._add([_Waiting(c["call_id"], c["name"], None if is_nameless(c) else c["call_id"]) for c in calls])

    def take(self, name: Any, call_id: Any) -> _Waiting | None:
        """The call that a response of that name and id answers; it is open no longer."""
        for kind, value in (("id", call_id), ("name", name)):
            turns = self._turns.get((kind, value), []) if isinstance(value, str) else []
            while turns:
                while turns[-1]:
                    call = turns[-1].popleft()
                    if call.is_open:
                        call.is_open = False
                        return call
                turns.pop()
        return None

    def _add(self, turn: Iterable[_Waiting]) -> None:
        of_turn: dict[tuple[str, str], deque[_Waiting]] = {}
        for call in turn:
            for kind, value in (("id", call.wire_id), ("name", call.name)):
                if value:
                    of_turn.setdefault((kind, value), deque()).append(call)
        for key, calls in of_turn.items():
            self._turns.setdefault(key, []).append(calls)


def turns_of(contents: Sequence[Any], calls: OpenCalls) -> list[list[JsonObject]]:
    """The items of each content."""
    turns: list[list[JsonObject]] = []
    seed = ""
    for content in contents:
        seed = seed_of([seed, content])
        role, parts = role_of(content), parts_of(content)
        if role is None or not parts:
            turns.append([{**block(content, NAME), "origin": NAME, "native": {NAME: {"isContent": True}}}])
        elif role == MODEL:
            turns.append(items_of(parts, Ids(seed)))
            calls.add(turns[-1])
        else:
            turns.append(_user_items(parts, calls))
    return turns


def called_items(history: Any) -> list[JsonObject]:
    """The calls that Google's SDK answered by itself, and their outputs, from the history that it adds to an answer.

    The history begins with the contents of the request: what follows the last of these was not known before.
    """
    contents: list[JsonObject] = []
    for content in history if isinstance(history, list) else ():
        if role_of(content) == MODEL:
            if contents and role_of(contents[-1]) == MODEL:  # the chunks of a stream
                contents[-1] = {**contents[-1], "parts": [*parts_of(contents[-1]), *parts_of(content)]}
            else:
                contents.append(content)
        elif all(isinstance(read_part(part)[0].get("functionResponse"), dict) for part in parts_of(content)):
            contents.append(content)
        else:
            contents.clear()
    return [item for items in turns_of(contents, OpenCalls()) for item in items]


def role_of(content: Any) -> str | None:
    """Who speaks in a content; None where it cannot be read."""
    role = content.get("role") if isinstance(content, dict) else 0
    return ROLES.get(role) if isinstance(role, str | None) else None


def parts_of(content: Any) -> list[Any]:
    """The parts of a content; a lone one may stand without its list, and null is none."""
    parts = content.get("parts") if isinstance(content, dict) else None
    parts = [parts] if isinstance(parts, dict) else parts
    return [part for part in parts if part is not None] if isinstance(parts, list) else []


def oddities(content: Any) -> JsonObject:
    """How a content is spelled, where not as usual."""
    if not isinstance(content, dict):
        return {}
    odd: JsonObject = {} if content.get("role") in (MODEL, "user") else {"role": content.get("role")}
    if isinstance(content.get("parts"), dict):
        odd["parts"] = "object"
    strange = {key: value for key, value in content.items() if key not in CONTENT_KEYS and value is not None}
    return odd | ({"native": strange} if strange else {})


def _user_items(parts: Sequence[Any], calls: OpenCalls) -> list[JsonObject]:
    items: list[JsonObject] = []
    for part in parts:
        known, names = read_part(part)
        if isinstance(known.get("functionResponse"), dict):
            items.append(response_item(known, names, calls))
        else:
            open_parts(items, "message", NAME, role="user").append(user_part(part, known, names))
    return items


def user_part(part: Any, known: JsonObject, names: set[str]) -> JsonObject:
    """A part of the user; what has no canonical form is a block."""
    if is_text(known):
        return text_in(known, names, "input_text")
    media = media_in(known, names)
    if media is None:
        return block(part, NAME)
    strange = {key: value for key, value in known.items() if key not in _MEDIA_KEYS and value is not None}
    return {**media, "native": {NAME: strange}} if strange else media


def response_item(part: JsonObject, names: set[str], calls: OpenCalls) -> JsonObject:
    """A response as the output of its call; one without a call stays alone."""
    response = part["functionResponse"]
    call = calls.take(response.get("name"), response.get("id"))
    alone = response.get("id") if isinstance(response.get("id"), str) else f"{MADE}{seed_of(response)}"
    call = call or _Waiting(alone, "", alone)
    output, spelling = _output(response)
    item: JsonObject = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": output,
        "origin": NAME,
        **noted(names, **spelling),
    }
    return with_native(item, part, own_calls.own_response(item, call.name, call.wire_id, Context()))


def _output(response: JsonObject) -> tuple[Any, JsonObject]:
    """The output of a response, and how it is spelled: text that is the result, or JSON of the whole response."""
    value, parts = response.get("response"), response.get("parts")
    result = value.get("result") if isinstance(value, dict) and value.keys() == {"result"} else None
    is_plain = isinstance(result, str) and (object_of(result) is None or bool(parts))
    text = result if is_plain else dumps(value or {}).decode()
    if not isinstance(parts, list) or not parts:
        return text, {}
    nested = [_nested(part) for part in parts]
    if not value:
        return nested, {}
    spelling = {} if is_plain else {"response": "json"}
    return [{"type": "input_text", "text": text}, *nested], spelling


def _nested(part: Any) -> JsonObject:
    known, names = read_part(part)
    return user_part(part, known, names) if "text" not in known else block(part, NAME)


def items_of(parts: Sequence[Any], ids: Ids) -> list[JsonObject]:
    """The items of a content of the model."""
    items: list[JsonObject] = []
    for part in parts:
        known, names = read_part(part)
        if own_calls.is_call(known):
            items.append(own_calls.call_item(known, names, ids))
        elif is_thought(known):
            open_parts(items, "reasoning", NAME).append(thought_in(known, names))
        elif is_text(known):
            open_parts(items, "message", NAME, role="assistant").append(text_in(known, names, "output_text"))
        elif items and items[-1]["type"] == "message":
            items[-1]["content"].append(block(part, NAME))
        else:
            items.append({**block(part, NAME), "origin": NAME})
    return items
