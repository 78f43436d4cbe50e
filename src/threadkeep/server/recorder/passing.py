"""Passes calls on to providers, and their answers back: the same bytes, as they come."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final

import httpx2
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from threadkeep.domain.printing import redact
from threadkeep.server import request_state, requests
from threadkeep.server.answers import JsonAnswer
from threadkeep.server.owners import KEY, Authenticate, Owner, owner_of
from threadkeep.server.permissions import Attendance, Permission, until_left
from threadkeep.server.provider_answers import Slices, is_event_stream
from threadkeep.server.quotas import QuotaExceeded
from threadkeep.server.recorder import sockets
from threadkeep.server.recorder.exchanges import CallFacts, Exchange
from threadkeep.server.recorder.secrets import CallSecrets, OwnKeys, leaves_base
from threadkeep.server.recorder.targets import CallTarget, RecordedRoute, RecordedUpstream, passed_on
from threadkeep.server.recorder.worker import RecordingThread
from threadkeep.server.service import socket_bytes_quota, socket_quota
from threadkeep.server.socket_history import SocketHistory
from threadkeep.server.upstreams import CONNECT_SECONDS, parsed_url
from threadkeep.store.aio import uninterrupted
from threadkeep.store.streaming.background import at_once_or_within

logger = logging.getLogger(__name__)

RECORD: Final = "x-threadkeep-record"
# The answer of a provider may take as long as its client waits for it
TIMEOUT: Final = httpx2.Timeout(None, connect=CONNECT_SECONDS)
LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
REST_SECONDS: Final = 1.0  # for what a provider that is not there did not take of a request
_NOT_PASSED_ON: Final = frozenset({b"host"})
# what keeps a browser from running anything that a provider answers as if it were of this site
_TYPE_OPTIONS: Final = b"x-content-type-options"
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # what a server may not send in the value of a header
_NO_ENCODING: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# what a client may take for the end of a stream; it sees it once that is in the spool
_ENDS: Final = re.compile(
    rb'\[DONE\]|"message_stop"|"response\.(?:completed|incomplete|failed)"|"interaction\.(?:completed|cancelled)"|"finishReason"'
)
_END_LENGTH: Final = 32
_STATUSES: Final = range(200, 600)  # that an answer can have: no server passes on others
_HARMLESS: Final = ((b"content-security-policy", b"sandbox"), (_TYPE_OPTIONS, b"nosniff"))


class ClientLeft(Exception):
    """The client has closed its connection while it sent its request."""


class Passing:
    """An ASGI application that stands between clients and providers."""

    def __init__(
        self,
        upstreams: Mapping[str, RecordedUpstream],
        authenticate: Authenticate | None,
        recording: RecordingThread,
        client: httpx2.AsyncClient,
    ) -> None:
        self._upstreams, self._authenticate, self._recording, self._client = upstreams, authenticate, recording, client
        self._sockets, self._bytes = socket_quota(), socket_bytes_quota()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, or a WebSocket."""
        path = scope.get("raw_path") or b""
        if not path.isascii() or _NO_ENCODING.search(path):
            await _problem(400, "The path must be percent-encoded.")(scope, receive, send)
            return
        if scope.get("method") == "CONNECT":
            await _problem(405, "There are no tunnels here: CONNECT is not passed on.")(scope, receive, send)
            return
        target = CallTarget.of(scope, self._upstreams)
        if target is None:
            names = ", ".join(self._upstreams)
            await _problem(404, f"No provider has this path. It must begin with one of: {names}.")(scope, receive, send)
            return
        connection = _with_own_key(scope, target)
        try:
            owner = await owner_of(connection, self._authenticate)
        except HTTPException as error:
            await _problem(error.status_code, f"{error.detail}.", error.headers)(scope, receive, send)
            return
        if owner is None or "write" not in owner.scopes:
            status, text = (401, "No valid key was given") if owner is None else (403, "The key does not allow this")
            await _problem(status, f"{text}: {KEY} or /k/KEY/ in the base URL.")(scope, receive, send)
            return
        keys = OwnKeys([Headers(scope=scope).get(KEY), target.key])
        target = target._replace(path=keys.path_without(target.path))
        if leaves_base(target.path):
            await _problem(400, "The path must not have '..' in it, in any spelling.")(scope, receive, send)
            return
        permission = Permission(connection, self._authenticate, owner, "write")
        if scope["type"] == "websocket":
            await self._pass_socket(WebSocket(scope, receive, send), target, keys, permission)
            return
        await self._recording.room(owner)
        call = _PassedCall(scope, receive, send, self._exchange(scope, target, owner), keys)
        await call.run(self._client, target, permission)

    async def _pass_socket(
        self, websocket: WebSocket, target: CallTarget, keys: OwnKeys, permission: Permission
    ) -> None:  # fmt: skip
        """Pass a WebSocket on, if the provider has one, and its owner not too many; its messages are POSTs in sum."""
        scope, name = websocket.scope, permission.owner.name
        request_state.request_start(scope)  # for all of its messages
        as_call = partial(self._exchange, {**scope, "method": "POST"}, target, permission.owner)
        is_recorded = RecordedRoute.of("POST", target.path) == RecordedRoute("open_responses")
        notes = sockets.SocketNotes(as_call, SocketHistory(self._bytes, name)) if is_recorded else None
        headers = passed_on(scope["headers"], without=sockets.NOT_PASSED_ON, keys=keys)
        query = keys.query_without(scope.get("query_string", b""))
        url = sockets.socket_url(target.upstream, target.path, query)
        early, provider = list[Message](), None
        try:
            with self._sockets.taking(name):
                await websocket.receive()  # that it is one
                try:
                    async with Attendance() as attendance:
                        attendance.until(sockets.until_closed(websocket, early))
                        provider = await sockets.open_provider(url, headers, scope.get("subprotocols") or [])
                except sockets.REFUSALS as error:
                    await sockets.answer_refusal(websocket, error, target.upstream.name)
                else:
                    if provider is not None:  # else its client has left
                        await sockets.PassedSocket(websocket, notes, early).run(provider, permission)
        except WebSocketDisconnect:
            pass  # the same
        except QuotaExceeded as error:
            refusal = _problem(error.status_code, f"{error.detail}.", error.headers)
            await refusal(scope, websocket.receive, websocket.send)

    def _exchange(self, scope: Scope, target: CallTarget, owner: Owner) -> Exchange | None:
        """What the call is noted with; None for one that is not recorded."""
        headers = Headers(scope=scope)
        route = RecordedRoute.of(scope["method"], target.path)
        if route is None or headers.get(RECORD, "").strip().lower() in ("off", "false", "0"):
            return None
        secrets = CallSecrets(headers, scope.get("query_string", b""))
        given: dict[str, str] = {}
        for name, value in headers.items():
            given.setdefault(name, value)  # of headers with the same name, the first counts
        upstream, since = target.upstream, request_state.request_start(scope)
        facts = CallFacts(route, upstream.name, upstream.url, owner, given, secrets, since=since)
        return self._recording.begin(facts)


def _with_own_key(scope: Scope, target: CallTarget) -> HTTPConnection:
    """The call as it is authenticated: with our key as its bearer token, instead of what is the provider's."""
    key = Headers(scope=scope).get(KEY) or target.key
    headers = [(name, value) for name, value in scope["headers"] if name not in (b"authorization", b"x-api-key")]
    if key is not None:
        headers.append((b"authorization", b"Bearer " + key.encode("utf-8", "replace")))
    return HTTPConnection({**scope, "headers": headers})


class _PassedCall:
    """One call, from its request to the end of its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, exchange: Exchange | None, keys: OwnKeys) -> None:
        self._scope, self._receive, self._send, self._exchange, self._keys = scope, receive, send, exchange, keys
        self._is_sent = False  # the whole request
        self._has_begun = False  # to answer
        self._head: Message = {}
        self._problem: HTTPException | None = None  # that is answered if nothing else was
        self._attendance = Attendance()
        self._is_over = False  # whether the answer is whole, whatever its connection does
        self._limit: asyncio.Timeout | None = None  # of what is awaited of it

    async def run(self, client: httpx2.AsyncClient, target: CallTarget, permission: Permission) -> None:
        """Pass the call on; when its client leaves, or may not make it any more, the provider is left, too."""
        async with self._attendance as attendance:
            attendance.until_soon(partial(self._watch, permission))
            try:
                await self._answer(client, self._request(target))
                self._end("answered")
            except ClientLeft:
                self._end("left")
            except HTTPException as error:  # the body exceeds a limit, or does not go on
                self._problem = error
                self._end("broken", error.detail)
            except httpx2.HTTPError as error:
                text = f"{target.upstream.name} did not answer: {type(error).__name__}"
                if not self._has_begun:
                    logger.warning("%s", text)
                self._problem = HTTPException(502, text)
                await self._read_rest()
                self._end("broken", f"{text}: {redact(str(error))}")
            finally:
                self._end("left" if attendance.is_ended else "stopped")
        if self._problem is not None and not self._has_begun:
            status, text = self._problem.status_code, f"{self._problem.detail}."
            await _problem(status, text, self._problem.headers)(self._scope, self._receive, self._send)

    def _request(self, target: CallTarget) -> httpx2.Request:
        given = {name for name, _ in self._scope["headers"]}
        has_body = b"transfer-encoding" in given or b"content-length" in given
        if not has_body:
            self._note_sent()
        query = self._keys.query_without(self._scope.get("query_string", b""))
        return httpx2.Request(
            self._scope["method"],
            parsed_url(target.upstream.url),
            headers=passed_on(self._scope["headers"], without=_NOT_PASSED_ON, keys=self._keys),
            content=self._body() if has_body else None,
            extensions={"target": target.upstream.target(target.path, query)},
        )

    async def _body(self) -> AsyncGenerator[bytes]:
        is_whole = False
        while not is_whole:
            try:
                async with asyncio.timeout(requests.BODY_SECONDS):
                    message = await self._receive()
            except TimeoutError as error:
                raise HTTPException(408, requests.stalled()) from error
            if message["type"] == "http.disconnect":
                raise ClientLeft
            chunk, is_whole = message.get("body", b""), not message.get("more_body", False)
            if chunk:
                yield chunk
                if self._exchange is not None:
                    self._exchange.note_request(chunk)
        self._note_sent()

    async def _read_rest(self) -> None:
        """Read what the provider did not take of a request, so that the attempt can be recorded."""
        with suppress(ClientLeft, HTTPException, TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while not self._is_sent and self._exchange is not None:
                    async with aclosing(self._body()) as rest:
                        async for _ in rest:
                            pass

    def _note_sent(self) -> None:
        """The request is whole: from now on, the client can only leave; what is recorded counts in the exchange."""
        self._is_sent = True
        request_state.end_body()
        if self._exchange is not None:
            self._exchange.note_request_end()
        self._attendance.until_soon(partial(until_left, self._receive))

    async def _answer(self, client: httpx2.AsyncClient, request: httpx2.Request) -> None:
        response = await client.send(request, stream=True)
        try:
            await self._pass_back(response)
        finally:
            await uninterrupted(response.aclose())

    async def _pass_back(self, response: httpx2.Response) -> None:
        exchange = self._exchange
        if response.status_code not in _STATUSES:
            self._problem = HTTPException(502, f"The provider answered with status {response.status_code}")
            self._end("broken", self._problem.detail)
            return
        given = passed_on(response.headers.raw, without=frozenset({_TYPE_OPTIONS}))
        headers = [*(header for header in given if not _CONTROL.search(header[1])), *_HARMLESS]
        self._head = {"type": "http.response.start", "status": response.status_code, "headers": headers}
        length = response.headers.get("content-length", "")
        if exchange is not None:
            ends_early = is_event_stream(response.headers) and not length
            exchange.on_over = partial(self._from_recorder, asyncio.get_running_loop(), ends_early)
            exchange.note_answer(response.status_code, given)
        await self._pass_body(response, int(length) if length.isdecimal() else -1)

    async def _pass_body(self, response: httpx2.Response, left: int) -> None:
        """Pass on the body of an answer, of which so many bytes are left; of one whose length is not known, -1."""
        exchange, slices, before = self._exchange, Slices(), b""
        async for chunk in self._chunks(response):
            left -= len(chunk)
            if exchange is not None:
                exchange.note_chunk(chunk)
                if not left:
                    self._end("answered")
                if not left or _ENDS.search(before + chunk):
                    await exchange.settled()
                before = chunk[-_END_LENGTH:]
            await self._pass(chunk, more_body=left != 0)
            await slices.step(len(chunk))
        if exchange is not None:
            self._end("answered")
            await exchange.settled()
        if left or not self._has_begun:
            await self._pass(more_body=False)

    async def _pass(self, chunk: bytes = b"", *, more_body: bool = True) -> None:
        """Send a part of the body, after the head."""
        if not self._has_begun:
            self._has_begun = True
            await self._send(self._head)
        await self._send({"type": "http.response.body", "body": chunk, "more_body": more_body})

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[bytes]:
        """The body of the answer, up to the end that the recorder has found in it."""
        chunks = response.aiter_raw()
        while not self._is_over:
            self._limit = asyncio.timeout(None)
            try:
                # a head does not wait for a body that is not there yet
                chunk = await at_once_or_within(self._limit, anext(chunks), None if self._has_begun else self._pass)
            except (StopAsyncIteration, TimeoutError) as error:
                if isinstance(error, TimeoutError) and not self._is_over:
                    raise
                return
            finally:
                self._limit = None
            yield chunk

    def _from_recorder(self, loop: asyncio.AbstractEventLoop, ends_early: bool) -> None:
        """Take the recorder's word, in its thread, that the answer is whole."""
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(self._note_over, ends_early)

    def _note_over(self, ends_early: bool) -> None:
        self._is_over = ends_early
        if ends_early and self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _watch(self, permission: Permission) -> None:
        await permission.ended()
        self._problem = HTTPException(401, "The key does not count any more")
        self._end("stopped", self._problem.detail)

    def _end(self, how: Any, problem: str | None = None) -> None:
        if self._exchange is not None:
            self._exchange.end(how, problem)


def _problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JsonAnswer:
    """An error of our own, which clients of all providers can read."""
    kind = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}.get(status, "api_error")
    error = {"type": kind, "message": message, "param": None, "code": status, "status": kind.upper()}
    return JsonAnswer({"type": "error", "error": error}, status, headers)
