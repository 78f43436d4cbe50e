# ruff: noqa: E501 - tables of requests
"""What a call costs grows with its input as a line does: in statements, and in calls of functions.

Time is not measured: a function that looks at everything again for each thing calls something that often, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import MATRIX, is_set
from tests.databases import Database
from tests.factories import a_call, a_message, an_answer, an_output
from tests.store.watching import engine_of, statements_of
from threadkeep import Session, Store
from threadkeep.db.backends.sqlite import CHECKPOINT_PAGES

pytestmark = [pytest.mark.sampled, pytest.mark.share(3)]

N = 400 if is_set("THREADKEEP_LONG") else 16 if MATRIX == "quick" else 60
Thunk = Callable[[], Any]


def texts(count: int) -> list[str]:
    return [f"text {number} {'x' * (number % 7)}" for number in range(count)]


def tools(count: int) -> list[dict[str, Any]]:
    return [{"type": "function", "name": f"tool_{number}", "parameters": {"type": "object"}} for number in range(count)]


def requests(count: int) -> dict[str, Any]:
    """A request of each format with that many turns, half of them calls and their outputs."""
    pairs = range(count // 2)
    return {
        "open_responses": {
            "model": "m", "input": [one for number in pairs for one in (a_call(f"c{number}"), an_output(f"c{number}"))],
        },
        "chat_completion": {
            "model": "m",
            "messages": [
                one
                for number in pairs
                for one in (
                    {"role": "assistant", "tool_calls": [
                        {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ]},
                    {"role": "tool", "tool_call_id": f"c{number}", "content": "ok"},
                )
            ],
        },
        "messages": {
            "model": "m", "max_tokens": 9,
            "messages": [
                one
                for number in pairs
                for one in (
                    {"role": "assistant", "content": [{"type": "tool_use", "id": f"c{number}", "name": "f", "input": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": "ok"}]},
                )
            ],
        },
        "gemini": {
            "contents": [
                one
                for number in pairs
                for one in (
                    {"role": "model", "parts": [{"functionCall": {"name": f"f{number}", "args": {}}}]},
                    {"role": "user", "parts": [{"functionResponse": {"name": f"f{number}", "response": {"x": 1}}}]},
                )
            ],
        },
        "converse": {
            "modelId": "m",
            "messages": [
                one
                for number in pairs
                for one in (
                    {"role": "assistant", "content": [{"toolUse": {"toolUseId": f"c{number}", "name": "f", "input": {}}}]},
                    {"role": "user", "content": [
                        {"toolResult": {"toolUseId": f"c{number}", "content": [{"text": "ok"}]}}
                    ]},
                )
            ],
        },
        "pydantic_ai": {
            "message_history": [
                one
                for number in pairs
                for one in (
                    {"kind": "response", "parts": [
                        {"part_kind": "tool-call", "tool_name": "f", "args": {}, "tool_call_id": f"c{number}"}
                    ]},
                    {"kind": "request", "parts": [
                        {"part_kind": "tool-return", "tool_name": "f", "content": "ok", "tool_call_id": f"c{number}"}
                    ]},
                )
            ],
        },
    }  # fmt: skip


TURNS = {"open_responses": "input", "gemini": "contents", "pydantic_ai": "message_history"}  # else: messages


def bodies(count: int) -> dict[str, Any]:
    calls = [f"c{number}" for number in range(count)]
    functions = [{"id": call, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call in calls]
    message = {"role": "assistant", "tool_calls": functions}
    return {
        "open_responses": an_answer(*texts(count), calls=tuple(calls)),
        "chat_completion": {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]},
        "messages": {
            "id": "msg", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
            "content": [{"type": "tool_use", "id": call, "name": "f", "input": {}} for call in calls],
        },
        "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}] * count}}]},
        "converse": {
            "output": {"message": {"role": "assistant", "content": [
                {"toolUse": {"toolUseId": call, "name": "f", "input": {}}} for call in calls
            ]}},
            "stopReason": "tool_use",
        },
        "pydantic_ai": {"kind": "response", "parts": [
            {"part_kind": "tool-call", "tool_name": "f", "args": {}, "tool_call_id": call} for call in calls
        ]},
    }  # fmt: skip


def with_history(store: Any, count: int) -> Any:
    history = [one for number in range(count // 2) for one in (a_call(f"c{number}"), an_output(f"c{number}"))]
    return store.create_conversation(model="m", input=[a_message(), *history])


def streamed(conversation: Any, count: int) -> Thunk:
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "word "}
    message = {**an_answer("")["output"][0], "content": []}
    start = [
        {"type": "response.created", "response": {**an_answer(), "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
    ]

    def feed() -> None:
        with conversation.stream_response("open_responses") as recorder:
            for event in [*start, *[delta] * count]:
                recorder.feed(event)

    return feed


def synced(store: Any, format: str, count: int, *, differs: bool) -> Thunk:
    """A client's history of that many turns, of which the last ones are new, or differ from what is stored."""
    request = requests(count)[format]
    turns = request[TURNS.get(format, "messages")]
    conversation = store.import_request({**request, TURNS.get(format, "messages"): turns[:-4]}, format)
    if differs:
        conversation.user("another end")
    return lambda: conversation.sync_request(request, format)


CASES: dict[str, Callable[[Any, int], Thunk]] = {
    "parts": lambda s, n: with_call(s, lambda c: c.user([{"type": "input_text", "text": one} for one in texts(n)])),
    "items": lambda s, n: with_call(s, lambda c: c.add_items([a_message(one) for one in texts(n)])),
    "labels": lambda s, n: with_call(s, lambda c: c.update(labels={f"k{one}": "v" for one in range(n)})),
    "metadata": lambda s, n: with_call(s, lambda c: c.update(metadata={f"k{one}": "v" for one in range(n)})),
    "tools": lambda s, n: with_call(s, lambda c: c.register_tools(tools(n))),
    "the same tool": lambda s, n: with_call(s, lambda c: c.register_tools(tools(1) * n)),
    "one tool more": lambda s, n: with_call(s, lambda c: c.register_tool("more"), tools=tools(n)),
    "one tool less": lambda s, n: with_call(s, lambda c: c.remove_tool("tool_0"), tools=tools(n)),
    "sessions": lambda s, n: lambda: s.save_many([Session(model="m", input=one) for one in texts(n)]),
    "input": lambda s, n: lambda: s.create_conversation(model="m", input=[a_message(one) for one in texts(n)]),
    "a stream": lambda s, n: streamed(s.create_conversation(model="m"), 10 * n),
    "a summary": lambda s, n: with_last(with_history(s, n), lambda c: c.compact(summary="So far")),
    "a transcript": lambda s, n: with_last(with_history(s, n), lambda c: c.transcript()),
    "a copy": lambda s, n: with_last(with_history(s, n), lambda c: s.copy_conversation(c.id)),
    "a search": lambda s, n: lambda: s.search(" ".join(f"word{one}" for one in range(min(n // 4, 99)))),
    "filters": lambda s, n: lambda: s.usage(model=texts(n)),
    "deep": lambda s, n: with_call(s, lambda c: c.add_item({"type": "x", "value": nested(45 * n // N)}, known=False)),
}
for _name in requests(2):
    CASES |= {
        f"import {_name}": lambda s, n, f=_name: lambda: s.import_request(requests(n)[f], f),  # type: ignore[misc]
        f"answer {_name}": lambda s, n, f=_name: with_call(s, lambda c: c.add_response(bodies(n)[f], f)),  # type: ignore[misc]
        f"request {_name}": lambda s, n, f=_name: with_last(with_history(s, n), lambda c: c.request_body(f)),  # type: ignore[misc]
        f"turns {_name}": lambda s, n, f=_name: with_call(  # type: ignore[misc]
            s, lambda c: c.add_input(requests(n)[f][TURNS.get(f, "messages")], f)
        ),
        f"sync {_name}": lambda s, n, f=_name: synced(s, f, n, differs=False),  # type: ignore[misc]
        f"sync {_name} that differs": lambda s, n, f=_name: synced(s, f, n, differs=True),  # type: ignore[misc]
    }


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


def with_call(store: Any, call: Callable[[Any], Any], **options: Any) -> Thunk:
    return with_last(store.create_conversation(model="m", **options), call)


def with_last(conversation: Any, call: Callable[[Any], Any]) -> Thunk:
    return lambda: call(conversation)


def cost_of(store: Any, work: Thunk) -> tuple[int, int]:
    """How many statements it runs, and how many functions it calls."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    with statements_of(store) as statements:
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            work()
        finally:
            sys.setprofile(before)
    return len(statements), calls


def least_cost(store: Any, case: Callable[[Any, int], Thunk], count: int) -> tuple[int, int]:
    """The least cost of several calls: without statements that are compiled for the first time, and the like."""
    statements, calls = zip(*(cost_of(store, case(store, count)) for _ in range(2)), strict=True)
    return min(statements), min(calls)


@pytest.mark.parametrize("face", ["sync"])
@pytest.mark.parametrize("name", CASES)
def test_a_call_costs_as_much_more_as_it_is_given_more(store: Any, face: str, name: str) -> None:
    case = CASES[name]
    (few, small), (more, middle), (many, large) = (least_cost(store, case, count) for count in (N, 2 * N, 4 * N))
    assert many - more <= 2.6 * max(more - few, 0) + 4, (few, more, many)
    assert large - middle <= 2.6 * max(middle - small, 0) + 500, (small, middle, large)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_sqlite_copies_pages_that_turns_write_again_and_again_once_in_a_while(database: Database) -> None:
    with Store(database.url) as store, engine_of(store).connect() as connection:
        assert connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar() == CHECKPOINT_PAGES
