"""The stream of the Messages API: events become the body that would have come whole.

* A block begins with what is known of it and grows by deltas; the input of a call comes as pieces of JSON text.
* `message_delta` says how the message ended; its usage is cumulative. The output that `message_start` counts is a
  placeholder.
* Thinking that a stream broke off in has no signature, and is marked: it cannot be sent back.

Source: Anthropic's API reference, "Streaming Messages".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import Any, Final

from threadkeep.domain.items import Reasoning
from threadkeep.domain.jsontext import JsonObject, json_copy, value_at
from threadkeep.domain.response import Response
from threadkeep.formats.messages import fields, parts
from threadkeep.formats.messages.response import parse_response
from threadkeep.formats.shared import streams, usage

# keys of message_delta that are not the message's
_APART: Final = frozenset({"type", "delta", "usage"})
# keys of deltas that come at once and not piece by piece
_WHOLE: Final = frozenset({"signature", "content", "encrypted_content"})


def _parse(body: Any, headers: Mapping[str, str] | None) -> Response:
    """The response; one without a stop reason is not reported as one with an unknown word."""
    if body.get("stop_reason") is not None or "content" not in body:
        return parse_response(body, headers)
    response = parse_response({**body, "stop_reason": "end_turn"}, headers)
    output = list(response.output)
    if output and isinstance(output[-1], Reasoning):
        output[-1] = output[-1].model_copy(update={"status": "incomplete"})
    return response.model_copy(update={"finish_reason": None, "output": output})


class EventAssembler(streams.BlockAssembler):
    """Puts events together; `feed` each of them, then take `response`."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(fields.NAME, _parse, headers)
        self._message: JsonObject = {}
        self._inputs: dict[int, str] = {}
        self._is_counted = False  # whether the output was counted after the start

    @property
    def is_counted(self) -> bool:
        """Whether the stream ended with a count of its output."""
        return self.is_ended and self._is_counted

    @property
    def open_calls(self) -> Collection[object]:
        """The ids of calls whose block has not stopped."""
        return [value_at(self._blocks[index], "id") for index in self._open]

    @property
    def body(self) -> JsonObject:
        """The message as far as it has come; not to be changed."""
        return self.body_between(0, None) if self._message or self._blocks else {}

    def is_last(self, event: JsonObject) -> bool:
        """Whether the message is whole."""
        return event.get("type") == "message_stop" and self.is_ended

    def is_apart(self, element: int) -> bool:
        """Whether a block is the call of a function."""
        block = self._block(self._order[element])
        return parts.block_type(block) == "tool_use" and parts.call_of(block) is not None

    def body_between(self, first: int, last: int | None) -> JsonObject:
        """The message with these blocks."""
        self._texts.settle_all()
        body = {**self._message, "content": [self._block(index) for index in self._order[first:last]]}
        if isinstance(body.get("usage"), dict) and not self._is_counted:
            body["usage"] = {key: value for key, value in body["usage"].items() if key != "output_tokens"}
        return body

    def _block(self, index: int) -> JsonObject:
        """A block with the input that has come; text that is not JSON (yet) stays text."""
        text = self._texts.settle(self._inputs, index)
        if not text:
            return self._blocks[index]
        return {**self._blocks[index], "input": streams.input_of(text)}

    def output_in(self, event: JsonObject) -> bool:
        """Whether a block grows, or begins with something."""
        block = event.get("content_block")
        grows = event.get("type") == "content_block_delta"
        return grows or (isinstance(block, dict) and any(value for key, value in block.items() if key != "type"))

    def add(self, event: JsonObject) -> None:
        """Take in an event."""
        add = _EVENTS.get(str(event.get("type")))
        if add is not None:
            add(self, json_copy(event, "the event"))

    def start(self, event: JsonObject) -> None:
        """The message begins."""
        message = event.get("message")
        if isinstance(message, dict):
            blocks = message.get("content")
            self.is_ended = False
            self._message = {key: value for key, value in message.items() if key != "content"}
            self._blocks = dict(enumerate(blocks if isinstance(blocks, list) else ()))
            self._order, self._open = [*self._blocks], {}
            self.note_change(0)

    def start_block(self, event: JsonObject) -> None:
        """A block begins."""
        block = event.get("content_block")
        if isinstance(block, dict):
            index = streams.index_of(event, len(self._blocks))
            if index not in self._blocks:
                self._order.insert(bisect_left(self._order, index), index)
            self._note(index)
            self._blocks[index] = block
            self._texts.forget(self._inputs, index)
            self._inputs.pop(index, None)
            self._open[index] = None

    def add_delta(self, event: JsonObject) -> None:
        """A block grows."""
        delta = event.get("delta")
        block = self._blocks.get(index := streams.index_of(event, len(self._blocks) - 1))
        if not isinstance(delta, dict) or not isinstance(block, dict):
            return
        self._note(index)
        for key, value in delta.items():
            if key == "partial_json":
                self._texts.grow(self._inputs, index, str(value))
            elif key == "citation":
                if not isinstance(block.get("citations"), list):
                    block["citations"] = []
                block["citations"].append(value)
            elif key != "type" and value is not None:
                before = block.get(key)
                is_piece = isinstance(before, str) and isinstance(value, str) and key not in _WHOLE
                if is_piece:
                    self._texts.grow(block, key, value)
                else:
                    self._texts.forget(block, key)
                    block[key] = value

    def _note(self, index: int) -> None:
        self.note_change(bisect_left(self._order, index))

    def stop_block(self, event: JsonObject) -> None:
        """A block is whole."""
        self._open.pop(streams.index_of(event, len(self._blocks) - 1), None)

    def end(self, event: JsonObject) -> None:
        """The message says how it ended."""
        delta = event.get("delta")
        keys = {key: value for key, value in event.items() if key not in _APART}
        keys |= delta if isinstance(delta, dict) else {}
        self._message |= {key: value for key, value in keys.items() if value is not None or key not in self._message}
        if isinstance(event.get("usage"), dict):
            self._message["usage"] = usage.cumulative(self._message.get("usage"), event["usage"])
            self._is_counted = self._is_counted or event["usage"].get("output_tokens") is not None
        self.is_ended = self.is_ended or self._message.get("stop_reason") is not None

    def stop(self, _event: JsonObject) -> None:
        """The message is whole, if there is one."""
        self.is_ended = bool(self._message or self._blocks)


assembler: Final = EventAssembler


_EVENTS: Final = {
    "message_start": EventAssembler.start,
    "content_block_start": EventAssembler.start_block,
    "content_block_delta": EventAssembler.add_delta,
    "content_block_stop": EventAssembler.stop_block,
    "message_delta": EventAssembler.end,
    "message_stop": EventAssembler.stop,
}
