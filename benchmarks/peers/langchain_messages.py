"""Turns as LangChain's messages, with usage in the message, and as a request of Chat Completions."""

from __future__ import annotations

from typing import Any

import orjson
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages

from benchmarks.data import INSTRUCTIONS, MODEL
from benchmarks.peers.turns import Turn


def messages_of(turn: Turn) -> list[BaseMessage]:
    usage: Any = {
        "input_tokens": turn.input_tokens,
        "output_tokens": turn.output_tokens,
        "total_tokens": turn.total_tokens,
        "input_token_details": {"cache_read": turn.cached_tokens},
    }
    answer = AIMessage(
        content=turn.answer,
        id=turn.response_id,
        usage_metadata=usage,
        response_metadata={"model_name": turn.model, "finish_reason": "stop"},
    )
    return [HumanMessage(content=turn.text), answer]


def request_of(messages: list[BaseMessage]) -> bytes:
    system = {"role": "system", "content": INSTRUCTIONS}
    return orjson.dumps({"model": MODEL, "messages": [system, *convert_to_openai_messages(messages)]})


def texts_of(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages]
