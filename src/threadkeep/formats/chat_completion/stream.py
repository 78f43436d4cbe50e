"""The stream of Chat Completions: chunks are put together into the body of a response.

* The top-level keys of chunks are keys of the body; the last value counts. Padding is left out.
* Choices are distinguished by their index. Some servers repeat the whole message next to the delta (Perplexity).
* The answer has ended when a choice has a finish reason; usage may come after that, or in every chunk.
* OpenAI's SDK has a `stream` of its own, whose events hold the chunks; the others hold nothing new.
* Groq's usage may lie under `x_groq`. An error is a chunk of its own, or stands next to the choices (OpenRouter).

Deltas:

* Texts grow piece by piece, but names and their kind are repeated: the last one counts.
* Elements of lists belong together by their index, or by standing next to each other with one type; what is only
  repeated is kept once.
* A call has its index or its id; servers that give neither send calls whole. An id that differs begins a new call,
  whatever its index.
* Content that comes as text and as parts is parts.

Source: OpenAI's API reference, "Chat Completions", the chunk object; recorded streams of other servers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, json_copy, value_at
from threadkeep.domain.response import Response
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.chat_completion.response import CHUNK, parse_response
from threadkeep.formats.shared import parts, usage
from threadkeep.formats.shared.streams import GrowingList, GrowingTexts, StreamAssembler, growing

_APART: Final = frozenset({"choices", "error", "object", "obfuscation", "p"})  # p: Mistral's padding
_OF_CHOICES: Final = frozenset({"index", "delta", "message"})
_TOLD_AGAIN: Final = (".delta", ".done")  # `content.delta`, `tool_calls.function.arguments.done` …
_COUNTING: Final = frozenset({"usage", "x_groq"})  # keys with cumulative counts
_LISTS: Final = frozenset({"logprobs", "token_ids"})  # keys of a choice whose lists grow chunk by chunk
# texts that always grow; of those that are not listed an equal one is a repetition
_GROWING: Final = frozenset(
    {"text", "content", "refusal", "arguments", "input", "transcript", "reasoning", "reasoning_content", "thinking",
     "summary"}
)  # fmt: skip
# texts that are repeated
_TOLD: Final = frozenset({"role", "channel", "id", "type", "name", "format", "signature", "status", "url", "phase"})
# types of parts of which neighbours are one
_ONE_PIECE: Final = frozenset({"text", "thinking", "reasoning", "reasoning.text", "reasoning.summary"})


def _parse(body: Any, headers: Mapping[str, str] | None) -> Response:
    """The response; a choice without a finish reason is not reported as one with an unknown word."""
    choices = body.get("choices")
    if not choices or choices[0]["finish_reason"] or choices[0].get("error"):
        return parse_response(body, headers)
    first = {**choices[0], "finish_reason": "stop"}
    response = parse_response({**body, "choices": [first, *choices[1:]]}, headers)
    return response.model_copy(update={"finish_reason": None})


class ChunkAssembler(StreamAssembler):
    """Puts chunks together; `feed` each of them, then take `response`."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(NAME, _parse, headers)
        self._top: JsonObject = {}
        self._choices: dict[int, JsonObject] = {}
        self._deltas: dict[int, MessageDeltas] = {}  # of each choice
        self._texts = GrowingTexts()
        self._has_chunks = False
        self._first = 0  # the lowest index of a choice

    @property
    def open_calls(self) -> Collection[object]:
        """The last call, where it has text instead of arguments: nothing tells whether more would come."""
        calls = self._calls_of_first()
        last = calls[-1] if calls else None
        return [last.get("id")] if isinstance(last, dict) and "custom" in last else ()

    @property
    def body(self) -> JsonObject:
        """The completion as far as it has come; not to be changed."""
        self._texts.settle_all()
        return self._body([_in_order(choice) for _, choice in sorted(self._choices.items())])

    @property
    def element_count(self) -> int:
        """How many calls have come, if they came in order; log probabilities belong to a message without them."""
        first = self._choices.get(self._first)
        is_ordered = first is not None and "logprobs" not in first and self._deltas[self._first].is_ordered
        return len(self._calls_of_first()) if is_ordered else 0

    def is_whole(self, element: int) -> bool:  # noqa: ARG002
        """Whether another call has begun; the pieces of one that follow all the same are noted."""
        return True

    def body_between(self, first: int, last: int | None) -> JsonObject:
        """The completion with these calls; the message is read with the first of them."""
        self._texts.settle_all()
        choices = [choice for _, choice in sorted(self._choices.items())]
        message = {} if first else choices[0]["message"]
        choices[0] = {**choices[0], "message": {**message, "tool_calls": self._calls_of_first()[first:last]}}
        return self._body(choices)

    def _body(self, choices: list[JsonObject]) -> JsonObject:
        body = dict(self._top)
        if "usage" not in body:  # Groq and Moonshot send usage unasked, each in a place of its own
            holders = (body.get("x_groq"), *self._choices.values())
            counts = (holder.get("usage") for holder in holders if isinstance(holder, dict))
            body |= next(({"usage": usage} for usage in counts if isinstance(usage, dict)), {})
        return {**body, "choices": choices} if self._has_chunks else body

    def _calls_of_first(self) -> list[Any]:
        """The calls of the choice that counts, as they came."""
        calls = self._choices[self._first]["message"].get("tool_calls") if self._choices else None
        return calls if isinstance(calls, list) else []

    def check(self, event: JsonObject) -> None:
        """Refuse choices of another API."""
        if event.get("object") not in (None, "", CHUNK):
            self.refuse_other(event)

    def output_in(self, event: JsonObject) -> bool:
        """Whether a choice says more than the role."""
        choices = event["chunk"].get("choices") if isinstance(event.get("chunk"), dict) else event.get("choices")
        choices = choices if isinstance(choices, list) else ()
        deltas = (choice.get("delta") or choice.get("message") for choice in choices if isinstance(choice, dict))
        return any(
            value and key != "role" for delta in deltas if isinstance(delta, dict) for key, value in delta.items()
        )

    def error_in(self, event: JsonObject) -> Any:
        """The error that a chunk states; some servers send it without an envelope."""
        is_error = event.get("object") == "error" or (event.get("type") == "error" and "message" in event)
        return event.get("error") or (event if is_error else None)

    def add(self, event: JsonObject) -> None:
        """Take in a chunk."""
        if event.get("type") == "chunk" and isinstance(event.get("chunk"), dict):
            event = event["chunk"]
        elif "choices" not in event and str(event.get("type")).endswith(_TOLD_AGAIN):
            return
        for key, value in event.items():
            if key not in _APART:
                _set(self._top, key, value)
        if (kind := event.get("object")) not in (None, ""):
            self._top["object"] = "chat.completion" if kind == CHUNK else json_copy(kind, "object")
        choices = event.get("choices")
        if isinstance(choices, list):
            self._has_chunks = True
            for index, choice in enumerate(choices):
                if isinstance(choice, dict):
                    self._add_choice(choice, index)

    def _add_choice(self, choice: JsonObject, usual: int) -> None:
        stated = choice.get("index")
        index = stated if type(stated) is int else usual
        if index not in self._choices:
            self._choices[index] = {"index": index, "message": {}, "finish_reason": None}
            self._deltas[index] = MessageDeltas(self._choices[index]["message"], self._texts)
            self._first = min(self._choices) if len(self._choices) == 1 else min(self._first, index)
            self.note_change(0)
        known, deltas = self._choices[index], self._deltas[index]
        for key, value in choice.items():
            if key in _LISTS:
                _grow(known, key, value)
            elif key not in _OF_CHOICES:
                _set(known, key, value)
        if isinstance(choice.get("delta"), dict):
            deltas.add(choice["delta"])
        if isinstance(choice.get("message"), dict):
            deltas.add_message(choice["message"])
        if index == self._first:
            self.note_change(deltas.take_changed())
        self.is_ended = self.is_ended or bool(known["finish_reason"])


assembler: Final = ChunkAssembler


def _in_order(choice: JsonObject) -> JsonObject:
    """A choice with its calls in the order of their indexes, whichever began first."""
    calls = choice["message"].get("tool_calls")
    if not isinstance(calls, list) or not all(isinstance(one, dict) and type(one.get("index")) is int for one in calls):
        return choice
    return {**choice, "message": {**choice["message"], "tool_calls": sorted(calls, key=itemgetter("index"))}}


def _set(holder: JsonObject, key: str, value: Any) -> None:
    """The last value counts; null and empty texts are ignored, objects keep their keys, and counts never fall.

    Azure's chunks about filters have an empty id and model, and were created at 0.
    """
    known = holder.get(key)
    if key in _COUNTING:
        holder[key] = usage.cumulative(known, value)
    elif isinstance(known, dict) and isinstance(value, dict):
        holder[key] = {**known, **json_copy(value, key)}
    elif value is not None and not (known and (value == "" or (key == "created" and value == 0))):
        holder[key] = value if isinstance(value, str | int) else json_copy(value, key)


def _grow(holder: JsonObject, key: str, value: Any) -> None:
    known = holder.get(key)
    if isinstance(known, list) and isinstance(value, list):
        known.extend(json_copy(value, key))
    elif isinstance(known, dict) and isinstance(value, dict):
        for name, inner in value.items():
            _grow(known, name, inner)
    elif value is not None:
        holder[key] = json_copy(value, key)


# Deltas


class MessageDeltas:
    """Puts the deltas of a message together."""

    def __init__(self, message: JsonObject, texts: GrowingTexts) -> None:
        self._message, self._texts = message, texts
        self.is_ordered = True  # whether each call has come after all calls of lower index
        self._changed: int | None = None  # the first call that has changed; 0 where other keys have, which precede it

    def take_changed(self) -> int:
        """The index of the first call that has changed since the last look."""
        changed, self._changed = self._changed, None
        calls = self._message.get("tool_calls")
        return changed if changed is not None else len(calls) if isinstance(calls, list) else 0

    def _note_changed(self, place: int) -> None:
        self._changed = place if self._changed is None else min(self._changed, place)

    def add(self, delta: JsonObject) -> None:
        """Take in a delta."""
        for key, value in delta.items():
            if key == "tool_calls" and isinstance(value, list):
                self._add_calls(value)
                continue
            if value and not (key == "role" and self._message.get(key) == value):
                self._note_changed(0)
            if key == "content":
                self._add_content(value)
            elif key == "audio" and isinstance(value, dict) and isinstance(self._message.get(key), dict):
                self._add_audio(self._message[key], value)
            else:
                self._add(self._message, key, value)

    def add_message(self, other: JsonObject) -> None:
        """Take in the whole message so far, which some chunks hold, where that is more than the deltas."""
        for key, value in other.items():
            known = self._texts.settle(self._message, key)
            is_less = isinstance(value, str) and isinstance(known, str) and len(value) < len(known)
            if value and not is_less:
                self._note_changed(0)
                self._message[key] = json_copy(value, key)
                self.is_ordered = self.is_ordered and key != "tool_calls"

    def _add(self, holder: JsonObject, key: str, value: Any) -> None:
        known = holder.get(key)
        if value is None:
            return
        if isinstance(known, str) and isinstance(value, str):
            self._add_text(holder, key, known, value)
        elif isinstance(known, list) and isinstance(value, list):
            self._add_elements(growing(holder, key), value)
        elif isinstance(known, dict) and isinstance(value, dict):
            self._add_object(known, value)
        else:
            self._texts.forget(holder, key)
            holder[key] = json_copy(value, key)

    def _add_object(self, known: JsonObject, added: JsonObject) -> None:
        for key, value in added.items():
            self._add(known, key, value)

    def _add_text(self, holder: JsonObject, key: str, known: str, value: str) -> None:
        texts = self._texts
        if key in _TOLD:
            holder[key] = value or known
        elif key in _GROWING or len(value) != texts.length(holder, key) or value != texts.settle(holder, key):
            texts.grow(holder, key, value)

    def _add_elements(self, known: GrowingList, added: list[Any]) -> None:
        for element in added:
            if not isinstance(element, dict):
                known.append(json_copy(element, "list"))
            elif (partner := _partner(known, element)) is not None:
                self._add_object(known[partner], element)
                known.note(partner)
            elif not known.holds(new := json_copy(element, "list"), self._texts):
                known.append(new)

    def _add_content(self, value: Any) -> None:
        message = self._message
        known = message.get("content")
        if isinstance(known, list) and isinstance(value, str):
            value = [{"type": "text", "text": value}] if value else []
        elif isinstance(known, str) and isinstance(value, list):
            known = self._texts.settle(message, "content")
            message["content"] = [{"type": "text", "text": known}] if known else []
        if isinstance(value, list):
            message.setdefault("content", [])
            value = [{"type": "text", "text": part} if isinstance(part, str) else part for part in value]
        self._add(message, "content", value)

    def _add_audio(self, known: JsonObject, value: JsonObject) -> None:
        """Sound comes in pieces of base64, each padded on its own."""
        for key, inner in value.items():
            if key == "data" and isinstance(inner, str) and isinstance(known.get(key), str):
                self._texts.grow(known, key, inner, parts.joined_base64)
            else:
                self._add(known, key, inner)

    def _add_calls(self, pieces: list[Any]) -> None:
        calls = growing(self._message, "tool_calls")
        for piece in pieces:
            place = _call_of(calls, piece) if isinstance(piece, dict) else None
            if place is None:
                calls.append(json_copy(piece, "tool_calls"))
                self.is_ordered = self.is_ordered and (len(calls) == 1 or _follows(calls[-2], calls[-1]))
            else:
                self._add_object(calls[place], piece)
                calls.note(place)
                self._note_changed(place)


def _follows(before: Any, call: Any) -> bool:
    """Whether a call comes after the one before it by index, too, where calls have one."""
    first, second = (one.get("index") if isinstance(one, dict) else None for one in (before, call))
    if isinstance(first, int) and isinstance(second, int):
        return first <= second
    return first is None and second is None


def _partner(known: GrowingList, element: JsonObject) -> int | None:
    """Where the element is that this one goes on with."""
    index, kind = element.get("index"), element.get("type")
    if type(index) is int:
        place = known.find("index", index)
    else:
        is_one_piece = isinstance(kind, str) and kind in _ONE_PIECE
        place = len(known) - 1 if known and is_one_piece and isinstance(known[-1], dict) else None
    if place is None:
        return None
    before = known[place]
    is_encrypted = before.get("data") and element.get("data")  # that comes whole
    return None if before.get("type") != kind or _have_other_ids(before, element) or is_encrypted else place


def _have_other_ids(known: JsonObject, new: JsonObject) -> bool:
    return bool(known.get("id")) and bool(new.get("id")) and known["id"] != new["id"]


def _call_of(calls: GrowingList, piece: JsonObject) -> int | None:
    """Where the call is that a piece belongs to; None when it begins one."""
    index, call_id = piece.get("index"), piece.get("id")
    if type(index) is int:
        place = calls.find("index", index)
    elif call_id:
        place = calls.find("id", call_id)
    else:
        place = next((place for place in range(len(calls) - 1, -1, -1) if isinstance(calls[place], dict)), None)
        if place is not None and value_at(piece, "function.name") and value_at(calls[place], "function.name"):
            return None
    return None if place is None or _have_other_ids(calls[place], piece) else place
