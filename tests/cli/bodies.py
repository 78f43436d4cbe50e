"""Sessions and answers of providers for the tests of the command line."""

from __future__ import annotations

from typing import Any

from tests.factories import a_stream

SESSION: dict[str, Any] = {"model": "gpt-5.4", "instructions": "Be brief.", "input": "What is the capital of France?"}

ANSWER: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "gpt-5.4",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Paris.", "annotations": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "find", "arguments": '{"city":"Paris"}'},
    ],
    "usage": {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17},
}

REQUEST: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "max_tokens": 100,
    "system": "Be brief.",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
}

EVENTS = a_stream("Paris.", id="resp_2")

REFUSED: dict[str, Any] = {
    "error": {"message": "Rate limit\nreached.", "type": "requests", "code": "rate_limit_exceeded"}
}
