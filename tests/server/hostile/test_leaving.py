"""Clients that leave before anything was answered: the provider is left, too, and their places are free at once."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import pytest

from tests.databases import Database
from tests.server.conftest import MAKERS
from tests.server.hostile.providers import DONE, Provider, Script, delta, provided, sse
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, http_upstream
from threadkeep.server.limits import Limits
from threadkeep.server.permissions import Attendance
from threadkeep.server.site import site
from threadkeep.store.streaming.recorder import PartialReader

COUNT = 10
FACES = {"openai": "/v1", "rest": "/api"}
NOTHING = Script(after="open")  # a head, and no event
BEGINNING = Script(pieces=[sse(delta("Let me "))], after="open")

LIMITS = Limits(max_requests=14)  # of which an owner has ten

pytestmark = pytest.mark.timeout(120)


@dataclass
class Place:
    """A server that answers ten requests of an owner at once, before a provider that never ends."""

    url: str
    face: str
    provider: Provider
    store: Store
    services: dict[str, Any]

    def body(self, **more: Any) -> tuple[str, bytes]:
        """A path, and what is asked there, in a conversation of its own."""
        if self.face == "openai":
            return "/v1/responses", json.dumps({"model": "m", "input": "When?", **more}).encode()
        id_ = self.store.create_conversation(model="m").id
        return f"/api/conversations/{id_}/messages", json.dumps({"content": "When?", **more}).encode()

    def asking(self, **more: Any) -> socket.socket:
        """A client that has sent its request."""
        path, body = self.body(**more)
        parts = urlsplit(self.url)
        client = socket.create_connection((parts.hostname, parts.port), 20)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        return client

    def ask(self) -> int:
        """The status of another request."""
        path, body = self.body()
        return httpx2.post(self.url + path, content=body, timeout=20).status_code

    def in_flight(self) -> float:
        """How many requests are being answered."""
        for line in httpx2.get(f"{self.url}/metrics", timeout=20).text.splitlines():
            if line.startswith("threadkeep_http_requests_in_flight "):
                return float(line.split()[1]) - 1  # without this one
        raise AssertionError

    def responses(self) -> list[Any]:
        return [one for talk in self.store.list_conversations() for one in talk.responses()]

    def written(self) -> list[str | None]:
        """What is stored of the answers in progress."""
        found = (PartialReader(talk.handle, 0).read() for talk in self.store.list_conversations())
        return [partial.text for partial in found if partial is not None]

    def is_left_by_all(self, calls: int) -> bool:
        """Whether the provider was called so often, and no connection to it is open any more."""
        return self.provider.calls == calls and all(task.done() for task in self.provider.tasks)


@contextmanager
def placed(database: Database, face: str, script: Script) -> Iterator[Place]:
    tenant = uuid4().hex
    with ExitStack() as stack:
        provider = stack.enter_context(provided(script))
        store = stack.enter_context(Store(database.url, tenants=True)).create_tenant(tenant)
        upstreams = {"*": http_upstream("provider", "chat_completion", f"{provider.url}/v1")}
        mine = AsyncStore(database.url, tenants=True)

        def who(_: Any) -> Owner:
            return Owner(tenant=tenant)

        faces = {path: MAKERS[name](mine, auth=who, prefix="", upstreams=upstreams) for name, path in FACES.items()}
        served = site(faces, store=mine, limits=LIMITS)
        services = {name: faces[path].state.service for name, path in FACES.items()}
        yield Place(stack.enter_context(running(served, mine)), face, provider, store, services)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_before_the_first_event_takes_no_place(database: Database, face: str, *, stream: bool) -> None:
    with placed(database, face, NOTHING) as place:
        clients = [place.asking(stream=stream) for _ in range(COUNT)]
        wait_until(lambda: place.provider.calls == COUNT)
        assert place.ask() == 429
        for client in clients:
            client.close()
        wait_until(lambda: place.is_left_by_all(COUNT) and not place.in_flight())
        place.provider.script = Script(pieces=[sse(delta("Now.")), DONE])
        assert place.ask() == (200 if face == "openai" else 201)
        talks: list[Any] = list(place.store.list_conversations())
        roles = [[one.item.role for one in talk.items().items] for talk in talks]
        assert [one for one in roles if one] == [["user", "assistant"]], "of what was left, nothing stays"


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_later_leaves_what_came(database: Database, *, stream: bool) -> None:
    with placed(database, "openai", BEGINNING) as place:
        clients = [place.asking(stream=stream) for _ in range(COUNT)]
        wait_until(lambda: place.written() == ["Let me "] * COUNT)
        for client in clients:
            client.close()
        wait_until(lambda: place.is_left_by_all(COUNT) and not place.in_flight())
        assert [one.status for one in place.responses()] == ["cancelled"] * COUNT


@pytest.mark.parametrize("stream", [False, True])
def test_over_rest_an_answer_that_has_begun_goes_on_without_a_place(database: Database, *, stream: bool) -> None:
    with placed(database, "rest", BEGINNING) as place:
        clients = [place.asking(stream=stream) for _ in range(COUNT)]
        wait_until(lambda: len(place.services["rest"]._tasks) == COUNT)
        for client in clients:
            client.close()
        wait_until(lambda: not place.in_flight())
        assert [one.status for one in place.responses()] == ["in_progress"] * COUNT
        assert not any(task.done() for task in place.provider.tasks)


@pytest.mark.parametrize("face", FACES)
def test_an_answer_in_the_background_goes_on_whoever_leaves(database: Database, face: str) -> None:
    with placed(database, face, NOTHING) as place:
        client = place.asking(background=True)
        wait_until(lambda: place.provider.calls == 1)
        client.close()
        wait_until(lambda: not place.in_flight())  # it takes no place among the requests
        assert not place.is_left_by_all(1)
        assert [one.status for one in place.responses()] == ["in_progress"]
        place.provider.loop.call_soon_threadsafe(place.provider.tasks[0].cancel)  # nobody else ends it
        wait_until(lambda: [one.status for one in place.responses()] != ["in_progress"])


@pytest.mark.parametrize("ends", [1, 2])
def test_work_that_ends_as_its_client_leaves_is_no_error(ends: int) -> None:
    """Nor is it one that two things end it at the same time."""
    problems: list[Any] = []

    async def run(steps: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        left = asyncio.Event()
        async with Attendance() as attendance:
            for _ in range(ends):
                attendance.until(left.wait())  # type: ignore[arg-type]  # whatever it returns
            await asyncio.sleep(0)
            left.set()
            for _ in range(steps):  # after the first one, what ends it is done, and not seen yet
                await asyncio.sleep(0)
        await asyncio.sleep(0.01)

    for steps in range(5):
        asyncio.run(run(steps))
    assert problems == []
