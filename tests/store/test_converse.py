"""Converse answers as boto3 gives them, through the database."""

from __future__ import annotations

from typing import Any

ANSWER = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [{"reasoningContent": {"redactedContent": b"secret"}}, {"text": "Hello"}],
        }
    },
    "stopReason": "end_turn",
    "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 25, "cacheReadInputTokens": 20},
    "ResponseMetadata": {"RequestId": "r1", "HTTPHeaders": {}, "HTTPStatusCode": 200},
}
EVENTS = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"redactedContent": b"secret"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "Hello"}}},
    {"messageStop": {"stopReason": "end_turn"}},
    {"metadata": {"usage": ANSWER["usage"]}},
]
SENT = [
    {"role": "user", "content": [{"text": "hi"}]},
    {"role": "assistant", "content": [{"reasoningContent": {"redactedContent": "c2VjcmV0"}}, {"text": "Hello"}]},
    {"role": "user", "content": [{"text": "on"}]},
]


def test_an_answer_with_bytes_is_stored_and_sent_again(store: Any, elsewhere: Any) -> None:
    conversation = store.create_conversation(model="us.anthropic.claude-3-7-sonnet")
    conversation.user("hi")
    response = conversation.add_response(ANSWER, "converse")
    assert (response.id, response.text) == ("r1", "Hello")
    conversation.user("on")
    assert elsewhere.get_conversation(conversation.id).request_payload("converse")["messages"] == SENT
    assert conversation.usage().input_tokens == 23


def test_a_stream_with_bytes_is_stored_and_sent_again(store: Any, elsewhere: Any) -> None:
    conversation = store.create_conversation(model="us.anthropic.claude-3-7-sonnet")
    conversation.user("hi")
    with conversation.stream_response("converse", headers={"X-Amzn-RequestId": "r2"}) as stream:
        for event in EVENTS:
            stream.feed(event)
    assert (stream.response.id, stream.response.status) == ("r2", "completed")
    conversation.user("on")
    assert elsewhere.get_conversation(conversation.id).request_payload("converse")["messages"] == SENT
