"""How many transactions and statements each endpoint takes at most, once what conversations share is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import pytest
from sqlalchemy import event

from tests.databases import Database
from tests.server.conftest import Bridge
from threadkeep import AsyncStore
from threadkeep.http import Owner, Upstream, app, rest_app

WORDS = ("At ", "ten ", "o'clock.")


class Budget(NamedTuple):
    """What an endpoint may take on SQLite, on which each transaction that writes has BEGIN IMMEDIATE as a statement."""

    endpoint: str
    transactions: int
    statements: int
    body: dict[str, Any] | None = None
    more: int = 0  # on servers
    on_postgresql: int | None = None  # statements there, where that is less


_SAID: dict[str, Any] = {"items": [{"type": "message", "role": "user", "content": "Hi"}]}
_HI = [{"role": "user", "content": "Hi"}]
# what pages and agents send
_ASKED: dict[str, Any] = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "When?"}]}
_LAST: dict[str, Any] = {"id": "msg_5", "role": "assistant", "parts": []}
_RUN: dict[str, Any] = {
    "runId": "r", "messages": [{"id": "u", "role": "user", "content": "When?"}], "tools": [], "context": [],
    "state": {}, "forwardedProps": {},
}  # fmt: skip
BUDGETS = [
    # what creates a conversation of a user looks whether that one was erased since the request began
    Budget("POST /v1/responses", 2, 16, {"model": "m", "input": "Hi"}, 2, 4),
    Budget("POST /v1/responses", 2, 16, {"model": "m", "input": "Hi", "stream": True}, 2, 4),
    Budget("POST /v1/responses", 3, 19, {"model": "m", "input": "Hi", "conversation": "{chat}"}, 2),
    Budget("POST /v1/responses", 3, 20, {"model": "m", "input": "Hi", "previous_response_id": "{response}"}, 2),
    Budget("POST /v1/chat/completions", 1, 4, {"model": "m", "messages": _HI}),
    Budget("POST /v1/chat/completions", 6, 28, {"model": "m", "messages": _HI, "store": True}, 3),
    Budget("POST /v1/responses/input_tokens", 0, 0, {"model": "m", "input": "Hi"}),
    Budget(  # one is the size of the history, which is not read where it is too large
        "POST /v1/responses/input_tokens", 5, 12, {"model": "m", "input": "Hi", "previous_response_id": "{response}"}
    ),
    Budget("GET /v1/responses/{response}", 1, 5),
    Budget("GET /v1/responses/{response}?stream=true", 1, 5),
    Budget("GET /v1/responses/{response}/input_items", 1, 4),
    Budget("POST /v1/responses/{response}/cancel", 1, 5),
    Budget("POST /v1/conversations", 1, 6, _SAID),
    Budget("GET /v1/conversations", 1, 2),
    Budget("GET /v1/conversations/{chat}", 1, 1),
    Budget("POST /v1/conversations/{chat}", 3, 6, {"metadata": {"a": "b"}}, 3),
    Budget("GET /v1/conversations/{chat}/items", 1, 3),
    Budget("GET /v1/conversations/{chat}/items?after={answer}", 1, 4),
    Budget("GET /v1/conversations/{chat}/items/{answer}", 1, 4),
    Budget("POST /v1/conversations/{chat}/items", 2, 5, _SAID),
    Budget("POST /api/conversations", 1, 5, {"model": "m"}),
    Budget("GET /api/conversations", 1, 2),
    Budget("GET /api/conversations/{chat}", 1, 1),
    Budget("PATCH /api/conversations/{chat}", 3, 7, {"title": "Trains"}, 3),
    Budget("GET /api/conversations/{chat}/messages", 1, 5),
    Budget("GET /api/conversations/{chat}/messages/{answer}", 1, 5),
    Budget("POST /api/conversations/{chat}/messages", 3, 19, {"content": "When?"}, 2),
    Budget("POST /api/conversations/{chat}/messages", 2, 5, {"content": "When?", "answer": False}),
    Budget("POST /api/conversations/{chat}/regenerate", 3, 36, {}, 3),
    Budget("PUT /api/conversations/{chat}/messages/{answer}/feedback", 3, 12, {"rating": 1}),
    Budget("GET /api/conversations/{chat}/messages/{answer}/siblings", 2, 5),
    Budget("GET /api/conversations/{chat}/branches", 2, 3),
    Budget("GET /api/conversations/{chat}/tool_calls", 1, 4),
    Budget("GET /api/responses/{response}", 1, 5),
    Budget("POST /api/chat", 4, 29, {"id": "{response}", "messages": [_ASKED]}, 3),
    Budget("POST /api/chat", 4, 26, {"id": "{chat}", "messages": [_LAST, _ASKED]}, 3),
    Budget("POST /api/chat", 4, 39, {"id": "{chat}", "messages": [_LAST], "trigger": "regenerate-message"}, 3),
    Budget("POST /api/ag-ui", 5, 42, _RUN | {"threadId": "{response}"}, 3),
    Budget("POST /api/ag-ui", 5, 39, _RUN | {"threadId": "{chat}"}, 3),
    Budget("GET /api/chat/{chat}", 1, 4),
    Budget("GET /api/chat/{chat}/stream", 1, 2),
    Budget("GET /api/ag-ui/{chat}", 1, 7),
    Budget("GET /api/ag-ui/{chat}/stream", 1, 7),
    Budget("GET /api/usage", 1, 1),
]


async def answer(_payload: Any, model: str) -> Any:
    """Answer at once."""
    for word in (*WORDS, None):
        delta = {} if word is None else {"role": "assistant", "content": word}
        choice = {"index": 0, "delta": delta, "finish_reason": "stop" if word is None else None}
        yield {"id": "chatcmpl-1", "model": model, "choices": [choice]}


async def count(payload: Any, _model: str) -> int:
    """Count messages."""
    return len(payload["messages"])


class Counted:
    """The two APIs over one store, and what requests to them take."""

    def __init__(self, store: AsyncStore, runner: asyncio.Runner) -> None:
        self.store, self._runner = store, runner
        upstreams = {"m": Upstream("any", "chat_completion", answer, count=count)}
        faces = {"v1": app(store, auth=self._owner, upstreams=upstreams)}
        faces["api"] = rest_app(store, auth=self._owner, upstreams=upstreams)
        self._clients = {
            name: httpx2.Client(transport=Bridge(runner, made), base_url="http://localhost")
            for name, made in faces.items()
        }
        self._names: dict[str, str] = {}

    def _owner(self, _request: Any) -> Owner:
        return Owner(user_id="ann")

    def begin(self, answers: int = 3) -> None:
        """Have a conversation of so many answers."""
        self._runner.run(self._make(answers))

    async def _make(self, answers: int) -> None:
        chat = await self.store.for_user("ann").create_conversation(model="m")
        for number in range(answers):
            await chat.user("When?")
            message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
            part = {"type": "output_text", "text": "At ten.", "annotations": []}
            output = [{**message, "content": [part]}]
            body = {"id": f"r{number}", "object": "response", "model": "m", "status": "completed", "output": output}
            await chat.add_response(body, "open_responses")
        response = (await chat.responses()).items[-1]
        self._names = {"chat": chat.id, "response": response.id, "answer": "msg_2"}

    def call(self, endpoint: str, body: dict[str, Any] | None = None) -> Any:
        """The answer of an endpoint such as ``GET /v1/responses/{response}``."""
        method, _, path = endpoint.partition(" ")
        if body is not None:
            body = {key: one.format(**self._names) if isinstance(one, str) else one for key, one in body.items()}
        made = self._clients[path.split("/")[1]].request(method, path.format(**self._names), json=body)
        assert made.status_code in (200, 201, 204), made.text
        return made.json() if made.headers.get("content-type") == "application/json" else made.text


@contextmanager
def noted(store: AsyncStore) -> Iterator[tuple[list[str], list[str]]]:
    """The transactions of a store that are begun, and the statements that are executed."""
    begun, executed, engine = list[str](), list[str](), store.sync.handle.root.engine

    def note_begin(_connection: Any) -> None:
        begun.append("BEGIN")

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        executed.append(statement)

    event.listen(engine, "begin", note_begin)
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield begun, executed
    finally:
        event.remove(engine, "begin", note_begin)
        event.remove(engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def apis(database: Database) -> Iterator[Counted]:
    with asyncio.Runner() as runner:
        store = AsyncStore(database.url)
        yield Counted(store, runner)
        runner.run(store.close())


@pytest.fixture
def counted(apis: Counted) -> Counted:
    apis.begin()
    return apis


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda one: f"{one.endpoint} {one.body or ''}".strip())
def test_endpoints_take_a_few_transactions_and_statements(counted: Counted, budget: Budget, database: Database) -> None:
    counted.call(budget.endpoint, budget.body)  # reads what conversations share
    counted.begin()
    with noted(counted.store) as (begun, executed):
        counted.call(budget.endpoint, budget.body)
    taken = len(begun), len(executed)
    if database.kind == "sqlite":
        assert taken == (budget.transactions, budget.statements), "\n".join(executed)
    else:
        assert taken[0] <= budget.transactions + budget.more, "\n".join(executed)
        reads_again = database.kind == "mariadb" and budget.endpoint.startswith("POST")  # what an UPDATE cannot return
        assert taken[1] <= budget.statements + budget.more + reads_again, "\n".join(executed)
    if database.kind == "postgresql" and budget.on_postgresql is not None:
        assert taken[1] == budget.on_postgresql, "\n".join(executed)


@pytest.mark.parametrize("kind", ["chat", "ag-ui"])
def test_a_long_thread_takes_no_more_statements_than_a_short_one(counted: Counted, kind: str) -> None:
    sent: dict[str, Any] = _RUN | {"threadId": "{chat}"}
    taken = []
    for answers in (3, 3, 120):
        counted.begin(answers)
        if kind == "chat":
            sent = {"id": "{chat}", "messages": [{**_LAST, "id": f"msg_{2 * answers - 1}"}, _ASKED]}
        for method, body in (("POST", sent), ("GET", None)):
            with noted(counted.store) as (begun, executed):
                counted.call(f"{method} /api/{kind}{'' if body else '/{chat}'}", body)
            taken.append((len(begun), len(executed)))
    assert taken[4:] == taken[2:4]
