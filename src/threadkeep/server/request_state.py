"""Per-request state: its id, which its answer carries and logs can name, its owner and its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import getrandbits
from threading import Lock
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadkeep.server import answers, quotas

MAX_BODIES_BYTES: Final = 256 * 1024 * 1024  # of bodies that are read, worked with or sent at once
PIECE_BYTES: Final = 64 * 1024  # of an answer that are sent at once; shorter ones do not count, nor do such bodies
SINCE: Final = "since"  # in the state of a request: when it began, or its WebSocket
WARMS_UP: Final = "warms_up"  # in the state of a request over a WebSocket: whether no model is to answer it


class RequestIds:
    """Middleware that gives each request an id, and the answer a header with it, unless it has a provider's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        state = scope.setdefault("state", {})
        if scope["type"] != "http":
            if scope["type"] == "websocket":  # where the requests in it come in, one by one
                state.setdefault("entry", (self, {**scope}))
            await self._app(scope, receive, send)
            return
        if "request_id" in state:  # of the site that this application is in
            await self._app(scope, receive, send)
            return
        state["request_id"] = request_id = f"req_{getrandbits(96):024x}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault(answers.HEADER, request_id)
            await send(message)

        await self._app(scope, receive, send_with_id)


@dataclass(slots=True)
class RequestState:
    """Per-request state: its owner, its deadline, and whether it may be retried.

    Attributes:
        shares: the requests in flight, by owner.
        owner: the name of its owner; None before that is known.
        may_retry: whether its client may send it again: False once it has done what must not be done twice.
        has_key: whether it has an `Idempotency-Key`, with which a repeated request finds what was done.
        deadline: when its time is over.
        stream: when the time of its streamed answer is over, a little earlier.
    """

    shares: quotas.Quota
    owner: Hashable | None = None
    may_retry: bool = True
    has_key: bool = False
    deadline: asyncio.Timeout | None = None
    stream: asyncio.Timeout | None = None


@dataclass(slots=True)
class CountedBody:
    """Receives the body of a request; its bytes count for its owner until its answer begins.

    A body of at most PIECE_BYTES that has come does not count.

    Attributes:
        held: the bytes of what its answer is made of, as long as that is kept.
    """

    receive: Receive
    quota: quotas.Quota
    owner: Hashable | None = None
    count: int = 0
    held: int = 0
    is_over: bool = False
    lock: Lock = field(default_factory=Lock)

    async def __call__(self) -> Message:
        """Receive more of it; QuotaExceeded where too much is being read."""
        message = await self.receive()
        size, is_whole = len(message.get("body", b"")), not message.get("more_body", False)
        if is_whole and self.count + size <= PIECE_BYTES:
            self.end()
        else:
            self.quota.take(self.owner, size)
            self.count += size
        return message

    def end(self) -> None:
        """Note that nothing of it is kept."""
        self.quota.give_back(self.owner, self.count)
        self.count = 0

    def hold(self, size: int) -> None:
        """Count so many bytes of what the answer is made of, in place of those so far, from any thread; QuotaExceeded.

        None count after the request, which may end while a thread still reads for it.
        """
        with self.lock:
            before, self.held = self.held, 0
            self.quota.give_back(self.owner, before)
            if size > PIECE_BYTES and not self.is_over:
                self.quota.take(self.owner, size)
                self.held = size

    def close(self) -> None:
        """Give back all that counts: the request has ended."""
        self.end()
        self.is_over = True
        self.hold(0)


@dataclass(slots=True)
class CountedAnswer:
    """Sends an answer; the bytes of a long one count for the owner of its request until its client has taken them."""

    send: Send
    body: CountedBody
    start: Message | None = None  # of a long answer, until there is room for it
    is_refused: bool = False

    async def __call__(self, message: Message) -> None:
        """Send more of it; a refusal in its place where too much is under way."""
        if self.is_refused:
            return
        if message["type"] == "http.response.start":
            self.body.end()
            length = MutableHeaders(scope=message).get("content-length", "")
            if length.isdecimal() and int(length) > PIECE_BYTES:
                self.start = message
                return
        text = message.get("body", b"")
        if len(text) <= PIECE_BYTES:
            await self._begin()
            await self.send(message)
        else:
            await self._send_counted(text, message)

    async def _begin(self) -> None:
        start, self.start = self.start, None
        if start is not None:
            await self.send(start)

    async def _send_counted(self, text: bytes, message: Message) -> None:
        owner, quota = self.body.owner, self.body.quota
        size = max(0, len(text) - self.body.held)
        try:
            quota.take(owner, size)
        except quotas.QuotaExceeded as error:
            if self.start is None:
                raise
            self.is_refused = True
            refusal = answers.quota_refusal(error)
            refusal.headers.update(retry_headers())
            await refusal({"type": "http"}, self.body.receive, self.send)
            return
        try:
            await self._begin()
            for first in range(0, len(text), PIECE_BYTES):
                piece, is_last = text[first : first + PIECE_BYTES], first + PIECE_BYTES >= len(text)
                await self.send({**message, "body": piece, "more_body": not is_last or message.get("more_body", False)})
        finally:
            quota.give_back(owner, size)


# Of the request that is being answered
_state: ContextVar[RequestState | None] = ContextVar("request_state", default=None)
_body: ContextVar[CountedBody | None] = ContextVar("request_body", default=None)


@contextmanager
def running(shares: quotas.Quota, scope: Scope) -> Iterator[RequestState]:
    """Note what happens in a request while it is answered."""
    state = RequestState(shares, has_key="idempotency-key" in Headers(scope=scope))
    token = _state.set(state)
    try:
        yield state
    finally:
        _state.reset(token)
        if state.owner is not None:
            shares.give_back(state.owner)


class BoundedBodies:
    """Middleware that limits the bytes of bodies in memory, of requests and of answers, of each owner and of all."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        """Set the limit of all owners; each has three quarters of it at most."""
        self._app, text = app, "Too many bytes of bodies are under way{key}"
        self._bytes = quotas.Quota(max(1, most * 3 // 4), most, text=text, code="too_many_bodies")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless the site that this application is in counts already."""
        if scope["type"] != "http" or _body.get() is not None:
            await self._app(scope, receive, send)
            return
        body = CountedBody(receive, self._bytes)
        token = _body.set(body)
        try:
            await self._app(scope, body, CountedAnswer(send, body))
        finally:
            _body.reset(token)
            body.close()


def request_start(scope: Scope) -> datetime:
    """Return when a request began: when its owner was first asked for, or that of its WebSocket."""
    began_at: datetime = scope.setdefault("state", {}).setdefault(SINCE, datetime.now(UTC))
    return began_at


def forbid_retry() -> None:
    """Note that the current request does what must not be done twice."""
    state = _state.get()
    if state is not None:
        state.may_retry = False


def end_body() -> None:
    """Note that nothing of the body of the current request is kept, or that what is kept counts elsewhere."""
    if (body := _body.get()) is not None:
        body.end()


def retry_headers() -> dict[str, str]:
    """Return the headers of an error in place of an answer: clients do not repeat what must not be done twice."""
    state = _state.get()
    return {} if state is None or state.may_retry or state.has_key else {"x-should-retry": "false"}


def holder() -> Callable[[int], None]:
    """Return what counts the bytes of what the current request is answered with, from any thread, until it has ended.

    A stream of small events, which do not count, may be made of a large object, and its client may take long. The
    function raises QuotaExceeded where too much is under way.
    """
    body = _body.get()
    return (lambda _: None) if body is None else body.hold


def note_owner(name: Hashable) -> None:
    """Note whose the current request is; the first word counts.

    Raises:
        HTTPException: this owner has too many requests in flight.
    """
    state, body = _state.get(), _body.get()
    if body is not None and not body.count and not body.held:
        body.owner = name
    if state is not None and state.owner is None:
        state.shares.take(name)
        state.owner = name


def stream_time(last_seconds: float) -> asyncio.Timeout:
    """Return the time of a stream with which the current request is answered; so long after it, its end can be sent."""
    state = _state.get()
    when = None if state is None or state.deadline is None else state.deadline.when()
    limit = asyncio.timeout_at(when)
    if state is not None and state.deadline is not None and when is not None:
        state.stream = limit
        state.deadline.reschedule(when + last_seconds)
    return limit


def is_late() -> bool:
    """Return whether the time of the stream is over with which the current request is answered."""
    state = _state.get()
    return state is not None and state.stream is not None and state.stream.expired()
