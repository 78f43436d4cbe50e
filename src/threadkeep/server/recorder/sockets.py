"""WebSockets between clients and providers: each `response.create` of the Responses API is recorded as a call.

What the provider answers to it is its stream; a call that goes on with another one of its connection is recorded with
the whole history, as its client would send it over HTTP.
Source: OpenAI's guide to the WebSocket mode; the types `ResponsesClientEvent` and `ResponsesServerEvent` of its client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from threadkeep.domain.jsontext import JsonObject, dumps, dumps_any, loads
from threadkeep.errors import InvalidItem
from threadkeep.server import answers, limits, problems
from threadkeep.server.connections import MAX_FRAGMENTS
from threadkeep.server.permissions import Permission
from threadkeep.server.provider_answers import MAX_ANSWER_BYTES
from threadkeep.server.quotas import QuotaExceeded
from threadkeep.server.recorder.exchanges import Exchange
from threadkeep.server.recorder.targets import Headers, RecordedUpstream, passed_on
from threadkeep.server.socket_history import RememberedResponse, SocketHistory
from threadkeep.server.upstreams import CONNECT_SECONDS

_CREATE, _CREATED, _STEER = "response.create", "response.created", "response.steer"
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_STREAM: Final = [(b"content-type", b"text/event-stream")]
_JSON: Final = [(b"content-type", b"application/json")]
_OWN: Final = frozenset({"type", "stream_id", "stream"})  # keys of events that are not of the request
_CALL_BYTES: Final = 1024  # of what is noted of a call, besides its messages
# what hosts without WebSockets answer to a handshake, as far as it is no refusal of the client: with 426, Codex goes on
# over HTTP at once
_NONE_HERE: Final = frozenset({404, 405, 501})
_ERRORS: Final = 400  # the first status of them
_UNSENDABLE: Final = frozenset({1004, 1005, 1006, 1015})  # codes that only say how a connection ended
_CLOSING_SECONDS: Final = 1.0  # for a provider to say goodbye: until then, its client's place is taken
_AWAY: Final = 1001
_REVOKED: Final = 1008
_BROKEN: Final = 1011
NOT_PASSED_ON: Final = frozenset(
    {
        b"host", b"sec-websocket-accept", b"sec-websocket-extensions", b"sec-websocket-key", b"sec-websocket-protocol",
        b"sec-websocket-version",
    }
)  # fmt: skip


class _Direct(connect):
    """A handshake with the provider itself: what it redirects to is not asked with its key."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the error for any answer that is no WebSocket."""
        return exc


def socket_url(upstream: RecordedUpstream, path: str, query: bytes) -> str:
    """Return where the WebSocket of a provider is, for what follows our base URL."""
    parts = urlsplit(upstream.url)
    return f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}{upstream.target(path, query).decode()}"


async def open_provider(url: str, headers: Headers, protocols: list[str]) -> ClientConnection:
    """Open a WebSocket to a provider.

    Raises:
        OSError, TimeoutError, InvalidHandshake: there is none.
    """
    given = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    has_agent = any(name == b"user-agent" for name, _ in headers)
    return await _Direct(
        url, additional_headers=given, user_agent_header=None if has_agent else "threadkeep",
        subprotocols=protocols or None, compression=None, open_timeout=CONNECT_SECONDS,  # type: ignore[arg-type]
        close_timeout=_CLOSING_SECONDS, max_size=MAX_ANSWER_BYTES, max_queue=1,  # each message may be as large
    )  # fmt: skip


async def received(provider: ClientConnection) -> str | bytes:
    """Return the next message of a provider; each of its fragments takes more than it is long until they are joined.

    Raises:
        ConnectionClosed: there is none any more.
    """
    whole, pieces = list[Any](), list[Any]()
    async for piece in provider.recv_streaming():
        pieces.append(piece)
        if len(pieces) == MAX_FRAGMENTS:
            whole.append(piece[:0].join(pieces))
            pieces.clear()
    message: str | bytes = (pieces or whole)[0][:0].join([*whole, *pieces])
    return message


async def until_closed(websocket: WebSocket, early: list[Message]) -> None:
    """Wait until a client has left that waits for its handshake; what it sends before that is kept, once."""
    while not early:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        early.append(message)
    await asyncio.Event().wait()


async def answer_refusal(websocket: WebSocket, error: Exception, name: str) -> None:
    """Answer a handshake as the provider did, or with 426 if it has no WebSockets, or with 502."""
    if not isinstance(error, InvalidStatus):
        text = f"{name} did not answer the handshake of a WebSocket: {type(error).__name__}."
        await answers.refusal(502, text, "upstream_error")(websocket.scope, websocket.receive, websocket.send)
        return
    answer = error.response
    if answer.status_code in _NONE_HERE or answer.status_code < _ERRORS:
        await limits.over_http()(websocket.scope, websocket.receive, websocket.send)
        return
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.raw_items()]
    headers = passed_on(raw, without=NOT_PASSED_ON | {b"content-length"})
    await websocket.send({"type": "websocket.http.response.start", "status": answer.status_code, "headers": headers})
    await websocket.send({"type": "websocket.http.response.body", "body": answer.body or b""})


@dataclass(slots=True, eq=False)
class SocketCall:
    """A `response.create` that is being answered.

    Attributes:
        exchange: what it is recorded with; None if it is not.
        history: what a response to it goes on with.
        previous: the id with which it goes on itself.
        body: the JSON text of the request without its input.
        held: how many bytes of it count.
        id: of its response, when that has begun.
        output: JSON texts of the items of the answer, so far; None if they are not remembered.
        steers: JSON texts of what its client has said while it was answered, for the response after it.
        has_begun: whether an event of its answer has come.
    """

    exchange: Exchange | None
    history: RememberedResponse
    previous: Any
    body: bytes
    held: int
    id: Any = None
    output: list[bytes] | None = field(default_factory=list)
    steers: list[bytes] = field(default_factory=list)
    has_begun: bool = False


class SocketNotes:
    """Notes the calls of a connection: the calls of a lane are answered one after the other.

    What is noted of a call counts for its owner until it is answered.
    """

    def __init__(self, begin: Callable[[], Exchange | None], history: SocketHistory) -> None:
        """`begin` returns what a call is recorded with; None where it cannot be."""
        self._begin, self._history = begin, history
        self._lanes: dict[Any, deque[SocketCall]] = {}
        self._steered: dict[Any, SocketCall] = {}  # lane -> its last call, if something was said while it was answered

    def note_sent(self, text: str | bytes) -> JsonObject | None:
        """Note a message of the client; return the event that refuses it where there is no room to note it."""
        size, event = len(_bytes(text)), _object(text)
        given, previous, lane = event.get("input"), event.get("previous_response_id"), event.get("stream_id")
        if not isinstance(given, str | list | None):
            return None
        try:
            if event.get("type") == _STEER:
                for call in (calls[0] for calls in self._lanes.values() if calls[0].id == previous):
                    with suppress(InvalidItem):  # nested too deeply to be stored
                        call.steers.append(self._held_text(call, given, size))
            elif event.get("type") == _CREATE:
                body = {key: value for key, value in event.items() if key not in _OWN} | {"stream": True}
                self._history.take(held := size + _CALL_BYTES)
                before = self._steered.get(lane)
                if before is not None and before.id == previous:  # what was said comes before the outputs of its tools
                    body["input"] = _items([*map(loads, self._steered.pop(lane).steers), given])
                    held += before.held
                self._ask(lane, body, held)
        except QuotaExceeded as error:
            return problems.problem_event(problems.problem_of(error), lane)
        return None

    def _held_text(self, call: SocketCall, value: Any, size: int) -> bytes:
        """The JSON text of a part of a call, whose message of so many bytes counts from now on."""
        found = dumps(value)
        self._history.take(size)
        call.held += size
        return found

    def _ask(self, lane: str | None, body: JsonObject, held: int) -> None:
        """Note a request, of which so many bytes count already."""
        previous = body.get("previous_response_id")
        try:
            held += self._history.take_again(previous)
        except QuotaExceeded:  # it is recorded without what was before
            self._history.forget(previous)
        rest = b"{}"
        try:
            whole, history = self._history.joined(body)
            rest = dumps({key: value for key, value in body.items() if key != "input"})
        except InvalidItem:  # nested too deeply to be stored: it is passed on, and counted as unreadable
            whole, history = b"", RememberedResponse(None, ())
        call = SocketCall(self._begin(), history, previous, rest, held)
        self._lanes.setdefault(lane, deque()).append(call)
        if call.exchange is not None:
            call.exchange.note_request(whole)
            call.exchange.note_request_end()

    async def note_received(self, text: str | bytes) -> None:
        """Note a message of the provider; one that ends an answer is in the spool when this returns."""
        event = _object(text)
        kind, name = event.get("type"), event.get("stream_id")
        if not isinstance(kind, str):  # no event
            return
        if kind == f"{_STEER}.failed":
            self._take_back(event.get("steer"))
        if kind == _CREATED and name in self._steered and name not in self._lanes:  # the provider goes on by itself
            before = self._steered.pop(name)
            more = {"previous_response_id": before.id, "input": _items(map(loads, before.steers))}
            self._ask(name, {**loads(before.body), **more}, before.held)
        lane = self._lanes.get(name)
        if lane is None or kind.startswith(f"{_STEER}."):
            return
        call = lane[0]
        self._note(call, kind, event, _bytes(text))
        if kind not in _ENDS:
            return
        lane.popleft()
        if not lane:
            del self._lanes[name]
        self._note_end(name, call, None if kind == "response.failed" else event.get("response"))
        if call.exchange is not None:
            await call.exchange.settled()

    def _note_end(self, lane: Any, call: SocketCall, response: Any) -> None:
        """Note that a call has its answer; requests go on with its response if it has not failed."""
        given = response if isinstance(response, dict) else {}
        if (before := self._steered.pop(lane, None)) is not None:
            self._history.give_back(before.held)
        if call.steers:
            self._steered[lane] = call
        else:
            self._history.give_back(call.held)
        id_, items = str(given.get("id")), given.get("output")
        try:
            known = call.history.with_items(items if not call.output and isinstance(items, list) else ())
            if not given:
                self._history.forget(call.previous)
            elif call.output is None:
                self._history.forget(id_)
            else:
                self._history.remember(id_, known._replace(parts=(*known.parts, *call.output)))
        except InvalidItem:  # nested too deeply to be stored
            self._history.forget(id_)
        if call.exchange is not None:
            call.exchange.end("answered")

    def _take_back(self, steer: Any) -> None:
        """Note that something that was said was not taken: its client may say it again."""
        given = steer if isinstance(steer, dict) else {}
        text = dumps_any(given.get("input"))
        for call in (*self._steered.values(), *(lane[0] for lane in self._lanes.values())):
            if call.id == given.get("previous_response_id") and text in call.steers:
                call.steers.remove(text)

    def _note(self, call: SocketCall, kind: str, event: JsonObject, text: bytes) -> None:
        """Note an event as HTTP would have it: an error before all others is a status of its own."""
        if kind == "response.output_item.done" and call.output is not None:
            try:
                call.output.append(self._held_text(call, event.get("item"), len(text)))
            except (QuotaExceeded, InvalidItem):
                call.output = None
        elif kind == _CREATED and isinstance(response := event.get("response"), dict):
            call.id = response.get("id")
        is_refusal = kind == "error" and not call.has_begun
        if call.exchange is not None:
            if not call.has_begun:
                call.exchange.note_answer(*((_status_of(event), _JSON) if is_refusal else (200, _STREAM)))
            body = dumps_any({"error": event.get("error", event)})
            line = text.replace(b"\r", b" ").replace(b"\n", b" ")  # which are between values, in JSON
            call.exchange.note_chunk(body if is_refusal else b"data: %b\n\n" % line)
        call.has_begun = True

    def end(self, *, has_left: bool) -> None:
        """Note that the connection has ended, by its client or otherwise."""
        for call in (call for lane in self._lanes.values() for call in lane):
            if call.exchange is not None:
                call.exchange.end(*(("left", None) if has_left else ("broken", "The WebSocket was closed.")))
        calls = (*self._steered.values(), *(call for lane in self._lanes.values() for call in lane))
        self._history.give_back(sum(call.held for call in calls))
        self._history.close()


def _status_of(error: JsonObject) -> int:
    """The status of an event about an error."""
    status = error.get("status")
    return status if isinstance(status, int) and status >= _ERRORS else _ERRORS


def _items(inputs: Iterable[Any]) -> list[Any]:
    """The items of inputs, which are texts or lists."""
    found = list[Any]()
    for given in inputs:
        found += [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    return found


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _object(text: str | bytes) -> JsonObject:
    try:
        value = loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) and isinstance(value.get("stream_id"), str | None) else {}


class PassedSocket:
    """One connection, from its handshake to its end."""

    def __init__(self, websocket: WebSocket, notes: SocketNotes | None, early: list[Message]) -> None:
        """`notes`: None for one that is not recorded; `early`: a message that came before it was accepted."""
        self._websocket, self._notes, self._early = websocket, notes, early
        self._has_left = False

    async def run(self, provider: ClientConnection, permission: Permission) -> None:
        """Pass messages on in both directions, until either side closes, or the owner may not call any more."""
        tasks: list[asyncio.Future[None]] = []
        try:
            await self._websocket.accept(provider.subprotocol)
            both = self._send_on(provider), self._pass_back(provider)
            tasks += [asyncio.ensure_future(work) for work in (*both, self._watch(permission))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._notes is not None:
                self._notes.end(has_left=self._has_left)
            await provider.close(_AWAY if self._has_left else 1000)
            await self._close(_BROKEN)

    async def _send_on(self, provider: ClientConnection) -> None:
        while True:
            message = self._early.pop() if self._early else await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self._has_left = True
                return
            text: str | bytes = message["text"] if message.get("text") is not None else message["bytes"]
            refusal = None if self._notes is None else self._notes.note_sent(text)
            with suppress(ConnectionClosed, WebSocketDisconnect):  # what was answered before is still passed back
                await (provider.send(text) if refusal is None else self._websocket.send_text(dumps(refusal).decode()))

    async def _pass_back(self, provider: ClientConnection) -> None:
        try:
            while True:
                text = await received(provider)
                if self._notes is not None:
                    await self._notes.note_received(text)
                await (self._websocket.send_text(text) if isinstance(text, str) else self._websocket.send_bytes(text))
        except ConnectionClosed as closed:
            frame = closed.rcvd
            code = _BROKEN if frame is None or frame.code in _UNSENDABLE else frame.code
            await self._close(code, "" if frame is None else frame.reason)
        except WebSocketDisconnect:
            self._has_left = True

    async def _watch(self, permission: Permission) -> None:
        await permission.ended()
        await self._close(_REVOKED, "The key does not count any more.")

    async def _close(self, code: int, reason: str = "") -> None:
        if self._websocket.application_state is WebSocketState.CONNECTED and not self._has_left:
            with suppress(WebSocketDisconnect, RuntimeError):  # it has ended in between
                await self._websocket.close(code, reason)


# What a handshake may be answered with that is no WebSocket
REFUSALS: Final = (OSError, TimeoutError, InvalidHandshake)
