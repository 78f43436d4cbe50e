"""Clients of an application in the event loop of the test: they see what it sends, and may leave or read no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any


def http_scope(path: str, method: str = "GET", headers: Mapping[str, str] | None = None, **keys: Any) -> dict[str, Any]:
    """What an application is told of a request to a path, with its query, by a server that speaks ASGI 2.3."""
    route, _, query = path.partition("?")
    given = {"host": "localhost", **(headers or {})}
    return {
        "type": "http", "method": method, "path": route, "raw_path": route.encode(), "query_string": query.encode(),
        "root_path": "", "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "scheme": "http", "server": ("localhost", 80), "client": ("127.0.0.1", 1), "http_version": "1.1",
        "asgi": {"version": "3.0", "spec_version": "2.3"}, **keys,
    }  # fmt: skip


class Heard:
    """What an application has answered so far."""

    def __init__(self) -> None:
        self.status, self.text, self.headers = 0, "", dict[str, str]()

    def hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        self.text += message.get("body", b"").decode()


class Caller(Heard):
    """Somebody who asks, reads what comes, and may leave."""

    def __init__(self, application: Any, path: str, user: str, method: str = "", **body: Any) -> None:
        """Ask by POST where there is a body, and else by GET."""
        super().__init__()
        self.reads = asyncio.Event()  # whether it takes more than the beginning
        self.reads.set()
        self._body, self._gone, self._news = [json.dumps(body).encode()], asyncio.Event(), asyncio.Event()
        scope = http_scope(path, method or ("POST" if body else "GET"), {"authorization": f"Bearer {user}"})
        self.task = asyncio.ensure_future(application(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.hear(message)
        self._news.set()
        if self.text:
            await self.reads.wait()

    async def answered(self) -> int:
        """The status of the whole answer."""
        await asyncio.wait_for(self.task, 20)
        return self.status

    async def begun(self) -> int:
        """The status, once something has come."""
        while not self.text:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 20)
        return self.status

    async def leave(self) -> None:
        """Leave: a stream notices it, and any other request when its time is over."""
        self._gone.set()
        if not self.status:
            self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def code(self) -> Any:
        return json.loads(self.text)["error"]["code"]
