"""Streams whose time is over: they end with an event that says so, and what came is stored."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import pytest

from tests.databases import Database
from tests.server.hostile.providers import Script, delta, provided, sse
from tests.server.scripts import script
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, RecordedUpstream, Upstream, app, recorder_app, rest_app
from threadkeep.server import event_streams
from threadkeep.server.connections import Patience, protocol
from threadkeep.server.limits import Limits
from threadkeep.server.site import site


async def begins(_payload: Any, _model: str) -> AsyncGenerator[Any]:
    for event in script("chat_completion", ["Once "])[:2]:
        yield event
    await asyncio.Event().wait()


def test_a_stream_whose_time_is_over_ends_with_an_error(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    store = AsyncStore(database.url, tenants=True)
    tenant = asyncio.run(made(database))
    upstreams = {"*": Upstream("endless", "chat_completion", begins)}
    face = app(store, auth=lambda _: Owner(tenant=tenant), prefix="", upstreams=upstreams)
    with running(site({"/v1": face}, store=store, limits=Limits(max_seconds=3)), store) as url:
        body = {"model": "m", "input": "How often?", "stream": True}
        answer = httpx2.post(f"{url}/v1/responses", json=body, timeout=30)
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "timeout")
        assert events[-1]["sequence_number"] == events[-2]["sequence_number"] + 1
        found = httpx2.get(f"{url}/v1/responses/{events[0]['response']['id']}", timeout=30).json()
        assert (found["status"], found["output"][0]["content"][0]["text"]) == ("incomplete", "Once ")
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.WARNING] == []


async def hurries(_payload: Any, _model: str) -> AsyncGenerator[Any]:
    beginning, piece = script("chat_completion", ["Once ", "more " * 20_000])[1:3]
    yield beginning
    for _ in range(120):  # more than the system takes, and less than MariaDB refuses
        yield piece
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("face", "status"), [("/v1", "incomplete"), ("/api", "in_progress"), ("/record", "incomplete")]
)
def test_a_client_that_reads_nothing_is_cut_off_without_an_error(
    database: Database, face: str, status: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came is stored, or goes on over REST, and the log has one line about it."""
    monkeypatch.setattr(event_streams, "LAST_SECONDS", 0.5)
    caplog.set_level(logging.INFO)
    store, recorders = (AsyncStore(database.url, tenants=True) for _ in range(2))
    tenant = asyncio.run(made(database))
    options: Any = {"auth": lambda _: Owner(tenant=tenant), "prefix": ""}
    upstreams = {"*": Upstream("endless", "chat_completion", hurries)}
    with provided(Script(itertools.repeat(sse(delta("more " * 2_000)), 30_000))) as provider:
        recorded = [RecordedUpstream("endless", "chat_completion", provider.url)]
        faces = {
            "/v1": app(store, upstreams=upstreams, **options), "/api": rest_app(store, upstreams=upstreams, **options),
            "/record": recorder_app(recorders, recorded, auth=options["auth"]),
        }  # fmt: skip
        served = site(faces, store=store, limits=Limits(max_seconds=2))
        with Store(database.url, tenants=True) as root, running(served, store, parser=protocol(Patience(9))) as url:
            mine = root.for_tenant(tenant)
            path, body = asking(face, mine)
            head = f"POST {face}{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as client:
                client.sendall(head.encode() + body)
                wait_until(lambda: "cut off" in caplog.text)
                wait_until(lambda: [one.status for one in responses(mine)] == [status])
                ends = read_all(client)
    assert not ends.endswith(b"0\r\n\r\n")
    lines = [one for one in caplog.records if one.levelno > logging.INFO or one.name == "threadkeep.server.limits"]
    assert [one.getMessage() for one in lines] == ["An answer took more than 2 seconds: it was cut off."]


def asking(face: str, store: Any) -> tuple[str, bytes]:
    """The path and the body of a request to the endless model."""
    if face == "/api":
        id_ = store.create_conversation(model="m").id
        return f"/conversations/{id_}/messages", b'{"content": "How often?", "stream": true}'
    if face == "/v1":
        return "/responses", b'{"model": "m", "input": "How often?", "stream": true}'
    return "/v1/chat/completions", b'{"model": "m", "messages": [{"role": "user", "content": "?"}], "stream": true}'


def responses(store: Any) -> list[Any]:
    return [one for talk in store.list_conversations() for one in talk.responses()]


def read_all(client: socket.socket) -> bytes:
    """The last of what comes until the connection is closed."""
    last = b""
    with suppress(ConnectionError):
        while piece := client.recv(1_000_000):
            last = piece
    return last


async def made(database: Database) -> str:
    """A tenant of its own."""
    name = uuid4().hex
    async with AsyncStore(database.url, tenants=True) as store:
        await store.create_tenant(name)
    return name
