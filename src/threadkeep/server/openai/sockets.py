"""GET /v1/responses as a WebSocket: each of its requests is answered as a `POST /responses` with the same headers.

So owners, limits, figures and errors are those of that endpoint. A connection only adds what is its own: lanes, and the
responses that are stored nowhere else, with which its next requests may go on.

Source: OpenAI's guide to the WebSocket mode; the types `ResponsesClientEvent` and `ResponsesServerEvent` of its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from threadkeep.domain.jsontext import JsonObject, dumps, dumps_finite, loads
from threadkeep.server import body_limits, problems, request_state, service
from threadkeep.server.socket_history import RememberedResponse, SocketHistory
from threadkeep.server.turns import LOSSES
from threadkeep.store.work import connections

MAX_SECONDS: Final = 3600.0  # of a connection, as at OpenAI
IDLE_SECONDS: Final = 1800.0  # without a request or an answer
MAX_REQUESTS: Final = 16  # of a connection that are being answered, or wait for the one before them in their lane
MAX_LANE: Final = 256  # characters of a `stream_id`
_CREATE, _STEER = "response.create", "response.steer"
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_OVER: Final = "websocket_connection_limit_reached"
_OWN: Final = frozenset({"type", "stream_id", "generate", "stream"})  # keys of events that are not of the request
# headers of a handshake that are about the connection or its body, or must not be those of several requests
_NOT_PASSED_ON: Final = frozenset(
    {
        b"connection", b"content-encoding", b"content-length", b"content-type", b"idempotency-key", b"if-match",
        b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_OF_ANSWERS: Final = ("retry-after", "x-request-id", "x-should-retry", LOSSES)  # headers that events repeat
_STALLED: Final = "The answer broke off."


async def connect(websocket: WebSocket) -> None:
    """GET /responses: what the handshake may do is checked as for a request; then it is a connection."""
    request = Request({**websocket.scope, "type": "http", "method": "GET"})
    try:
        call = await service.authorized(request, "write")
        with call.service.sockets.taking(call.permission.owner.name):
            await websocket.accept()
            history = SocketHistory(call.service.socket_bytes, call.permission.owner.name)
            await ResponsesSocket(call, websocket, history).run()
    except WebSocketDisconnect:
        pass
    except Exception as error:
        if websocket.application_state is not WebSocketState.CONNECTING:
            raise
        if "websocket.http.response" not in websocket.scope.get("extensions", {}):  # the server answers with 403
            await websocket.close()
        else:
            await websocket.send_denial_response(await problems.answer_problem(request, error))


class SocketRequest(NamedTuple):
    """A request as it is answered.

    Attributes:
        body: the JSON text of the request.
        previous: the id with which it goes on, as the client gave it.
        history: what a response to it goes on with, when that is remembered.
        warms_up: whether nothing is to be generated.
    """

    body: bytes
    previous: Any
    history: RememberedResponse
    warms_up: bool


@dataclass(slots=True, eq=False)
class ResponsesSocket:
    """A connection, with its lanes and the responses that only it knows."""

    call: service.Call
    websocket: WebSocket
    history: SocketHistory
    lanes: dict[str | None, asyncio.Task[None]] = field(default_factory=dict)  # the last request of each
    turns: set[asyncio.Task[None]] = field(default_factory=set)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    began_at: float = field(init=False)
    quiet_at: float = field(init=False)

    async def run(self) -> None:
        """Answer requests until the connection ends, by its client or a limit."""
        self.began_at = self.quiet_at = asyncio.get_running_loop().time()
        revoked = asyncio.ensure_future(self.call.permission.ended())
        try:
            while (message := await self._next(revoked)) is not None:
                if not await self._begin(message):
                    await asyncio.gather(*self.turns)
                    await self.websocket.close()
                    break
        finally:
            revoked.cancel()
            self.left.set()
            await asyncio.gather(*self.turns)
            self.history.close()

    async def _next(self, revoked: asyncio.Future[None]) -> bytes | None:
        """The next message of the client; None at the end."""
        now = asyncio.get_running_loop().time
        receiving = asyncio.ensure_future(self.websocket.receive())
        try:
            while True:
                waits = (receiving, revoked)
                done, _ = await asyncio.wait(waits, timeout=IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if receiving in done:
                    message = receiving.result()
                    if message["type"] == "websocket.disconnect":
                        return None
                    return message["text"].encode() if message.get("text") is not None else bytes(message["bytes"])
                if revoked in done:
                    await self.websocket.close(1008, "The key is not valid any more.")
                    return None
                if not self.turns and now() - self.quiet_at >= IDLE_SECONDS:
                    await self.websocket.close(1000, f"There was no request for {IDLE_SECONDS / 60:g} minutes.")
                    return None
        finally:
            receiving.cancel()

    async def _begin(self, text: bytes) -> bool:
        """Begin to answer a message, or refuse it; return whether further ones are read."""
        lane: str | None = None
        try:
            event = self._event(text)
            given = event.get("stream_id")
            if given is not None and (not isinstance(given, str) or len(given) > MAX_LANE):
                problem = f"stream_id must be a text of at most {MAX_LANE} characters."
                raise problems.Problem(400, problem, param="stream_id", code="invalid_type")  # noqa: TRY301 - see below
            lane = given
            if event["type"] == _STEER:
                await self.send(_steer_failed(event))
                return True
            if asyncio.get_running_loop().time() - self.began_at > MAX_SECONDS:
                problem = f"The connection has reached its limit ({MAX_SECONDS / 60:g} minutes): open a new one."
                raise problems.Problem(400, problem, code=_OVER)  # noqa: TRY301 - as all errors here
            if len(self.turns) >= MAX_REQUESTS:
                problem = f"There are {MAX_REQUESTS} requests of this connection already that are not answered."
                raise problems.Problem(429, problem, code="too_many_requests_of_connection")  # noqa: TRY301 - the same
            self.call.service.socket_bytes.take(self.call.permission.owner.name, len(text))
        except Exception as error:  # noqa: BLE001 - it is answered
            refusal = problems.problem_of(error)
            await self.send(problems.problem_event(refusal, lane))
            return refusal.code != _OVER
        task = asyncio.ensure_future(self._turn(event, lane, self.lanes.get(lane), len(text)))
        self.lanes[lane] = task
        self.turns.add(task)
        return True

    def _event(self, text: bytes) -> JsonObject:
        """The event in a message; Problem for what is none."""
        most = self.call.service.max_body_bytes
        if len(text) > most:
            raise problems.Problem(413, f"The message exceeds {most:,} bytes.", code="request_too_large")
        body_limits.check_values(text)
        try:
            event = loads(text, is_finite=True)
        except ValueError as error:
            raise problems.Problem(400, f"The message is not JSON: {error}.", code="invalid_json") from error
        if not isinstance(event, dict) or event.get("type") not in (_CREATE, _STEER):
            problem = f"A message must be an object of the type {_CREATE}."
            raise problems.Problem(400, problem, param="type", code="invalid_value")
        return event

    async def _turn(self, event: JsonObject, lane: str | None, before: asyncio.Task[None] | None, size: int) -> None:
        """Answer a request, after the one before it in its lane."""
        try:
            if before is not None:
                await asyncio.wait((before,))
            if self.left.is_set():
                return
            try:
                size += self.history.take_again(event.get("previous_response_id"))
                asked = self._asked(event)
            except Exception as error:  # noqa: BLE001 - it is answered
                await self.send(problems.problem_event(problems.problem_of(error), lane))
                return
            answer = SocketAnswer(self, asked, lane)
            await self._ask(asked, answer)
            await answer.end()
        finally:
            self.call.service.socket_bytes.give_back(self.call.permission.owner.name, size)
            task = asyncio.current_task()
            self.turns.discard(task)
            self.quiet_at = asyncio.get_running_loop().time()
            if self.lanes.get(lane) is task:
                del self.lanes[lane]

    def _asked(self, event: JsonObject) -> SocketRequest:
        """The request in an event: with the history of a response that is not stored, it brings that."""
        if event.get("background"):
            problem = "background is for requests over HTTP: over a WebSocket, answers come as events."
            raise problems.Problem(400, problem, param="background", code="unsupported_value")
        warms_up = event.get("generate") is False
        body = {key: value for key, value in event.items() if key not in _OWN} | {"stream": True}
        if not isinstance(body.get("input"), str | list | None):
            raise problems.Problem(400, "input must be a text or a list.", param="input", code="invalid_type")
        if body.get("store") is False and self.call.service.store_false != "keep":  # what the next request needs
            include = body.get("include") or []
            body["include"] = [*include, service.SEALED] if isinstance(include, list) else include
        text, history = self.history.joined(body)
        return SocketRequest(text, body.get("previous_response_id"), history, warms_up)

    async def _ask(self, asked: SocketRequest, answer: SocketAnswer) -> None:
        """Have a request answered by the application that the connection came to."""
        entry, outer = self.websocket.scope["state"]["entry"]
        headers = [pair for pair in outer["headers"] if pair[0] not in _NOT_PASSED_ON]
        headers = [pair for pair in headers if not pair[0].startswith(b"sec-websocket-")]
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(asked.body))]
        state = {key: value for key, value in outer["state"].items() if key not in ("entry", "request_id")}
        scope = {**outer, "type": "http", "method": "POST", "headers": headers}
        scope["scheme"] = {"wss": "https"}.get(outer["scheme"], "http")
        scope["state"] = {**state, request_state.WARMS_UP: asked.warms_up}
        left: list[Message] = [{"type": "http.request", "body": asked.body, "more_body": False}]

        async def receive() -> Message:
            if left:
                return left.pop()
            await self.left.wait()
            return {"type": "http.disconnect"}

        try:
            await entry(scope, receive, answer)
        except Exception as error:  # noqa: BLE001 - what was not answered yet is
            await answer.end(error)

    async def send(self, event: Mapping[str, Any] | bytes) -> None:
        """Send an event, unless its client has left: if that is noticed here, it is as if it were told."""
        if not self.left.is_set() and self.websocket.application_state is WebSocketState.CONNECTED:
            text = event if isinstance(event, bytes) else dumps_finite(event)
            try:
                await self.websocket.send_text(text.decode())
            except WebSocketDisconnect:
                self.left.set()


class SocketAnswer:
    """Sends what a request is answered over HTTP as events of a connection."""

    def __init__(self, socket: ResponsesSocket, asked: SocketRequest, lane: str | None) -> None:
        self._socket, self._asked, self._lane = socket, asked, lane
        self._status, self._headers, self._text = 500, Headers(), bytearray()
        self._searched = 0  # bytes of the text in which no event ends
        self._is_first, self._is_ended = True, False

    async def __call__(self, message: Message) -> None:
        """Take more of the answer."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], Headers(raw=message["headers"])
            return
        self._text += message.get("body", b"")
        if not self._headers.get("content-type", "").startswith("text/event-stream"):
            return
        while (end := self._text.find(b"\n\n", self._searched)) >= 0:
            event = bytes(self._text[:end])
            del self._text[: end + 2]
            self._searched = 0
            await self._send(*event.removeprefix(b"event: ").split(b"\ndata: ", 1))
        self._searched = max(0, len(self._text) - 1)

    async def end(self, error: Exception | None = None) -> None:
        """Send the error that was answered, or that there is no end."""
        if self._is_ended:
            return
        self._is_ended = True
        self._socket.history.forget(self._asked.previous)
        known = _error_in(bytes(self._text)) if self._status >= 400 else None  # noqa: PLR2004 - the first of errors
        if known is None:
            problem = problems.problem_of(error) if error else problems.Problem(500, _STALLED, type="server_error")
            await self._socket.send(problems.problem_event(problem, self._lane))
        else:
            await self._socket.send(problems.error_event(self._status, known, self._named(), self._lane))

    async def _send(self, name: bytes, data: bytes) -> None:
        kind = name.decode()
        if kind in _ENDS:
            self._is_ended = True
            is_large = len(data) > connections.LARGE_BYTES  # others would wait while it is read
            event, history = await asyncio.to_thread(self._read, data) if is_large else self._read(data)
            if kind in ("error", "response.failed"):
                self._socket.history.forget(self._asked.previous)
            elif history is not None:  # before its client knows its end
                self._socket.history.remember(event["response"]["id"], history)
            if kind == "error":
                said = {key: event.get(key) for key in ("code", "message", "param")}
                data = dumps({"type": "error", "error": {"type": "server_error", **said}, **_numbered(event)})
        elif self._is_first and (headers := self._named()):
            data = b'%b,"headers":%b}' % (data[:-1], dumps(headers))
        self._is_first = False
        if self._lane is not None:
            data = b'{"stream_id":%b,%b' % (dumps(self._lane), data[1:])
        await self._socket.send(data)

    def _read(self, data: bytes) -> tuple[JsonObject, RememberedResponse | None]:
        """The last event, and with what a request goes on from a response that is not stored."""
        event = loads(data)
        response = event.get("response")
        is_kept = response is None or response["store"] is not False
        return event, None if is_kept else self._asked.history.with_items(response["output"])

    def _named(self) -> dict[str, str]:
        return {name: self._headers[name] for name in _OF_ANSWERS if name in self._headers}


def _error_in(body: bytes) -> JsonObject | None:
    try:
        value = loads(body)
    except ValueError:
        return None
    error = value.get("error") if isinstance(value, dict) else None
    return error if isinstance(error, dict) else None


def _numbered(event: JsonObject) -> JsonObject:
    return {key: event[key] for key in ("sequence_number",) if key in event}


def _steer_failed(event: JsonObject) -> JsonObject:
    """The answer to input for a response in progress: no upstream takes any."""
    message = "Responses of this server are not steered: send the input with the next response.create."
    error = {"code": "steering_not_supported", "message": message, "type": problems.INVALID}
    steer = {"input": event.get("input"), "previous_response_id": event.get("previous_response_id")}
    return {"type": f"{_STEER}.failed", "sequence_number": 0, "error": error, "steer": steer}
