"""Connections to providers: those of httpx2, on the transports of the event loop.

What httpx2 takes by default, anyio, costs twice the CPU time of a call: it goes through the event loop before each
write, has the system begin and end to watch the connection for each read, and makes a timer for each of them. A pool
asks all of its free connections whether they are closed, twice a call.
"""

# ruff: noqa: ASYNC109 - httpcore2 says how long each call may take

from __future__ import annotations

import asyncio
import socket
from asyncio.staggered import staggered_race
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

import httpcore2
import httpx2

if TYPE_CHECKING:
    import ssl

READ_AHEAD_BYTES: Final = 96 * 1024  # of an answer in the system; twice as much with what it adds
_UNREAD_BYTES: Final = 64 * 1024  # of an answer in memory, after which no more is taken from the system
_NEXT_ADDRESS_SECONDS: Final = 0.25  # after which the next address of a host is tried, too (RFC 8305)
PEER_SECONDS: Final = 120  # after which a connection ends whose other side has vanished without a word
_PEER_OPTIONS: Final = (
    ("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", PEER_SECONDS * 1000),
)  # fmt: skip


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
    """The settings of TLS for all clients of a process: to make them takes 50 ms, and a megabyte."""
    return httpx2.create_ssl_context()


class ProviderClient(httpx2.AsyncClient):
    """A client of httpx2 whose connections, also those to proxies, are `ProviderConnection`s."""

    def _init_transport(self, *args: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _on_loop(super()._init_transport(*args, **options))

    def _init_proxy_transport(self, *args: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _on_loop(super()._init_proxy_transport(*args, **options))


def _on_loop(transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncBaseTransport:
    pool = vars(transport)["_pool"]  # whose backend is an argument of httpcore2's pools, but not of httpx2's transports
    vars(pool)["_network_backend"] = LoopBackend()
    return transport


class LoopBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections on the event loop, watched, and with no more read ahead than `READ_AHEAD_BYTES`.

    Without that limit, uvloop takes all that the system has at once.
    """

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> ProviderConnection:  # fmt: skip
        """Connect to a host, at whichever of its addresses answers first."""
        loop, local = asyncio.get_running_loop(), None if local_address is None else (local_address, 0)
        with _raised_as(httpcore2.ConnectTimeout, httpcore2.ConnectError):
            async with asyncio.timeout(timeout):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                other = [info for info in found if info[0] != found[0][0]][:1]
                ways = [partial(_connected, info, local) for info in dict.fromkeys([found[0], *other, *found])]
                connection, _, errors = await staggered_race(ways, _NEXT_ADDRESS_SECONDS)
                if connection is None:
                    raise next(filter(None, errors))
                for option in socket_options or ():
                    connection.setsockopt(*option)
                return (await loop.create_connection(ProviderConnection, sock=connection))[1]

    async def sleep(self, seconds: float) -> None:
        """Wait before a connection is tried again."""
        await asyncio.sleep(seconds)


async def _connected(info: tuple[Any, ...], local: tuple[str, int] | None) -> socket.socket:
    *kind, _, address = info
    connection = socket.socket(*kind)
    try:
        connection.settimeout(0)
        with suppress(OSError):  # of what the system does not have
            watch_peer(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_AHEAD_BYTES)
        if local is not None:
            connection.bind(local)
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _raised_as(late: type[Exception], failed: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except OSError as error:
        raise failed(str(error)) from error


class ProviderConnection(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """A connection that one task at a time reads and writes."""

    def __init__(self) -> None:
        self._received, self._size = deque[bytes](), 0
        self._has_ended = self._is_paused = self._is_full = False
        self._error: Exception | None = None  # with which it ended
        self._waiting: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keep what came."""
        self._received.append(data)
        self._size += len(data)
        if self._size > _UNREAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Note that nothing follows; the transport is closed."""
        self._has_ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note why the connection has ended."""
        self._has_ended, self._error, self._is_full = True, exc, False
        self._wake()

    def pause_writing(self) -> None:
        """Note that what was written is not sent yet."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Let a writer go on."""
        self._is_full = False
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _wait(self, timeout: float | None) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._waiting
        finally:
            self._waiting = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has come, or comes next; nothing at the end."""
        with _raised_as(httpcore2.ReadTimeout, httpcore2.ReadError):
            while not self._received:
                if self._error is not None:
                    raise httpcore2.ReadError(str(self._error)) from self._error
                if self._has_ended:
                    return b""
                await self._wait(timeout)
        data = self._received.popleft()
        if len(data) > max_bytes:
            self._received.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._size -= len(data)
        if self._is_paused and not self._received and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send something; wait while much is not sent yet."""
        if not buffer:
            return
        if self._transport.is_closing():
            raise httpcore2.WriteError("The connection is closed.") from self._error
        self._transport.write(buffer)
        with _raised_as(httpcore2.WriteTimeout, httpcore2.WriteError):
            while self._is_full:
                await self._wait(timeout)
        if self._error is not None:
            raise httpcore2.WriteError(str(self._error)) from self._error

    async def aclose(self) -> None:
        """Close the connection at once."""
        self._transport.abort()
        await asyncio.sleep(0)  # then it is

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> ProviderConnection:
        """Encrypt what follows."""
        loop, transport = asyncio.get_running_loop(), self._transport
        try:
            with _raised_as(httpcore2.ConnectTimeout, httpcore2.ConnectError):
                async with asyncio.timeout(timeout):
                    begun = await loop.start_tls(transport, self, ssl_context, server_hostname=server_hostname)
        except BaseException:
            transport.abort()
            raise
        self._transport = cast("asyncio.Transport", begun)
        return self

    def get_extra_info(self, info: str) -> Any:
        """Return something of the connection: also whether a read would return at once (`is_readable`)."""
        if info == "is_readable":
            return self._has_ended or bool(self._received)
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(names.get(info, info))
