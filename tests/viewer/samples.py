"""Conversations that the tests of the viewer show."""

from __future__ import annotations

import base64
from typing import Any

from threadkeep import Conversation, Store

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def answer(text: str | None, *, number: int = 1, call: dict[str, Any] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call is not None:
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": call}]
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 60}}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
    return {"id": f"chat_{number}", "model": "gpt-5.4", "choices": [choice], "usage": usage}


def with_tools(store: Store, user: str = "ann") -> Conversation:
    """A question, a call with its output, an answer, and a call of the provider that failed."""
    conversation = store.create_conversation(model="gpt-5.4", user_id=user, title="Trains", labels={"team": "travel"})
    conversation.user("When does the next train go?")
    call = {"name": "timetable", "arguments": '{"from": "Bern"}'}
    ask(conversation, answer(None, call=call), latency_ms=900)
    conversation.add_function_call_output(call_id="call_1", output='{"next": "10:02"}')
    ask(conversation, answer("At **10:02**.", number=2), latency_ms=1_500)
    error = {"error": {"message": "Overloaded", "type": "server_error"}}
    conversation.record_attempt("chat_completion", error=error, provider="openai")
    return conversation


def ask(conversation: Conversation, body: dict[str, Any], **options: Any) -> None:
    rendered = conversation.render("chat_completion")
    conversation.add_response(body, "chat_completion", rendered=rendered, provider="openai", **options)


def with_decisions(store: Store) -> Conversation:
    """Calls that were approved, denied, and are waiting; and what two users think of the answer between them."""
    conversation = store.create_conversation(model="gpt-5.4", user_id="ann", title="Refund")
    conversation.user("Refund my tent.")
    for number in range(2):
        ask(conversation, answer(None, number=number, call={"name": f"refund_{number}", "arguments": "{}"}))
        if number:
            conversation.deny("call_1", reason="Twice is too often.", decided_by="chiara")
        else:
            conversation.approve("call_0", decided_by="ben")
            conversation.add_function_call_output(call_id="call_0", output="done")
    ask(conversation, answer("It is refunded.", number=2))
    conversation.set_feedback(conversation.head, rating=1, user_id="ann", comment="Quick.")
    conversation.set_feedback(conversation.head, rating=-1, user_id="ben", comment="Too quick.")
    ask(conversation, answer(None, number=3, call={"name": "close_ticket", "arguments": "{}"}))
    return conversation
