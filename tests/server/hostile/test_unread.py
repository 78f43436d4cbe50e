"""Clients that read nothing and never leave, and peers that vanish: all ends in time, and gives its place back."""

from __future__ import annotations

import itertools
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.databases import Database
from tests.server.hostile.providers import FACES, Script, delta, hostile, sse
from tests.server.hostile.test_clients import placed
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep.http import RecordedUpstream
from threadkeep.server.provider_connections import PEER_SECONDS
from threadkeep.server.recorder import passing
from threadkeep.server.service import socket_quota
from threadkeep.store.streaming.recorder import PartialReader

MOST = 12_000_000  # bytes of an answer: more than the system takes for a connection
ENDLESS = Script(itertools.repeat(sse(delta("word " * 3_000))))
HANDSHAKE = (
    "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: " + "A" * 22 + "=="
)
ASKED: Any = {"model": "m", "input": "Hi", "messages": [{"role": "user", "content": "Hi"}]}

pytestmark = [pytest.mark.one_face, pytest.mark.timeout(120), pytest.mark.one_database, pytest.mark.share(3)]


def request(path: str, *, is_stream: bool, **body: Any) -> bytes:
    text = json.dumps({**(body or ASKED), "stream": is_stream}).encode()
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text


def message(text: bytes) -> bytes:
    """A message of a WebSocket, with a mask that changes nothing."""
    return b"\x81\xfe" + len(text).to_bytes(2) + b"\0\0\0\0" + text


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/record/provider/v1/chat/completions"])
def test_an_answer_that_is_never_read_ends(database: Database, path: str, *, is_stream: bool) -> None:
    """The provider writes on until it is left."""
    with placed(database, ENDLESS, max_answer_bytes=MOST, read_seconds=1.0) as place, place.client() as client:
        client.sendall(request(path, is_stream=is_stream))
        wait_until(lambda: place.provider.calls == 1)
        wait_until(lambda: not place.in_flight(), seconds=60)
        wait_until(lambda: place.store.usage(by="status"))
        [row] = place.store.usage(by="status")
        assert (row.status in ("cancelled", "incomplete"), row.attempts) == (True, 1)
        wait_until(lambda: all(task.done() for task in place.provider.tasks))


def test_a_websocket_that_is_never_read_ends(database: Database) -> None:
    with placed(database, ENDLESS, max_answer_bytes=MOST, read_seconds=1.0) as place, place.client() as client:
        client.sendall(f"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\n{HANDSHAKE}\r\n\r\n".encode())
        assert client.recv(65_536).startswith(b"HTTP/1.1 101")
        asked = {"type": "response.create", "model": "m", "input": "Hi"}
        client.sendall(message(json.dumps(asked | {"metadata": {"a": "x" * 200}}).encode()))
        wait_until(lambda: place.provider.calls == 1)
        wait_until(lambda: place.store.usage(by="status"), seconds=60)
        [row] = place.store.usage(by="status")
        assert (row.status, row.attempts) == ("cancelled", 1)
        service = place.faces["/v1"].state.service
        wait_until(lambda: (service.sockets.total, service.socket_bytes.total, service.answer_bytes.total) == (0, 0, 0))
        wait_until(lambda: all(task.done() for task in place.provider.tasks))


def test_a_recorded_websocket_that_is_never_read_ends(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what its provider says, little waits."""
    quota, sent = socket_quota(), []
    monkeypatch.setattr(passing, "socket_quota", lambda: quota)

    async def provide(websocket: WebSocket) -> None:
        await websocket.accept()
        with suppress(WebSocketDisconnect):
            while True:
                await websocket.send_bytes(b"x" * 4_000_000)
                sent.append(1)

    with ExitStack() as stack:
        direct = stack.enter_context(running(Starlette(routes=[WebSocketRoute("/v1/responses", provide)])))
        options: Any = {"read_seconds": 1.0, "recorded": [RecordedUpstream("sockets", "open_responses", direct)]}
        place = stack.enter_context(placed(database, **options))
        client = stack.enter_context(place.client())
        path = "/record/sockets/v1/responses"
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{HANDSHAKE}\r\n\r\n".encode())
        wait_until(lambda: sent)
        wait_until(lambda: quota.total == 0, seconds=60)
        assert len(sent) < 10


def options(port: int, *, is_accepted: bool) -> Iterator[tuple[int, int]]:
    """What the system was told about the connections of this process that were accepted at a port, or made to it."""
    for place in Path("/dev/fd").iterdir():
        with suppress(OSError):
            if not stat.S_ISSOCK(place.stat().st_mode):
                continue
        with suppress(OSError), socket.socket(fileno=os.dup(int(place.name))) as one:
            if one.getpeername() and port == (one.getsockname() if is_accepted else one.getpeername())[1]:
                kept = one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                yield kept, one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
@pytest.mark.parametrize("face", FACES)
def test_the_system_asks_whether_clients_and_providers_are_there(database: Database, face: str) -> None:
    """One that has vanished says nothing, and an answer may be silent for long."""
    with placed(database, Script([sse(delta("Hi"))], after="open")) as place, place.client() as client:
        path = {"recorder": "/record/provider/v1/chat/completions", "responses": "/v1/responses"}.get(face)
        if path is None:
            made = httpx2.post(f"{place.url}/api/conversations", json={"model": "m"}, timeout=30).json()
            client.sendall(request(f"/api/conversations/{made['id']}/messages", is_stream=True, content="Hi"))
        else:
            client.sendall(request(path, is_stream=True))
        wait_until(lambda: place.provider.calls == 1)
        parts = [
            (urlsplit(url).port or 0, is_accepted)
            for url, is_accepted in ((place.url, True), (place.provider.url, False))
        ]
        for port, is_accepted in parts:
            assert set(options(port, is_accepted=is_accepted)) == {(1, PEER_SECONDS * 1_000)}


@pytest.mark.parametrize(("most", "last"), [(200_000, "too_many_bodies"), (8_000_000, "response.incomplete")])
def test_an_answer_is_followed_while_there_is_room_for_what_has_come(database: Database, most: int, last: str) -> None:
    """Each follower has that in memory; where there is none, it waits for the end, for which there is none, either."""
    script = Script([sse(delta("x" * 50_000)) for _ in range(4)], after="open")
    with hostile(database, "responses", "chat_completion", script, max_bodies_bytes=most) as world:
        asked = {"model": "m", "input": "Hi", "background": True}
        url = f"{world.url}/v1/responses"
        url = f"{url}/{httpx2.post(url, json=asked, timeout=20).json()['id']}"
        [conversation] = world.conversations()
        reader = PartialReader(conversation.handle, 0)
        wait_until(lambda: (partial := reader.read()) is not None and len(partial.text or "") == 200_000)
        with httpx2.stream("GET", url, params={"stream": True}, timeout=60) as response:
            lines, text = response.iter_lines(), ""
            while last == "response.incomplete" and len(text) < 200_000:
                data = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
                text += data.get("delta", "")
            httpx2.post(f"{url}/cancel", timeout=20)
            *others, end = (json.loads(line[6:]) for line in lines if line.startswith("data: "))
        assert end.get("code", end["type"]) == last
        assert not any("delta" in event for event in others)
