"""ASGI applications on a port of this machine, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn

from threadkeep import AsyncStore


@contextmanager
def running(
    application: Any, store: AsyncStore | None = None, *, parser: Any = "auto", ws: Any = "auto"
) -> Iterator[str]:
    """The URL of an application while it is served; the store is closed afterwards, in the same event loop."""

    async def serve(server: uvicorn.Server, listening: socket.socket) -> None:
        await server.serve(sockets=[listening])
        if store is not None:
            await store.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        settings = uvicorn.Config(
            application, http=parser, ws=ws, log_config=None, log_level="warning", timeout_graceful_shutdown=10
        )
        server = uvicorn.Server(settings)
        thread = Thread(target=asyncio.run, args=(serve(server, listening),), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
