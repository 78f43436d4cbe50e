"""Large answers: their bytes count while they come, and when there is no room for one, no client asks for it again."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
import uvloop

from tests.server.callers import http_scope
from tests.server.hostile.providers import Script, provided
from tests.waiting import wait_until
from threadkeep.http import Limits, Upstream, app, rest_app, site
from threadkeep.server.objects import item_object
from threadkeep.server.permissions import stream_quota
from threadkeep.server.provider_connections import ProviderClient
from threadkeep.server.quotas import GrowthQuota, QuotaExceeded
from threadkeep.server.service import Service, answer_quota

pytestmark = pytest.mark.one_database

PIECE = "x" * 50_000


class Pieces:
    """An upstream that says so many pieces, and ends when it may."""

    def __init__(self, count: int, *, may_end: bool = True) -> None:
        self.count, self.calls, self.upstreams = count, 0, {"*": Upstream("mine", "chat_completion", self.ask)}
        self.said, self.may_end = asyncio.Event(), asyncio.Event()
        if may_end:
            self.may_end.set()

    async def ask(self, _payload: Any, model: str) -> AsyncGenerator[Any]:
        self.calls += 1
        for _ in range(self.count):
            yield {"id": "c", "model": model, "choices": [{"index": 0, "delta": {"content": PIECE}}]}
            await asyncio.sleep(0)
        self.said.set()
        await self.may_end.wait()
        yield {"id": "c", "model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def client(application: Any, user: str = "ann") -> httpx2.AsyncClient:
    headers = {"authorization": f"Bearer {user}"}
    transport = httpx2.ASGITransport(app=application)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=30)


def with_quota(monkeypatch: pytest.MonkeyPatch, **quotas: Any) -> None:
    init: Any = Service.__init__

    def made(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        for name, quota in quotas.items():
            object.__setattr__(self, name, quota)

    monkeypatch.setattr(Service, "__init__", made)


@pytest.mark.parametrize("with_key", [False, True])
def test_a_refusal_in_place_of_an_answer_is_not_for_another_try(served: Any, *, with_key: bool) -> None:
    """The model has answered, and would be asked again; with a key, the answer is found."""
    pieces = Pieces(8)

    async def run() -> httpx2.Response:
        face = app(served._store, auth=served.authenticate, prefix="", upstreams=pieces.upstreams)
        headers = {"idempotency-key": "k"} if with_key else {}
        async with client(site({"/v1": face}, limits=Limits(max_bodies_bytes=300_000))) as http:
            return await http.post("/v1/responses", json={"model": "m", "input": "Hi"}, headers=headers)

    answer = served.runner.run(run())
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_bodies")
    assert answer.headers.get("x-should-retry") == (None if with_key else "false")


def test_a_stream_in_the_background_takes_its_place_before_it_begins(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_quota(monkeypatch, streams=stream_quota(1))
    pieces = Pieces(1)
    body = {"model": "m", "input": "Hi", "background": True, "stream": True}

    async def run() -> list[int]:
        async with client(served.application(upstreams=pieces.upstreams)) as http:
            answers = await asyncio.gather(*(http.post("/v1/responses", json=body) for _ in range(3)))
            later = await http.post("/v1/responses", json=body)
            return [*sorted(answer.status_code for answer in answers), later.status_code]

    assert served.runner.run(run()) == [200, 429, 429, 200]
    assert pieces.calls == 2


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_bytes_of_answers_in_progress_are_limited(
    served: Any, monkeypatch: pytest.MonkeyPatch, *, is_stream: bool
) -> None:
    """Two together have too many, so the second is left; another user has room, and so has the next one."""
    with_quota(monkeypatch, answer_bytes=answer_quota(200_000, seconds=0.01))
    body = {"model": "m", "input": "Hi", "stream": is_stream}

    async def run() -> None:
        pieces = Pieces(6, may_end=False)
        application = served.application(upstreams=pieces.upstreams)
        async with client(application) as ann, client(application, "ben") as ben:
            first = asyncio.ensure_future(ann.post("/v1/responses", json=body))
            await pieces.said.wait()
            second = await ann.post("/v1/responses", json=body)
            found = json.loads(second.text.rsplit("data: ", 1)[-1]) if is_stream else second.json()
            found = found.get("response", found)
            assert (found["status"], len(found["output"][0]["content"][0]["text"])) == ("incomplete", 2 * len(PIECE))
            pieces.may_end.set()
            assert (await ben.post("/v1/responses", json=body)).status_code == 200
            assert (await first).status_code == 200
            assert '"status":"incomplete"' not in (await ann.post("/v1/responses", json=body)).text

    served.runner.run(run())


def test_an_answer_without_room_waits_for_others_to_end(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_quota(monkeypatch, answer_bytes=(quota := answer_quota(200_000)))
    body = {"model": "m", "input": "Hi"}

    async def run() -> list[str]:
        pieces = Pieces(6, may_end=False)
        async with client(served.application(upstreams=pieces.upstreams)) as ann:
            first = asyncio.ensure_future(ann.post("/v1/responses", json=body))
            await pieces.said.wait()
            second = asyncio.ensure_future(ann.post("/v1/responses", json=body))
            await asyncio.to_thread(wait_until, lambda: quota.waiting_count == 1)
            pieces.may_end.set()
            return [(await one).json()["status"] for one in (first, second)]

    assert served.runner.run(run()) == ["completed", "completed"]


def test_where_all_wait_the_newest_ends_so_that_others_go_on() -> None:
    """Ten that grow at once to 40, where there is room for 100: those that ended gave their room to the oldest."""
    quota = GrowthQuota(100, 1_000, text="Too much")

    async def grow(size: int) -> str:
        with quota.growing("ann") as growth:
            for now in range(1, size + 1):
                await quota.grow(growth, now)
                await asyncio.sleep(0)
        return "whole"

    async def run() -> list[Any]:
        return await asyncio.gather(*(grow(40) for _ in range(10)), return_exceptions=True)

    ended = asyncio.run(run())
    assert [isinstance(one, QuotaExceeded) for one in ended] == [False] * 7 + [True] * 3
    assert quota.total == 0


@pytest.mark.parametrize("make", [app, rest_app])
def test_the_room_for_answers_is_that_of_two_of_an_owner_and_four_in_all(served: Any, make: Any) -> None:
    made = make(served._store, auth=served.authenticate, max_answer_bytes=100)
    quota = made.state.service.answer_bytes
    refused = []
    for name, amount in (("ann", 200), ("ann", 1), ("ben", 200), ("cyd", 1)):
        with suppress(QuotaExceeded):
            quota.take(name, amount)
            continue
        refused.append(name)
    assert refused == ["ann", "cyd"]


def test_where_two_end_at_once_two_go_on() -> None:
    """Neither waits until the other has ended."""
    quota = GrowthQuota(100, 1_000, text="Too much", seconds=20)
    went_on = [asyncio.Event(), asyncio.Event()]

    async def wait(number: int) -> None:
        with quota.growing("ann") as growth:
            await quota.grow(growth, 40)
            went_on[number].set()
            await went_on[1 - number].wait()

    async def run() -> None:
        with quota.growing("ann") as first, quota.growing("ann") as second:
            for growth in (first, second):
                await quota.grow(growth, 50)
            others = [asyncio.ensure_future(wait(number)) for number in range(2)]
            for _ in range(10):
                await asyncio.sleep(0)
            assert quota.waiting_count == len(others)
        assert not any(one.is_set() for one in went_on)
        for _ in range(10):
            await asyncio.sleep(0)
        assert all(one.is_set() for one in went_on)
        await asyncio.gather(*others)

    asyncio.run(run())
    assert quota.total == 0


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_no_more_of_an_answer_is_received_ahead_than_uvloop_takes_at_once(run: Any) -> None:
    """It takes 250 KiB, 32 times over, if the system has so much."""

    async def size(url: str) -> int:
        async with ProviderClient() as http, http.stream("POST", url) as response:
            connection = response.extensions["network_stream"].get_extra_info("socket")
            return int(connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))

    with provided(Script([b"Hi"])) as provider:
        assert run(size(provider.url)) < 256_000


def test_no_answer_begins_where_those_in_progress_are_as_large_as_they_may_be(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_quota(monkeypatch, answer_bytes=(quota := answer_quota(1000)))
    quota.take(served.authenticate(httpx2.Request("GET", "/", headers={"authorization": "Bearer ann"})).name, 2000)
    pieces = Pieces(1)
    answer = served.http(upstreams=pieces.upstreams).post("/responses", json={"model": "m", "input": "Hi"})
    assert (answer.status_code, answer.json()["error"]["code"], pieces.calls) == (429, "too_many_answer_bytes", 0)
    assert "x-should-retry" not in answer.headers


def test_texts_that_a_client_does_not_read_count(served: Any) -> None:
    """Its stream ends where too many wait, and it may come back for them: the answer goes on."""
    pieces = Pieces(40)
    made = rest_app(served._store, auth=served.authenticate, upstreams=pieces.upstreams, max_bodies_bytes=400_000)

    async def run() -> tuple[str, str]:
        async with client(made) as http:
            id_ = (await http.post("/api/conversations", json={"model": "m"})).json()["id"]
        sent, is_read = bytearray(), asyncio.Event()

        async def receive() -> Any:
            if not sent and not request:
                await asyncio.Event().wait()
            return request.pop() if request else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.extend(message.get("body", b""))
            if len(sent) > len(PIECE):
                await is_read.wait()

        body = json.dumps({"content": "Hi", "stream": True}).encode()
        request = [{"type": "http.request", "body": body, "more_body": False}]
        headers = {"authorization": "Bearer ann", "content-type": "application/json"}
        scope = http_scope(f"/api/conversations/{id_}/messages", "POST", headers)
        answering = asyncio.ensure_future(made(scope, receive, send))
        await asyncio.wait_for(pieces.said.wait(), 20)
        await asyncio.gather(*made.state.service._tasks)
        is_read.set()
        await asyncio.wait_for(answering, 20)
        conversation = await served.store.for_user("ann").get_conversation(id_)
        [response] = await conversation.responses()
        return bytes(sent).decode().rsplit("data: ", 1)[-1], response.status

    last, status = served.runner.run(run())
    assert (json.loads(last)["code"], status) == ("too_many_bodies", "completed")


def test_the_object_of_a_large_answer_is_made_in_a_thread(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[threading.Thread]()
    shown: Any = item_object

    def noting(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return shown(*args)

    monkeypatch.setattr("threadkeep.server.objects.item_object", noting)
    for count in (1, 8):
        http = served.http(upstreams=Pieces(count).upstreams)
        assert http.post("/responses", json={"model": "m", "input": "Hi"}).status_code == 200
    assert [thread is threading.main_thread() for thread in threads] == [True, False]
