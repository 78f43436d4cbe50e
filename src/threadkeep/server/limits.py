"""Limits of a server: headers, bodies, requests at a time, time, and how often each key may ask."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from threadkeep.errors import InvalidOption
from threadkeep.server import owners, quotas, request_state
from threadkeep.server.answers import OwnPages, allow_origins, refusal

logger = logging.getLogger(__name__)

MAX_HEADERS: Final = 200  # of a request
MAX_HEAD_BYTES: Final = 64 * 1024  # of a request: its path, query and headers
BEGUN_AT_ONCE: Final = 16  # requests in a turn of the event loop: each takes about 2 ms
HEAD_TOO_LARGE: Final = f"Path and headers exceed {MAX_HEAD_BYTES:,} bytes."


def bound(application: Starlette, most: int, cors: Collection[str]) -> None:
    """Have an API refuse heads and bodies that are too large, know its requests by ids, and pages of other sites.

    `most`: bytes of bodies under way. InvalidOption: what `cors` has is no origin.
    """
    application.add_middleware(request_state.BoundedBodies, most=most)
    application.add_middleware(BoundedHeads)
    application.add_middleware(OwnPages, trusted=cors)
    application.add_middleware(request_state.RequestIds)
    allow_origins(application, cors)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server does at most, in each of its processes.

    Attributes:
        max_body_bytes: the largest body of a request, in bytes; larger ones are answered with 413. Faces may have
            lower limits.
        max_requests: how many requests are in flight at once; others are answered with 503. Each owner has three
            quarters of them at most, and is answered with 429 beyond.
        max_seconds: how long a request may take, with its whole answer; then it is ended, with 504 if nothing was sent.
            Clients do not repeat it by themselves once a model was asked.
        max_bodies_bytes: how many bytes of bodies are under way at once: of requests until they are answered, or their
            stream begins, and of answers until they are sent; more are answered with 503.
            Each owner has three quarters of them at most, and is answered with 429 beyond.
    """

    max_body_bytes: int = 64 * 1024 * 1024
    max_requests: int = 1_000
    max_seconds: float = 1_800.0
    max_bodies_bytes: int = request_state.MAX_BODIES_BYTES

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_requests", "max_seconds", "max_bodies_bytes"):
            if not getattr(self, name) > 0:
                raise InvalidOption("must be positive.", argument=name)

    @property
    def max_of_owner(self) -> int:
        """How many requests of one owner are in flight at once: others always find room."""
        return max(1, self.max_requests * 3 // 4)


def exceeds(length: str, most: int) -> bool:
    """Return whether a Content-Length is a number above a limit; one of any number of digits."""
    digits = length.strip().lstrip("0") or "0"
    return digits.isdecimal() and (len(digits) > len(str(most)) or int(digits) > most)


class BoundedHeads:
    """Middleware that refuses requests with many headers, or with long ones, or with a long path.

    WebSockets are answered with 426 where there are none: Codex then goes on over HTTP at once; it asks seven times
    after other statuses.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        application = self._app
        is_socket = scope["type"] == "websocket" and "websocket.http.response" in scope.get("extensions", {})
        if scope["type"] == "http" or is_socket:
            if len(scope["headers"]) > MAX_HEADERS:
                application = refusal(431, f"The request has more than {MAX_HEADERS} headers.", "headers_too_large")
            elif _head_bytes(scope) > MAX_HEAD_BYTES:
                application = refusal(431, HEAD_TOO_LARGE, "headers_too_large")
            elif not is_socket and HTTPConnection(scope).headers.get("upgrade", "").lower() == "websocket":
                application = over_http()
        await application(scope, receive, _Refusing(scope, receive, send) if is_socket else send)


class _Refusing:
    """Answers with 426 where an application closes a WebSocket before it is accepted: as routers do."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "websocket.close" and not self._has_begun:
            await WebSocket(self._scope, self._receive, self._send).send_denial_response(over_http())
        else:
            self._has_begun = True
            await self._send(message)


def over_http() -> Response:
    """Return the answer to a request for a WebSocket where there is none."""
    answer = refusal(426, "There are no WebSockets here: ask over HTTP.", "upgrade_required")
    answer.headers["upgrade"] = "HTTP/1.1"  # RFC 9110, 15.5.22
    return answer


def _head_bytes(scope: Scope) -> int:
    path = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    return path + sum(map(len, chain.from_iterable(scope["headers"])))


class Beginnings:
    """Begins few requests in a turn of the event loop, so that what else waits for it has its turn in between."""

    def __init__(self) -> None:
        self._begun, self._waiting = 0, deque[asyncio.Future[None]]()

    async def turn(self) -> None:
        """Wait until it is the turn of one more request."""
        loop = asyncio.get_running_loop()
        if not self._begun:
            loop.call_soon(self._next)
        if self._begun >= BEGUN_AT_ONCE:
            self._waiting.append(turn := loop.create_future())
            await turn
        else:
            self._begun += 1

    def _next(self) -> None:
        some = [self._waiting.popleft() for _ in range(min(BEGUN_AT_ONCE, len(self._waiting)))]
        self._begun = len(some)
        for one in some:
            if not one.done():  # else its client has left
                one.set_result(None)
        if some:
            asyncio.get_running_loop().call_soon(self._next)


class Limited:
    """Middleware that refuses what exceeds the limits."""

    def __init__(self, app: ASGIApp, limits: Limits, exempt: Collection[str] = ()) -> None:
        """`exempt` are paths that are always answered."""
        self._app, self._limits, self._exempt, self._in_flight = app, limits, frozenset(exempt), 0
        self._beginnings = Beginnings()
        text = f"Too many requests{{key}} are in flight: {limits.max_of_owner:,}"
        self._shares = quotas.Quota(limits.max_of_owner, text=text, retry_after=1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
            return
        if exceeds(HTTPConnection(scope).headers.get("content-length", ""), self._limits.max_body_bytes):
            await self._too_large()(scope, receive, send)
        elif self._in_flight >= self._limits.max_requests:
            busy = refusal(503, "The server has too many requests in flight.", "overloaded", retry_after=1)
            await busy(scope, receive, send)
        else:
            self._in_flight += 1
            try:
                await self._beginnings.turn()
                await self._timed(scope, _Bounded(receive, self._limits.max_body_bytes), send)
            finally:
                self._in_flight -= 1

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        deadline = asyncio.timeout(self._limits.max_seconds)
        with request_state.running(self._shares, scope) as state:
            try:
                async with deadline:
                    state.deadline = deadline
                    await self._app(scope, receive, noting)
            except TimeoutError:
                if not deadline.expired():
                    raise
                if has_begun:  # the end of a stream that was cut off must not look like one
                    logger.info("An answer took more than %g seconds: it was cut off.", self._limits.max_seconds)
                    return
                text = f"The request took more than {self._limits.max_seconds:g} seconds."
                answer = refusal(504, text, "timeout")
                answer.headers.update(request_state.retry_headers())
                await answer(scope, receive, send)

    def _too_large(self) -> Any:
        text = f"The body exceeds {self._limits.max_body_bytes:,} bytes."
        return refusal(413, text, "request_too_large")


class _Bounded:
    """Receives a body up to a limit."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._received = receive, most, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self._most:
                raise HTTPException(413, f"The body exceeds {self._most:,} bytes")
        return message


def rated(authenticate: owners.Authenticate, rates: quotas.Rates) -> owners.Authenticate:
    """Return an authentication that refuses owners who ask too often: by their key, or else by tenant and user."""

    async def limited(connection: HTTPConnection) -> owners.Owner | None:
        owner = await owners.authenticated(connection, authenticate)
        if owner is not None:
            rates.check(owner.name)
        return owner

    return limited
