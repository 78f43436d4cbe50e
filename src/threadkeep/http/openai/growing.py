"""The events of a response's stream while it grows, whichever format it comes in.

Events that only bring more of the text that is being written are passed on at once; after all others, the response as
far as it has come is compared with what was sent of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.http.openai.events import ENDS, Text, begun_item, item_done, text_begun, text_delta, text_done, texts_of


class TextPiece(NamedTuple):
    """More of a text: where in the provider's answer, and what."""

    place: Any
    text: str


def _open_responses(event: Mapping[str, Any]) -> TextPiece | None:
    if event.get("type") != "response.output_text.delta" or event.get("logprobs"):
        return None
    return TextPiece((event.get("output_index"), event.get("content_index")), event.get("delta", ""))


def _chat_completion(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"choices": [{"delta": {"content": str(text), **rest}, "finish_reason": None} as choice]}:
            others = [value for key, value in rest.items() if key != "role" and value is not None]
            return None if others or choice.get("logprobs") or event.get("usage") else TextPiece(0, text)
    return None


def _messages(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": str(text)}}:
            return TextPiece(index, text)
    return None


def _gemini(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"candidates": [{"content": {"parts": [{"text": str(text), **rest}]}, **candidate}]}:
            return None if rest or candidate.keys() - {"index"} else TextPiece(0, text)
    return None


def _converse(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"text": str(text)}}}:
            return TextPiece(index, text)
    return None


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


class GrowingEvents:
    """Makes the events of a stream from what is known of the response."""

    def __init__(self, format: str, beginning: JsonObject) -> None:
        self._piece_in = PIECES[format]
        self._has_growing_arguments = format in _GROWING_ARGUMENTS
        self._beginning = beginning
        self._number = 0
        self._open: _Open | None = None
        self._place: Any = None  # of the text that the last event brought

    @property
    def has_begun(self) -> bool:
        """Whether any event was made."""
        return self._number > 0

    def begin(self) -> Iterator[JsonObject]:
        """Yield the events before any output, unless that was done."""
        if not self.has_begun:
            for kind in ("response.created", "response.in_progress"):
                yield self._numbered({"type": kind, "response": self._beginning})

    def take(self, event: Any, output: Callable[[], Sequence[JsonObject]]) -> Iterator[JsonObject]:
        """Yield the events for the provider's next one, after which `output` returns the items so far."""
        yield from self.begin()
        piece = self._piece(event)
        if piece is not None:
            yield piece
        else:
            yield from self._grow(output())

    def _piece(self, event: Any) -> JsonObject | None:
        """The event for one that only brings more of the open text; None if it may bring anything else."""
        found = self._piece_in(event) if isinstance(event, dict) else None
        place, self._place = self._place, None if found is None else found.place
        is_open = self._open is not None and bool(self._open.sent)
        if found is None or not is_open or place != found.place or self._open is None:
            return None
        text = next(reversed(self._open.sent))
        if text.kind != "output_text":
            return None
        self._open.sent[text] += len(found.text)
        return self._about(self._open, text_delta(text, found.text))

    def _grow(self, output: Sequence[JsonObject]) -> Iterator[JsonObject]:
        """The events after which clients know this output, whose last item is being written."""
        for index, item in enumerate(output):
            if self._open is not None and self._open.index > index:
                continue  # sent already
            if self._open is None or self._open.index < index:
                yield from self._close()
                self._open = _Open(index, item)
                yield self._numbered(
                    {"type": "response.output_item.added", "output_index": index, "item": begun_item(item)}
                )
            self._open.item = item
            yield from self._grow_texts(self._open)

    def _grow_texts(self, growing: _Open) -> Iterator[JsonObject]:
        for text, value in texts_of(growing.item):
            if text not in growing.sent:
                if growing.sent:
                    yield from self._close_text(growing)
                growing.sent[text] = 0
                for event in text_begun(text, growing.item):
                    yield self._about(growing, event)
            if text.holder in ("content", "summary") or self._has_growing_arguments:
                yield from self._grow_text(growing, text, value)

    def _grow_text(self, growing: _Open, text: Text, value: str) -> Iterator[JsonObject]:
        if len(value) > growing.sent[text]:
            yield self._about(growing, text_delta(text, value[growing.sent[text] :]))
            growing.sent[text] = len(value)

    def _close_text(self, growing: _Open) -> Iterator[JsonObject]:
        last = next(reversed(growing.sent))
        for text, value in texts_of(growing.item):
            if text == last:
                yield from self._grow_text(growing, text, value)
                for event in text_done(text, value, growing.item):
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
        yield from self._grow(output)
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
    beginning = {**response, "status": "in_progress", "output": [], "usage": None}
    growing = GrowingEvents("open_responses", beginning)
    yield from growing.begin()
    if response["status"] not in ("in_progress", "queued"):
        yield from growing.end(response)
