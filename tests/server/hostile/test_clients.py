"""Hostile clients: whatever they send, or do not send, others are answered meanwhile, and nothing of it is stored."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import pytest

from tests.databases import Database
from tests.server.hostile.providers import Provider, Script, provided
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, RecordedUpstream, app, http_upstream, recorder_app, rest_app
from threadkeep.server.connections import MAX_DISCARDED, Patience, protocol, socket_protocol
from threadkeep.server.limits import Limits
from threadkeep.server.site import site
from threadkeep.viewer import app as viewer_app

COUNT = 20  # hostile clients at once
OTHERS = 5
MAX_BODY = 256 * 1024
SENT = 64 * 1024 * 1024  # bytes of a body without an end, as far as a test goes …
ROOM = 32 * 1024  # … and KiB by which the process may grow meanwhile
BUFFERS = 16 * 1024 * 1024  # bytes that the system takes for both ends of a connection
PATHS = {
    "openai": "POST /v1/responses", "rest": "POST /api/conversations",
    "recorder": "POST /record/provider/v1/chat/completions", "pages": "GET /",
}  # fmt: skip

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_database, pytest.mark.share(3)]


def head(face: str, *lines: str) -> bytes:
    return "\r\n".join([f"{PATHS[face]} HTTP/1.1", "host: localhost", *lines, "", ""]).encode()


def silent(_client: socket.socket, _face: str) -> None:
    """It says nothing."""


def half_a_head(client: socket.socket, face: str) -> None:
    client.sendall(head(face)[:-4])


def half_a_body(client: socket.socket, face: str) -> None:
    client.sendall(head(face, "content-length: 1000") + b'{"model": ')


def half_closed(client: socket.socket, face: str) -> None:
    half_a_body(client, face)
    client.shutdown(socket.SHUT_WR)


def huge_headers(client: socket.socket, face: str) -> None:
    with suppress(OSError):
        client.sendall(head(face, *(f"x-{number}: {'x' * 4_000}" for number in range(100))))


def endless_body(client: socket.socket, face: str) -> None:
    """It goes on after it was refused: nobody keeps what comes."""
    sent = 0
    with suppress(OSError):
        client.sendall(head(face, "transfer-encoding: chunked"))
        while sent < SENT:
            client.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            sent += 65_536


def early_leave(client: socket.socket, face: str) -> None:
    half_a_body(client, face)
    client.close()


KINDS: list[Callable[[socket.socket, str], None]] = [
    silent, half_a_head, half_a_body, half_closed, huge_headers, endless_body, early_leave,
]  # fmt: skip


@dataclass
class Place:
    """A server with all faces."""

    url: str
    provider: Provider
    store: Store
    faces: dict[str, Any]

    def client(self) -> socket.socket:
        parts = urlsplit(self.url)
        return socket.create_connection((parts.hostname, parts.port), 20)

    def in_flight(self) -> float:
        """How many requests are being answered, besides this one."""
        lines = httpx2.get(f"{self.url}/metrics", timeout=20).text.splitlines()
        [line] = [line for line in lines if line.startswith("threadkeep_http_requests_in_flight ")]
        return float(line.split()[1]) - 1


@contextmanager
def placed(
    database: Database, script: Script | None = None, seconds: float = 600, *, read_seconds: float = 60,
    recorded: Iterable[RecordedUpstream] = (), **options: Any,
) -> Iterator[Place]:  # fmt: skip
    """A server with all faces; `options` are those of both APIs, and `recorded` more providers of the recorder."""
    tenant = uuid4().hex

    def who(_: Any) -> Owner:
        return Owner(tenant=tenant)

    with ExitStack() as stack:
        provider = stack.enter_context(provided(script or Script()))
        store = stack.enter_context(Store(database.url, tenants=True)).create_tenant(tenant)
        mine, recorders = AsyncStore(database.url, tenants=True), AsyncStore(database.url, tenants=True)
        upstreams = {"*": http_upstream("provider", "chat_completion", f"{provider.url}/v1")}
        recorded = [RecordedUpstream("provider", "chat_completion", provider.url), *recorded]
        faces = {
            "/v1": app(mine, auth=who, prefix="", upstreams=upstreams, **options),
            "/api": rest_app(mine, auth=who, prefix="", upstreams=upstreams, **options),
            "/record": recorder_app(recorders, recorded, auth=who),
            "": viewer_app(mine, auth=who),
        }
        limits = Limits(MAX_BODY, 4 * COUNT, seconds)
        patience = Patience(1_000, head_seconds=2.0, read_seconds=read_seconds)
        protocols: Any = {"parser": protocol(patience), "ws": socket_protocol(patience)}
        url = stack.enter_context(running(site(faces, store=mine, limits=limits), mine, **protocols))
        yield Place(url, provider, store, faces)


@pytest.mark.parametrize("face", PATHS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_others_are_answered_meanwhile(database: Database, face: str, kind: Any) -> None:
    with placed(database) as place, ExitStack() as stack:
        before = getrusage(RUSAGE_SELF).ru_maxrss
        count = 2 if kind is endless_body else COUNT
        for _ in range(count):
            kind(stack.enter_context(place.client()), face)
        for _ in range(OTHERS):
            made = httpx2.post(f"{place.url}/v1/conversations", json={}, timeout=20)
            assert made.status_code == 200
        assert getrusage(RUSAGE_SELF).ru_maxrss - before < ROOM
        stack.close()
        wait_until(lambda: not place.in_flight())
        assert len(list(place.store.list_conversations())) == OTHERS
        assert place.store.usage(by="status") == []


@pytest.mark.parametrize("face", ["openai", "rest", "recorder"])
def test_a_body_without_an_end_is_not_read_for_ever_after_its_answer(database: Database, face: str) -> None:
    """Its client can read the 413; then the connection is closed."""
    piece, sent = b"10000\r\n" + b"x" * 65_536 + b"\r\n", 0
    with placed(database) as place, place.client() as client:
        client.sendall(head(face, "transfer-encoding: chunked"))
        for _ in range(MAX_BODY // 65_536 + 1):
            client.sendall(piece)
        assert client.recv(12) == b"HTTP/1.1 413"
        with suppress(OSError):
            while sent < SENT:
                client.sendall(piece)
                sent += len(piece)
        assert sent < MAX_DISCARDED + BUFFERS
