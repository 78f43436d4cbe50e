"""The turns that every library stores: a user's text, and the answer of a provider with its usage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from benchmarks.data import MODEL, answer_item, response_body, user_text

PER_CONVERSATION: Final = 10_000  # numbers of turns that are a conversation's own


@dataclass(frozen=True, slots=True)
class Turn:
    """A user's text, the body of the answer as it came over the wire, and what an SDK makes of it."""

    text: str
    body: bytes
    item: dict[str, Any]
    answer: str
    response_id: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    model: str = MODEL

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def texts(self) -> tuple[str, str]:
        return self.text, self.answer


def turn_of(number: int) -> Turn:
    """The turn of that number; no two have the same answer."""
    body = response_body(number)
    item = answer_item(number)
    response = orjson.loads(body)
    usage = response["usage"]
    return Turn(
        f"{number}: {user_text(number)}",
        body,
        item,
        item["content"][0]["text"],
        response["id"],
        usage["input_tokens"],
        usage["input_tokens_details"]["cached_tokens"],
        usage["output_tokens"],
    )


def conversation_of(seed: int, items: int) -> list[Turn]:
    """The turns of a conversation of so many items, two to a turn."""
    return [turn_of(seed * PER_CONVERSATION + number) for number in range(items // 2)]
