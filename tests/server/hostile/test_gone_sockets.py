"""Clients of WebSockets that are found to have left when an event is sent: it is no error of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import Database
from tests.server.hostile.providers import delta
from threadkeep import AsyncStore, Store
from threadkeep.domain.jsontext import dumps
from threadkeep.http import Owner, Upstream, app

SCOPE: dict[str, Any] = {
    "type": "websocket", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "ws", "path": "/responses",
    "raw_path": b"/responses", "root_path": "", "query_string": b"", "subprotocols": [], "extensions": {},
    "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80),
}  # fmt: skip


@pytest.mark.parametrize("sent", [0, 1, 3, 5, 8])
def test_a_client_that_left_before_an_event_is_sent_has_cancelled(
    database: Database, sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    """So it is over HTTP, where what is sent after that goes nowhere."""
    tenant, left = uuid4().hex, list[str]()

    async def ask(_payload: Any, _model: str) -> AsyncGenerator[Any]:
        try:
            for _ in range(20):
                yield delta("At")
                await asyncio.sleep(0.01)
            await asyncio.Event().wait()
        finally:
            left.append("provider")

    async def converse(store: AsyncStore) -> None:
        upstreams = {"m": Upstream("any", "chat_completion", ask)}
        application: Any = app(store, auth=lambda _: Owner(tenant=tenant), upstreams=upstreams, prefix="")
        request = dumps({"type": "response.create", "model": "m", "input": "When?"}).decode()
        messages = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": request}]
        is_gone, events = asyncio.Event(), 0

        async def receive() -> Any:
            if messages:
                return messages.pop(0)
            await is_gone.wait()
            await asyncio.sleep(0.05)  # it is told of that later than the sender
            return {"type": "websocket.disconnect", "code": 1006}

        async def send(message: Any) -> None:
            nonlocal events
            if message["type"] == "websocket.send":
                events += 1
                if events > sent:
                    is_gone.set()
                    raise OSError

        async with asyncio.timeout(20):
            await application({**SCOPE, "state": {}}, receive, send)

    with Store(database.url, tenants=True) as admin:
        admin.create_tenant(tenant)

    async def run() -> None:
        store = AsyncStore(database.url, tenants=True)
        await converse(store)
        await store.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert caplog.records == []
    assert left == ["provider"]
    with Store(database.url, tenants=True) as kept:
        assert [row.status for row in kept.for_tenant(tenant).usage(by=("status",))] == ["cancelled"]
