"""The stream of Converse.

* Blocks are put together by their index; a text may come without a start.
* The input of a call is JSON text in pieces, media are bytes in pieces; text with citations is one block of both.
* Exceptions are events, too. The usage comes after the end of the message, and last.

Source: Amazon Bedrock's API reference, "ConverseStream"; recorded streams.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, bytes_as_text, value_at
from threadkeep.domain.response import Response
from threadkeep.formats.converse import fields, parts
from threadkeep.formats.converse.response import EVENTS, parse_response, response_of
from threadkeep.formats.shared.parts import joined_base64
from threadkeep.formats.shared.streams import BlockAssembler, GrowingTexts, input_of
from threadkeep.formats.shared.usage import cumulative

PADDING: Final = "p"
_FROM_END: Final = ("stopReason", "additionalModelResponseFields")


def read_body(body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """The response of a body whose ending may not have come yet."""
    if "stopReason" in body or not body["output"]["message"]["content"]:
        return parse_response(body, headers)
    return response_of(body, body["output"]["message"], headers, "completed")


class ConverseAssembler(BlockAssembler):
    """Puts the events of a Converse stream together."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(fields.NAME, read_body, headers)
        self._role: Any = "assistant"
        self._keys: JsonObject = {}

    @property
    def open_calls(self) -> Collection[object]:
        """The ids of calls whose block has not stopped."""
        return [value_at(self._blocks[index], "toolUse.toolUseId") for index in self._open]

    @property
    def body(self) -> JsonObject:
        """The body that the service would have sent without streaming, as far as it has come."""
        return self.body_between(0, None)

    def is_last(self, event: JsonObject) -> bool:
        """Whether the usage has come, which follows the end of the message."""
        return "metadata" in event and self.is_ended

    def is_apart(self, element: int) -> bool:
        """Whether a block is the call of a function."""
        block = self._blocks[self._order[element]]
        return block.keys() == {"toolUse"} and parts.is_call(block["toolUse"])

    def body_between(self, first: int, last: int | None) -> JsonObject:
        """The body with these blocks."""
        self._texts.settle_all()
        content = [_whole(block) for index in self._order[first:last] if (block := self._blocks[index])]
        return {"output": {"message": {"role": self._role, "content": content}}, **self._keys}

    def output_in(self, event: JsonObject) -> bool:
        """Whether a block grows; those that begin with an event of their own are calls and results."""
        return "contentBlockDelta" in event or "contentBlockStart" in event

    def error_in(self, event: JsonObject) -> Any:
        """The exception that an event states."""
        for name, payload in event.items():
            if name.endswith("Exception"):
                return {"type": name, **(payload if isinstance(payload, dict) else {"message": payload})}
        return super().error_in(event)

    def add(self, event: JsonObject) -> None:
        """Take an event into the body."""
        for name, payload in event.items():
            if name not in EVENTS or not isinstance(payload, dict):
                continue
            read = bytes_as_text(payload)
            match name:
                case "messageStart":
                    self._role = read.get("role", self._role)
                case "contentBlockStart":
                    self._start(read)
                case "contentBlockDelta":
                    self._grow(read)
                case "contentBlockStop":
                    if isinstance(index := read.get("contentBlockIndex"), int):
                        self._open.pop(index, None)
                case "messageStop":
                    self.is_ended = True
                    self._keys.update({key: read[key] for key in _FROM_END if read.get(key) is not None})
                case "metadata":
                    self._end(read)

    def _end(self, payload: JsonObject) -> None:
        usage = cumulative(self._keys.get("usage"), payload.get("usage"))
        self._keys.update({key: value for key, value in payload.items() if key != PADDING})
        if usage is not None:
            self._keys["usage"] = usage

    def _start(self, payload: JsonObject) -> None:
        start, block = payload.get("start"), self._block(payload)
        for key, value in start.items() if isinstance(start, dict) else ():
            self._texts.settle_all()  # what was begun before is begun anew
            block[key] = dict(value) if isinstance(value, dict) else value

    def _grow(self, payload: JsonObject) -> None:
        delta, block = payload.get("delta"), self._block(payload)
        for key, piece in delta.items() if isinstance(delta, dict) else ():
            grow = GROWTH.get(key)
            if grow is not None:
                grow(self._texts, block, piece)
            elif isinstance(piece, dict):
                _grow_object(self._texts, _inner(block, key), piece)

    def _block(self, payload: JsonObject) -> JsonObject:
        stated = payload.get("contentBlockIndex")
        index = stated if isinstance(stated, int) else len(self._blocks)
        place = bisect_left(self._order, index)
        if index not in self._blocks:
            self._blocks[index] = {}
            self._order.insert(place, index)
            self._open[index] = None
        self.note_change(place)
        return self._blocks[index]


assembler: Final = ConverseAssembler


def _inner(block: JsonObject, key: str) -> JsonObject:
    """The object under a key, made where there is none."""
    inner = block.get(key)
    if not isinstance(inner, dict):
        inner = block[key] = {}
    return inner


def _grow_object(texts: GrowingTexts, holder: JsonObject, piece: JsonObject) -> None:
    """Put a piece of media behind what has come of it: bytes are increments, all else comes at once."""
    for key, value in piece.items():
        if isinstance(value, dict):
            _grow_object(texts, _inner(holder, key), value)
        elif key == "bytes" and isinstance(value, str):
            holder.setdefault(key, "")
            texts.grow(holder, key, value, joined_base64)
        else:
            holder[key] = value


def _append(texts: GrowingTexts, holder: JsonObject, key: str, piece: Any) -> None:
    """Put a piece of text behind the text under a key."""
    if isinstance(piece, str):
        if not isinstance(holder.get(key), str):
            holder[key] = ""
        texts.grow(holder, key, piece)


def _grow_call(texts: GrowingTexts, block: JsonObject, piece: Any) -> None:
    if isinstance(piece, dict):
        _append(texts, _inner(block, "toolUse"), "input", piece.get("input"))


def _grow_result(texts: GrowingTexts, block: JsonObject, pieces: Any) -> None:
    result = _inner(block, "toolResult")
    if not isinstance(result.get("content"), list):
        result["content"] = []
    content = result["content"]
    for piece in pieces if isinstance(pieces, list) else [pieces]:
        match content, piece:
            case [*_, {"text": str()} as last], {"text": str(text)} if last.keys() == {"text"}:
                texts.grow(last, "text", text)
            case _, {"text": str(text)}:
                content.append({**piece, "text": text})
            case _:
                content.append(piece)


def _grow_reasoning(texts: GrowingTexts, block: JsonObject, piece: Any) -> None:
    if not isinstance(piece, dict):
        return
    content = _inner(block, "reasoningContent")
    if isinstance(piece.get("redactedContent"), str):
        if not isinstance(content.get("redactedContent"), str):
            content["redactedContent"] = ""
        texts.grow(content, "redactedContent", piece["redactedContent"], joined_base64)
    for key in ("text", "signature"):
        if isinstance(piece.get(key), str):
            _append(texts, _inner(content, "reasoningText"), key, piece[key])


def _grow_citations(_texts: GrowingTexts, block: JsonObject, piece: Any) -> None:
    if not isinstance(block.get("citations"), list):
        block["citations"] = []
    block["citations"].append(piece)


def _whole(block: JsonObject) -> JsonObject:
    """A block as it stands in a body."""
    if "citations" in block:
        others = {key: value for key, value in block.items() if key not in ("text", "citations")}
        cited = {"content": [{"text": block.get("text", "")}], "citations": list(block["citations"])}
        return {**others, "citationsContent": cited}
    if isinstance(block.get("toolUse"), dict):
        return {**block, "toolUse": {**block["toolUse"], "input": _input(block["toolUse"].get("input"))}}
    return dict(block)


def _input(text: Any) -> Any:
    """The input of a call; one that was broken off stays text."""
    if not isinstance(text, str):
        return {} if text is None else text
    return input_of(text) if text.strip() else {}


# key of a delta -> how a block grows by it
GROWTH: Final[dict[str, Callable[[GrowingTexts, JsonObject, Any], None]]] = {
    "text": lambda texts, block, piece: _append(texts, block, "text", piece),
    "toolUse": _grow_call,
    "toolResult": _grow_result,
    "reasoningContent": _grow_reasoning,
    "citation": _grow_citations,
}
