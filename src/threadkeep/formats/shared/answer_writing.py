"""Streams for user interfaces, of an answer that is being given.

An answer comes as the events of the Responses API, as the server has them of any upstream. What an event leaves out is
in the item at its end, and is written then. Where the server runs the tools that an answer calls, the next answer goes
on in the same stream: events of its own say what they gave, and where that one begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared.reports import Context

CALLS: Final = ("function_call", "custom_tool_call")
# types of the events between two answers: an output of a call, a call that asks for a decision, and the next answer
OUTPUT, DECISION, ROUND = "threadkeep.output", "threadkeep.decision", "threadkeep.round"
# type of an event -> the list of its item that it is about, its index there, and the kind of text
_TEXTS: Final[dict[str, tuple[str, str, Literal["text", "reasoning"]]]] = {
    "response.output_text": ("content", "content_index", "text"),
    "response.refusal": ("content", "content_index", "text"),
    "response.reasoning_text": ("content", "content_index", "reasoning"),
    "response.reasoning_summary_text": ("summary", "summary_index", "reasoning"),
}
_ENDS: Final = {
    "response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed",
}  # fmt: skip


def free_id(position: int, taken: Container[Any]) -> str:
    """The id of a message that begins at a position: one that no other message of its conversation has."""
    while (made := f"msg_{position}") in taken:
        position += 1
    return made


class AnswerText(NamedTuple):
    """A text of an answer.

    Attributes:
        kind: whose text it is: a message's, or reasoning.
        position: of its item.
        holder: the list of the item that it is in.
        place: its index there.
    """

    kind: Literal["text", "reasoning"]
    position: int
    holder: str
    place: int

    @property
    def id(self) -> str:
        """The text among those of a conversation."""
        return f"{self.position}:{self.holder[0]}{self.place}"


@dataclass(slots=True)
class AnswerEnd:
    """How an answer ended.

    Attributes:
        status: that of its response.
        reason: why it is incomplete, if it is.
        error: what went wrong with one that failed.
        response: the response, as far as it is known.
    """

    status: str
    reason: str | None
    error: str
    response: JsonObject

    @property
    def has_failed(self) -> bool:
        """Whether it failed, or broke off for no reason of the model's."""
        return self.status == "failed" or (self.status == "incomplete" and self.reason is None)


@dataclass(slots=True)
class _OpenItem:
    """What was written of an item."""

    sent: dict[AnswerText, int] = field(default_factory=dict)  # characters
    call_id: str | None = None  # of a call whose input is coming


@dataclass(slots=True)
class AnswerWriter(ABC):
    """Makes chunks of the events of an answer.

    Attributes:
        place: the position of the first item of the answer.
    """

    place: int
    _context: Context = field(init=False, default_factory=lambda: Context(takes_signatures=True))
    has_calls: bool = field(init=False, default=False)
    _open: dict[int, _OpenItem] = field(init=False, default_factory=dict)

    def take(self, event: JsonObject) -> Iterator[JsonObject]:
        """The chunks of an event."""
        kind, index = event["type"], event.get("output_index", 0)
        name, _, ending = kind.rpartition(".")
        if ending == "delta":
            yield from self._delta(index, name, event)
        elif name == "response.output_item":
            yield from (self._begin_call if ending == "added" else self._end_item)(index, event["item"])
        elif is_end(event):
            yield from self.ended(_end_in(event))
        else:
            yield from self._between(kind, event)

    def _between(self, kind: str, event: JsonObject) -> Iterator[JsonObject]:
        """What comes between two answers."""
        if kind == OUTPUT:
            yield from self.output_given(event["item"], event["position"])
        elif kind == DECISION:
            yield from self.decision_asked(event["item"])
        elif kind == ROUND:
            yield from self.next_answer(_end_in(event), is_moved=event["is_moved"])
            self.place, self.has_calls = event["place"], False
            self._open.clear()

    def _delta(self, index: int, name: str, event: JsonObject) -> Iterator[JsonObject]:
        """More of a text, or of the input of a call."""
        if name in _TEXTS:
            holder, place, part = _TEXTS[name]
            text = AnswerText(part, self.place + index, holder, event.get(place, 0))
            yield from self._grow(index, text, event["delta"])
            return
        call_id = self._open.get(index, _OpenItem()).call_id
        if call_id is not None and event.get("delta"):
            yield from self.call_grown(call_id, event["delta"])

    def _grow(self, index: int, text: AnswerText, delta: str) -> Iterator[JsonObject]:
        item = self._open.setdefault(index, _OpenItem())
        if text not in item.sent:
            item.sent[text] = 0
            yield from self.text_begun(text)
        if delta:
            item.sent[text] += len(delta)
            yield from self.text_grown(text, delta)

    def _begin_call(self, index: int, item: JsonObject) -> Iterator[JsonObject]:
        if item["type"] in CALLS:
            self.has_calls = True
            self._open.setdefault(index, _OpenItem()).call_id = item["call_id"]
            yield from self.call_begun(self._called(item), self.place + index)

    def _end_item(self, index: int, item: JsonObject) -> Iterator[JsonObject]:
        """The rest of an item, and its end."""
        if item["type"] in CALLS:
            self.has_calls = True
            yield from self.call_ended(self._called(item), self.place + index)
            return
        kinds: dict[Any, Literal["text", "reasoning"]] = {"message": "text", "reasoning": "reasoning"}
        kind = kinds.get(item["type"])
        if kind is None:
            yield from self.other_ended(item, self.place + index)
            return
        for holder in ("summary", "content"):
            for place, part in enumerate(item.get(holder) or ()):
                value = part.get("text", part.get("refusal")) or ""
                if value or (kind == "text" and not part.keys().isdisjoint(("text", "refusal"))):
                    text = AnswerText(kind, self.place + index, holder, place)
                    sent = self._open.get(index, _OpenItem()).sent.get(text, 0)
                    yield from self._grow(index, text, value[sent:])
                    yield from self.text_ended(text, item)
        if kind == "text":
            yield from self.message_ended(item, self.place + index)

    def _called(self, item: JsonObject) -> JsonObject:
        """A call under the name that its message has."""
        return {**item, "name": self._context.called(item)}

    @abstractmethod
    def text_begun(self, text: AnswerText) -> Iterator[JsonObject]:
        """The chunks that begin a text."""

    @abstractmethod
    def text_grown(self, text: AnswerText, delta: str) -> Iterator[JsonObject]:
        """The chunks for more of a text."""

    @abstractmethod
    def text_ended(self, text: AnswerText, item: JsonObject) -> Iterator[JsonObject]:
        """The chunks that end a text, or say that it was cut off."""

    def message_ended(self, _item: JsonObject, _position: int) -> Iterator[JsonObject]:
        """The chunks that end a message, behind those of its texts."""
        yield from ()

    def other_ended(self, _item: JsonObject, _position: int) -> Iterator[JsonObject]:
        """The chunks of an item that has neither texts nor a call of the client's."""
        yield from ()

    @abstractmethod
    def call_begun(self, item: JsonObject, position: int) -> Iterator[JsonObject]:
        """The chunks that begin a call."""

    @abstractmethod
    def call_grown(self, call_id: str, delta: str) -> Iterator[JsonObject]:
        """The chunks for more of the input of a call."""

    @abstractmethod
    def call_ended(self, item: JsonObject, position: int) -> Iterator[JsonObject]:
        """The chunks of a call that has come whole, or was cut off."""

    @abstractmethod
    def output_given(self, item: JsonObject, position: int) -> Iterator[JsonObject]:
        """The chunks of an output of a call that the server has run."""

    def decision_asked(self, _item: JsonObject) -> Iterator[JsonObject]:
        """The chunks of a call that runs in the server once it is approved."""
        yield from ()

    @abstractmethod
    def next_answer(self, end: AnswerEnd, *, is_moved: bool) -> Iterator[JsonObject]:
        """The chunks between an answer and the next one; `is_moved`: it is stored at other positions than it had."""

    @abstractmethod
    def ended(self, end: AnswerEnd) -> Iterator[JsonObject]:
        """The last chunks."""


def has_failed(output: JsonObject) -> bool:
    """Whether an output of a call says what went wrong."""
    return output.get("status") in ("failed", "incomplete")


def is_end(event: JsonObject) -> bool:
    """Whether an event is the last one of an answer."""
    return event["type"] in _ENDS or event["type"] == "error"


def _end_in(event: JsonObject) -> AnswerEnd:
    response = event.get("response") or {}
    details, error = response.get("incomplete_details"), response.get("error") or event
    return AnswerEnd(
        status=response.get("status") or _ENDS.get(event["type"], "failed"),
        reason=details.get("reason") if isinstance(details, dict) else None,
        error=str(error.get("message") or "The answer broke off."),
        response=response,
    )
