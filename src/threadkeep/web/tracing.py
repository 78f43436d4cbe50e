"""An id for each request, which its answer carries and logs can name."""

from __future__ import annotations

from secrets import token_hex
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "x-request-id"


class RequestIds:
    """Middleware that gives each request an id, and the answer a header with it, unless it has a provider's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if "request_id" in state:  # of the site that this application is in
            await self._app(scope, receive, send)
            return
        state["request_id"] = request_id = f"req_{token_hex(12)}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault(HEADER, request_id)
            await send(message)

        await self._app(scope, receive, send_with_id)
