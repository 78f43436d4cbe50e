"""The event loop comes up for air while what is in memory already is taken: what others wait for, counted in events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.databases import Database
from tests.server.hostile.providers import DONE, delta, sse, ticked
from tests.server.scripts import COMPRESS, script
from tests.server.test_upstreams import amazon_message
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, Upstream, app, rest_app, site
from threadkeep.server import provider_answers
from threadkeep.server.limits import BEGUN_AT_ONCE
from threadkeep.server.provider_answers import SLICE_BYTES, SLICE_STEPS, Slices

pytestmark = pytest.mark.one_database

MANY = 3000
ENCODINGS: dict[str, Callable[[bytes], bytes]] = {"identity": bytes, **COMPRESS}


def response(body: bytes, encoding: str = "identity", media_type: str = "text/event-stream") -> httpx2.Response:
    """A response whose body is in memory."""

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield ENCODINGS[encoding](body)

    headers = {"content-type": media_type, "content-encoding": encoding}
    return httpx2.Response(200, headers=headers, stream=Body(), request=httpx2.Request("POST", "http://provider"))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_events_in_memory_are_taken_in_slices(encoding: str) -> None:
    body = sse(*[delta("word ")] * MANY) + DONE
    counts = asyncio.run(ticked(provider_answers.text_events(response(body, encoding), len(body))))
    assert sum(counts) == MANY
    assert max(counts) <= SLICE_STEPS


def test_messages_in_memory_are_taken_in_slices() -> None:
    body = b"".join(amazon_message(event) for event in script("converse", ["word "] * MANY))
    counts = asyncio.run(ticked(provider_answers.binary_batches(response(body), len(body))))
    assert sum(counts) > MANY
    assert max(counts) <= SLICE_STEPS


@pytest.mark.share(3)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("line", [b": comment\n", b"\n", b"event: x\n\n", b"\r"])
def test_lines_that_are_no_events_are_taken_in_slices(line: bytes, encoding: str) -> None:
    body = line * (500_000 // len(line))
    counts = asyncio.run(ticked(provider_answers.text_events(response(body, encoding), len(body))))
    assert len(counts) >= len(body) / SLICE_BYTES / 2
    assert sum(counts) == 0


def test_a_body_that_comes_byte_by_byte_is_taken_in_slices() -> None:
    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for byte in sse(delta("ä木🎉")) * 20:
                yield bytes([byte])

    given = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body())
    given.request = httpx2.Request("POST", "http://provider")
    counts = asyncio.run(ticked(provider_answers.text_events(given, 100_000)))
    assert sum(counts) == 20
    assert len(counts) > len(sse(delta("ä木🎉"))) * 20 / SLICE_STEPS


def test_what_passes_through_a_recorder_gives_way_after_some_chunks() -> None:
    async def chunks() -> AsyncIterator[int]:
        slices = Slices()
        for number in range(100):
            yield number
            await slices.step(10)

    assert max(asyncio.run(ticked(chunks()))) <= SLICE_STEPS


FACES: dict[str, Callable[..., Any]] = {"responses": app, "rest": rest_app}


@pytest.mark.parametrize("kind", ["texts", "calls", "parts"])
@pytest.mark.parametrize("face", FACES)
def test_others_go_on_while_an_upstream_of_an_application_does_not_wait(
    database: Database, face: str, kind: str
) -> None:
    """The events of an answer that come without a pause, and how many turns the loop has had meanwhile."""
    tenant = uuid4().hex
    turns = {"texts": 2000, "calls": 500, "parts": 500}[kind]

    def event(number: int) -> dict[str, Any]:
        if kind == "texts":
            return delta("word ")
        if kind == "parts":
            piece: Any = {"reasoning_details": [{"type": "reasoning.encrypted", "index": number, "data": "x"}]}
        else:
            function = {"name": "look", "arguments": "{}"}
            piece = {"tool_calls": [{"index": number, "id": f"c{number}", "type": "function", "function": function}]}
        return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": piece, "finish_reason": None}]}

    async def ask(_payload: Any, _model: str) -> AsyncGenerator[Any]:
        for number in range(turns):
            yield event(number)
        yield {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    async def count() -> int:
        ticks, store = 0, AsyncStore(database.url, tenants=True)

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        upstreams = {"*": Upstream("mine", "chat_completion", ask)}
        application = FACES[face](store, auth=lambda _: Owner(tenant=tenant), upstreams=upstreams, prefix="")
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(application), base_url="http://localhost") as http:
            path, body = "/responses", {"model": "m", "input": "Hi"}
            if face == "rest":
                made = (await http.post("/conversations", json={"model": "m"})).json()
                path, body = f"/conversations/{made['id']}/messages", {"content": "Hi"}
            ticking = asyncio.create_task(tick())
            answered = await http.post(path, json=body, timeout=60)
            ticking.cancel()
            assert answered.is_success
        await store.close()
        return ticks

    with Store(database.url, tenants=True) as store:
        store.create_tenant(tenant)
    assert asyncio.run(count()) >= turns / SLICE_STEPS


def test_requests_that_come_in_the_same_moment_are_begun_in_slices() -> None:
    """What others wait for, and what this server tells of itself, has its turn in between."""
    begun: list[int] = []
    loop_turn, healthy = 0, list[int]()

    async def note(_request: Request) -> Response:
        begun.append(loop_turn)
        return Response()

    def count() -> None:
        nonlocal loop_turn
        loop_turn += 1
        asyncio.get_running_loop().call_soon(count)

    async def run() -> None:
        made = site({"": Starlette(routes=[Route("/", note)])})
        transport = httpx2.ASGITransport(app=made)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [asyncio.ensure_future(client.get("/")) for _ in range(200)]
            asked[7].cancel()
            count()
            health = await client.get("/healthz")
            healthy.append(len(begun))
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert [answer.status_code for answer in answers if isinstance(answer, httpx2.Response)] == [200] * 199
            assert health.status_code == 200

    asyncio.run(run())
    assert max(Counter(begun).values()) <= BEGUN_AT_ONCE
    assert healthy[0] < 199
