"""Bodies that are still coming: only so many bytes are kept at once, of each owner and of all, on every face."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from tests.server.callers import http_scope
from tests.server.conftest import MAKERS
from tests.server.test_large_answers import Pieces, client
from threadkeep import InvalidOption
from threadkeep.http import Limits, app, rest_app, site
from threadkeep.server.request_state import PIECE_BYTES
from threadkeep.server.requests import body_bytes


async def in_two(body: Any, is_read: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """A body in two pieces; the event is set a while after both are read."""
    text = json.dumps(body).encode()
    yield text[: len(text) // 2]
    yield text[len(text) // 2 :]
    if is_read is not None:
        loop = asyncio.get_running_loop()
        turns = iter(range(100))

        def go_on() -> None:
            if next(turns, None) is None:
                is_read.set()
            else:
                loop.call_soon(go_on)

        go_on()


FACES = {"openai": "/v1/conversations", "rest": "/api/conversations", "media": "/api/media"}
MOST = 400_000  # of which each owner has 300,000


def application(served: Any, how: str) -> Any:
    """Both APIs, alone, mounted in another application, or in a site, where one limit is for both."""
    options: dict[str, Any] = {"auth": served.authenticate, "prefix": "" if how == "site" else None}
    made = {}
    for path, face in (("/v1", app), ("/api", rest_app)):
        most = 1 if how == "site" else MOST  # that of the site counts
        made[path] = face(served._store, auth=options["auth"], prefix="", max_bodies_bytes=most)
    if how == "site":
        return site(made, limits=Limits(max_bodies_bytes=MOST))
    return Starlette(routes=[Mount(path, face) for path, face in made.items()])


class Clients:
    """Clients in one event loop, whose bodies come in pieces."""

    def __init__(self, made: Any, path: str) -> None:
        self._http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=made), base_url="http://localhost")
        self._path, self.may_end = path, asyncio.Event()

    async def send(self, user: str, size: int, begun: asyncio.Event | None = None, path: str = "") -> httpx2.Response:
        """Send a body of so many bytes; with `begun`, which is set then, it ends when it may."""

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(size // 50_000):
                yield b" " * 50_000
            if begun is not None:
                begun.set()
                await self.may_end.wait()

        headers = {"authorization": f"Bearer {user}", "content-type": "image/png"}
        return await self._http.post(path or self._path, content=pieces(), headers=headers)

    async def begin(self, user: str, size: int) -> asyncio.Future[httpx2.Response]:
        """Send a body but for its end."""
        begun = asyncio.Event()
        task = asyncio.ensure_future(self.send(user, size, begun))
        await asyncio.wait_for(begun.wait(), 20)
        return task


def refusal(answer: httpx2.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]


@pytest.mark.parametrize("how", ["mounted", "site"])
@pytest.mark.parametrize("face", FACES)
def test_bodies_that_are_still_coming_leave_room_for_others(served: Any, face: str, how: str) -> None:
    async def run() -> None:
        clients = Clients(application(served, how), FACES[face])
        coming = await clients.begin("ann", 200_000)
        assert refusal(await clients.send("ann", 150_000)) == (429, "too_many_bodies", "5")
        assert refusal(await clients.send("ben", 250_000)) == (503, "overloaded", "5")
        assert (await clients.send("ann", 100_000)).status_code in (200, 201)
        assert (await clients.send("ben", 200_000)).status_code in (200, 201)
        clients.may_end.set()
        assert (await coming).status_code in (200, 201)
        assert (await clients.send("ann", 300_000)).status_code in (200, 201)
        assert refusal(await clients.send("ann", 350_000)) == (429, "too_many_bodies", "5")

    served.runner.run(run())


def test_the_limit_of_a_site_is_for_all_its_faces(served: Any) -> None:
    async def run() -> None:
        clients = Clients(application(served, "site"), "/v1/conversations")
        coming = await clients.begin("ann", 250_000)
        assert refusal(await clients.send("ann", 100_000, path="/api/conversations")) == (429, "too_many_bodies", "5")
        coming.cancel()  # its client leaves
        await asyncio.gather(coming, return_exceptions=True)
        assert (await clients.send("ann", 300_000, path="/api/conversations")).status_code == 201

    served.runner.run(run())


@pytest.mark.parametrize("how", ["mounted", "site"])
def test_a_body_counts_while_its_request_waits_for_the_store(served: Any, how: str) -> None:
    """It is read, and what is made of it is in memory until it is stored."""

    async def run() -> None:
        talk, is_read = await served.store.create_conversation(user_id="ann"), asyncio.Event()
        async with client(application(served, how)) as http:
            async with served.store.begin() as work:  # writers of the conversation wait for its end
                await work.open(talk.id)
                body = in_two({"items": [{"role": "user", "content": "x" * 200_000}]}, is_read)
                waiting = asyncio.ensure_future(http.post(f"/v1/conversations/{talk.id}/items", content=body))
                await is_read.wait()
                refused = await http.post("/v1/conversations", content=in_two({"metadata": "x" * 150_000}))
                assert refusal(refused) == (429, "too_many_bodies", "5")
            assert (await waiting).status_code == 200
            assert (
                await http.post("/v1/conversations", content=in_two({"metadata": "x" * 150_000}))
            ).status_code == 400

    served.runner.run(run())


@pytest.mark.parametrize("face", ["openai", "rest"])
def test_a_body_counts_while_a_model_answers_it(served: Any, face: str) -> None:
    async def run() -> None:
        pieces = Pieces(1, may_end=False)
        make = MAKERS[face]
        made = make(
            served._store, auth=served.authenticate, prefix="", max_bodies_bytes=MOST, upstreams=pieces.upstreams
        )
        path, body = "/responses", {"model": "m", "input": "x" * 200_000}
        if face == "rest":
            talk = await served.store.create_conversation(user_id="ann", model="m")
            path, body = f"/conversations/{talk.id}/messages", {"content": "x" * 200_000}
        async with client(made) as http:
            answered = asyncio.ensure_future(http.post(path, content=in_two(body)))
            await pieces.said.wait()
            refused = await http.post("/conversations", content=in_two({"title": "x" * 150_000}))
            assert refusal(refused) == (429, "too_many_bodies", "5")
            pieces.may_end.set()
            assert (await answered).status_code in (200, 201)
            read = await http.post("/conversations", content=in_two({"title": "x" * 150_000}))
            assert read.status_code == {"openai": 200, "rest": 400}[face]

    served.runner.run(run())


def test_a_body_is_kept_once() -> None:
    size = 8 * 1024 * 1024

    async def receive() -> dict[str, Any]:
        left.pop()
        return {"type": "http.request", "body": b"x" * 65_536, "more_body": bool(left)}

    async def peak() -> tuple[int, int]:
        tracemalloc.start()
        try:
            body = await body_bytes(request, size)
            return len(body), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    left = [0] * (size // 65_536)
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
    length, most = asyncio.run(peak())
    assert length == size
    assert most < 1.5 * size


@pytest.mark.parametrize("most", [0, -1, "1", 1.5])
def test_what_is_no_limit_is_refused(served: Any, most: Any) -> None:
    for face in (app, rest_app):
        with pytest.raises(InvalidOption, match="max_bodies_bytes"):
            face(served._store, max_bodies_bytes=most)


class Readers:
    """Clients that take what they get when they may."""

    def __init__(self, made: Any, path: str) -> None:
        self._made, self._path = made, path
        self.may_read, self.largest = asyncio.Event(), 0

    async def read(self, begun: asyncio.Event | None = None) -> tuple[int, bytes]:
        """The status and the body; with `begun`, which is set when it begins, it is taken when it may be."""
        status, body = 0, b""

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            nonlocal status, body
            status = message.get("status", status)
            body += message.get("body", b"")
            self.largest = max(self.largest, len(message.get("body", b"")))
            if begun is not None and body:
                begun.set()
                await self.may_read.wait()

        scope = http_scope(self._path, headers={"authorization": "Bearer ann"}, state={})
        await self._made(scope, receive, send)
        return status, body

    async def read_while_another_waits(self) -> list[tuple[int, bytes]]:
        """One answer is refused while the client of another does not read; then both of these are read."""
        begun = asyncio.Event()
        first = asyncio.ensure_future(self.read(begun))
        await asyncio.wait_for(begun.wait(), 20)
        status, body = await self.read()
        assert (status, json.loads(body)["error"]["code"]) == (429, "too_many_bodies")
        self.may_read.set()
        return [await first, await self.read()]


@pytest.mark.parametrize("how", ["mounted", "site"])
@pytest.mark.parametrize("face", ["openai", "rest"])
def test_answers_that_are_not_read_count_until_they_are(served: Any, face: str, how: str) -> None:
    """They are sent in pieces, of which a server keeps few."""
    text = "x" * 200_000
    talk = served.call(served.store.create_conversation, user_id="ann", input=text)
    path = f"/v1/conversations/{talk.id}/items" if face == "openai" else f"/api/conversations/{talk.id}/messages"
    readers = Readers(application(served, how), path)
    for status, body in served.runner.run(readers.read_while_another_waits()):
        assert (status, text in body.decode()) == (200, True)
    assert readers.largest <= PIECE_BYTES


@pytest.mark.parametrize("how", ["mounted", "site"])
def test_a_replay_that_is_not_read_counts_with_all_that_it_is_made_of(served: Any, how: str) -> None:
    """Its events are small, but for the last one; the response behind them is kept until they are read."""
    function = {"name": "look", "arguments": json.dumps({"a": "x" * 10_000})}
    calls = [{"id": f"call_{number}", "type": "function", "function": function} for number in range(20)]
    choice = {"index": 0, "message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "tool_calls"}

    async def stored() -> str:
        talk = await served.store.create_conversation(user_id="ann", input="Hi")
        await talk.add_response({"id": "c1", "model": "m", "choices": [choice]}, "chat_completion")
        return str((await talk.responses()).items[0].id)

    path = f"/v1/responses/{served.runner.run(stored())}?stream=true"
    readers = Readers(application(served, how), path)
    for status, body in served.runner.run(readers.read_while_another_waits()):
        assert (status, body.count(b"event: response.completed")) == (200, 1)
