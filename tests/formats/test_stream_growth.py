"""What it takes to put a stream together grows with the stream, and not faster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.formats.long_streams import ALL, CALLS, PIECE, TEXTS, Stream
from threadkeep.domain.formats import get_format


def _chunk(**delta: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta}]}


def response_items(count: int) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {"object": "response", "model": "m", "status": "in_progress"}}
    items = [{"id": f"r{n}", "type": "reasoning", "summary": [], "encrypted_content": f"e{n}"} for n in range(count)]
    for place, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": place, "item": {**item, "encrypted_content": ""}}
        yield {"type": "response.reasoning_summary_text.delta", "item_id": item["id"], "summary_index": 0, "delta": "x"}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    last = [{**item, "encrypted_content": "other"} for item in items]
    yield {"type": "response.completed", "response": {"object": "response", "status": "completed", "output": last}}


def response_items_without_ids(count: int) -> Iterator[dict[str, Any]]:
    for place in range(count):
        item = {"type": "function_call", "name": "look_up", "call_id": f"c{place}", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": place, "item": item}
        yield {"type": "response.function_call_arguments.delta", "output_index": place, "delta": "{}"}


def interleaved_texts(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        for place in (0, 1):
            yield {"type": "response.output_text.delta", "output_index": place, "content_index": 0, "delta": f"{n} "}


def calls(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        function = {"name": "look_up", "arguments": ""}
        yield _chunk(tool_calls=[{"index": n, "id": f"c{n}", "type": "function", "function": function}])
    for n in range(count):
        yield _chunk(tool_calls=[{"index": n, "function": {"arguments": "{}"}}])


def calls_without_index(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        function = {"name": "look_up", "arguments": ""}
        yield _chunk(tool_calls=[{"id": f"c{n}", "type": "function", "function": function}])
    for n in range(count):
        yield _chunk(tool_calls=[{"id": f"c{n}", "function": {"arguments": "{}"}}])


def reasoning_details(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        yield _chunk(reasoning_details=[{"type": "reasoning.encrypted", "index": n, "data": f"d{n}"}])
        yield _chunk(reasoning_details=[{"type": "reasoning.encrypted", "index": n, "id": f"i{n}"}])


def sources(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        chunk = {"web": {"uri": f"https://example.org/{n}", "title": "A page"}}
        content = {"role": "model", "parts": [{"text": "x"}]}
        yield {"candidates": [{"content": content, "groundingMetadata": {"groundingChunks": [chunk]}}]}


STREAMS: list[tuple[str, Callable[[int], Iterator[dict[str, Any]]]]] = [
    ("open_responses", response_items),
    ("open_responses", response_items_without_ids),
    ("open_responses", interleaved_texts),
    ("chat_completion", calls),
    ("chat_completion", calls_without_index),
    ("chat_completion", reasoning_details),
    ("gemini", sources),
]


def work(name: str, events: list[dict[str, Any]], *, is_watched: bool = False) -> int:
    """How many functions are called until the response is whole; `is_watched`: it is read after each event, too."""
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    assembler = get_format(name).assembler()
    sys.setprofile(note)
    try:
        for event in events:
            assembler.feed(event)
            assert not is_watched or assembler.partial.status == "in_progress"
        assert assembler.response.output
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("name", "stream"), STREAMS, ids=[stream.__name__ for _, stream in STREAMS])
def test_four_times_as_long_costs_four_times_as_much(
    name: str, stream: Callable[[int], Iterator[dict[str, Any]]]
) -> None:
    work(name, list(stream(2)))  # what is prepared once
    short, long = (work(name, list(stream(count))) for count in (50, 200))
    assert long < 4.2 * short


@pytest.mark.parametrize(("name", "kind", "stream"), ALL, ids=[f"{name}-{kind}" for name, kind, _ in ALL])
def test_of_any_kind_four_times_as_long_costs_four_times_as_much(name: str, kind: str, stream: Stream) -> None:
    work(name, list(stream(2)))
    short, long = (work(name, list(stream(count))) for count in (30, 120))
    assert long < 4.2 * short


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_whole_are_not_read_again_with_each_event(name: str) -> None:
    work(name, list(CALLS[name](2)), is_watched=True)
    short, long = (work(name, list(CALLS[name](count)), is_watched=True) for count in (30, 120))
    assert long < 4.2 * short


@pytest.mark.parametrize(("name", "kind", "stream"), ALL, ids=[f"{name}-{kind}" for name, kind, _ in ALL])
def test_what_has_come_reads_the_same_however_often_it_is_read(name: str, kind: str, stream: Stream) -> None:
    watched = get_format(name).assembler()
    events = list(stream(5))
    for count, event in enumerate(events, 1):
        watched.feed(event)
        unwatched = get_format(name).assembler()
        for earlier in events[:count]:
            unwatched.feed(earlier)
        assert watched.partial.to_dict() == unwatched.partial.to_dict()
        assert watched.items_from(1) == watched.partial.output[1:]
    assert watched.response.to_dict() == unwatched.response.to_dict()


class Piece(str):
    """A piece of a text that counts what it is put behind."""

    __slots__ = ()
    copied = 0

    def __radd__(self, before: str) -> str:
        Piece.copied += len(before)
        return str(before) + str(self)


def with_counting_pieces(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_counting_pieces(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_counting_pieces(inner) for inner in value]
    return Piece(value) if type(value) is str and value in (PIECE, "AAEC") else value


@pytest.mark.parametrize(("name", "kind", "stream"), TEXTS, ids=[f"{name}-{kind}" for name, kind, _ in TEXTS])
def test_a_text_is_not_copied_with_each_piece(name: str, kind: str, stream: Stream) -> None:
    Piece.copied = 0
    assembler = get_format(name).assembler()
    for event in with_counting_pieces(list(stream(300))):
        assembler.feed(event)
    assert assembler.response.output
    assert Piece.copied <= len(PIECE) * 300


def likely(n: int) -> dict[str, Any]:
    return {"token": f"t{n}", "logprob": -0.5}


def test_likelihoods_are_not_copied_with_each_piece() -> None:
    """… and what was handed out before does not change."""
    chat = get_format("chat_completion").assembler()

    def say(n: int) -> None:
        chunk = _chunk(content="a")
        chunk["choices"][0]["logprobs"] = {"content": [likely(n)]}
        chat.feed(chunk)

    say(0)
    say(1)
    kept = chat.body["choices"][0]["logprobs"]["content"]
    before, shown = chat.partial, chat.partial.to_dict()
    say(2)
    assert chat.body["choices"][0]["logprobs"]["content"] is kept
    assert kept == [likely(0), likely(1), likely(2)]
    assert before.to_dict() == shown != chat.partial.to_dict()


def test_likelihoods_of_an_item_are_not_copied_with_each_piece() -> None:
    assembler = get_format("open_responses").assembler()

    def say(n: int) -> None:
        event = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"}
        assembler.feed({**event, "logprobs": [likely(n)]})

    say(0)
    kept = assembler.body["output"][0]["content"][0]["logprobs"]
    before, shown = assembler.partial, assembler.partial.to_dict()
    say(1)
    assert assembler.body["output"][0]["content"][0]["logprobs"] is kept == [likely(0), likely(1)]
    assert before.to_dict() == shown != assembler.partial.to_dict()


def test_events_of_the_caller_stay_as_they_are() -> None:
    events = list(sources(3))
    work("gemini", events)
    assert events == list(sources(3))
