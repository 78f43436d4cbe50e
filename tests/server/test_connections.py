"""What a connection may send before its request is known, for how long, and how many connections there are."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Self
from urllib.parse import urlsplit

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep.server import connections
from threadkeep.server.connections import Patience, max_connections, protocol, socket_protocol
from threadkeep.server.limits import MAX_HEAD_BYTES, BoundedHeads

LARGE = 20_000_000  # bytes that no buffer of the system takes
REQUEST = b"GET /x HTTP/1.1\r\nhost: localhost\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\n"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without reading bodies: /large at once, /parts in parts, and /slow once its client has left."""
    if scope["type"] != "http":
        return
    while scope["path"] == "/slow" and (await receive())["type"] != "http.disconnect":
        pass
    size, parts = {"/large": (LARGE, 1), "/parts": (LARGE // 50, 50)}.get(scope["path"], (4, 1))
    headers = [(b"content-length", str(size * parts).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number in range(parts):
        body = b"x" * size if size > 4 else b"done"
        await send({"type": "http.response.body", "body": body, "more_body": number < parts - 1})


class Peer:
    """Somebody who has a connection to a server."""

    def __init__(self, url: str) -> None:
        self.socket = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def sends(self, *pieces: bytes) -> Peer:
        for piece in pieces:
            self.socket.sendall(piece)
        return self

    def keeps_sending(self, piece: bytes) -> None:
        """Send the same again and again, until the server has closed the connection."""
        for _ in range(LARGE // len(piece)):
            try:
                self.socket.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                return
        pytest.fail("The server has taken all of it.")

    def gets(self) -> bytes:
        """What comes until the server has nothing more to say, or closes the connection."""
        found = b""
        while not found.endswith(b"done"):
            try:
                piece = self.socket.recv(65_536)
            except ConnectionResetError:
                break
            if not piece:
                break
            found += piece
        return found

    def is_closed(self) -> bool:
        return self.gets() == b""

    def is_open(self) -> bool:
        """Whether the server has not closed the connection, nor said anything."""
        self.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.socket.recv(1)
        return True


@pytest.fixture
def patience() -> Patience:
    """One that is soon over."""
    return Patience(10, head_seconds=0.3, read_seconds=1)


@pytest.fixture
def url(patience: Patience) -> Iterator[str]:
    with running(BoundedHeads(application), parser=protocol(patience)) as address:
        yield address


# How much


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (b"", b"x" * 1_000),
        (b"GET /", b"x" * 1_000),
        (b"GET / HTTP/1.1\r\nx: ", b"x" * 1_000),
        (b"GET / HTTP/1.1\r\n", b"x: " + b"y" * 100 + b"\r\n"),
        (b"POST /slow HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x" * 1_000),
        (b"POST /slow HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: " + b"y" * 100 + b"\r\n"),
        (b"POST /slow HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", b"x" * 1_000),
    ],
    ids=["method", "path", "header", "headers", "extension", "trailers", "trailer"],
)
def test_what_never_ends_is_not_kept(url: str, beginning: bytes, piece: bytes) -> None:
    with Peer(url) as peer:
        peer.sends(beginning).keeps_sending(piece)
    with Peer(url) as other:
        assert other.sends(REQUEST).gets().startswith(ANSWER)


@pytest.mark.parametrize("place", ["path", "query", "header"])
def test_a_head_has_a_limit_whether_it_comes_at_once_or_in_pieces(url: str, place: str) -> None:
    def head(size: int) -> bytes:
        filler = "x" * size
        path = {"path": f"/{filler}", "query": f"/?{filler}", "header": "/"}[place]
        return f"GET {path} HTTP/1.1\r\nhost: localhost\r\nx: {filler if place == 'header' else ''}\r\n\r\n".encode()

    for size, status in (MAX_HEAD_BYTES - 100, b"200"), (MAX_HEAD_BYTES - 10, b"431"):
        text = head(size)
        with Peer(url) as peer:
            assert peer.sends(text).gets().startswith(b"HTTP/1.1 " + status)
        with Peer(url) as peer:
            assert peer.sends(text[:10_000], text[10_000:]).gets().startswith(b"HTTP/1.1 " + status)


def test_bodies_and_further_requests_do_not_count(url: str) -> None:
    """However large they are, and however small the pieces."""
    body = b"1\r\nx\r\n" * (MAX_HEAD_BYTES // 2)
    with Peer(url) as peer:
        for _ in range(3):
            peer.sends(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", body, b"0\r\n\r\n")
            assert peer.gets().startswith(ANSWER)


# How long


@pytest.mark.parametrize(
    "text", [b"", b"GE", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nx: "], ids=["nothing", "method", "line", "header"]
)
def test_a_connection_without_a_request_is_closed(url: str, text: bytes) -> None:
    with Peer(url) as peer:
        assert peer.sends(text).is_closed()


@pytest.mark.parametrize(
    ("request_", "more"),
    [(REQUEST, b"G"), (b"POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n", b"x")],
    ids=["next request", "rest of a body"],
)
def test_a_connection_that_was_answered_needs_another_request(url: str, request_: bytes, more: bytes) -> None:
    with Peer(url) as peer:
        assert peer.sends(request_).gets().startswith(ANSWER)
        assert peer.sends(more).is_closed()


def test_requests_in_time_keep_a_connection() -> None:
    patience = Patience(10)
    with running(application, parser=protocol(patience)) as url, Peer(url) as peer:
        for _ in range(3):
            assert peer.sends(REQUEST).gets().startswith(ANSWER)
            wait_until(lambda: len(patience.for_requests) == 1)


def test_a_request_that_is_answered_has_time(url: str, patience: Patience) -> None:
    with Peer(url) as slow:
        slow.sends(REQUEST.replace(b"/x", b"/slow"))
        with Peer(url) as peer:
            assert peer.is_closed()
        assert len(patience.for_requests) == 0
        assert slow.is_open()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("path", [b"/large", b"/parts"])
def test_an_answer_that_nobody_reads_is_given_up(
    patience: Patience, path: bytes, loop: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is read is not, however slowly: there is always less of it to be sent."""
    monkeypatch.setattr(asyncio, "new_event_loop", loop)
    with running(application, parser=protocol(patience)) as url, Peer(url) as peer, Peer(url) as reader:
        for one in (peer, reader):
            one.sends(REQUEST.replace(b"/x", path))
        count = 0
        while count < LARGE:
            piece = reader.socket.recv(LARGE // 20)
            assert piece
            count += len(piece)
            time.sleep(0.005)
        wait_until(lambda: len(patience.for_requests) + len(patience.for_readers) == 0)
        assert len(peer.gets()) < LARGE


# How many


def test_those_who_wait_longest_make_room(caplog: pytest.LogCaptureFixture) -> None:
    patience = Patience(3)
    with ExitStack() as stack:
        url = stack.enter_context(running(application, parser=protocol(patience)))
        slow = stack.enter_context(Peer(url)).sends(REQUEST.replace(b"/x", b"/slow"))
        wait_until(lambda: patience.for_requests._timer is not None and len(patience.for_requests) == 0)
        *others, last = (stack.enter_context(Peer(url)) for _ in range(20))
        assert last.sends(REQUEST).gets().startswith(ANSWER)
        assert all(other.is_closed() for other in others[:-1])
        assert slow.is_open()
    assert "There are more than 3 connections" in caplog.text


def test_connections_leave_files_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    for limits, most in (((1_024, 4_096), 2_048), ((1_024, 1_024), 512), ((256, resource.RLIM_INFINITY), 32_768)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
        assert max_connections() == most
    assert given == [(4_096, 4_096), (65_536, resource.RLIM_INFINITY)]


async def names_of_fields(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the names of the header fields, once the body has come."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    names = b",".join(name for name, _ in scope["headers"])
    headers = [(b"content-length", str(len(names)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": names})


def test_a_trailer_says_nothing_of_its_request() -> None:
    """Fields behind a body come when it is known whose request it is; the next request has its own."""
    head = b"POST /x HTTP/1.1\r\nhost: localhost\r\nx-first: 1\r\ntransfer-encoding: chunked\r\n\r\n"
    with running(names_of_fields, parser=protocol(Patience(10))) as url, Peer(url) as peer:
        for _ in range(2):
            peer.sends(head + b"2\r\n{}\r\n0\r\nx-extra: 1\r\n\r\n")
            answer = b""
            while b"transfer-encoding" not in answer:
                answer += peer.socket.recv(65_536)
            assert b"x-first" in answer
            assert b"x-extra" not in answer


async def body_of(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the method and the body."""
    if scope["type"] != "http":
        return
    body, has_more = scope["method"].encode() + b":", True
    while has_more:
        message = await receive()
        body, has_more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("size", [1, 50, 10_000], ids="{} bytes at once".format)
@pytest.mark.parametrize("protocol_", ["h2c", "websocket"])
def test_a_body_comes_whose_request_offers_another_protocol(
    size: int, protocol_: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the body of that request, and not the next one."""
    offer = f"host: localhost\r\nconnection: Upgrade\r\nupgrade: {protocol_}\r\n".encode()
    text = b"POST /x HTTP/1.1\r\n" + offer + b"content-length: 8\r\n\r\nGET / HT"
    text += b"PUT /x HTTP/1.1\r\n" + offer + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n"
    text += b"CONNECT /x HTTP/1.1\r\n\r\n"
    text += b"GET /x HTTP/1.1\r\n" + offer + b"\r\n" + b"POST /x HTTP/1.1\r\ncontent-length: 4\r\n\r\ndone"
    with running(body_of, parser=protocol(Patience(10)), ws="none") as url, Peer(url) as peer:
        answers = peer.sends(*(text[first : first + size] for first in range(0, len(text), size))).gets()
    assert re.findall(rb"[A-Z]+:[ -~]*", answers.replace(b"HTTP/1.1", b"\r\n")) == [
        b"POST:GET / HT", b"PUT:abc", b"CONNECT:", b"GET:", b"POST:done",
    ]  # fmt: skip
    assert caplog.text == ""


# WebSockets


async def sends_on(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends a message without an end, in parts, once it has got one."""
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        for _ in range(50):
            await send({"type": "websocket.send", "bytes": b"x" * (LARGE // 50)})


HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
TEXT = b"\x81\x82\0\0\0\0Hi"


def test_a_websocket_that_nobody_reads_is_given_up(patience: Patience) -> None:
    server = running(sends_on, parser=protocol(patience), ws=socket_protocol(patience))
    with server as url, Peer(url) as peer:
        assert peer.sends(HANDSHAKE).socket.recv(65_536).startswith(b"HTTP/1.1 101")
        peer.sends(TEXT)
        wait_until(lambda: len(patience.for_readers) == 1)
        wait_until(lambda: len(patience.for_readers) == 0)
        assert len(peer.gets()) < LARGE


def test_the_longest_message_is_given_up_where_there_are_too_many_bytes(
    patience: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is whole does not count any more, however many there were."""
    monkeypatch.setattr(connections, "MAX_UNFINISHED", 2_000_000)
    server = running(sends_on, parser=protocol(patience), ws=socket_protocol(patience))
    with server as url, Peer(url) as short, Peer(url) as long:
        for peer, size in ((short, 900_000), (long, 1_200_000)):
            assert peer.sends(HANDSHAKE).socket.recv(65_536).startswith(b"HTTP/1.1 101")
            peer.sends(b"\x81\xff" + (8_000_000).to_bytes(8) + b"\0\0\0\0" + b"x" * size)
        assert long.is_closed()
        assert short.is_open()
