"""Connections of a server: what each may send before its request is known, for how long, and how many there are."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import OrderedDict
from contextlib import suppress
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from httptools import HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from threadkeep.server.limits import HEAD_TOO_LARGE, MAX_HEAD_BYTES
from threadkeep.server.provider_connections import watch_peer

if TYPE_CHECKING:
    import socket
    from types import FrameType

if sys.platform != "win32":
    import resource

logger = logging.getLogger(__name__)

HEAD_SECONDS: Final = 20.0  # in which a connection must send the whole head of a request
READ_SECONDS: Final = 60.0  # in which something of an answer must be read
ACCEPTED_AT_ONCE: Final = 16  # new connections in one pass of the event loop: uvloop accepts one from each socket
MAX_OPEN_FILES: Final = 65_536  # that a server asks the system for
DRAIN_PAUSE: Final = 0.05  # seconds between two looks whether all answers have ended
MAX_DISCARDED: Final = 1024 * 1024  # bytes of a body that come after its answer, which its client reads meanwhile
MAX_FRAGMENTS: Final = 256  # of a message that is not whole, before they are put together
MAX_UNREAD: Final = 1024 * 1024  # bytes for a client of a WebSocket that does not read, before it is not read either
MAX_UNFINISHED: Final = 256 * 1024 * 1024  # bytes of all messages of WebSockets that are not whole yet
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})  # what says how long a body is
_LOG_SECONDS: Final = 10.0  # between two lines in the log about too many connections


def max_connections() -> int:
    """Return how many connections a server may have: half of the files that its process may open.

    The other half is for the database, and for providers: a call that is passed on needs a connection of its own. The
    process takes as many files as the system allows it.
    """
    files = MAX_OPEN_FILES
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with suppress(OSError, ValueError):  # the system allows less than it says
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                soft = wanted
            files = soft
        else:
            files = wanted
    return files // 2


class Waiting:
    """Connections that have only so much time for something, and are closed then: longest first.

    One that reads an answer is not closed.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: OrderedDict[Connection | SocketConnection, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, connection: Connection | SocketConnection) -> bool:
        return connection in self._since

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Connection | SocketConnection) -> None:
        """Note that a connection waits from now on."""
        connection.unsent = connection.transport.get_write_buffer_size()
        self._since[connection] = connection.loop.time()
        self._since.move_to_end(connection)
        if self._timer is None:
            self._timer = connection.loop.call_later(self._seconds, self._sweep, connection.loop)

    def remove(self, connection: Connection | SocketConnection) -> None:
        """Note that a connection waits no more."""
        self._since.pop(connection, None)

    def close_longest(self) -> None:
        """Close the connection that has waited longest."""
        if self._since:
            connection, _ = self._since.popitem(last=False)
            connection.transport.abort()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        while self._since:
            connection, since = self._since.popitem(last=False)
            if since + self._seconds > now:
                self._since[connection] = since
                self._since.move_to_end(connection, last=False)
                self._timer = loop.call_at(since + self._seconds, self._sweep, loop)
                return
            if connection.is_read:
                self.add(connection)
            else:
                connection.transport.abort()


class Patience:
    """How long a server waits for those who have connections, and how many of these it has."""

    def __init__(self, most: int, *, head_seconds: float = HEAD_SECONDS, read_seconds: float = READ_SECONDS) -> None:
        """`most` connections are open at once; if there are more, those that wait longest are closed."""
        self.most, self._logged = most, float("-inf")
        self.for_requests, self.for_readers = Waiting(head_seconds), Waiting(read_seconds)
        self._unfinished: dict[SocketConnection, int] = {}  # bytes of messages of WebSockets that are not whole yet

    def make_room(self) -> None:
        """Close a connection, as there is one more than allowed."""
        if (now := monotonic()) - self._logged >= _LOG_SECONDS:
            self._logged = now
            logger.warning("There are more than %d connections: those that wait longest are closed.", self.most)
        is_alone = len(self.for_requests) <= 1  # the new one
        (self.for_readers if is_alone and len(self.for_readers) else self.for_requests).close_longest()

    def note_unfinished(self, connection: SocketConnection, size: int) -> None:
        """Note that so many more bytes of a message have come; if they are too many in all, the longest is given up."""
        self._unfinished[connection] = self._unfinished.get(connection, 0) + size
        if sum(self._unfinished.values()) > MAX_UNFINISHED:
            longest = max(self._unfinished, key=self._unfinished.__getitem__)
            self.note_whole(longest)
            longest.transport.abort()

    def note_whole(self, connection: SocketConnection) -> None:
        """Note that a message is whole, or that no more of it comes."""
        self._unfinished.pop(connection, None)


class RequestParser:
    """Parses requests, and goes on with those that offer another protocol, as clients of Java do with HTTP/2.

    Only a GET without a body can begin a WebSocket, on a connection on which nothing is being answered. The parser of
    httptools takes what follows any other such head for that protocol: the body would be lost, and read as the next
    request. So another one, which has read what says how long the body is, goes on from there.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begin()

    def _begin(self) -> None:
        self._parser, self._framing = HttpRequestParser(self), [b"POST / HTTP/1.1"]
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._is_known = False  # whether the head was read before

    def feed_data(self, data: bytes) -> None:
        """Parse what has come."""
        while True:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as offer:
                if self.should_upgrade():
                    raise
                data, head = data[offer.args[0] :], b"\r\n".join([*self._framing, b"", b""])
                self._begin()
                self._is_known = True
                self._parser.feed_data(head)
            else:
                return

    def should_upgrade(self) -> bool:
        """Return whether a WebSocket follows; no other protocol does."""
        is_plain = self._parser.get_method() == b"GET" and len(self._framing) == 1
        is_offered = self._parser.should_upgrade() and self._parser.get_http_version() == "1.1"
        return bool(is_plain and is_offered) and self._connection.takes_socket()

    def should_keep_alive(self) -> bool:
        """Return whether further requests may come."""
        return bool(self._parser.should_keep_alive())

    def get_method(self) -> bytes:
        """Return the method of the request."""
        return bytes(self._parser.get_method())

    def get_http_version(self) -> str:
        """Return the version of the request."""
        return str(self._parser.get_http_version())

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        if not self._is_known:
            self._framing = self._framing[:1]
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        if not self._is_known:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field."""
        if not self._is_known:
            if name.lower() in _FRAMING:
                self._framing.append(b"%b: %b" % (name, value))
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        if not self._is_known:
            self._connection.on_headers_complete()
        self._is_known = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._connection.on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        if not self._parser.should_upgrade():  # it only ends the head
            self._connection.on_message_complete()


class Connection(HttpToolsProtocol):
    """A connection that is closed if it does not send a request or read an answer in time, or sends too much.

    What counts is what is neither the head of a request, once that is whole, nor a part of its body: also what follows
    a body, and what stands between its chunks.
    """

    patience: Patience
    unsent = 0  # bytes of answers, when it began to wait
    _has_head = False  # whether the head of the request is whole

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return getattr(self.cycle, "response_complete", True)  # there is none before the first request

    @property
    def is_read(self) -> bool:
        """Whether its client has read something of what is still to be sent since it began to wait."""
        return self.transport.get_write_buffer_size() not in (0, self.unsent)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.parser = RequestParser(self)  # type: ignore[assignment]  # has all that is used of it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        with suppress(OSError):  # it is closed already, or no connection of TCP
            watch_peer(transport.get_extra_info("socket"))
        self._unread = self._discarded = 0
        self.patience.for_requests.add(self)
        if len(self.connections) > self.patience.most:
            self.patience.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self.patience.for_requests.remove(self)
        self.patience.for_readers.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has come."""
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self.is_idle:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        self._has_head = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head; those of a trailer, behind the body, say nothing of the request."""
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._has_head = True
        self._unread = self._discarded = 0
        self.patience.for_requests.remove(self)
        self.app = answered = _Answered(self.config.loaded_app, self.transport)
        super().on_headers_complete()
        answered.cycle = self.cycle

    def takes_socket(self) -> bool:
        """Return whether the request that was read is a handshake, and comes when nothing is being answered."""
        return self.is_idle and not self.pipeline and self._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        """Give the connection to the protocol of WebSockets, which has limits of its own."""
        self.patience.for_requests.remove(self)
        self.patience.for_readers.remove(self)
        super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body; of one that was answered already, only so much."""
        self._unread = 0
        super().on_body(body)
        if self.is_idle:
            self._discarded += len(body)
            if self._discarded > MAX_DISCARDED:
                self.transport.close()

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        self._unread = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read the rest of the answer."""
        super().on_response_complete()
        self._wait_for_request()

    def pause_writing(self) -> None:
        """Wait until what was written is read."""
        super().pause_writing()
        self.patience.for_readers.add(self)

    def resume_writing(self) -> None:
        """Write on."""
        self.patience.for_readers.remove(self)
        super().resume_writing()
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        """Wait for a request if none is being answered, and the answer before it is not still being read."""
        if self.is_idle and self in self.connections and self not in self.patience.for_readers:
            self.patience.for_requests.add(self)


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that is closed if its client does not read in time, or sends the longest of too much at once."""

    patience: Patience
    unsent = 0  # bytes of messages, when it began to wait
    _joined = 0  # pieces of a message that fragments were put together to: each fragment takes more than it is long
    _is_held = False  # whether nothing is read, because answers to pings are not read either

    @property
    def is_read(self) -> bool:
        """Whether its client has read something of what is still to be sent since it began to wait."""
        return self.transport.get_write_buffer_size() not in (0, self.unsent)

    def data_received(self, data: bytes) -> None:
        """Read what has come."""
        self.patience.note_unfinished(self, len(data))
        if not self.transport.is_closing():
            super().data_received(data)
            if self.transport.get_write_buffer_size() > MAX_UNREAD:
                self._is_held = True
                self.transport.pause_reading()

    def handle_cont(self, event: Frame) -> None:
        """Take a fragment of a message that has begun."""
        if len(self.frames) <= 1:
            self._joined = 0
        super().handle_cont(event)
        if len(self.frames) - self._joined >= MAX_FRAGMENTS:
            self.frames[self._joined :] = [b"".join(self.frames[self._joined :])]
            self._joined += 1

    def send_receive_event_to_app(self) -> None:
        """Give a message that is whole to the application."""
        self.patience.note_whole(self)
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        """Send a message; a handshake that is refused is complete, too, which uvicorn would log as an error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def pause_writing(self) -> None:
        """Wait until what was written is read."""
        super().pause_writing()
        self.patience.for_readers.add(self)

    def resume_writing(self) -> None:
        """Write on."""
        self.patience.for_readers.remove(self)
        super().resume_writing()
        if self._is_held:
            self._is_held = False
            if not self.read_paused:
                self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self.patience.for_readers.remove(self)
        self.patience.note_whole(self)
        super().connection_lost(exc)


class _Answered:
    """An application for one request: an answer that it does not end is cut off, without an error in the log."""

    cycle: Any = None  # uvicorn's, of this request

    def __init__(self, app: ASGIApp, transport: asyncio.Transport) -> None:
        self._app, self._transport = app, transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await self._app(scope, receive, send)
        if self.cycle.response_started and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self._transport.close()


def protocol(patience: Patience) -> type[Connection]:
    """Return the connections of one server, for uvicorn's `http`."""
    return type("Connection", (Connection,), {"patience": patience})


def socket_protocol(patience: Patience) -> type[SocketConnection]:
    """Return the WebSockets of one server, for uvicorn's `ws`."""
    return type("SocketConnection", (SocketConnection,), {"patience": patience})


class Server(uvicorn.Server):
    """A server of a site that ends streams as they should end, or waits until all answers have ended (`drain`)."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serves, self._is_draining = asyncio.Event(), False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.serves.set()

    def drain(self) -> None:
        """Accept no more connections, and end once all answers have ended, also in the background."""
        self._is_draining = self.should_exit = True

    def end(self) -> None:
        """End soon."""
        self._is_draining, self.should_exit = False, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End soon, for a signal."""
        self._is_draining = False
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams as soon as no requests come any more; then wait for those in flight."""
        state: Any = self.config.app.state  # type: ignore[union-attr]  # a site's
        for server in self.servers:
            server.close()
        for one in sockets or []:
            one.close()
        while self._is_draining and (self._is_answering() or state.is_busy()):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(DRAIN_PAUSE)
        await state.stop()
        await super().shutdown(sockets)

    def _is_answering(self) -> bool:
        """Close connections that wait for a request; return whether others are left.

        WebSockets are closed at the end, when nothing goes on in them any more.
        """
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.shutdown()
        return any(isinstance(one, Connection) for one in self.server_state.connections)


_TOO_LARGE: Final = (
    f"HTTP/1.1 431 {HTTPStatus(431).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    f"content-length: {len(HEAD_TOO_LARGE)}\r\nconnection: close\r\n\r\n{HEAD_TOO_LARGE}"
).encode()
