"""Connections of a server: what each may send before its request is known, for how long, and how many there are."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import OrderedDict
from contextlib import suppress
from http import HTTPStatus
from time import monotonic
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from threadkeep.web.limits import HEAD_TOO_LARGE, MAX_HEAD_BYTES

if sys.platform != "win32":
    import resource

logger = logging.getLogger(__name__)

HEAD_SECONDS: Final = 20.0  # in which a connection must send the head of a request, or read something of an answer
MAX_OPEN_FILES: Final = 65_536  # that a server asks the system for
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
    """The connections of a server that wait for a request, or for somebody to read an answer: longest first."""

    def __init__(self, most: int, seconds: float = HEAD_SECONDS) -> None:
        """`most` are the connections that a server has at once, waiting or not."""
        self.most, self._seconds = most, seconds
        self._since: OrderedDict[Connection, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._logged = float("-inf")

    def add(self, connection: Connection) -> None:
        """Note that a connection waits from now on."""
        self._since[connection] = connection.loop.time()
        self._since.move_to_end(connection)
        if self._timer is None:
            self._timer = connection.loop.call_later(self._seconds, self._sweep, connection.loop)

    def remove(self, connection: Connection) -> None:
        """Note that a connection waits no more: it has a request, or is lost."""
        self._since.pop(connection, None)

    def make_room(self) -> None:
        """End the connection that has waited longest, as there is one more than allowed."""
        if (now := monotonic()) - self._logged >= _LOG_SECONDS:
            self._logged = now
            logger.warning("There are more than %d connections: those that wait longest are closed.", self.most)
        longest, _ = self._since.popitem(last=False)
        longest.transport.abort()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        while self._since:
            connection, since = self._since.popitem(last=False)
            if since + self._seconds > now:
                self._since[connection] = since
                self._since.move_to_end(connection, last=False)
                self._timer = loop.call_at(since + self._seconds, self._sweep, loop)
                return
            if connection.has_sent_more():
                self.add(connection)
            else:
                connection.transport.abort()


class Connection(HttpToolsProtocol):
    """A connection that is closed if it sends no request in time, or too much before one is known.

    What counts is what is neither the head of a request, once that is whole, nor a part of its body: also what follows
    a body, and what stands beside its chunks.
    """

    waiting: Waiting

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return getattr(self.cycle, "response_complete", True)  # there is none before the first request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._unread = self._unsent = 0
        self.waiting.add(self)
        if len(self.connections) > self.waiting.most:
            self.waiting.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self.waiting.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has come."""
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self.is_idle:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._unread = 0
        self.waiting.remove(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        self._unread = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for somebody to read the rest of the answer."""
        super().on_response_complete()
        if self.is_idle and self in self.connections:
            self._unsent = 0
            self.waiting.add(self)

    def has_sent_more(self) -> bool:
        """Return whether an answer is being read: there is a rest of it that is not the same as before."""
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        return self._unsent not in (0, before)


def protocol(waiting: Waiting) -> type[Connection]:
    """Return the connections of one server, for uvicorn's `http`."""
    return type("Connection", (Connection,), {"waiting": waiting})


_TOO_LARGE: Final = (
    f"HTTP/1.1 431 {HTTPStatus(431).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    f"content-length: {len(HEAD_TOO_LARGE)}\r\nconnection: close\r\n\r\n{HEAD_TOO_LARGE}"
).encode()
