"""The keys of response objects: all that Open Responses requires, whatever was asked and whoever answered."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.server.scripts import Scripted, script
from threadkeep.domain.jsontext import loads

pytestmark = pytest.mark.one_database

# the keys that its schema requires of a response
REQUIRED: Final = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "user", "usage",
    "max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier",
    "prompt_cache_key",
}  # fmt: skip
NULLABLE: Final = {
    "completed_at", "incomplete_details", "previous_response_id", "instructions", "error", "reasoning", "user", "usage",
    "max_output_tokens", "max_tool_calls", "safety_identifier", "prompt_cache_key",
}  # fmt: skip


def sent(served: Any, scripted: Scripted, **body: Any) -> Any:
    http = served.http(upstreams={"*": scripted.upstream})
    scripted.will_say("Hello.")
    return http.post("/responses", json={"model": "any", "input": "Hi", **body})


def events_in(text: str) -> list[dict[str, Any]]:
    return [loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def lacking(response: dict[str, Any]) -> set[str]:
    return {key for key in REQUIRED if key not in response or (response[key] is None and key not in NULLABLE)}


def test_a_response_has_every_key_that_is_required(served: Any, scripted: Scripted) -> None:
    plain = sent(served, scripted).json()
    streamed = events_in(sent(served, scripted, stream=True).text)
    begun = sent(served, scripted, background=True).json()
    read = served.http().get(f"/responses/{plain['id']}").json()
    responses = [plain, begun, read, *(event["response"] for event in streamed if "response" in event)]
    assert [lacking(response) for response in responses] == [set()] * 6
    assert {**read, "model": plain["model"]} == plain  # asked for, and answered


def test_a_response_was_completed_when_it_was_stored(served: Any, scripted: Scripted) -> None:
    first, *_, last = events_in(sent(served, scripted, stream=True).text)
    assert first["response"]["completed_at"] is None
    assert last["response"]["completed_at"] >= first["response"]["created_at"]


def test_what_was_asked_is_repeated_with_the_keys_that_are_required(served: Any, scripted: Scripted) -> None:
    look = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    asked = {"tools": [look], "text": {"verbosity": "low"}, "temperature": 0.5, "prompt_cache_key": "trains"}
    asked |= {"safety_identifier": "ann", "top_logprobs": 2, "reasoning": {"effort": "low"}}
    found = sent(served, scripted, **asked).json()
    assert found["tools"] == [{**look, "description": None, "strict": None}]
    assert found["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert found["reasoning"] == {"effort": "low", "summary": None}
    assert [found[key] for key in ("temperature", "top_logprobs")] == [0.5, 2]
    assert [found[key] for key in ("prompt_cache_key", "safety_identifier")] == ["trains", "ann"]
    read = served.http().get(f"/responses/{found['id']}").json()
    assert [read[key] for key in ("prompt_cache_key", "safety_identifier")] == [None, None]  # of the application


def test_an_answer_in_the_background_is_queued_first(served: Any, scripted: Scripted) -> None:
    events = events_in(sent(served, scripted, background=True, stream=True).text)
    assert [event["type"] for event in events[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert [event["response"]["status"] for event in events[:3]] == ["queued", "queued", "in_progress"]
    assert events[-1]["response"]["status"] == "completed"


# A thought, in two pieces, as each format streams it, and something that only its provider can read
THOUGHTS: Final[dict[str, list[dict[str, Any]]]] = {
    "messages": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Let me "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "see."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "AA=="}},
        {"type": "content_block_stop", "index": 1},
    ],
    "gemini": [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": text, "thought": True}]}, "index": 0}]}
        for text in ("Let me ", "see.")
    ],
    "converse": [
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Let me "}}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "see."}}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "c2ln"}}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"reasoningContent": {"redactedContent": "AA=="}}}},
        {"contentBlockStop": {"contentBlockIndex": 1}},
    ],
    "chat_completion": [
        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"reasoning_content": text}}]}
        for text in ("Let me ", "see.")
    ],
}


@pytest.mark.parametrize("format_", THOUGHTS)
def test_what_a_model_thinks_is_streamed_as_its_text(served: Any, format_: str) -> None:
    scripted = Scripted(format_)
    [first, *rest] = script(format_, [])
    started = [first] if format_ in ("messages", "converse") else []
    ending = [event for event in rest if "block" not in str(event).lower()]
    scripted.scripts = [[*started, *THOUGHTS[format_], *ending]]
    http = served.http(upstreams={"*": scripted.upstream})
    events = events_in(http.post("/responses", json={"model": "any", "input": "Hi", "stream": True}).text)
    deltas = [event["delta"] for event in events if event["type"] == "response.reasoning_text.delta"]
    assert deltas == ["Let me ", "see."]
    [thought] = [event["text"] for event in events if event["type"] == "response.reasoning_text.done"]
    assert thought == "Let me see."
    [item] = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (item["type"], item["content"]) == ("reasoning", [{"type": "reasoning_text", "text": "Let me see."}])


def test_a_call_of_a_custom_tool_over_chat_completions_can_be_answered(served: Any) -> None:
    scripted = Scripted("chat_completion")
    called = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "note", "input": "Buy milk."}}
    head = {"id": "c", "model": "m"}
    delta = {"index": 0, "delta": {"role": "assistant", "tool_calls": [called]}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    scripted.scripts = [[{**head, "choices": [delta]}, {**head, "choices": [end]}]]
    http = served.http(upstreams={"*": scripted.upstream})
    tools = [{"type": "custom", "name": "note"}]
    found = http.post("/responses", json={"model": "any", "input": "Note it.", "tools": tools}).json()
    [call] = found["output"]
    assert (call["type"], call["call_id"], call["name"], call["input"]) == (
        "custom_tool_call", "call_1", "note", "Buy milk.",
    )  # fmt: skip
    scripted.will_say("Noted.")
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done."}
    body = {"model": "any", "input": [output], "tools": tools, "previous_response_id": found["id"]}
    answer = http.post("/responses", json=body)
    assert answer.json()["output"][0]["content"][0]["text"] == "Noted."
    assert scripted.payloads[-1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "Done."}
