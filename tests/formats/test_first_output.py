"""When the first part of the output has come: what the time to the first token is measured by."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_stream
from threadkeep.domain.formats import get_format

TEXT = {"output_index": 0, "content_index": 0, "delta": "Hi"}
WHOLE = {"id": "r", "output": a_stream("Hi")[-1]["response"]["output"]}
# format -> events before the output, and one that brings the first of it
STREAMS: dict[str, list[tuple[list[Any], Any]]] = {
    "open_responses": [
        (a_stream("Hi")[:1], {"type": "response.output_text.delta", **TEXT}),
        ([], {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "Hm"}),
        ([], {"type": "response.completed", "response": WHOLE}),
    ],
    "chat_completion": [
        ([{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}, {"choices": []}],
         {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}),
        ([{"choices": [{"index": 0, "delta": {}}], "usage": {"prompt_tokens": 1}}],
         {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}}]}),
        ([], {"type": "chunk", "chunk": {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm"}}]}}),
    ],
    "messages": [
        ([{"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}}, {"type": "ping"},
          {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}],
         {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
        ([], {"type": "content_block_start", "index": 0,
              "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}),
    ],
    "gemini": [
        ([{"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}}]}, {"usageMetadata": {}}],
         {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}}]}),
        ([{"candidates": [{"index": 0}]}],
         {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}]}}]}),
    ],
    "converse": [
        ([{"messageStart": {"role": "assistant"}}],
         {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}}),
        ([], {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "f"}}}}),
    ],
}  # fmt: skip
CASES = [(wire, *case) for wire, cases in STREAMS.items() for case in cases]


@pytest.mark.parametrize(("wire", "before", "first"), CASES)
def test_the_first_part_of_the_output_is_noticed(wire: str, before: list[Any], first: Any) -> None:
    assembler = get_format(wire).assembler()
    for event in before:
        assembler.feed(event)
        assert not assembler.has_output
    assembler.feed(first)
    assert assembler.has_output
