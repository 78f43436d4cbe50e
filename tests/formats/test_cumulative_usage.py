"""Usage in streams: cumulative figures never fall, and the output of a stream that was cut is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from threadkeep.domain.response import Response
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.shared.usage import cumulative

Json = dict[str, Any]
START = {"input_tokens": 100, "cache_read_input_tokens": 5000, "cache_creation_input_tokens": 200, "output_tokens": 1}
TEXT = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
    {"type": "content_block_stop", "index": 0},
]


def messages(start: Json, *usages: Json | None, stop: str | None = "end_turn") -> list[Json]:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": []}
    ends: list[Json] = [{"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage} for usage in usages]
    return [{"type": "message_start", "message": message | {"stop_reason": None, "usage": start}}, *TEXT, *ends]


def gemini(*usages: Json, finish: str | None = "STOP") -> list[Json]:
    chunks: list[Json] = [
        {"candidates": [{"content": {"parts": [{"text": "Hi"}]}}], "usageMetadata": usage} for usage in usages
    ]
    chunks[-1]["candidates"][0]["finishReason"] = finish
    return chunks


def chat(*usages: Json | None, finish: str | None = "stop") -> list[Json]:
    chunks: list[Json] = [
        {
            "id": "c", "object": "chat.completion.chunk", "model": "glm-4.7", "usage": usage,
            "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}],
        }
        for usage in usages
    ]  # fmt: skip
    chunks[-1]["choices"][0]["finish_reason"] = finish
    return chunks


def converse(*usages: Json, stop: str | None = "end_turn") -> list[Json]:
    text = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}}
    end: list[Json] = [] if stop is None else [{"messageStop": {"stopReason": stop}}]
    return [{"messageStart": {"role": "assistant"}}, text, *end, *({"metadata": {"usage": usage}} for usage in usages)]


def responses(*usages: Json | None, step: str = "completed") -> list[Json]:
    steps = [*["in_progress"] * (len(usages) - 1), step]
    return [
        {"type": f"response.{kind}", "response": {"id": "r", "object": "response", "output": [], "usage": usage}}
        for kind, usage in zip(steps, usages, strict=True)
    ]


def assembled(name: FormatName, events: list[Json]) -> Response:
    assembler = get_format(name).assembler()
    for event in events:
        assembler.feed(event)
    return assembler.response


def figures(name: FormatName, events: list[Json]) -> tuple[int | None, ...]:
    """Input, what of it came from a cache and was written to one, and output."""
    usage = assembled(name, events).usage
    assert usage is not None
    counted = usage.normalized
    return counted.input_tokens, counted.cached_tokens, counted.cache_write_tokens, counted.output_tokens


# how a host reports usage, and what it bills
BILLED = (5300, 5000, 200, 50)
ZEROS = dict.fromkeys(START, 0)
PROMPT = {"promptTokenCount": 90, "cachedContentTokenCount": 40}
HOSTS: dict[str, tuple[FormatName, list[Json], tuple[int | None, ...]]] = {
    "Messages: zeros at the end": ("messages", messages(START, ZEROS | {"output_tokens": 50}), BILLED),
    "Messages: no input at the end": ("messages", messages(START, {"input_tokens": 0, "output_tokens": 50}), BILLED),
    "Messages: nulls at the end": ("messages", messages(START, {"input_tokens": None, "output_tokens": 50}), BILLED),
    "Messages: zeros at the start": ("messages", messages(ZEROS, {**START, "output_tokens": 50}), BILLED),
    "Messages: the same twice": ("messages", messages(START, {**START, "output_tokens": 50}), BILLED),
    "Messages: zeros after the end": ("messages", messages(START, {**START, "output_tokens": 50}, ZEROS), BILLED),
    "Gemini: zeros at the end": (
        "gemini",
        gemini(PROMPT, PROMPT | {"candidatesTokenCount": 7}, {"promptTokenCount": 0, "candidatesTokenCount": 9}),
        (90, 40, None, 9),
    ),
    "Gemini: nothing at the end": (
        "gemini", gemini(PROMPT | {"candidatesTokenCount": 7, "totalTokenCount": 97}, {}), (90, 40, None, 7)
    ),
    "Chat Completions: zeros at the end": (
        "chat_completion",
        chat(
            {"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}},
            {"prompt_tokens": 0, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}},
        ),
        (90, 40, None, 9),
    ),
    "Chat Completions: null at the end": (
        "chat_completion", chat({"prompt_tokens": 90, "completion_tokens": 7}, None), (90, None, None, 7)
    ),
    "Converse: zeros in a second event": (
        "converse",
        converse({"inputTokens": 90, "outputTokens": 9, "totalTokens": 99}, {"inputTokens": 0, "outputTokens": 0}),
        (90, None, None, 9),
    ),
    "Responses: zeros at the end": (
        "open_responses",
        responses(
            {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 0},
            {"input_tokens": 0, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 9},
        ),
        (90, 40, None, 9),
    ),
    "Responses: null at the end": (
        "open_responses", responses({"input_tokens": 90, "output_tokens": 9}, None), (90, None, None, 9)
    ),
}  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_counts_of_a_stream_never_fall(host: str) -> None:
    name, events, billed = HOSTS[host]
    assert figures(name, events) == billed


# streams without their last usage; the counts so far are not those of the output
CUT: dict[str, tuple[FormatName, list[Json], tuple[int | None, ...]]] = {
    "Messages: at the start": ("messages", messages(START)[:1], (5300, 5000, 200, None)),
    "Messages: in a text": ("messages", messages(START)[:3], (5300, 5000, 200, None)),
    "Messages: ended without usage": ("messages", messages(START, None), (5300, 5000, 200, None)),
    "Messages: usage without output": ("messages", messages(START, {"input_tokens": 100}), (5300, 5000, 200, None)),
    "Gemini": ("gemini", gemini(PROMPT | {"candidatesTokenCount": 1}, finish=None), (90, 40, None, None)),
    "Gemini: input alone": ("gemini", gemini(PROMPT | {"totalTokenCount": 90}, finish=None), (90, 40, None, None)),
    "Chat Completions": (
        "chat_completion", chat({"prompt_tokens": 90, "completion_tokens": 1}, finish=None), (90, None, None, None)
    ),
    "Converse": ("converse", converse({"inputTokens": 90, "outputTokens": 1}, stop=None), (90, None, None, None)),
    "Responses": (
        "open_responses", responses({"input_tokens": 90, "output_tokens": 1}, step="in_progress"),
        (90, None, None, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", CUT)
def test_the_output_of_a_stream_without_its_last_usage_is_unknown(how: str) -> None:
    name, events, known = CUT[how]
    assert figures(name, events) == known
    usage = assembled(name, events).usage
    assert usage is not None
    assert (usage.output_tokens, usage.total_tokens, usage.normalized.total_tokens) == (None, None, None)


def test_entries_of_a_list_are_told_apart_by_their_texts() -> None:
    text, audio = {"modality": "TEXT", "tokenCount": 5}, {"modality": "AUDIO", "tokenCount": 7}
    assert cumulative([text, audio], [{"modality": "AUDIO", "tokenCount": 9}, text | {"tokenCount": 0}]) == [
        audio | {"tokenCount": 9}, text,
    ]  # fmt: skip
    turns = [{"type": "message", "input_tokens": 1}, {"type": "message", "input_tokens": 2}]
    assert cumulative(turns[:1], turns) == turns
    assert cumulative({"a": 1.5, "tier": "standard", "b": True}, {"a": 1.25, "tier": "priority", "b": False}) == {
        "a": 1.5, "tier": "priority", "b": False,
    }  # fmt: skip
