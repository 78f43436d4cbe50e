"""Requests and turns of providers on their way into conversations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from threadkeep.domain.items import FunctionCall, FunctionCallOutput, Item, item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.session import Session
from threadkeep.domain.wire import Call, Entry, get_format
from threadkeep.formats.turns import CALLS, OUTPUTS, paired
from threadkeep.store.actions.inputs import Incoming
from threadkeep.store.actions.syncing import News
from threadkeep.store.drafts import drafted
from threadkeep.store.matching import Match, Said, aligned, matched, said_in, without_leading_system
from threadkeep.store.requests import author_of, turn_positions
from threadkeep.store.wire_values import wire_text


def request_session(
    payload: Any, format: str, model: str | None, stream: bool | None, options: Mapping[str, Any]
) -> Session:
    """The session of a provider's request, with options set anew.

    Raises:
        UnknownFormat, CannotParse, InvalidOption: it is none, or an option cannot be used.
    """
    session = get_format(format).parse_request(wire_text(payload), model=model, stream=stream)
    if options:
        session.update(**options)
    return session


def incoming(turns: Sequence[Sequence[Item]]) -> Incoming:
    """The items of wire turns on their way into rows.

    Raises:
        InvalidItem: one of them cannot be stored.
    """
    items = [item for turn in turns for item in turn]
    numbers = [number for number, turn in enumerate(turns) for _ in turn]
    drafts = [drafted(item.to_object(), author_id=author_of(item)) for item in items]
    return Incoming(items, drafts, turn_positions(numbers))


def input_reader(turns: Any, format: str) -> Callable[[Sequence[Entry]], Incoming]:
    """Reads turns of a provider, given the history that they continue: its open calls are those they may answer."""
    wire, given = get_format(format), wire_text(turns)
    wire.parse_turns(given)  # what is no turn is refused before anything is begun

    def read(entries: Sequence[Entry]) -> Incoming:
        calls = open_calls(entries)
        return incoming(with_known_calls(wire.parse_turns(given, calls), entries, calls))

    return read


def open_calls(entries: Sequence[Entry]) -> list[Call]:
    """The calls of a history that have no output yet, in order."""
    found = paired(entries)
    late = {call.position for call in found.late.values()}
    waiting = [call for call in found.unanswered.values() if call.position not in late and call.call_id is not None]
    return [Call(str(call.call_id), str(call.item().get("name") or "")) for call in waiting]


def with_known_calls(
    turns: Sequence[Sequence[Item]], entries: Sequence[Entry], calls: Sequence[Call]
) -> Sequence[Sequence[Item]]:
    """Turns whose outputs name calls of the history: clients rename calls whose ids a host had used before.

    Outputs that nobody called for are those of the open calls, in order, if there are as many of both.
    """
    items = [item for turn in turns for item in turn]
    known = {entry.call_id for entry in entries} | {item.call_id for item in items if isinstance(item, FunctionCall)}
    strange = [item for item in items if isinstance(item, FunctionCallOutput) and item.call_id not in known]
    answered = {item.call_id for item in items if isinstance(item, FunctionCallOutput)}
    waiting = [call.call_id for call in calls if call.call_id not in answered]
    if not strange or len(strange) != len(waiting):
        return turns
    named = {id(item): call_id for item, call_id in zip(strange, waiting, strict=True)}
    return [
        [
            item_from_object({**item.to_object(), "call_id": named[id(item)]}) if id(item) in named else item
            for item in turn
        ]
        for turn in turns
    ]


class HeldHistory:
    """A history that a client holds, to be compared with stored ones."""

    def __init__(self, session: Session) -> None:
        self._items, self._turns = session.items, session.turns
        self._objects = [item.to_object() for item in session.items]

    def __call__(self, entries: Sequence[Entry], cut: Collection[int], *, is_aligned: bool = True) -> News:
        """What is new in it; see `actions.syncing.Compare`."""
        stored = [entry.item() for entry in entries]
        places = {place for place, entry in enumerate(entries) if entry.position in cut}
        held = without_leading_system(said_in(self._resolved(stored)))
        match = (aligned if is_aligned else from_beginning)(said_in(stored, places), held)
        rest = self._without_echoes(match.rest, held)
        if not match.is_all and all(one.is_optional for one in rest):  # it is only behind
            rest = []
        new = {one.item for one in match.rest}
        ids = {place: stored[call].get("call_id") for place, call in match.calls.items()}
        return News(match.kept, len({one.item for one in held} - new), match.is_all, self._incoming(rest, ids))

    def _without_echoes(self, rest: Sequence[Said], held: Sequence[Said]) -> list[Said]:
        """The rest without marks and opaque blocks of turns that are stored: they are other spellings of these."""
        new = {(one.item, one.part) for one in rest}
        stored = {self._turns[one.item] for one in held if not one.is_optional and (one.item, one.part) not in new}
        return [one for one in rest if not one.is_optional or self._turns[one.item] not in stored]

    def _resolved(self, stored: Sequence[JsonObject]) -> list[JsonObject]:
        """Its items, with those that it only names by their ids."""
        named = {item["id"]: item for item in stored if isinstance(item.get("id"), str)}
        return [
            named.get(str(item.get("id")), item) if item["type"] == "item_reference" else item for item in self._objects
        ]

    def _incoming(self, rest: Sequence[Said], ids: Mapping[int, Any]) -> Incoming:
        """The items that say the rest; of those that say more, the parts that do. `ids` are those of stored calls."""
        parts: dict[int, list[int]] = {}
        for one in rest:
            parts.setdefault(one.item, []).append(one.part)
        items = [self._cut(place, kept, ids) for place, kept in parts.items()]
        drafts = [drafted(item.to_object(), author_id=author_of(item)) for item in items]
        return Incoming(items, drafts, turn_positions([self._turns[place] for place in parts]))

    def _cut(self, place: int, parts: Sequence[int], ids: Mapping[int, Any]) -> Item:
        """An item as it is to be stored: from one of its parts on, an output with the id of the stored call."""
        found = self._objects[place]
        if found["type"] in OUTPUTS:
            call = next((one for one in range(place - 1, -1, -1) if self._calls(one) == found.get("call_id")), -1)
            stored = ids.get(call, found.get("call_id"))
            return (
                self._items[place] if stored == found.get("call_id") else item_from_object({**found, "call_id": stored})
            )
        if not parts[0] or not isinstance(found.get("content"), list):
            return self._items[place]
        return item_from_object({**found, "content": found["content"][parts[0] :]})

    def _calls(self, place: int) -> Any:
        """The id of a call; of anything else nothing that an output could name."""
        found = self._objects[place]
        return found.get("call_id") if found["type"] in CALLS else self


def from_beginning(stored: Sequence[Said], held: Sequence[Said]) -> Match:
    """How far two histories say the same that begin at the same place."""
    return matched(stored, held, 0)
