"""What is answered: JSON, and streams of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadkeep.domain.jsontext import JsonObject, dumps


class JsonAnswer(Response):
    """A response with a JSON body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the JSON text."""
        return dumps(content)


class EventStream(Response):
    """A response with server-sent events, which ends with the client: then the iterator of events is closed."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[JsonObject], *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={"cache-control": "no-cache", **(headers or {})})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - of ASGI
        """Send the events as they come."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, receive, group.cancel_scope)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(self._events) as events:
                async for event in events:
                    await send({"type": "http.response.body", "body": self.encoded(event), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            group.cancel_scope.cancel()

    def encoded(self, event: JsonObject) -> bytes:
        """Return an event as it is sent."""
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumps(event))

    @staticmethod
    async def _listen(receive: Receive, running: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        running.cancel()
