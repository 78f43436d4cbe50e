"""From values to rows by hand: what somebody would write who stores the same rows without a library.

Nothing is checked, nothing is kept for later, and every value is taken to be as these benchmarks make it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, Final

import orjson

from benchmarks.databases import Row

FORMAT: Final = "open_responses"
PACKED: Final = 2048  # bytes from which a raw body is compressed
# nano-USD of a token of input, of cached input and of output; and how the row says so
PRICES: Final = (2_500, 250, 15_000)
PRICE: Final = (
    f'{{"source":"genai-prices {version("genai-prices")}","model":"openai/gpt-5.4",'
    '"input_mtok":"2.5","cache_read_mtok":"0.25","output_mtok":"15"}'
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The columns of an answer's rows that say what it is, not where."""

    item: Row
    response: Row
    body: Row
    usage: Row


def short_hash(text: str | None) -> bytes | None:
    return None if text is None else blake2b(text.encode(), digest_size=16).digest()


def item_row(item: dict[str, Any], origin: str | None = None, model: str | None = None) -> Row:
    """The columns of an item behind its place."""
    get = item.get
    item_id, call_id = get("id"), get("call_id")
    if item_id is not None:  # the library writes it first
        item = {"id": item_id, **item}
    return (
        item_id, short_hash(item_id), call_id, short_hash(call_id), item["type"], get("role"), get("status"),
        get("name"), None, origin, model, orjson.dumps(item).decode(), None, 0,
    )  # fmt: skip


def user_row(text: str) -> Row:
    """A user message."""
    return item_row({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})


def answer_item(item: dict[str, Any]) -> dict[str, Any]:
    """An assistant message without the lists that are empty."""
    content = [{"type": part["type"], "text": part["text"]} for part in item["content"]]
    return {"id": item["id"], "type": "message", "role": "assistant", "content": content, "status": item["status"]}


def answer_of(raw: bytes) -> Answer:
    """A provider's body of one item."""
    body = orjson.loads(raw)
    usage, model = body["usage"], body["model"]
    item = answer_item(body["output"][0])
    given, cached, made = (
        usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]
    )  # fmt: skip
    cost = (given - cached) * PRICES[0] + cached * PRICES[1] + made * PRICES[2]
    done = datetime.fromtimestamp(body["completed_at"], UTC)
    return Answer(
        item_row(item, FORMAT, model),
        (body["id"], None, FORMAT, model, body["status"], body["status"], None, None, None, done),
        (1, zlib.compress(raw, 1)) if len(raw) >= PACKED else (0, raw),
        (
            None, model, FORMAT, body["status"], None, given, cached, None, made,
            usage["output_tokens_details"]["reasoning_tokens"], usage["total_tokens"], cost,
            orjson.dumps(usage).decode(), None, PRICE,
        ),
    )  # fmt: skip
