"""A database that is away when an answer ends: the client is told so, and the answer is stored when it is back."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.cables import cable_to
from tests.databases import Database
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.db import backends
from threadkeep.http import Owner, Upstream, app, rest_app
from threadkeep.server import unstored
from threadkeep.store.streaming.recorder import PartialReader
from threadkeep.store.work import connections, transactions

FACES = ["openai", "rest"]
LATER = "Later, or never."

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_face]


@dataclass
class Away:
    """What a test does to its database."""

    url: str
    cut: Callable[[], object]
    mend: Callable[[], object]


@pytest.fixture
def away(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Away]:
    """A database that can be away: through a cable that is cut, or a file that is locked for longer than one waits."""
    if database.kind != "sqlite":
        monkeypatch.setattr(transactions, "REFUSED_SECONDS", 0.1)
        with cable_to(database.url) as (cable, url):
            yield Away(url, cable.cut, cable.mend)
        return
    monkeypatch.setattr(backends, "BUSY_SECONDS", 0)
    monkeypatch.setattr(connections, "REPEAT_SECONDS", 0.01)
    with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"), isolation_level=None)) as locking:
        yield Away(database.url, lambda: locked(locking), lambda: locking.execute("ROLLBACK"))


def locked(connection: sqlite3.Connection) -> None:
    """Lock a file, as soon as nobody else has."""
    connection.execute("PRAGMA busy_timeout=20000")
    connection.execute("BEGIN IMMEDIATE")


class Slow:
    """A provider that says something, and ends when it is let."""

    def __init__(self) -> None:
        self.asked, self._ends = 0, asyncio.Event()
        self._loop: Any = None

    async def ask(self, _payload: Any, model: str) -> Any:
        self._loop = asyncio.get_running_loop()
        self.asked += 1
        for text in ("Later, ", "or never."):
            delta = {"role": "assistant", "content": text}
            yield {"id": "c1", "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        await self._ends.wait()
        yield {"id": "c1", "model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)


@dataclass
class Place:
    """A server whose database may be away, and what is stored."""

    url: str
    face: str
    tenant: str
    slow: Slow
    store: Store
    application: Any

    def request(self, **body: Any) -> tuple[str, dict[str, Any]]:
        if self.face == "openai":
            return f"{self.url}/responses", {"model": "m", "input": "When?", **body}
        id_ = self.store.create_conversation(model="m").id
        return f"{self.url}/conversations/{id_}/messages", {"content": "When?", **body}

    def responses(self) -> list[Any]:
        return [one for talk in self.store.list_conversations() for one in talk.responses()]

    def wait_for_end(self) -> Any:
        """The response, as it is stored in the end, though nobody but the server ends it."""
        wait_until(lambda: not self.application.state.service.unstored._tasks, seconds=60)
        [response] = self.responses()
        return response


@contextmanager
def placed(away: Away, database: Database, face: str) -> Iterator[Place]:
    name, slow = uuid4().hex, Slow()
    with Store(database.url, tenants=True) as root:
        store = root.create_tenant(name)
        made: Any = {"openai": app, "rest": rest_app}[face]
        mine = AsyncStore(away.url, tenants=True)
        upstreams = {"*": Upstream("slow", "chat_completion", slow.ask)}
        application = made(mine, auth=lambda _: Owner(tenant=name), prefix="", upstreams=upstreams)
        with running(application, mine) as url:
            yield Place(url, face, name, slow, store, application)


def said(place: Place, response: Any) -> list[Any]:
    talk: Any = place.store.get_conversation(response.conversation_id)
    return [one.item.text for one in talk.output_items(response.number)]


def attempts(place: Place) -> int:
    return sum(row.attempts for row in place.store.usage())


@pytest.mark.parametrize("face", FACES)
def test_a_stream_ends_with_an_error_and_the_answer_is_stored_later(away: Away, database: Database, face: str) -> None:
    with placed(away, database, face) as place:
        path, body = place.request(stream=True)
        events: list[Any] = []
        with httpx2.stream("POST", path, json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    events.append(json.loads(line[5:]))
                    if events[-1].get("delta") == "or never.":
                        away.cut()
                        place.slow.end()
        told = events[-1]
        assert (told["type"], told["code"]) == ("error", "database")
        [response] = place.responses() if database.kind != "sqlite" else [None]
        away.mend()
        stored = place.wait_for_end()
        assert (stored.status, said(place, stored)) == ("completed", [LATER])
        assert stored.id in told["message"]
        assert attempts(place) == place.slow.asked == 1
        assert response is None or response.id == stored.id


def test_the_bill_of_an_answer_that_is_not_stored_is_written_later(away: Away, database: Database) -> None:
    """And its client has all of the answer."""
    with placed(away, database, "openai") as place:
        path, body = place.request(store=False)

        async def asked() -> httpx2.Response:
            async with httpx2.AsyncClient(timeout=60) as http:
                asking = asyncio.ensure_future(http.post(path, json=body))
                await asyncio.to_thread(wait_until, lambda: place.slow.asked)
                away.cut()
                place.slow.end()
                return await asking

        answer = asyncio.run(asked())
        assert (answer.status_code, answer.json()["status"]) == (200, "completed")
        wait_until(lambda: place.application.state.service.unstored._tasks)
        away.mend()
        wait_until(lambda: not place.application.state.service.unstored._tasks, seconds=60)
        assert (attempts(place), place.responses()) == (1, [])


@pytest.mark.parametrize("face", FACES)
def test_a_plain_request_is_told_when_to_come_again(away: Away, database: Database, face: str) -> None:
    with placed(away, database, face) as place:
        path, body = place.request()

        async def asked() -> httpx2.Response:
            async with httpx2.AsyncClient(timeout=60) as http:
                asking = asyncio.ensure_future(http.post(path, json=body))
                await asyncio.to_thread(wait_until, lambda: written(place) == LATER)
                away.cut()
                place.slow.end()
                return await asking

        answer = asyncio.run(asked())
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database")
        assert int(answer.headers["retry-after"]) > 0
        away.mend()
        stored = place.wait_for_end()
        assert (stored.status, said(place, stored)) == ("completed", [LATER])


def written(place: Place) -> str | None:
    """What is stored of the answer while it comes."""
    for talk in place.store.list_conversations():
        if (partial := PartialReader(talk.handle, 0).read()) is not None:
            return partial.text
    return None


@pytest.mark.parametrize("face", FACES)
def test_who_reads_it_first_gets_all_of_it(
    away: Away, database: Database, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has the whole answer, whoever asks it to end what has no recorder any more."""
    monkeypatch.setattr(unstored, "FIRST_PAUSE", 3600.0)
    with placed(away, database, face) as place:
        path, body = place.request(background=True)
        made = httpx2.post(path, json=body, timeout=60).json()
        id_ = made["id"] if face == "openai" else made["response"]["id"]
        wait_until(lambda: written(place) == LATER)
        away.cut()
        place.slow.end()
        tasks = place.application.state.service.unstored._tasks
        wait_until(lambda: tasks)
        away.mend()

        def found() -> Any:
            return httpx2.get(f"{place.url}/responses/{id_}", timeout=60).json()

        wait_until(lambda: found().get("status") not in ("in_progress", "queued"), seconds=30)
        assert found()["status"] == "completed"
        assert [part["text"] for item in found()["output"] for part in item["content"]] == [LATER]
        assert attempts(place) == 1


def test_a_server_that_stops_tries_once_more(away: Away, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstored, "FIRST_PAUSE", 3600.0)
    with placed(away, database, "openai") as place:
        path, body = place.request(background=True)
        httpx2.post(path, json=body, timeout=60)
        wait_until(lambda: written(place) == LATER)
        away.cut()
        place.slow.end()
        wait_until(lambda: place.application.state.service.unstored._tasks)
        away.mend()
    with Store(database.url, tenants=True) as root:
        [conversation] = root.for_tenant(place.tenant).list_conversations()
        assert [one.status for one in conversation.responses()] == ["completed"]


def test_the_end_is_lost_after_a_time(
    away: Away, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Which the log tells; what had come before stays, as incomplete."""
    monkeypatch.setattr(unstored, "STORE_SECONDS", 0.0)
    with placed(away, database, "openai") as place, caplog.at_level(logging.ERROR):
        path, body = place.request(background=True)
        httpx2.post(path, json=body, timeout=60)
        wait_until(lambda: written(place) == LATER)
        away.cut()
        place.slow.end()
        wait_until(lambda: "The end of an answer is lost" in caplog.text, seconds=30)
        away.mend()
        wait_until(lambda: [one.status for one in place.responses()] == ["incomplete"], seconds=30)
        [response] = place.responses()
        assert said(place, response) == [LATER]
