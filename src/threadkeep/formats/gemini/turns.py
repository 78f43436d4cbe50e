"""The contents of a request: the turns of user and model.

* Neighbours of one role are one content. Contents of the user that came apart from this API stay apart.
* Calls of one response never join those of another; their outputs follow directly behind them, all in one content, and
  under the same names and ids. Ids that threadkeep made for calls without one are not sent.
* The first content is the user's.
* A late output is sent as the user's text.

Source: Google's Gemini API reference, "Content"; "Function calling".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.gemini import calls
from threadkeep.formats.gemini.fields import MODEL, NAME, SYSTEM_ROLES, USER, Family
from threadkeep.formats.gemini.parts import PARTS, own_parts, thought_parts, wire_parts
from threadkeep.formats.gemini.spelling import overlaid
from threadkeep.formats.shared.pairing import LAYER, Pairing, placeholder_of
from threadkeep.formats.shared.parts import native_keys, own_block, report_foreign
from threadkeep.formats.shared.provider_rules import FILLER
from threadkeep.formats.shared.rendering import WRITERS, Rendering, TurnWriter

RESPONSE: Final = "functionResponse"


@dataclass(slots=True)
class Content:
    """A content that is being written."""

    role: str
    turn: int | None = None  # the turn of this API that it came in; None when others may join it
    parts: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # for each part the position of its item
    whole: Any = None  # a content that goes back as it came, instead of role and parts

    def takes(self, role: str, turn: int | None) -> bool:
        """Whether parts of that role and turn belong here."""
        if self.role != role or self.whole is not None or LAYER in (self.turn, turn):
            return False
        return None in (self.turn, turn) or self.turn == turn

    def put(self, parts: Sequence[Any], position: int, turn: int | None) -> None:
        """Add the parts of an item: at its place among items of the same turn, else at the end."""
        is_own = turn is not None and turn == self.turn
        index = bisect_right(self.places, position) if is_own else len(self.parts)
        self.turn = turn if self.turn is None else self.turn
        self.parts[index:index] = parts
        self.places[index:index] = [position] * len(parts)

    def has_in_place(self, position: int) -> bool:
        """Whether the output of that position is here, and nothing that was said before it stands behind it."""
        if position not in self.places:
            return False
        start = self.places.index(position)
        behind = zip(self.places[start:], self.parts[start:], strict=True)
        return all(other >= position or _is_response(part) for other, part in behind)

    def has_responses(self) -> bool:
        """Whether an output is here."""
        return any(map(_is_response, self.parts))


def _is_response(part: Any) -> bool:
    return isinstance(part, dict) and RESPONSE in part


class PendingCall(NamedTuple):
    """A call in the last content: its item, and what it is named there."""

    entry: Entry
    name: str
    call_id: str | None


class Writer(TurnWriter):
    """Writes contents item by item; the calls of the last content wait for their outputs."""

    def __init__(self, rendering: Rendering, pairing: Pairing, family: Family) -> None:
        super().__init__(rendering, pairing)
        self.contents: list[Content] = []
        self.system: list[Any] = []
        self._family = family
        self._calls: list[PendingCall] = []
        self._turn: int | None = None

    def write(self, entries: Sequence[Entry]) -> None:
        """Write all items."""
        for entry in entries:
            if self._calls and entry.seen is not None and entry.turn != self._turn:
                self.close()
            self._context.position = entry.position
            if entry.position in self._pairing.calls:
                self._output_in_time(entry)
            else:
                getattr(self, WRITERS.get(entry.type, "nothing"))(entry.item(), entry)
        self.close()
        self._context.position = None
        if self.contents and self.contents[0].role == MODEL and self.contents[0].places[0] >= self._imported:
            self.contents.insert(0, Content(USER, parts=[{"text": FILLER}], places=[-1]))
            self._context.repair("leading_assistant", "", "A user's turn was put first: the format begins with one.")
            self._unsettled = None if self._unsettled is None else self._unsettled + 1

    def stable(self) -> int:
        """How many contents no later append changes; those around a layer are joined once it is no longer there."""
        last, index = max(len(self.contents) - 1, 0), self._unsettled
        if index is None:
            return last
        if 0 < index < last and self.contents[index].turn == LAYER:
            role, layer = self.contents[index + 1].role, self.contents[index].places[0]
            if self.contents[index - 1].role == role:
                return index - 1
            if self._only_closes(index - 1, layer) and self.contents[index - 2].role == role:
                return index - 2
        return min(index, last)

    def _only_closes(self, index: int, layer: int) -> bool:
        """Whether a content holds nothing that came between the calls before it and a layer behind it."""
        places = self.contents[index].places
        calls = self.contents[index - 1].places if index and self.contents[index].role == USER else ()
        return bool(calls) and not any(max(calls) < place < layer for place in places)

    def _put(self, role: str, parts: Sequence[Any], entry: Entry) -> None:
        """Put parts into the last content, where its role allows, else into a new one."""
        if not parts:
            return
        if role == USER and self._calls:
            self.close()
        turn = entry.turn if (entry.origin == NAME and role == USER) or entry.turn == LAYER else None
        if not self.contents or not self.contents[-1].takes(role, turn):
            self.contents.append(Content(role, turn))
        if self._unsettled is None and entry.turn == LAYER:
            self._unsettled = len(self.contents) - 1
        self.contents[-1].put(parts, entry.position, turn)

    # Messages, thoughts and blocks

    def message(self, item: JsonObject, entry: Entry) -> None:
        """A message; system text is put aside."""
        role, context, content = str(item.get("role")), self._context, item.get("content") or ()
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        if entry.origin == NAME:
            parts = own_parts(content, context, "content")
        else:
            if role not in PARTS:
                context.repair("role", "role", f"The format has no role {role!r}; the message was sent as the user's.")
            parts = wire_parts(content, PARTS.get(role, PARTS["user"]), context, "content")
        if role in SYSTEM_ROLES:
            self.system += parts
        else:
            self._put(MODEL if role == "assistant" else USER, parts, entry)

    def reasoning(self, item: JsonObject, entry: Entry) -> None:
        """The thoughts of a turn of the model."""
        self._put(MODEL, thought_parts(item, self._context), entry)

    def block(self, item: JsonObject, entry: Entry) -> None:
        """A part of the model that only this format knows, or a whole content."""
        payload = own_block(item, NAME, self._context, "")
        if payload is None:
            return
        if native_keys(item, NAME).get("isContent") is True:
            self.close()
            self.contents.append(Content("", parts=[None], places=[entry.position], whole=payload))
        else:
            self._put(MODEL, [payload], entry)

    # Calls

    def call(self, item: JsonObject, entry: Entry) -> None:
        """A call; one that came from this format goes back as it came."""
        context, is_own = self._context, entry.origin == NAME
        name = str(context.called(item, is_own=is_own) or "")
        call_id = None if calls.is_nameless(item) else self._call_id(item, entry)
        if call_id is None and entry.position >= self._imported:
            output = self._pairing.answers.get(entry.position)  # the client may have given the call an id
            call_id = None if output is None or output.origin != NAME else calls.client_id(output.item())
        part = calls.call_part(item, name, call_id, context)
        if "native" in item:
            report_foreign(item, NAME, context, "native")
            part = overlaid(part, native_keys(item, NAME))
            part = part if call_id is None else overlaid(part, {"functionCall": {"id": call_id}})
        part = self._signed(part, entry)
        self._put(MODEL, [calls.respelled_item(part, item)], entry)
        if self._unsettled is None and entry.position in self._pending:
            self._unsettled = len(self.contents) - 1
        self._turn = entry.turn
        self._calls.append(PendingCall(entry, name, call_id))

    def _call_id(self, item: JsonObject, entry: Entry) -> str | None:
        """The id of a call; one that an earlier call of the same content has becomes a hash."""
        call_id = str(item.get("call_id") or "") or None
        if call_id is None or entry.origin == NAME or all(call.call_id != call_id for call in self._calls):
            return call_id
        self._context.repair("duplicate_call_id", "call_id", f"The call id {call_id!r} came twice and became a hash.")
        return f"call_{hashed(call_id, entry.position)}"

    def _signed(self, part: JsonObject, entry: Entry) -> JsonObject:
        """A call with a signature, if it is the first of its content and the model requires one."""
        if not self._family.needs_signature or entry.position < self._imported or "thoughtSignature" in part:
            return part
        last = self.contents[-1] if self.contents else None
        if last is not None and last.role == MODEL and self._calls:
            return part
        detail = "The call has no thought signature: it got Google's one for such calls."
        self._context.repair("thought_signature", "", detail)
        return {**part, "thoughtSignature": calls.NO_SIGNATURE}

    def close(self) -> None:
        """Put the outputs of the waiting calls behind them."""
        waiting, self._calls = self._calls, []
        answers, position = self._pairing.answers, self._context.position
        pairs = [(output, call) for call in waiting if (output := answers.get(call.entry.position)) is not None]
        if all(call.call_id for _, call in pairs) or all(output.origin == NAME for output, _ in pairs):
            pairs.sort(key=lambda pair: pair[0].position)
        for output, call in pairs:
            self._context.position = output.position
            self._put(USER, self._response(output, call.name, call.call_id), output)
        self._context.position = position
        for call in waiting:
            if call.entry.position in self._pairing.unanswered and call.entry.position not in answers:
                self._missing(call)

    def _response(self, output: Entry, name: str, call_id: str | None) -> list[JsonObject]:
        item, context = output.item(), self._context
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        if output.origin != NAME:
            return calls.response_parts(item, name, call_id, context, nests_media=self._family.nests_media)
        part = calls.own_response(item, name, call_id, context)
        keys = native_keys(item, NAME)
        if output.position >= self._imported and isinstance(keys.get(RESPONSE), dict):
            keys = {**keys, RESPONSE: {key: keys[RESPONSE][key] for key in keys[RESPONSE] if key not in ("id", "name")}}
        return [calls.respelled_item(overlaid(part, keys), item)]

    def _missing(self, call: PendingCall) -> None:
        text = placeholder_of(call.entry.item())
        self._context.missing_output(call.entry, text)
        part = calls.response_part(call.name, {"result": text}, call.call_id)
        self._put(USER, [part], call.entry._replace(origin=None))

    def output(self, item: JsonObject, entry: Entry) -> None:
        """An output without a call, or one that came after its placeholder was sent."""
        if entry.position in self._pairing.alone:
            self._put(USER, self._response(entry, "", entry.call_id), entry)
        elif (message := self._told(item, entry)) is not None:
            self.message(message, entry._replace(origin=None))
        else:
            self._context.orphan_output(entry)

    def _output_in_time(self, entry: Entry) -> None:
        """It is written behind its call when that content is closed, which an output does."""
        call = self._pairing.calls[entry.position]
        if call.type not in CALLS:
            self._context.loss("orphan_output", "", f"The call {entry.call_id!r} could not be sent.")
            return
        is_here = bool(self._calls) and call.position >= self._calls[0].entry.position
        self.close()
        if not is_here and not (self.contents and self.contents[-1].has_in_place(entry.position)):
            self._context.moved_output(entry)


# item types that make calls here
CALLS: Final = frozenset({"function_call", "custom_tool_call"})
