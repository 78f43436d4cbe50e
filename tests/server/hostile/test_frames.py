"""Hostile WebSockets, of clients and of providers: others go on, all is given back, and no error is logged.

Each test sends a few megabytes at most, which end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import pytest
from websockets.frames import Frame

from tests.databases import Database
from tests.server.recorder.conftest import said
from tests.server.scripts import Scripted, script
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, RecordedUpstream, app, recorder_app
from threadkeep.server.connections import Patience, protocol, socket_protocol
from threadkeep.server.quotas import Quota
from threadkeep.server.recorder import passing, sockets
from threadkeep.server.service import socket_bytes_quota, socket_quota
from threadkeep.server.site import site
from threadkeep.server.upstreams import CONNECT_SECONDS

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
COUNT = 2  # hostile connections at once
LEAVING = 10  # clients that leave
MANY = 10_000  # frames
KEPT = 2_000  # frames of a message that is not whole, at most
UNREAD = 2_000_000  # bytes that a connection has for a client that reads nothing, at most
FACES = {"server": "/v1/responses", "recorder": "/record/provider/v1/responses"}

pytestmark = [pytest.mark.one_face, pytest.mark.timeout(120), pytest.mark.one_database, pytest.mark.share(3)]


def frame(opcode: int, data: bytes = b"", *, is_last: bool = True, is_masked: bool = True, size: int = -1) -> bytes:
    """A frame, with a mask that changes nothing; `size`: how long it says that it is."""
    length, mask = len(data) if size < 0 else size, 0x80 if is_masked else 0
    head = bytes([opcode | (0x80 if is_last else 0)])
    if length < 126:
        head += bytes([mask | length])
    elif length < 65_536:
        head += bytes([mask | 126]) + length.to_bytes(2)
    else:
        head += bytes([mask | 127]) + length.to_bytes(8)
    return head + (bytes(4) if is_masked else b"") + data


def text(value: Any, **options: Any) -> bytes:
    return frame(TEXT, json.dumps(value).encode(), **options)


def fragments(data: bytes, count: int, **options: Any) -> bytes:
    """A message that does not end."""
    return frame(TEXT, b"{", is_last=False, **options) + frame(0, data, is_last=False, **options) * count


def create(**keys: Any) -> dict[str, Any]:
    return {"type": "response.create", "model": "m", "input": "Hi", "store": False, **keys}


# what either side may write of which a protocol knows what to think
BROKEN: dict[str, Callable[[bool], bytes]] = {
    "a huge frame": lambda is_masked: frame(TEXT, b"{}", size=2**62, is_masked=is_masked),
    "fragments without end": lambda is_masked: fragments(b"ab", MANY, is_masked=is_masked),
    "empty fragments": lambda is_masked: fragments(b"", MANY, is_masked=is_masked),
    "no UTF-8": lambda is_masked: frame(TEXT, b"\xff\xfe{}", is_masked=is_masked),
    "half a character": lambda is_masked: frame(TEXT, "é".encode()[:1], is_masked=is_masked),
    "the wrong mask": lambda is_masked: frame(TEXT, b"{}", is_masked=not is_masked),
    "reserved bits": lambda is_masked: bytes([0xF1]) + frame(TEXT, b"{}", is_masked=is_masked)[1:],
    "an unknown frame": lambda is_masked: frame(5, b"{}", is_masked=is_masked),
    "a fragment of nothing": lambda is_masked: frame(0, b"{}", is_masked=is_masked),
    "another within": lambda is_masked: fragments(b"a", 1, is_masked=is_masked) + text({}, is_masked=is_masked),
    "a long ping": lambda is_masked: frame(PING, bytes(126), is_masked=is_masked),
    "a ping in pieces": lambda is_masked: frame(PING, b"a", is_last=False, is_masked=is_masked),
    "pings": lambda is_masked: frame(PING, bytes(125), is_masked=is_masked) * (MANY // 4),
    "a close of one byte": lambda is_masked: frame(CLOSE, b"\3", is_masked=is_masked),
    "a close with no code": lambda is_masked: frame(CLOSE, b"\0\1", is_masked=is_masked),
    "a close in no UTF-8": lambda is_masked: frame(CLOSE, b"\3\xe8\xff", is_masked=is_masked),
    "more than a close": lambda is_masked: frame(CLOSE, b"\3\xe8", is_masked=is_masked) + text({}, is_masked=is_masked),
    "half a frame": lambda is_masked: frame(TEXT, b"{}" * 99, is_masked=is_masked)[:20],
    "nothing": lambda _: b"",
}  # fmt: skip
# values of messages, which are JSON or nearly so
ODD: list[Any] = [
    [], 1, None, "x", {}, {"type": []}, {"type": {}}, {"type": "response.create", "input": 5},
    create(stream_id=[1]), create(stream_id="x" * 5_000), create(stream_id=""), create(model=None), create(model=[]),
    create(previous_response_id={"a": []}), create(previous_response_id=[]), create(previous_response_id=7),
    create(input=[1, None, [], {"type": []}, {"role": 5, "content": {}}]), create(input=[{"type": "\ud800"}]),
    create(input="\ud800"), create(include=5), create(include=[[]]), create(tools="x"), create(metadata=[1]),
    create(background=True), create(generate=0), create(input=10**400), create(instructions={}),
    {"type": "response.steer", "input": 7}, {"type": "response.steer", "input": "x", "previous_response_id": []},
    {"type": "response.steer", "input": [[]], "previous_response_id": None},
]  # fmt: skip
NESTED = b'{"type":"response.create","model":"m","input":%b%b}' % (b"[" * 20_000, b"]" * 20_000)
HANDSHAKE = (
    "GET {} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def receive(client: socket.socket) -> bytes:
    """What comes next, on a connection that is open."""
    found = client.recv(65_536)
    assert found, "it was closed"
    return found


@dataclass
class RawProvider:
    """A provider that writes these pieces after the first byte of each client, or something else as its handshake.

    `after`: "open" reads on, "close" closes the WebSocket before that, "end" the connection, and "reset" breaks it.
    """

    pieces: list[bytes] = field(default_factory=list)
    after: str = "open"
    handshake: bytes | None = None
    came: int = 0
    left: int = 0
    seen: bytes = b""  # what the client has sent after its first byte
    url: str = ""

    def has(self, count: int) -> bool:
        """Whether so many clients have come."""
        return self.came == count

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self.left += 1
            if self.after == "reset":
                writer.transport.abort()
            else:
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if self.handshake is not None:
            writer.write(self.handshake)
            if self.after == "open":
                await reader.read()
            return
        key = next(line[19:] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key: "))
        accepted = b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest())
        switch = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        writer.write(switch + b"sec-websocket-accept: %b\r\n\r\n" % accepted)
        if self.pieces:
            await reader.readexactly(1)
        for piece in [*self.pieces, frame(CLOSE, b"\3\xe8", is_masked=False) if self.after == "close" else b""]:
            writer.write(piece)
            await writer.drain()
        while self.after in ("open", "close") and (data := await reader.read(65_536)):
            self.seen += data

    @contextmanager
    def serving(self) -> Iterator[None]:
        is_ready, ends = Event(), list[Callable[[], object]]()

        async def serve() -> None:
            stopped, loop = asyncio.Event(), asyncio.get_running_loop()
            server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            ends.append(lambda: loop.call_soon_threadsafe(stopped.set))
            is_ready.set()
            await stopped.wait()
            server.close()

        thread = Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        is_ready.wait()
        try:
            yield
        finally:
            ends[0]()
            thread.join(20)


@dataclass
class Place:
    """A server and a recorder on one port, before such a provider."""

    url: str
    store: Any
    scripted: Scripted
    patience: Patience
    quotas: list[Quota]
    recorder: Any
    provider: RawProvider

    def client(self, face: str, data: bytes = b"", *, waits: bool = True) -> socket.socket:
        """A connection that sends this after its handshake."""
        parts = urlsplit(self.url)
        client = socket.create_connection((parts.hostname, parts.port), 20)
        client.sendall(HANDSHAKE.format(FACES[face]).encode())
        if waits:
            assert client.recv(12) == b"HTTP/1.1 101"
        with suppress(OSError):  # it was closed in between
            client.sendall(data)
        return client

    def has_room(self, face: str) -> bool:
        """Whether there is room for as many clients as leave."""
        clients = [self.client(face, waits=False) for _ in range(LEAVING)]
        try:
            return {client.recv(12) for client in clients} == {b"HTTP/1.1 101"}
        finally:
            for client in clients:
                client.close()

    def is_free(self) -> bool:
        """Whether everything was given back, and what was recorded is stored."""
        return not any(quota.total for quota in self.quotas) and not self.recorder.state.health()["open"]

    def wait_until_free(self, what: object = None) -> None:
        """Wait until clients that have closed their connections have left everywhere; others are answered meanwhile."""
        self.others_are_answered()
        wait_until(lambda: self.is_free() and self.provider.left == self.provider.came, lambda: what)

    def others_are_answered(self) -> None:
        self.scripted.will_say("Fine.")
        asked = {"model": "m", "input": "Hi", "store": False}
        assert httpx2.post(f"{self.url}/v1/responses", json=asked, timeout=20).status_code == 200


@pytest.fixture
def provider() -> Iterator[RawProvider]:
    provider = RawProvider()
    with provider.serving():
        yield provider


@pytest.fixture
def place(database: Database, provider: RawProvider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    tenant, scripted, patience = uuid4().hex, Scripted("chat_completion"), Patience(100)
    quotas: list[Quota] = [socket_quota(), socket_bytes_quota()]
    monkeypatch.setattr(sockets, "_CLOSING_SECONDS", 0.2)
    monkeypatch.setattr(passing, "socket_quota", lambda: quotas[0])
    monkeypatch.setattr(passing, "socket_bytes_quota", lambda: quotas[1])
    with Store(database.url, tenants=True) as stores:
        store = stores.create_tenant(tenant)
        mine, recorders = AsyncStore(database.url, tenants=True), AsyncStore(database.url, tenants=True)
        options: Any = {"auth": lambda _: Owner(tenant=tenant), "prefix": ""}
        made = app(mine, upstreams={"m": scripted.upstream}, **options)
        upstream = RecordedUpstream("provider", "open_responses", f"{provider.url}/v1")
        recorder = recorder_app(recorders, [upstream], auth=options["auth"])
        quotas += [made.state.service.sockets, made.state.service.socket_bytes, made.state.service.answer_bytes]
        served = site({"/v1": made, "/record": recorder}, store=mine)
        with running(served, mine, parser=protocol(patience), ws=socket_protocol(patience)) as url:
            yield Place(url, store, scripted, patience, quotas, recorder, provider)


@pytest.fixture(autouse=True)
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What others do is no fault of the server."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


# Clients


@pytest.mark.parametrize("face", FACES)
def test_what_a_client_sends_harms_nobody(place: Place, face: str) -> None:
    """It may leave, or stay after it."""
    for kind, written in BROKEN.items():
        with ExitStack() as stack:
            for _ in range(COUNT):
                stack.enter_context(place.client(face, written(True)))
        place.wait_until_free(kind)
    assert list(place.store.list_conversations()) == []


@pytest.mark.parametrize("face", FACES)
def test_any_value_is_answered_or_passed_on(place: Place, provider: RawProvider, face: str) -> None:
    """The connection goes on: the last one is a request as it should be."""
    place.scripted.scripts += [script("chat_completion", ["Fine."]) for _ in ODD]
    sent = b"".join([*map(text, ODD), frame(TEXT, NESTED), frame(BINARY, b"\xff"), text({"type": "end"})])
    provider.pieces, provider.after = [text({"type": "end"}, is_masked=False)], "open"
    with place.client(face, sent) as client:
        seen = b""
        while b'"end"' not in seen and b"must be an object of the type response.create" not in seen[-300:]:
            seen += receive(client)
        place.others_are_answered()
    wait_until(place.is_free)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("sent", [b"", text(create())[:9], text(create()), text(create()) * 5], ids=len)
def test_clients_that_left_take_no_place(place: Place, face: str, sent: bytes) -> None:
    """Whether they waited for their handshake or not: as many as have room at once are answered after them."""
    place.quotas[0]._most = place.quotas[2]._most = LEAVING
    place.scripted.scripts += [script("chat_completion", ["Fine."])] * 200
    for waits in (True, False):
        for client in [place.client(face, sent, waits=waits) for _ in range(LEAVING)]:
            client.close()
        place.wait_until_free(waits)
        assert place.has_room(face)
        place.wait_until_free(waits)


def test_clients_that_left_before_the_handshake_of_a_provider_take_no_place(
    place: Place, provider: RawProvider
) -> None:
    """It never ends; in time, this would."""
    place.quotas[0]._most, provider.handshake = LEAVING, b""
    clients = [place.client("recorder", waits=False) for _ in range(LEAVING)]
    wait_until(lambda: provider.came == LEAVING)
    provider.handshake = None
    assert not place.has_room("recorder")
    for client in clients:
        client.close()
    wait_until(lambda: place.quotas[0].total == 0, seconds=CONNECT_SECONDS / 2)
    assert place.has_room("recorder")
    place.wait_until_free()


def test_a_message_in_many_pieces_takes_little_more_than_it_is_long(place: Place) -> None:
    with place.client("server", fragments(b"ab", MANY)):
        unfinished = place.patience._unfinished
        wait_until(lambda: sum(len(piece) for one in [*unfinished] for piece in one.frames) == 2 * MANY + 1)
        [connection] = unfinished
        assert len(connection.frames) < KEPT


def test_answers_to_pings_that_are_not_read_are_bounded(place: Place) -> None:
    with place.client("server") as client:
        client.settimeout(1)
        with suppress(TimeoutError):
            for _ in range(40):
                client.sendall(frame(PING, bytes(125)) * 4_000)
        connections = [*place.patience.for_readers._since]
        assert max((one.transport.get_write_buffer_size() for one in connections), default=0) < UNREAD
        place.others_are_answered()


# Providers of a recorder


@pytest.mark.parametrize("after", ["open", "close", "end", "reset"])
def test_what_a_provider_sends_harms_nobody(place: Place, provider: RawProvider, after: str) -> None:
    """And each call is counted."""
    provider.after = after
    for kind, written in BROKEN.items():
        provider.pieces, before = [written(False)], provider.came
        with ExitStack() as stack:
            for _ in range(COUNT):
                stack.enter_context(place.client("recorder", text(create())))
            wait_until(partial(provider.has, before + COUNT))
        place.wait_until_free(kind)
    rows = place.store.usage(by=("provider",))
    assert [row.attempts for row in rows if row.provider == "provider"] == [COUNT * len(BROKEN)]


ANSWER = script("open_responses", ["Let me ", "see."])
# events that are none, in between
STRANGE: list[Any] = [
    [], 7, None, "x", {}, {"type": []}, {"type": "\ud800"}, {"type": "x\ndata: {}\n\n"}, {"type": "response.created"},
    {"type": "response.output_item.done", "item": [1]}, {"type": "response.output_item.done"},
    {"type": "response.completed", "stream_id": [1]}, {"type": "response.completed", "stream_id": "other"},
    {"type": "response.steer.failed", "steer": 5}, {"type": "response.steer.failed", "steer": {"input": {}}},
]  # fmt: skip


def test_a_message_of_a_provider_in_many_pieces_takes_little_more_than_it_is_long(
    place: Place, provider: RawProvider
) -> None:
    """Its frames are put together as they come: there are fewer of them when a ping after them is answered."""
    provider.pieces = [fragments(b"ab", MANY, is_masked=False), frame(PING, is_masked=False)]
    with place.client("recorder", text(create())):
        wait_until(lambda: b"\x8a\x80" in provider.seen)
        wait_until(lambda: sum(type(one) is Frame for one in gc.get_objects()) < KEPT)


def test_strange_events_pass_and_change_nothing(place: Place, provider: RawProvider) -> None:
    """Between those of an answer, which may be laid out over lines."""
    strange = [text(one, is_masked=False) for one in STRANGE]
    events = [frame(TEXT, json.dumps(one, indent=2).encode(), is_masked=False) for one in ANSWER]
    provider.pieces = [*events[:2], *strange, *events[2:]]
    with place.client("recorder", text(create())) as client:
        seen = b""
        while b"response.completed" not in seen.rpartition(b"total_tokens")[0][-3_000:]:
            seen += receive(client)
    wait_until(place.is_free)
    [conversation] = place.store.list_conversations()
    assert said(conversation) == ["user: Hi", "assistant: Let me see."]


@pytest.mark.parametrize("status", [True, -1, 7, 99, 10**6, 10**30, "429", None, [429]])
def test_a_status_of_an_error_may_be_anything(place: Place, provider: RawProvider, status: Any) -> None:
    event = {"type": "error", "status": status, "error": {"message": "No."}}
    provider.pieces = [text(event, is_masked=False)]
    with place.client("recorder", text(create())) as client:
        wait_until(lambda: b"No." in client.recv(65_536))
    wait_until(place.is_free)
    [row] = place.store.usage(by=("status",))
    assert (row.status, row.attempts) == ("failed", 1)


@pytest.mark.parametrize("handshake", [
    b"", b"garbage\r\n\r\n", b"HTTP/1.1 101 Yes\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
    b"HTTP/1.1 999 No\r\n\r\n", b"HTTP/1.1 301 Away\r\nlocation: http://127.0.0.1:9/\r\n\r\n",
    b"HTTP/1.1 429 No\r\nx: %b\r\n\r\n" % (b"x" * 20_000),
])  # fmt: skip
def test_a_handshake_that_is_none_is_refused(place: Place, provider: RawProvider, handshake: bytes) -> None:
    provider.handshake, provider.after = handshake, "end"
    with place.client("recorder", waits=False) as client:
        assert client.recv(12) in (b"HTTP/1.1 502", b"HTTP/1.1 426")
    wait_until(place.is_free)
