"""Calls that a stream broke off in: nobody may run them, whatever of them looks whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.corpus import assembled
from threadkeep import Store
from threadkeep.formats import FormatName

Json = dict[str, Any]

MESSAGE: Json = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": [], "usage": {}}
RESPONSE: Json = {"id": "r", "object": "response", "status": "in_progress", "model": "gpt", "output": []}
CUSTOM: Json = {"type": "custom_tool_call", "id": "c", "call_id": "t1", "name": "shell", "input": ""}


def block(index: int, call_id: str) -> Json:
    return {
        "type": "content_block_start", "index": index,
        "content_block": {"type": "tool_use", "id": call_id, "name": "delete", "input": {}},
    }  # fmt: skip


def tool(index: int, call_id: str) -> Json:
    start = {"toolUse": {"toolUseId": call_id, "name": "delete"}}
    return {"contentBlockStart": {"contentBlockIndex": index, "start": start}}


def part(**call: Any) -> Json:
    return {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": call}]}}]}


def chunk(*calls: Json) -> Json:
    return {"id": "c", "model": "gpt", "choices": [{"index": 0, "delta": {"tool_calls": list(calls)}}]}


def piece(value: str) -> Json:
    return {"jsonPath": "$.folder", "stringValue": value, "willContinue": True}


# format -> the event that ends an answer with calls
ENDS: dict[str, Json] = {
    "messages": {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    "converse": {"messageStop": {"stopReason": "tool_use"}},
    "gemini": {"candidates": [{"finishReason": "STOP"}]},
    "open_responses": {"type": "response.completed", "response": {**RESPONSE, "status": "completed"}},
    "chat_completion": {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
}

# format -> events of a call that is not whole; what makes it whole, if anything does
CASES: list[tuple[str, FormatName, list[Json], Json | None]] = [
    ("block", "messages", [{"type": "message_start", "message": MESSAGE}, block(0, "t1")],
     {"type": "content_block_stop", "index": 0}),
    ("block", "converse", [{"messageStart": {"role": "assistant"}}, tool(0, "t1")],
     {"contentBlockStop": {"contentBlockIndex": 0}}),
    ("pieces", "gemini", [part(name="delete", id="t1", willContinue=True),
                          part(partialArgs=[piece("/home")], willContinue=True)],
     part(partialArgs=[{"jsonPath": "$.folder", "stringValue": "/ann"}])),
    ("input", "open_responses", [{"type": "response.created", "response": RESPONSE},
                                 {"type": "response.output_item.added", "output_index": 0, "item": CUSTOM},
                                 {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "rm"}],
     {"type": "response.output_item.done", "output_index": 0, "item": {**CUSTOM, "input": "rm -rf x"}}),
    ("input", "chat_completion", [chunk({"index": 0, "id": "t1", "type": "custom",
                                         "custom": {"name": "shell", "input": "rm"}})], None),
    ("arguments", "chat_completion", [chunk({"index": 0, "id": "t1", "type": "function",
                                             "function": {"name": "delete", "arguments": ""}})], None),
]  # fmt: skip


@pytest.mark.parametrize(("_what", "format_name", "events", "last"), CASES)
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_call_that_did_not_come_whole_waits_for_no_output(
    _what: str, format_name: FormatName, events: list[Json], last: Json | None, *, is_cancelled: bool
) -> None:
    with Store("sqlite:///:memory:") as store:
        whole = [event for event in (*events, last) if event is not None]
        for given, waiting in ((events, []), (whole, []), ([*whole, ENDS[format_name]], ["t1"])):
            conversation = store.create_conversation(model="m", input="Tidy up")
            with conversation.stream_response(format_name) as recorder:
                for event in given:
                    recorder.feed(event)
                if is_cancelled:
                    recorder.cancel()
            runnable = [] if is_cancelled else waiting
            assert [call.call_id for call in conversation.pending_calls()] == runnable
            assert conversation.next_step() == ("tools" if runnable else "user")


def test_calls_before_the_one_that_broke_off_are_whole() -> None:
    start: list[Json] = [{"type": "message_start", "message": MESSAGE}, block(0, "t1")]
    whole = [{"type": "content_block_stop", "index": 0}, block(1, "t2")]
    found = assembled([*start, *whole], "messages")
    for response in (found.response, found.partial):
        assert [(call.call_id, call.status) for call in response.tool_calls] == [("t1", None), ("t2", "incomplete")]


def test_an_answer_that_ended_has_whole_calls() -> None:
    """Hosts that speak Messages may not tell where blocks stop."""
    events = [{"type": "message_start", "message": MESSAGE}, block(0, "t1")]
    ended = assembled([*events, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}], "messages")
    assert [call.status for call in ended.response.tool_calls] == [None]
