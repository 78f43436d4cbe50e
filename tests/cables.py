"""The connections to a server, which can be cut and mended: a TCP proxy on a port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from sqlalchemy import make_url


class Cable:
    """A way to a server: while it is cut, nothing is connected any more, and nobody can connect."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.refused = 0  # connections, while it was cut
        self._target, self._is_cut = (host, port), False
        self._open: set[asyncio.StreamWriter] = set()
        self._loop: Any = None
        self._over: Any = None

    def cut(self) -> None:
        """End all connections, and refuse others."""
        self._do(True)

    def mend(self) -> None:
        """Let others connect again."""
        self._do(False)

    def _do(self, is_cut: bool) -> None:
        async def work() -> None:
            self._is_cut = is_cut
            for writer in [*self._open] if is_cut else []:
                writer.transport.abort()

        asyncio.run_coroutine_threadsafe(work(), self._loop).result(20)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            self.refused += 1
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(*self._target)
        ends = {writer, back}
        self._open |= ends
        with suppress(OSError):
            await asyncio.gather(_passed(reader, back), _passed(there, writer))
        for end in ends:
            end.transport.abort()
        self._open -= ends

    async def serve(self, is_ready: Event) -> None:
        """Pass on what comes until `close`."""
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        is_ready.set()
        await self._over.wait()
        server.close()
        for writer in [*self._open]:
            writer.transport.abort()

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._over.set)


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextmanager
def cable_to(url: str) -> Iterator[tuple[Cable, str]]:
    """A cable to the server of a database, and the URL of the database through it."""
    parts, is_ready = make_url(url), Event()
    cable = Cable(parts.host or "127.0.0.1", parts.port or {"postgresql": 5432}.get(parts.drivername, 3306))
    thread = Thread(target=lambda: asyncio.run(cable.serve(is_ready)), daemon=True)
    thread.start()
    assert is_ready.wait(20)
    try:
        yield cable, parts.set(host="127.0.0.1", port=cable.port).render_as_string(hide_password=False)
    finally:
        cable.close()
        thread.join(20)
