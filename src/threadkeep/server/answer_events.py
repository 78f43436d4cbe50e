"""The events of a response's stream while it grows, whichever format it comes in.

Events that only bring more of the text that is being written are passed on at once; after others, the items from that
one on are compared with what was sent of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical import blocks, items

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


def _interactions(event: Mapping[str, Any]) -> TextPiece | None:
    match event:
        case {"event_type": "step.delta", "index": index, "delta": {"type": str(kind), **delta}}:
            match kind, [*delta.items()]:
                case ("text", [("text", str(text))]) | ("arguments_delta", [("arguments", str(text))]):
                    return TextPiece((kind, index), text)
                case "thought_summary", [("content", {"type": "text", "text": str(text), **rest})] if not rest:
                    return TextPiece((kind, index), text)
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
    "interactions": _interactions,
    "converse": _converse,
}


# formats whose arguments of calls grow as they are stored; others send them piece by piece in another spelling
_GROWING_ARGUMENTS: Final = frozenset({"open_responses", "chat_completion"})


@dataclass(slots=True)
class _Open:
    """What was sent of the item that is being written."""

    index: int
    item: JsonObject
    sent: dict[GrowingText, int] = field(default_factory=dict)  # characters of each text, the open one last
    counts: dict[str, int] = field(default_factory=dict)  # list of parts -> how many were sent
    length: int = 0  # characters that were sent of all texts
    unsent: int = 0  # characters of an input that is sent when it is whole

    @property
    def last(self) -> GrowingText | None:
        """The text that was begun last."""
        return next(reversed(self.sent), None)

    @property
    def cost(self) -> int:
        """What it costs to read the item again."""
        return len(self.sent) + (self.length + self.unsent) // PART_LENGTH

    def note(self, text: GrowingText, length: int) -> None:
        """Note that so many characters of a text were sent."""
        self.sent[text] = self.sent.get(text, 0) + length
        self.counts[text.holder] = max(self.counts.get(text.holder, 0), text.place + 1)
        self.length += length


class GrowingEvents:
    """Makes the events of a stream from what is known of the response.

    What an event costs does not depend on how long the answer is: reading what may have changed is paid by the events
    that have come since it was read last. So an item of very many parts is shown less often.
    """

    def __init__(
        self, format: str, beginning: JsonObject, *, shows_output: bool = True, is_renamed: bool = False
    ) -> None:
        """Unless it `shows_output`, there are no events between those before any output and the last one.

        If it `is_renamed`, arguments of calls are not those that the provider sends, and are sent when they are whole.
        """
        self._shows_output = shows_output
        self._piece_in = PIECES[format]
        self._has_growing_arguments = format in _GROWING_ARGUMENTS and not is_renamed
        self._beginning = beginning
        self._number = 0
        self._credit = 0  # what may be read again
        self._open: _Open | None = None
        self._place: Any = None  # of the text that grows by all that the last event brought

    @property
    def has_begun(self) -> bool:
        """Whether any event was made."""
        return self._number > 0

    @property
    def is_silent(self) -> bool:
        """Whether no event is made any more before the last one."""
        return self.has_begun and not self._shows_output

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
        if not self._shows_output:
            return
        self._credit += EVENT_PAYS
        piece = self._piece_in(event) if isinstance(event, dict) else None
        if piece is not None and self._place == piece.place and self._open is not None:
            yield from self._grow_open(self._open, piece.text)
        elif self._credit < max(unsettled, 0 if self._open is None else self._open.cost):
            self._place = None
        else:
            self._credit = 0
            before = self._sent_of_last()
            yield from self.show(output)
            self._place = None if piece is None or not self._is_grown(before, len(piece.text)) else piece.place

    def _grow_open(self, growing: _Open, more: str) -> Iterator[JsonObject]:
        """The event for more of the open text; none for the input of a call that is sent when it is whole."""
        if growing.last is not None and self._is_sent(growing.last):
            growing.note(growing.last, len(more))
            yield self._about(growing, text_delta(growing.last, more))

    def _is_sent(self, text: GrowingText) -> bool:
        """Whether a text is sent while it grows."""
        return self._has_growing_arguments or text.kind not in _ARGUMENTS

    def _sent_of_last(self) -> tuple[int, GrowingText | None, int]:
        """The open item, its last text, and how much of that was sent."""
        if self._open is None or self._open.last is None:
            return -1, None, 0
        return self._open.index, self._open.last, self._open.sent[self._open.last]

    def _is_grown(self, before: tuple[int, GrowingText | None, int], length: int) -> bool:
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
            if self._is_sent(text) and not value.startswith(blocks.MEDIA_TEXTS):
                yield from self._grow_text(growing, text, value)
            else:
                growing.unsent = len(value)

    def _grow_text(self, growing: _Open, text: GrowingText, value: str) -> Iterator[JsonObject]:
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

    def show(self, output: Callable[[int], Sequence[JsonObject]]) -> Iterator[JsonObject]:
        """Yield the events after which clients know all items; `output` returns those from an index on."""
        yield from self._grow(output(0 if self._open is None else self._open.index))

    def end(self, response: JsonObject) -> Iterator[JsonObject]:
        """Yield the events up to the last one, for the response as it was stored."""
        yield from self.begin()
        last = -1 if self._open is None else self._open.index
        output = response["output"] if self._shows_output else []
        if last >= len(output):  # stored otherwise than it came
            self._open = None
        yield from self.show(lambda first: output[first:])
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
    growing = growing_events(response)
    yield from growing.begin()
    if response["status"] not in ("in_progress", "queued"):
        yield from growing.end(response)


def growing_events(response: JsonObject) -> GrowingEvents:
    """Return what makes the events of a response that was read."""
    status = "queued" if response.get("background") else "in_progress"
    beginning = {**response, "status": status, "output": [], "usage": None, "completed_at": None}
    return GrowingEvents("open_responses", beginning)


# The single events: items, their parts, and the texts that grow in them

# type of a part -> the key of its text, and what events about it are named after
_PARTS: Final = {
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
    "reasoning_text": ("text", "response.reasoning_text"),
    "summary_text": ("text", "response.reasoning_summary_text"),
}
# type of an item -> the key whose text grows, and what events about it are named after
_ARGUMENTS: Final = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
    "mcp_call": ("arguments", "response.mcp_call_arguments"),
}
_LISTS: Final = {"summary": "summary_index", "content": "content_index"}  # in the order in which they are sent
_ENDED: Final = frozenset({"completed", "incomplete"})  # statuses of items of which more may follow
_EMPTY: Final = "part"  # the kind of a part without text
# status of a response -> the type of its last event; of one that is completed: response.completed
ENDS: Final = {"failed": "response.failed", "incomplete": "response.incomplete", "cancelled": "response.incomplete"}


class GrowingText(NamedTuple):
    """A text of an item that grows.

    Attributes:
        kind: the type of the part it is in, or of the item.
        holder: the list that has the part, or the item's key.
        place: the index of the part in its list.
    """

    kind: str
    holder: str
    place: int = 0


def texts_of(item: Mapping[str, Any], counts: Mapping[str, int] | None = None) -> Iterator[tuple[GrowingText, str]]:
    """Yield the texts of an item that grow, in the order in which they are sent; "" for a part without text.

    `counts`: how many parts of each list are known, of which only the last one is looked at again.
    """
    kind = item.get("type")
    if kind in _ARGUMENTS:
        key = _ARGUMENTS[kind][0]
        yield GrowingText(kind, key), item[key]
    elif kind in ("message", "reasoning"):
        for holder in _LISTS:
            parts = item.get(holder) or ()
            for index in range(max((counts or {}).get(holder, 0) - 1, 0), len(parts)):
                yield _text_in(holder, index, parts[index])


def text_at(item: Mapping[str, Any], text: GrowingText) -> str | None:
    """Return what a text of an item says; None if there is no such text."""
    if text.kind in _ARGUMENTS:
        value = item.get(text.holder)
        return value if isinstance(value, str) else None
    parts = item.get(text.holder) or ()
    known, value = _text_in(text.holder, text.place, parts[text.place]) if text.place < len(parts) else (None, "")
    return value if known == text else None


def _text_in(holder: str, index: int, part: Mapping[str, Any]) -> tuple[GrowingText, str]:
    known = _PARTS.get(part.get("type", ""))
    if known is None:
        return GrowingText(_EMPTY, holder, index), ""
    return GrowingText(part["type"], holder, index), part[known[0]]


def begun_item(item: JsonObject) -> JsonObject:
    """Return an item as it is announced: without what its texts bring."""
    begun = dict(item)
    kind = item.get("type")
    if kind in ("message", "reasoning"):
        begun |= {holder: [] for holder in _LISTS if isinstance(item.get(holder), list)}
    elif kind in _ARGUMENTS:
        begun[_ARGUMENTS[kind][0]] = ""
    if kind == "custom_tool_call":  # whose type has none in an answer
        begun.pop("status", None)
    elif begun.get("status") in _ENDED and "in_progress" in items.STATUSES.get(str(kind), items.ITEM_STATUSES):
        begun["status"] = "in_progress"
    return begun


def item_done(index: int, item: JsonObject) -> JsonObject:
    """Return the event for an item that is whole."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def text_begun(text: GrowingText, item: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Yield the event that announces the part of a text."""
    if text.kind in _ARGUMENTS:
        return
    part = dict(item[text.holder][text.place])
    if text.kind != _EMPTY:
        part[_PARTS[text.kind][0]] = ""
        part |= {key: [] for key in ("annotations", "logprobs") if key in part}
    yield {"type": f"response.{_part_name(text)}.added", **_index(text), "part": part}


def text_delta(text: GrowingText, delta: str) -> JsonObject:
    """Return the event for more of a text."""
    logprobs: JsonObject = {"logprobs": []} if text.kind == "output_text" else {}
    return {"type": f"{_name(text)}.delta", **_index(text), "delta": delta, **logprobs}


def text_done(text: GrowingText, value: str, item: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Yield the events for a text that is whole, and its part."""
    if text.kind in _ARGUMENTS:
        yield {"type": f"{_name(text)}.done", text.holder: value}
        return
    part = item[text.holder][text.place]
    if text.kind == "output_text":
        for index, annotation in enumerate(part.get("annotations") or ()):
            added = {"annotation_index": index, "annotation": annotation}
            yield {"type": f"{_name(text)}.annotation.added", **_index(text), **added}
    if text.kind != _EMPTY:
        logprobs = {"logprobs": _logprobs(part.get("logprobs"))} if text.kind == "output_text" else {}
        yield {"type": f"{_name(text)}.done", **_index(text), _PARTS[text.kind][0]: value, **logprobs}
    yield {"type": f"response.{_part_name(text)}.done", **_index(text), "part": part}


def _logprobs(given: Any) -> list[JsonObject]:
    """The log probabilities of a text as events have them: without the bytes of tokens."""
    tops = ("token", "logprob")
    return [
        {
            **{key: one[key] for key in tops},
            "top_logprobs": [{key: top[key] for key in tops} for top in one["top_logprobs"]],
        }
        for one in given or ()
    ]


def _name(text: GrowingText) -> str:
    return _ARGUMENTS[text.kind][1] if text.kind in _ARGUMENTS else _PARTS[text.kind][1]


def _part_name(text: GrowingText) -> str:
    return "reasoning_summary_part" if text.holder == "summary" else "content_part"


def _index(text: GrowingText) -> JsonObject:
    return {_LISTS[text.holder]: text.place} if text.holder in _LISTS else {}
