"""The contents of a request, written and read: the turns of user and model.

* Neighbours of one role are one content. Contents of the user that came apart from this API stay apart.
* Calls of one response never join calls of another; their outputs follow directly behind them, all in one content, and
  under the same names and ids. Ids that threadkeep made for calls without one are not sent.
* The first content is the user's.
* A late output is sent as the user's text.

Reading:

* A content is a turn. Texts and media of the user are one message; what has no canonical form is a block in it.
* A response goes to the call of its id, else to the first open call of its name, in the newest turn that has one.
* Of the model's, neighbouring thoughts are one reasoning item, neighbouring texts one message. What is neither thought,
  text nor call is a block: a part of the open message, else an item of its own.
* A content of another form goes back whole, as it came.

Source: Google's Gemini API reference, "Content"; "Function calling".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

from threadkeep.domain import formats, tool_names
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.gemini import calls as own_calls
from threadkeep.formats.gemini import parts as wire
from threadkeep.formats.gemini.calls import MADE, Ids, is_nameless, seed_of
from threadkeep.formats.gemini.fields import MODEL, NAME, ROLES, SYSTEM_ROLES, USER, GeminiFamily
from threadkeep.formats.gemini.spelling import noted, overlaid, read_part
from threadkeep.formats.shared import arguments, provider_rules, reports
from threadkeep.formats.shared.pairing import LAYER, Pairing, placeholder_of
from threadkeep.formats.shared.parsing import open_parts
from threadkeep.formats.shared.parts import block, native_keys, own_block, report_foreign
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


class GeminiCall(NamedTuple):
    """A call in the last content: its item, and what it is named there."""

    entry: ItemEntry
    name: str
    call_id: str | None


class GeminiWriter(TurnWriter):
    """Writes contents item by item; the calls of the last content wait for their outputs."""

    def __init__(self, rendering: Rendering, pairing: Pairing, family: GeminiFamily) -> None:
        super().__init__(rendering, pairing)
        self.contents: list[Content] = []
        self.system: list[Any] = []
        self._family = family
        self._calls: list[GeminiCall] = []
        self._turn: int | None = None

    def write(self, entries: Sequence[ItemEntry]) -> None:
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
            self.contents.insert(0, Content(USER, parts=[{"text": provider_rules.FILLER}], places=[-1]))
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

    def _put(self, role: str, parts: Sequence[Any], entry: ItemEntry) -> None:
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

    def message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message; system text is put aside."""
        role, context, content = str(item.get("role")), self._context, item.get("content") or ()
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        if entry.origin == NAME:
            parts = wire.own_parts(content, context, "content")
        else:
            if role not in wire.PARTS:
                context.repair("role", "role", f"The format has no role {role!r}; the message was sent as the user's.")
            parts = wire.wire_parts(content, wire.PARTS.get(role, wire.PARTS["user"]), context, "content")
        if role in SYSTEM_ROLES:
            self.system += parts
        else:
            self._put(MODEL if role == "assistant" else USER, parts, entry)

    def reasoning(self, item: JsonObject, entry: ItemEntry) -> None:
        """The thoughts of a turn of the model."""
        self._put(MODEL, wire.thought_parts(item, self._context), entry)

    def block(self, item: JsonObject, entry: ItemEntry) -> None:
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

    def call(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call; one that came from this format goes back as it came."""
        context, is_own = self._context, entry.origin == NAME
        name = str(context.called(item, is_own=is_own) or "")
        call_id = None if own_calls.is_nameless(item) else self._call_id(item, entry)
        if call_id is None and entry.position >= self._imported:
            output = self._pairing.answers.get(entry.position)  # the client may have given the call an id
            call_id = None if output is None or output.origin != NAME else own_calls.client_id(output.item())
        part = own_calls.call_part(item, name, call_id, context)
        if "native" in item:
            report_foreign(item, NAME, context, "native")
            part = overlaid(part, native_keys(item, NAME))
            part = part if call_id is None else overlaid(part, {"functionCall": {"id": call_id}})
        part = self._signed(part, entry)
        self._put(MODEL, [own_calls.respelled_item(part, item)], entry)
        if self._unsettled is None and entry.position in self._pending:
            self._unsettled = len(self.contents) - 1
        self._turn = entry.turn
        self._calls.append(GeminiCall(entry, name, call_id))

    def _call_id(self, item: JsonObject, entry: ItemEntry) -> str | None:
        """The id of a call; one that an earlier call of the same content has becomes a hash."""
        call_id = str(item.get("call_id") or "") or None
        if call_id is None or entry.origin == NAME or all(call.call_id != call_id for call in self._calls):
            return call_id
        self._context.repair("duplicate_call_id", "call_id", f"The call id {call_id!r} came twice and became a hash.")
        return f"call_{tool_names.hashed(call_id, entry.position)}"

    def _signed(self, part: JsonObject, entry: ItemEntry) -> JsonObject:
        """A call with a signature, if it is the first of its content and the model requires one."""
        if not self._family.needs_signature or entry.position < self._imported or "thoughtSignature" in part:
            return part
        last = self.contents[-1] if self.contents else None
        if last is not None and last.role == MODEL and self._calls:
            return part
        detail = "The call has no thought signature: it got Google's one for such calls."
        self._context.repair("thought_signature", "", detail)
        return {**part, "thoughtSignature": own_calls.NO_SIGNATURE}

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

    def _response(self, output: ItemEntry, name: str, call_id: str | None) -> list[JsonObject]:
        item, context = output.item(), self._context
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        if output.origin != NAME:
            return own_calls.response_parts(item, name, call_id, context, nests_media=self._family.nests_media)
        part = own_calls.own_response(item, name, call_id, context)
        keys = native_keys(item, NAME)
        if output.position >= self._imported and isinstance(keys.get(RESPONSE), dict):
            keys = {**keys, RESPONSE: {key: keys[RESPONSE][key] for key in keys[RESPONSE] if key not in ("id", "name")}}
        return [own_calls.respelled_item(overlaid(part, keys), item)]

    def _missing(self, call: GeminiCall) -> None:
        text = placeholder_of(call.entry.item())
        self._context.missing_output(call.entry, text)
        part = own_calls.response_part(call.name, {"result": text}, call.call_id)
        self._put(USER, [part], call.entry._replace(origin=None))

    def output(self, item: JsonObject, entry: ItemEntry) -> None:
        """An output without a call, or one that came after its placeholder was sent."""
        if entry.position in self._pairing.alone:
            self._put(USER, self._response(entry, "", entry.call_id), entry)
        elif (message := self._told(item, entry)) is not None:
            self.message(message, entry._replace(origin=None))
        else:
            self._context.orphan_output(entry)

    def _output_in_time(self, entry: ItemEntry) -> None:
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

    def __init__(self, calls: Sequence[formats.OpenCall] = ()) -> None:
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
    """The items of each content.

    Contents of the model that follow one another are one answer: chats of google-genai keep each chunk of a stream.
    """
    turns: list[list[JsonObject]] = []
    answer: list[JsonObject] = []
    seed, ids = "", None
    for content in contents:
        seed = seed_of([seed, content])
        role, parts = role_of(content), parts_of(content)
        if role != MODEL:
            calls.add(answer)
            answer, ids = [], None
        if role is None or not parts:
            turns.append([{**block(content, NAME), "origin": NAME, "native": {NAME: {"isContent": True}}}])
        elif role == MODEL:
            ids = ids or Ids(seed)
            turns.append(items_of(parts, ids))
            answer += turns[-1]
        else:
            items: list[JsonObject] = []
            for part in parts:
                known, names = read_part(part)
                if isinstance(known.get("functionResponse"), dict):
                    items.append(response_item(known, names, calls))
                else:
                    open_parts(items, "message", NAME, role="user").append(user_part(part, known, names))
            turns.append(items)
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


def user_part(part: Any, known: JsonObject, names: set[str]) -> JsonObject:
    """A part of the user; what has no canonical form is a block."""
    if wire.is_text(known):
        return wire.text_in(known, names, "input_text")
    media = wire.media_in(known, names)
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
    return wire.with_native(item, part, own_calls.own_response(item, call.name, call.wire_id, reports.Context()))


def _output(response: JsonObject) -> tuple[Any, JsonObject]:
    """The output of a response, and how it is spelled: text that is the result, or JSON of the whole response."""
    value, parts = response.get("response"), response.get("parts")
    result = value.get("result") if isinstance(value, dict) and value.keys() == {"result"} else None
    is_plain = isinstance(result, str) and (arguments.object_of(result) is None or bool(parts))
    text = result if is_plain else dumps(value or {}).decode()
    if not isinstance(parts, list) or not parts:
        return text, {}
    nested = [
        user_part(part, known, names) if "text" not in known else block(part, NAME)
        for part, (known, names) in zip(parts, map(read_part, parts), strict=True)
    ]
    if not value:
        return nested, {}
    spelling = {} if is_plain else {"response": "json"}
    return [{"type": "input_text", "text": text}, *nested], spelling


def items_of(parts: Sequence[Any], ids: Ids) -> list[JsonObject]:
    """The items of a content of the model."""
    items: list[JsonObject] = []
    for part in parts:
        known, names = read_part(part)
        if own_calls.is_call(known):
            items.append(own_calls.call_item(known, names, ids))
        elif wire.is_thought(known):
            open_parts(items, "reasoning", NAME).append(wire.thought_in(known, names))
        elif wire.is_text(known):
            open_parts(items, "message", NAME, role="assistant").append(wire.text_in(known, names, "output_text"))
        elif items and items[-1]["type"] == "message":
            items[-1]["content"].append(block(part, NAME))
        else:
            items.append({**block(part, NAME), "origin": NAME})
    return items
