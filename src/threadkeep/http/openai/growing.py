"""The events of a response's stream while it grows, whichever format it comes in.

Events that only bring more of the text that is being written are passed on at once; after others, the items from that
one on are compared with what was sent of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.blocks import is_media_text
from threadkeep.http.openai.events import (
    ENDS,
    Text,
    begun_item,
    has_arguments,
    item_done,
    text_at,
    text_begun,
    text_delta,
    text_done,
    texts_of,
)

EVENT_PAYS: Final = 16  # parts, calls and items that are read again for an event, as many as come
PART_LENGTH: Final = 4096  # characters of a text that are read again for as much as a part


class TextPiece(NamedTuple):
    """More of a text: where in the provider's answer, and what."""

    place: Any
    text: str


def _open_responses(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"type": str(kind), "delta": str(text)} if kind.endswith(".delta"):
            index = event.get("output_index")
            item = event.get("item_id") if index is None else index
            return TextPiece((kind, item, event.get("content_index"), event.get("summary_index")), text)
    return None


def _chat_completion(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"choices": [{"delta": dict(delta), **choice}]} if not choice.get("index") and "message" not in choice:
            pass
        case _:
            return None
    values = {key: value for key, value in delta.items() if key != "role" and value not in (None, "", [])}
    match values:
        case {"tool_calls": [{"function": {"arguments": str(text), **function}, **call}]} if len(values) == 1:
            is_more = not function.get("name") and call.keys() <= {"index", "id", "type"}
            return TextPiece(("call", call.get("index"), call.get("id")), text) if is_more else None
    match [*values.items()]:
        case [(key, str(text))]:
            return TextPiece(key, text)
    return None


def _messages(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"type": "content_block_delta", "index": index, "delta": {"type": str(kind), **values}}:
            match [*values.items()]:
                case [(str(key), str(text))] if key in _MESSAGES_PIECES:
                    return TextPiece((kind, index, key), text)
    return None


def _gemini(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"candidates": [{"content": {"parts": [{"text": str(text), **rest}]}, **candidate}]}:
            is_more = rest.keys() <= {"thought"} and not candidate.get("index")
            return TextPiece(bool(rest.get("thought")), text) if is_more else None
    return None


def _converse(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"text": str(text)}}}:
            return TextPiece(("text", index), text)
        case {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"reasoningContent": {"text": str(text)}}}}:
            return TextPiece(("reasoning", index), text)
        case {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"toolUse": {"input": str(text)}}}}:
            return TextPiece(("input", index), text)
    return None


_MESSAGES_PIECES: Final = frozenset({"text", "thinking", "partial_json"})  # keys of deltas whose texts grow
# format -> the piece of text that is all an event brings; None for an event that brings anything else
PIECES: Final[Mapping[str, Callable[[Mapping[str, Any]], TextPiece | None]]] = {
    "open_responses": _open_responses,
    "chat_completion": _chat_completion,
    "messages": _messages,
    "gemini": _gemini,
    "converse": _converse,
}


# formats whose arguments of calls grow as they are stored; others send them piece by piece in another spelling
_GROWING_ARGUMENTS: Final = frozenset({"open_responses", "chat_completion"})


@dataclass(slots=True)
class _Open:
    """What was sent of the item that is being written."""

    index: int
    item: JsonObject
    sent: dict[Text, int] = field(default_factory=dict)  # characters of each text, the open one last
    counts: dict[str, int] = field(default_factory=dict)  # list of parts -> how many were sent
    length: int = 0  # characters that were sent of all texts
    unsent: int = 0  # characters of an input that is sent when it is whole

    @property
    def last(self) -> Text | None:
        """The text that was begun last."""
        return next(reversed(self.sent), None)

    @property
    def cost(self) -> int:
        """What it costs to read the item again."""
        return len(self.sent) + (self.length + self.unsent) // PART_LENGTH

    def note(self, text: Text, length: int) -> None:
        """Note that so many characters of a text were sent."""
        self.sent[text] = self.sent.get(text, 0) + length
        self.counts[text.holder] = max(self.counts.get(text.holder, 0), text.place + 1)
        self.length += length


class GrowingEvents:
    """Makes the events of a stream from what is known of the response.

    What an event costs does not depend on how long the answer is: reading what may have changed is paid by the events
    that have come since it was read last. So an item of very many parts is shown less often.
    """

    def __init__(self, format: str, beginning: JsonObject) -> None:
        self._piece_in = PIECES[format]
        self._has_growing_arguments = format in _GROWING_ARGUMENTS
        self._beginning = beginning
        self._number = 0
        self._credit = 0  # what may be read again
        self._open: _Open | None = None
        self._place: Any = None  # of the text that grows by all that the last event brought

    @property
    def has_begun(self) -> bool:
        """Whether any event was made."""
        return self._number > 0

    def begin(self) -> Iterator[JsonObject]:
        """Yield the events before any output, unless that was done."""
        if not self.has_begun:
            is_queued = self._beginning["status"] == "queued"
            running = {**self._beginning, "status": "in_progress"}
            for kind in ("response.created", "response.queued") if is_queued else ("response.created",):
                yield self._numbered({"type": kind, "response": self._beginning})
            yield self._numbered({"type": "response.in_progress", "response": running})

    def take(
        self, event: Any, output: Callable[[int], Sequence[JsonObject]], unsettled: int = 0
    ) -> Iterator[JsonObject]:
        """Yield the events for the provider's next one, after which `output` returns the items from an index on.

        `unsettled`: how many parts, calls or items of the provider's are read for that.
        """
        yield from self.begin()
        self._credit += EVENT_PAYS
        piece = self._piece_in(event) if isinstance(event, dict) else None
        if piece is not None and self._place == piece.place and self._open is not None:
            yield from self._grow_open(self._open, piece.text)
        elif self._credit < max(unsettled, 0 if self._open is None else self._open.cost):
            self._place = None
        else:
            self._credit = 0
            before = self._sent_of_last()
            yield from self._grow(output(0 if self._open is None else self._open.index))
            self._place = None if piece is None or not self._is_grown(before, len(piece.text)) else piece.place

    def _grow_open(self, growing: _Open, more: str) -> Iterator[JsonObject]:
        """The event for more of the open text; none for the input of a call that is sent when it is whole."""
        if growing.last is not None and self._is_sent(growing.last):
            growing.note(growing.last, len(more))
            yield self._about(growing, text_delta(growing.last, more))

    def _is_sent(self, text: Text) -> bool:
        """Whether a text is sent while it grows."""
        return self._has_growing_arguments or not has_arguments(text)

    def _sent_of_last(self) -> tuple[int, Text | None, int]:
        """The open item, its last text, and how much of that was sent."""
        if self._open is None or self._open.last is None:
            return -1, None, 0
        return self._open.index, self._open.last, self._open.sent[self._open.last]

    def _is_grown(self, before: tuple[int, Text | None, int], length: int) -> bool:
        """Whether all that has come since is so much of the open text, or belongs to an input that is sent later."""
        index, text, sent = self._sent_of_last()
        if text is None or self._open is None:
            return False
        return not self._is_sent(text) or (
            length > 0 and sent - (before[2] if (index, text) == before[:2] else 0) == length
        )

    def _grow(self, output: Sequence[JsonObject]) -> Iterator[JsonObject]:
        """The events after which clients know these items, from the open one on; the last one is being written."""
        for index, item in enumerate(output, 0 if self._open is None else self._open.index):
            if self._open is None or self._open.index < index:
                yield from self._close()
                self._open = _Open(index, item)
                yield self._numbered(
                    {"type": "response.output_item.added", "output_index": index, "item": begun_item(item)}
                )
            self._open.item = item
            yield from self._grow_texts(self._open)

    def _grow_texts(self, growing: _Open) -> Iterator[JsonObject]:
        for text, value in texts_of(growing.item, growing.counts):
            if text not in growing.sent:
                if growing.sent:
                    yield from self._close_text(growing)
                growing.note(text, 0)
                for event in text_begun(text, growing.item):
                    yield self._about(growing, event)
            if self._is_sent(text) and not is_media_text(value):
                yield from self._grow_text(growing, text, value)
            else:
                growing.unsent = len(value)

    def _grow_text(self, growing: _Open, text: Text, value: str) -> Iterator[JsonObject]:
        if len(value) > growing.sent[text]:
            more = value[growing.sent[text] :]
            growing.note(text, len(more))
            yield self._about(growing, text_delta(text, more))

    def _close_text(self, growing: _Open) -> Iterator[JsonObject]:
        last = growing.last
        value = None if last is None else text_at(growing.item, last)
        if last is not None and value is not None:
            yield from self._grow_text(growing, last, value)
            for event in text_done(last, value, growing.item):
                yield self._about(growing, event)

    def _close(self) -> Iterator[JsonObject]:
        if self._open is not None:
            if self._open.sent:
                yield from self._close_text(self._open)
            yield self._numbered(item_done(self._open.index, self._open.item))
            self._open = None

    def end(self, response: JsonObject) -> Iterator[JsonObject]:
        """Yield the events up to the last one, for the response as it was stored."""
        yield from self.begin()
        last = -1 if self._open is None else self._open.index
        output = response["output"]
        if last >= len(output):  # stored otherwise than it came
            self._open = None
        yield from self._grow(output if self._open is None else output[self._open.index :])
        yield from self._close()
        kind = ENDS.get(response["status"], "response.completed")
        yield self._numbered({"type": kind, "response": response})

    def _about(self, growing: _Open, event: JsonObject) -> JsonObject:
        return self._numbered({**event, "output_index": growing.index, "item_id": growing.item.get("id", "")})

    def _numbered(self, event: JsonObject) -> JsonObject:
        event["sequence_number"] = self._number
        self._number += 1
        return event


def events_of(response: JsonObject) -> Iterator[JsonObject]:
    """Yield the events that a stream of a stored response has, each text as one; no end for one in progress."""
    status = "queued" if response.get("background") else "in_progress"
    beginning = {**response, "status": status, "output": [], "usage": None, "completed_at": None}
    growing = GrowingEvents("open_responses", beginning)
    yield from growing.begin()
    if response["status"] not in ("in_progress", "queued"):
        yield from growing.end(response)
