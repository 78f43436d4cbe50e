"""Deterministic conversations: about 640 bytes of JSON an item; every third turn has a call and its output."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from typing import Any, Final

import orjson

MODEL: Final = "gpt-5.4"
INSTRUCTIONS: Final = "You are a careful assistant. Answer in plain words, and say so when you do not know."
USER: Final = "user-1"

USER_CHARACTERS: Final = 200
ANSWER_CHARACTERS: Final = 850
OUTPUT_CHARACTERS: Final = 700
TOOL_EVERY: Final = 3  # turns

_TEXT: Final = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "naïve café “quoted” temperature → pressure"
)
_WORDS: Final = _TEXT.split()


def text(seed: int, characters: int) -> str:
    """Words up to a length."""
    choose = random.Random(seed)
    found: list[str] = []
    length = 0
    while length < characters:
        found.append(choose.choice(_WORDS))
        length += len(found[-1]) + 1
    return " ".join(found)[:characters]


def identifier(prefix: str, turn: int) -> str:
    """An id as long and as random as those of the service."""
    return f"{prefix}_{hashlib.sha256(f'{prefix} {turn}'.encode()).hexdigest()[:48]}"


def user_item(turn: int) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": user_text(turn)}]}


def user_text(turn: int) -> str:
    return text(3 * turn, USER_CHARACTERS)


def answer_item(turn: int) -> dict[str, Any]:
    return {
        "type": "message",
        "id": identifier("msg", turn),
        "status": "completed",
        "role": "assistant",
        "content": [
            {"type": "output_text", "text": text(3 * turn + 1, ANSWER_CHARACTERS), "annotations": [], "logprobs": []}
        ],
    }


def tool_items(turn: int) -> list[dict[str, Any]]:
    call_id = identifier("call", turn)[:40]  # as long as OpenAI takes one
    return [
        {
            "type": "function_call",
            "id": identifier("fc", turn),
            "status": "completed",
            "call_id": call_id,
            "name": "get_weather",
            "arguments": '{"city":"Paris","days":3,"unit":"celsius"}',
            "origin": "open_responses",
        },
        {
            "type": "function_call_output",
            "call_id": call_id,
            "output": orjson.dumps({"report": text(3 * turn + 2, OUTPUT_CHARACTERS)}).decode(),
        },
    ]


def _turns(first: int) -> Iterator[dict[str, Any]]:
    for turn in itertools.count(first):
        yield user_item(turn)
        if turn % TOOL_EVERY == TOOL_EVERY - 1:
            yield from tool_items(turn)
        yield {**answer_item(turn), "origin": "open_responses"}


def conversation_items(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """The first items of a conversation, whole turns or not."""
    return list(itertools.islice(_turns(seed * 10_000), count))


def response_body(turn: int) -> bytes:
    """A provider's answer with all that the service echoes."""
    return orjson.dumps(
        {
            "id": identifier("resp", turn),
            "object": "response",
            "created_at": 1_790_000_000 + turn,
            "completed_at": 1_790_000_002 + turn,
            "status": "completed",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": INSTRUCTIONS,
            "max_output_tokens": None,
            "model": MODEL,
            "output": [answer_item(turn)],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": True,
            "temperature": 0.7,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": {
                "input_tokens": 1_200 + turn % 100,
                "input_tokens_details": {"cached_tokens": 1_024},
                "output_tokens": 180,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 1_380 + turn % 100,
            },
            "user": None,
            "metadata": {},
        }
    )
