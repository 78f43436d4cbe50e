"""What is answered as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, aclosing, suppress
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadkeep.domain.jsontext import JsonObject, dumps_finite
from threadkeep.server import answers, problems, provider_answers, quotas, request_state
from threadkeep.server.permissions import Attendance, Permission, until_left

LAST_SECONDS: Final = 5.0  # in which a client that may not follow a stream any more can take its end
_CODES: Final = {404: "not_found", 409: "conflict"}  # of errors that have none


class EventStream(Response):
    """A response with server-sent events, which ends with the client: then the iterator of events is closed.

    It also ends when its owner may not follow it any more, and with an event `error` when it cannot go on: when others
    have ended or deleted what it is about, or the database cannot be used.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[JsonObject], permission: Permission, *, headers: Mapping[str, str] | None = None,
        streams: quotas.Quota | None = None, place: ExitStack | None = None,
    ) -> None:  # fmt: skip
        """`streams`: those among which this one counts, of owners who may follow only so many.

        `place`: what is left at its end, such as the place of one that counts already.
        """
        super().__init__(headers={"cache-control": "no-cache", **(headers or {})})
        del self.headers["content-length"]
        self._events, self._permission, self._streams, self._place = events, permission, streams, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events as they come, and to HEAD the headers alone."""
        if scope["method"] == "HEAD":
            await self._events.aclose()
            await super().__call__(scope, receive, send)
            return
        with self._place or ExitStack() as stack:
            try:
                if self._streams is not None:
                    stack.enter_context(self._streams.taking(self._permission.owner.name))
            except quotas.QuotaExceeded as error:
                await self._events.aclose()
                await answers.quota_refusal(error)(scope, receive, send)
                return
            await self._send(receive, send)

    async def _send(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with Attendance() as attendance:
            left, revoked = attendance.until(until_left(receive)), attendance.until(self._permission.ended())
            await self._send_events(send)
        if not left.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS if revoked.done() else None):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        event: JsonObject = {}
        slices = provider_answers.Slices()
        limit = request_state.stream_time(LAST_SECONDS)
        try:
            async with limit, aclosing(self._events) as events:
                async for event in events:
                    text = self.encoded(event)
                    await send({"type": "http.response.body", "body": text, "more_body": True})
                    await slices.step(len(text))
        except Exception as error:  # noqa: BLE001 - it is logged, and the stream ends with it
            failure: Exception | None = error
        else:
            failure = None
        if limit.expired():
            failure = problems.Problem(504, "The answer took too long: its stream ends here.", code="timeout")
        if failure is not None:
            last = self.failed(_error_event(failure, event))
            await send({"type": "http.response.body", "body": last, "more_body": True})

    def encoded(self, event: JsonObject) -> bytes:
        """Return an event as it is sent."""
        return _encoded(event)

    def failed(self, event: JsonObject) -> bytes:
        """Return the event `error` as it is sent."""
        return _encoded(event)


def _encoded(event: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumps_finite(event))


def _error_event(error: Exception, before: JsonObject) -> JsonObject:
    """The event, as OpenAI has it, for an error after the event `before`."""
    problem = problems.problem_of(error)
    code = problem.code or _CODES.get(problem.status, "server_error")
    number = {"sequence_number": before["sequence_number"] + 1} if "sequence_number" in before else {}
    return {"type": "error", "code": code, "message": problem.message, "param": None, **number}
