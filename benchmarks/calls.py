"""Calls a second of the server beside a bare pass-through, and beside another build: 16 clients, all in turns.

The provider answers at once. Client, provider, and each server are processes of their own; the client is the least that
Python can do, so that it is not the bottleneck. CPU time is that of a server's process, with what follows the answers.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.databases import Database, postgres_database
from benchmarks.report import Line
from benchmarks.scale import Scale

CLIENTS: Final = 16
CALLS: Final = 20  # of each client in a round
ANSWERS: Final = b"/v1/responses"
RECORDER: Final = b"/record/provider/v1/chat/completions"
LEAST: Final = {ANSWERS: 0.35, RECORDER: 0.5}  # over the bare pass-through
LEAST_AGAINST, MOST_CPU_AGAINST = 2.0, 0.5  # over the other build, of answers
_FILE: Final = Path(__file__).with_name("answering.py")
_SETTLED: Final = 0.02  # of a second of CPU time in a quarter of one: nothing goes on


class Round(NamedTuple):
    """What a round of calls took: calls a second, and seconds of CPU time for each."""

    rate: float
    cpu: float


@dataclass(slots=True)
class Server:
    """A process, and what rounds of calls took."""

    process: subprocess.Popen[bytes]
    port: int
    rounds: dict[bytes, list[Round]] = field(default_factory=dict)

    def cpu_seconds(self) -> float:
        """The CPU time of its threads so far, which the system counts in nanoseconds."""
        found = 0
        for path in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(OSError):  # the thread has ended
                found += int((path / "schedstat").read_text().split()[0])
        return found / 1e9


class Client(asyncio.Protocol):
    """A connection with one call after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self._came, self._answer = b"", asyncio.get_running_loop().create_future()

    async def call(self, path: bytes, body: bytes) -> None:
        self._came, self._answer = b"", asyncio.get_running_loop().create_future()
        head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % (path, len(body)) + body)
        answer = await self._answer
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer[:500].decode(errors="replace"))

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        is_whole = len(body) >= int(length) if length else body.endswith(b"0\r\n\r\n")
        if end and is_whole and not self._answer.done():
            self._answer.set_result(self._came)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("The server has closed the connection."))


def _bodies(path: bytes) -> Iterator[bytes]:
    for number in range(CLIENTS * CALLS):
        question = b"What is the capital of country %d of %d?" % (number, time.time_ns())
        if path == ANSWERS:
            yield b'{"model":"m","input":"%b"}' % question
        else:
            yield b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % question


async def _round(server: Server, path: bytes) -> Round:
    loop, bodies = asyncio.get_running_loop(), _bodies(path)
    clients = [(await loop.create_connection(Client, "127.0.0.1", server.port))[1] for _ in range(CLIENTS)]

    async def calls(client: Client) -> None:
        for body in bodies:
            await client.call(path, body)

    cpu, begun = server.cpu_seconds(), time.perf_counter()
    await asyncio.gather(*map(calls, clients))
    seconds, now = time.perf_counter() - begun, server.cpu_seconds()
    while path == RECORDER:  # which stores after it has answered
        await asyncio.sleep(0.25)
        before, now = now, server.cpu_seconds()
        if now - before < _SETTLED:
            break
    for client in clients:
        client.transport.close()
    return Round(CLIENTS * CALLS / seconds, (now - cpu) / (CLIENTS * CALLS))


@contextmanager
def _started(kind: str, database: str = "", provider: str = "", source: Path | None = None) -> Iterator[Server]:
    """A process; `source`: the sources of another build."""
    environment = os.environ | ({} if source is None else {"PYTHONPATH": str(source)})
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number, port = listening.fileno(), listening.getsockname()[1]
        arguments = [sys.executable, str(_FILE), kind, str(number), database, provider]
        process = subprocess.Popen(arguments, pass_fds=[number], env=environment)
    try:
        yield Server(process, port)
    finally:
        process.terminate()
        process.wait(30)


def run(databases: Sequence[Database], scale: Scale) -> Iterator[Line]:
    """Measure on each database, with `scale.against` beside the other build, on one of its own."""
    for database in databases:
        with ExitStack() as stack:
            provider = stack.enter_context(_started("provider"))
            url = f"http://127.0.0.1:{provider.port}"
            bare = stack.enter_context(_started("bare", provider=url))
            servers = [bare, stack.enter_context(_started("threadkeep", database.url, url))]
            if scale.against is not None:
                place = f"sqlite:///{scale.folder}/{secrets.token_hex(4)}.db"
                if database.kind != "sqlite":
                    place = stack.enter_context(postgres_database(is_empty=True)).url
                servers.append(stack.enter_context(_started("threadkeep", place, url, scale.against)))
            asyncio.run(_rounds(servers, scale.call_rounds))
            yield from _lines(database, *servers)


async def _rounds(servers: Sequence[Server], count: int) -> None:
    for number in range(-1, count):  # the first one does not count: modules are loaded
        for path in (ANSWERS, RECORDER):
            for server in servers:
                taken = await _round(server, path)
                if number >= 0:
                    server.rounds.setdefault(path, []).append(taken)


def _lines(database: Database, bare: Server, ours: Server, other: Server | None = None) -> Iterator[Line]:
    for path, what in ((ANSWERS, "answers"), (RECORDER, "recorder")):
        yield _line(f"{what} over a bare pass-through", database, bare, ours, path, LEAST[path])
        if other is not None:
            least, most = (LEAST_AGAINST, MOST_CPU_AGAINST) if path == ANSWERS else (None, None)
            yield _line(f"{what} over the other build", database, other, ours, path, least)
            pairs = zip(other.rounds[path], ours.rounds[path], strict=True)
            cpu = statistics.median(one.cpu / base.cpu for base, one in pairs)
            before, now = (statistics.median(one.cpu for one in server.rounds[path]) for server in (other, ours))
            yield Line(f"{what}: CPU time of a call", database.label, before, now, must=most, measured=cpu)


def _line(what: str, database: Database, base: Server, ours: Server, path: bytes, least: float | None) -> Line:
    """Both in the same rounds."""
    pairs = [*zip(base.rounds[path], ours.rounds[path], strict=True)]
    before, now = (statistics.median(one.rate for one in server.rounds[path]) for server in (base, ours))
    return Line(
        what, database.label, before, now, must=least, unit="calls/s", is_least=True,
        measured=statistics.median(one.rate / other.rate for other, one in pairs),
        cpu_ratio=statistics.median(one.cpu / other.cpu for other, one in pairs),
    )  # fmt: skip
