"""Connections to providers over HTTP/1.1, kept for further requests: bytes go through httptools alone.

httpx2's own transport takes eight times as long for a call; its requests, answers and errors are those of this one.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import cache, lru_cache
from itertools import chain, zip_longest
from typing import Any, Final
from urllib.request import getproxies

import httptools
import httpx2

KEPT_SECONDS: Final = 5.0  # for which a connection waits for the next request, as httpx2 has it
READ_AHEAD_BYTES: Final = 96 * 1024  # of an answer in the system (twice as much with what it adds), and in this process
MAX_HEAD_BYTES: Final = 100 * 1024  # of what is no body: a head, or what may stand between pieces and behind the last
STAGGERED_SECONDS: Final = 0.25  # after which the next address of a host is tried, too (RFC 8305)
PEER_SECONDS: Final = 120  # after which a connection ends whose other side has vanished without a word
_PEER_OPTIONS: Final = (
    ("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", PEER_SECONDS * 1000),
)  # fmt: skip
# what ends a line or a head, or splits the first line: it would say something else than what was asked
_NO_TARGET: Final = re.compile(rb"[^\x21-\x7e\x80-\xff]")
_NO_NAME: Final = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]|^$")
_NO_VALUE: Final = re.compile(rb"[\x00\r\n]")
_SWITCHED: Final = 101
_FINAL: Final = 200  # the first status of an answer that is not followed by another


def watch_peer(connection: socket.socket) -> None:
    """Have the system ask whether the other side of a connection is still there, as far as it can.

    A machine that is switched off, or cut off from the network, closes no connection.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PEER_OPTIONS:
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


@cache
def ssl_context() -> ssl.SSLContext:
    """Return the settings of TLS."""
    made: ssl.SSLContext = httpx2.create_ssl_context()  # which takes long
    made.set_alpn_protocols(["http/1.1"])
    return made


@lru_cache(256)
def parsed_url(text: str) -> httpx2.URL:
    """Return a URL of a provider, of which there are few."""
    return httpx2.URL(text)


class ProviderClient:
    """Sends requests over connections that it keeps, in one event loop.

    Where the environment names a proxy, httpx2 sends them.
    """

    def __init__(self, connect_seconds: float, answer_seconds: float | None, kept: int) -> None:
        """It keeps `kept` connections to each host; `answer_seconds`: without a sign of life from it."""
        self._connect_seconds, self._answer_seconds, self._kept = connect_seconds, answer_seconds, kept
        self._idle: dict[tuple[str, str, int], deque[_Connection]] = {}
        self._proxied: httpx2.AsyncClient | None = None
        if getproxies().keys() & {"http", "https", "all"}:
            timeout = httpx2.Timeout(answer_seconds, connect=connect_seconds)
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=kept)
            self._proxied = httpx2.AsyncClient(timeout=timeout, limits=limits)

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer once its head has come, and the request is sent; its body is read from it, and closes it.

        Raises:
            httpx2.HTTPError: there is no answer.
        """
        if self._proxied is not None:
            return await self._proxied.send(request, stream=True)
        lines, length = _head(request), request.headers.get("content-length")
        connection = await self._connection(request)
        answer = connection.begin(request)
        try:
            await connection.send(lines, request, int(length) if length else None)
            await answer.wait_for_head()
        except BaseException:
            connection.abort()
            raise
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=answer, request=request, extensions=answer.extensions
        )

    async def aclose(self) -> None:
        """Close the connections that are kept; those of answers close with them."""
        idle, self._idle, self._kept = self._idle, {}, 0
        for connection in chain.from_iterable(idle.values()):
            connection.abort()
        if self._proxied is not None:
            await self._proxied.aclose()

    async def _connection(self, request: httpx2.Request) -> _Connection:
        url = request.url
        secured = url.scheme == "https"
        origin = url.scheme, url.raw_host.decode("ascii").strip("[]"), url.port or (443 if secured else 80)
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_fresh():
                return connection
            connection.abort()
        made = _Connection(self._answer_seconds, lambda free: self._keep(origin, free))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                found = await _connected(*origin[1:])
                try:
                    await loop.create_connection(
                        lambda: made, sock=found, ssl=ssl_context() if secured else None,
                        server_hostname=origin[1] if secured else None,
                    )  # fmt: skip
                except BaseException:
                    found.close()
                    raise
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("it took too long", request=request) from error
        except (OSError, ValueError) as error:  # ValueError: of a name that no host can have
            raise httpx2.ConnectError(str(error), request=request) from error
        return made

    def _keep(self, origin: tuple[str, str, int], connection: _Connection) -> bool:
        """Keep a connection that is free, or forget it where it is lost; return whether it is kept."""
        idle = self._idle.setdefault(origin, deque())
        if connection.is_lost:
            with suppress(ValueError):
                idle.remove(connection)
        elif len(idle) < self._kept:
            idle.append(connection)
            return True
        return False


async def _connected(host: str, port: int) -> socket.socket:
    """Return a connection to a host: the first one of its addresses that answers, of both families in turns."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    first = [info for info in found if info[0] == found[0][0]]
    others = [info for info in found if info[0] != found[0][0]]
    infos = [info for info in chain.from_iterable(zip_longest(first, others)) if info is not None]
    trying: set[asyncio.Task[socket.socket]] = set()
    refusal = OSError("its name has no address")
    try:
        while infos or trying:
            if infos:
                trying.add(asyncio.create_task(_connect(infos.pop(0))))
            done, trying = await asyncio.wait(
                trying, timeout=STAGGERED_SECONDS if infos else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is None:
                    trying |= done - {task}
                    return task.result()
                if not isinstance(error, OSError):
                    raise error
                refusal = error
    finally:
        for task in trying:
            task.cancel()
            task.add_done_callback(_close_late)
    raise refusal


async def _connect(info: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, address = info
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)  # noqa: FBT003 - the signature of sockets
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_peer(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_AHEAD_BYTES)  # uvloop takes all of it at once
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _head(request: httpx2.Request) -> bytes:
    """The first line and the headers of a request; LocalProtocolError for what would not be read as that."""
    target: bytes = request.extensions.get("target") or request.url.raw_path
    method, headers = request.method.encode("ascii"), request.headers.raw
    if _NO_TARGET.search(target) or _NO_NAME.search(method):
        raise httpx2.LocalProtocolError("The method or target of the request has characters that none has.")
    if any(_NO_NAME.search(name) or _NO_VALUE.search(value) for name, value in headers):
        raise httpx2.LocalProtocolError("A header of the request has characters that none has.")
    lines = [b"%b %b HTTP/1.1" % (method, target), *(b"%b: %b" % header for header in headers), b"", b""]
    return b"\r\n".join(lines)


async def _framed(head: bytes, stream: httpx2.AsyncByteStream, length: int | None) -> AsyncGenerator[bytes]:
    """A head with what follows it; LocalProtocolError for a body of another length than the head has."""
    sent = 0
    given: AsyncGenerator[bytes] = stream.__aiter__()  # type: ignore[assignment]  # of httpx2, it is one
    async with aclosing(given) as pieces:
        async for piece in pieces:
            sent += len(piece)
            if length is not None and sent > length:
                raise httpx2.LocalProtocolError("Too much data for declared Content-Length")
            if piece:
                yield head + (piece if length is not None else b"%x\r\n%b\r\n" % (len(piece), piece))
                head = b""
    if length is not None and sent < length:
        raise httpx2.LocalProtocolError("Too little data for declared Content-Length")
    if last := head + (b"" if length is not None else b"0\r\n\r\n"):
        yield last


class _Answer(httpx2.AsyncByteStream):
    """An answer as it comes: its head, and pieces of its body until they are read."""

    def __init__(self, connection: _Connection, request: httpx2.Request, seconds: float | None) -> None:
        self._connection, self._request, self._seconds = connection, request, seconds
        self.status, self.headers, self.extensions = 0, list[tuple[bytes, bytes]](), dict[str, Any]()
        self.is_head = request.method == "HEAD"  # its answer has no body, whatever its length
        self.has_head = self.is_whole = False
        self.is_sent = False  # the whole request
        self.is_kept = False  # whether the connection may be kept
        self.has_length = False  # whether its end is where its head says, and not where the connection ends
        self.error: tuple[type[httpx2.TransportError], str] | None = None
        self.pieces: list[bytes] = []  # of the body, that have come
        self._size = 0
        self._news: asyncio.Future[None] | None = None

    def note(self, piece: bytes = b"") -> None:
        """Note a piece of the body, or that something else has changed."""
        if piece:
            self.pieces.append(piece)
            self._size += len(piece)
            if self._size > READ_AHEAD_BYTES:
                self._connection.pause_reading()
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def fail(self, kind: type[httpx2.TransportError], text: str) -> None:
        """Note that nothing more comes."""
        if not self.is_whole and self.error is None:
            self.error = kind, text
            self.note()

    async def wait_for_head(self) -> None:
        while not self.has_head:
            await self._wait()

    async def _wait(self) -> None:
        if self.error is not None:
            kind, text = self.error
            raise kind(text, request=self._request)
        self._news = asyncio.get_running_loop().create_future()
        try:
            if self._seconds is None:
                await self._news
            else:
                async with asyncio.timeout(self._seconds):
                    await self._news
        except TimeoutError as error:
            raise httpx2.ReadTimeout("it took too long", request=self._request) from error
        finally:
            self._news = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces as they come, those together that have come in the meantime."""
        while True:
            if self.pieces:
                piece = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
                self.pieces, self._size = [], 0
                self._connection.resume_reading()
                yield piece
            elif self.is_whole:
                return
            else:
                await self._wait()

    async def aclose(self) -> None:
        """Keep the connection where it can be used again, and else close it."""
        connection, self.pieces = self._connection, []
        if connection.answer is self:
            connection.end()


class _Connection(asyncio.Protocol):
    """A connection with one request after the other."""

    def __init__(self, seconds: float | None, has_ended: Callable[[_Connection], bool]) -> None:
        """`seconds`: without a sign of the provider. `has_ended` is called when it is free, or lost."""
        self._seconds, self._has_ended = seconds, has_ended
        self.answer: _Answer | None = None
        self.is_lost = self._is_paused = False
        self._writable: asyncio.Future[None] | None = None  # while the system takes nothing more

    def begin(self, request: httpx2.Request) -> _Answer:
        """Return the answer to a request that is sent now."""
        self.answer = answer = _Answer(self, request, self._seconds)
        self._parser: Any = httptools.HttpResponseParser(self)
        self._idle_bytes = 0  # that have come since something of a body, or a head, did
        self._parser.set_dangerous_leniencies(lenient_headers=True)  # of characters in values, which others check
        answer.extensions["network_stream"] = self._transport
        if self.is_lost:
            answer.fail(httpx2.ConnectError, "the connection was closed")
        return answer

    def is_fresh(self) -> bool:
        """Return whether it can be used again: its provider has not closed it, and it has not waited for long."""
        if self._transport.is_closing() or asyncio.get_running_loop().time() - self._free_since > KEPT_SECONDS:
            return False
        connection = self._transport.get_extra_info("socket")
        if connection is None or not hasattr(select, "poll"):  # on Windows
            return True
        unread = select.poll()
        unread.register(connection.fileno(), select.POLLIN)
        return not unread.poll(0)

    async def send(self, head: bytes, request: httpx2.Request, length: int | None) -> None:
        """Send a request whole; what its provider does not take any more stays unsent."""
        answer, stream = self.answer, request.stream
        assert answer is not None  # noqa: S101 - it has begun
        if isinstance(stream, httpx2.ByteStream):
            self._transport.write(head + b"".join(stream))
            answer.is_sent = True
        elif isinstance(stream, httpx2.AsyncByteStream):
            answer.is_sent = await self._send_stream(answer, head, stream, length)
        if self._writable is not None:
            await self._drained(answer)

    async def _send_stream(
        self, answer: _Answer, head: bytes, stream: httpx2.AsyncByteStream, length: int | None
    ) -> bool:  # fmt: skip
        """Send a body as it comes; return whether its provider took all of it, or had answered before."""
        async with aclosing(_framed(head, stream, length)) as pieces:
            async for piece in pieces:
                self._transport.write(piece)
                if self._writable is not None:
                    await self._drained(answer)
                if answer.is_whole or answer.error is not None:
                    return False
        return True

    async def _drained(self, answer: _Answer) -> None:
        """Wait until the system takes more, or the provider has answered, or is gone."""
        while self._writable is not None and not answer.is_whole and answer.error is None:
            await self._writable

    def end(self) -> None:
        """Note that the answer has been read, or is not to be."""
        answer, self.answer = self.answer, None
        self._free_since = asyncio.get_running_loop().time()
        is_free = answer is not None and answer.is_whole and answer.is_kept and answer.is_sent
        if self.is_lost or not is_free or self._transport.is_closing():
            self.abort()
        else:
            self.resume_reading()
            if not self._has_ended(self):
                self.abort()

    def abort(self) -> None:
        """Close it at once."""
        self.answer = None
        self._transport.abort()

    def pause_reading(self) -> None:
        """Let nothing more come."""
        if not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let more come."""
        if self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: Any = transport

    def pause_writing(self) -> None:
        """Note that the system takes nothing more."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Note that it takes more."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def _stop_writing(self) -> None:
        """Let nothing wait for the system to take more: what it has not taken is of no use."""
        if self._writable is not None and self.answer is not None:
            self.answer.is_kept = False
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        answer = self.answer
        if answer is None:  # nothing was asked
            self._transport.abort()
            return
        self._idle_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.on_message_complete()
        except httptools.HttpParserError as error:
            answer.is_kept = False
            answer.fail(httpx2.RemoteProtocolError, str(error) or type(error).__name__)
            self._transport.abort()
        if self._idle_bytes > MAX_HEAD_BYTES and not answer.is_whole:
            answer.fail(httpx2.RemoteProtocolError, f"more than {MAX_HEAD_BYTES:,} bytes came that are no body")
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that nothing more comes: the end of an answer without a length."""
        self.is_lost = True
        self._stop_writing()
        answer = self.answer
        if answer is None:
            self._has_ended(self)
        elif exc is None and answer.has_head and not answer.has_length and answer.error is None:
            answer.is_whole = True
            answer.note()
        elif exc is not None:
            answer.fail(httpx2.ReadError, str(exc))
        elif answer.has_head:
            answer.fail(httpx2.RemoteProtocolError, "peer closed connection without sending complete message body")
        else:
            answer.fail(httpx2.RemoteProtocolError, "Server disconnected without sending a response.")

    # What the parser finds

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those behind a body are left out."""
        answer = self.answer
        if answer is not None and not answer.has_head:
            answer.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Take the head; another follows one of 100 to 199, except for that of another protocol."""
        answer, status = self.answer, self._parser.get_status_code()
        if answer is None or answer.has_head:
            return
        if status < _FINAL and status != _SWITCHED:
            answer.headers = []
            return
        self._idle_bytes = 0
        answer.status, answer.has_head = status, True
        answer.has_length = any(
            name.lower() == b"content-length" or (name.lower() == b"transfer-encoding" and b"chunked" in value.lower())
            for name, value in answer.headers
        )
        answer.is_whole = answer.is_head  # which the parser does not know: the connection is not kept
        answer.note()

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._idle_bytes = 0
        if self.answer is not None and not self.answer.is_whole:
            self.answer.note(piece)

    def on_message_begin(self) -> None:
        """Note an answer to nothing: behind the end of the one that was asked for."""
        if self.answer is not None and self.answer.is_whole:
            self.answer.is_kept = False

    def on_message_complete(self) -> None:
        """Note the end of the answer."""
        answer = self.answer
        if answer is not None and answer.has_head and not answer.is_whole:
            answer.is_whole = True
            answer.is_kept = answer.status != _SWITCHED and bool(self._parser.should_keep_alive())
            self._stop_writing()
            answer.note()
