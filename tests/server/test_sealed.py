"""What providers sign goes through clients of OpenAI's API as `encrypted_content`, and back to its provider."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import openai
import pytest

from tests.server.scripts import Scripted
from tests.server.test_creation import TOOL, in_front_of
from threadkeep.server import sealed
from threadkeep.server.body_limits import MAX_VALUES
from threadkeep.server.problems import Problem
from threadkeep.server.sealed import PREFIX

pytestmark = pytest.mark.one_database

INCLUDE: Any = ["reasoning.encrypted_content"]
THOUGHT, SIGNATURE = "It is cloudy.", "c2lnbmVk"


def _messages(thinking: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": []}
    usage = {"input_tokens": 11, "output_tokens": 1}
    use = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
    blocks = [(thinking, deltas), (use, [{"type": "input_json_delta", "partial_json": "{}"}])]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "usage": usage}}]
    for index, (block, pieces) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
        events.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}
    return [*events, end, {"type": "message_stop"}]


THINKING = _messages(
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": THOUGHT}, {"type": "signature_delta", "signature": SIGNATURE},
)  # fmt: skip
REDACTED = _messages({"type": "redacted_thinking", "data": SIGNATURE})
_CALL = {"functionCall": {"id": "call_1", "name": "look", "args": {}}, "thoughtSignature": SIGNATURE}
_USAGE = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}


def _gemini(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    candidate = {"content": {"role": "model", "parts": [*parts]}, "index": 0, "finishReason": "STOP"}
    return [{"responseId": "a", "modelVersion": "gemini-3-pro", "candidates": [candidate], "usageMetadata": _USAGE}]


GEMINI = _gemini({"text": THOUGHT, "thought": True}, _CALL)
GEMINI_TEXT = _gemini(
    {"text": "Let me see.", "thoughtSignature": SIGNATURE}, {key: _CALL[key] for key in ["functionCall"]}
)
_REASONING = {"reasoningContent": {"text": THOUGHT}}
CONVERSE: list[dict[str, Any]] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": _REASONING}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": SIGNATURE}}}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "call_1", "name": "look"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": "{}"}}}},
    {"contentBlockStop": {"contentBlockIndex": 1}},
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}}},
]  # fmt: skip
_REASONED = {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": SIGNATURE}}}
# what was signed -> who signs, the answer, and what that provider is sent in the next request
SIGNED: dict[str, tuple[str, list[dict[str, Any]], Any]] = {
    "thinking": ("messages", THINKING, {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE}),
    "redacted thinking": ("messages", REDACTED, {"type": "redacted_thinking", "data": SIGNATURE}),
    "call": ("gemini", GEMINI, _CALL),
    "text": ("gemini", GEMINI_TEXT, {"text": "Let me see.", "thoughtSignature": SIGNATURE}),
    "reasoning": ("converse", CONVERSE, _REASONED),
}


def parts_of(payload: Any) -> list[Any]:
    """The parts of what models said in a request, in any format."""
    turns = payload.get("messages") or payload["contents"]
    return [
        part
        for turn in turns
        if turn["role"] in ("assistant", "model")
        for part in turn.get("content", turn.get("parts"))
    ]


def history_of(found: Any) -> list[Any]:
    output = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
    return [{"role": "user", "content": "Weather?"}, *(item.to_dict() for item in found.output), output]


@pytest.mark.share(3)
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", SIGNED)
def test_it_goes_back_to_its_provider(served: Any, what: str, *, store: bool, stream: bool) -> None:
    format_, events, expected = SIGNED[what]
    upstream = Scripted(format_)
    client = in_front_of(served, upstream)
    asked: Any = {"model": format_, "tools": [TOOL], "store": store, "include": INCLUDE}
    upstream.scripts.append(events)
    if stream:
        came: list[Any] = [*client.responses.create(input="Weather?", stream=True, **asked)]
        found = came[-1].response
        done = [event.item for event in came if event.type == "response.output_item.done"]
        assert done == found.output
    else:
        found = client.responses.create(input="Weather?", **asked)
    if store:
        assert client.responses.retrieve(found.id, include=INCLUDE).output == found.output
        assert not any(PREFIX in str(item) for item in client.responses.retrieve(found.id).output)
    upstream.will_say("It rains.")
    assert client.responses.create(input=history_of(found), **asked).output_text == "It rains."
    assert expected in parts_of(upstream.payloads[-1])
    assert PREFIX not in str(upstream.payloads[-1])


@pytest.mark.parametrize("what", SIGNED)
def test_others_do_not_get_it(served: Any, what: str) -> None:
    format_, events, _ = SIGNED[what]
    signing, other = Scripted(format_), Scripted("chat_completion")
    client = in_front_of(served, signing, other)
    signing.scripts.append(events)
    asked: Any = {"tools": [TOOL], "store": False, "include": INCLUDE}
    found = client.responses.create(model=format_, input="Weather?", **asked)
    other.will_say("It rains.")
    client.responses.create(model=other.format, input=history_of(found), **asked)
    assert [text in str(other.payloads[-1]) for text in (SIGNATURE, PREFIX)] == [False, False]


def test_nobody_gets_it_unasked(served: Any) -> None:
    upstream = Scripted("messages")
    client = in_front_of(served, upstream)
    upstream.scripts.append(THINKING)
    found = client.responses.create(model="messages", input="Weather?", tools=[TOOL])
    assert PREFIX not in str(found.output)


@pytest.mark.parametrize("text", ["", "!", "bm8=", "e30=", "eyJwcm92aWRlciI6MSwiaXRlbXMiOltdfQ=="])
def test_what_was_changed_is_refused(served: Any, text: str) -> None:
    upstream = Scripted("messages")
    client = in_front_of(served, upstream)
    items: Any = [{"type": "reasoning", "summary": [], "encrypted_content": PREFIX + text}]
    with pytest.raises(openai.BadRequestError, match="Send it back unchanged") as refused:
        client.responses.create(model="messages", input=items, store=False)
    assert (refused.value.param, refused.value.code) == ("input[0].encrypted_content", "invalid_encrypted_content")


def _sealed(*items: dict[str, Any]) -> dict[str, Any]:
    text = urlsafe_b64encode(json.dumps({"provider": "p", "items": items}).encode()).decode()
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": PREFIX + text}


def test_a_long_history_is_compared_with_what_was_signed_in_one_pass() -> None:
    looks = 0

    class Item(dict[str, Any]):
        def get(self, *args: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().get(*args)

    said = [Item(type="message", role="assistant", content=f"{number}") for number in range(300)]
    signed = [
        {**item, "content": [{"type": "output_text", "text": item["content"], "signature": "x"}]} for item in said
    ]
    assert sealed.unsealed([*said, *(_sealed(*signed) for _ in range(10))], "p") == signed
    assert looks < 10 * len(said)


def test_values_in_what_is_sealed_are_counted() -> None:
    many = {"type": "reasoning", "content": [0] * (MAX_VALUES // 2)}
    assert len(sealed.unsealed([_sealed(many)], "p")[0]["content"]) == MAX_VALUES // 2
    with pytest.raises(Problem, match="more than 50,000 values") as refused:
        sealed.unsealed([_sealed(many)] * 2, "p")
    assert refused.value.status == 413


def test_what_openai_encrypts_is_left_as_it_is(served: Any) -> None:
    upstream = Scripted("open_responses")
    client = in_front_of(served, upstream)
    upstream.will_say("Sunny.")
    item: Any = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
    history = [{"role": "user", "content": "Weather?"}, item, call, output]
    client.responses.create(model="open_responses", input=history, store=False, include=INCLUDE)
    assert "gAAAA" in str(upstream.payloads[-1])
    assert upstream.payloads[-1]["include"] == INCLUDE
