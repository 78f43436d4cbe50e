"""The processes of the benchmark of the server: a provider, servers, and a client with many streams at once.

The provider's events have the time at which they were sent, so that a client knows how long each one was under way.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.loops.auto import auto_loop_factory

from threadkeep import AsyncStore
from threadkeep.http import Owner, RecordedUpstream, app, http_upstream, recorder_app
from threadkeep.server.limits import Limits
from threadkeep.server.site import site

SPAWN: Final = multiprocessing.get_context("spawn")
MARK: Final = "@"  # around the time of an event
PATHS: Final = {"direct": "/v1/chat/completions", "recorder": "/record/provider/v1/chat/completions"}
ANSWERS: Final = "/v1/responses"
START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How many events a stream has, and how many seconds there are between two."""

    events: int
    seconds: float


def provider(listening: socket.socket) -> None:
    """Chat Completions over plain sockets, as fast as Python can."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                asked = body["messages"][-1]["content"]
                pace = Pace(*json.loads(asked if isinstance(asked, str) else asked[0]["text"]))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for number in range(pace.events):
                    if number:
                        await asyncio.sleep(pace.seconds)
                    _write(writer, _event(f"{MARK}{time.perf_counter():.7f}{MARK}"))
                    await writer.drain()
                _write(writer, _event("", finish_reason="stop") + b"data: [DONE]\n\n")
                writer.write(b"0\r\n\r\n")
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, sock=listening, backlog=2048)
        await server.serve_forever()

    asyncio.run(serve())


def _write(writer: asyncio.StreamWriter, text: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(text), text))


def _event(text: str, **choice: Any) -> bytes:
    found = {"index": 0, "delta": {"content": text}, "finish_reason": None, **choice}
    return b"data: %b\n\n" % json.dumps({"id": "c", "model": "m", "choices": [found]}).encode()


def server(listening: socket.socket, url: str, provider_url: str) -> None:
    """A process of the server: answers, and the recorder."""
    store = AsyncStore(url)
    upstream = http_upstream("provider", "chat_completion", f"{provider_url}/v1")
    recorded = RecordedUpstream("provider", "chat_completion", provider_url)
    faces = {
        "/v1": app(store, auth=_anybody, prefix="", upstreams={"*": upstream}),
        "/record": recorder_app(AsyncStore(url), [recorded], auth=_anybody),
    }
    config = uvicorn.Config(site(faces, store=store, limits=Limits(max_requests=10_000)), log_level="critical")
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listening]))


def _anybody(_request: Any) -> Owner:
    return Owner()


@contextmanager
def running(url: str, processes: int) -> Iterator[tuple[int, int, list[int]]]:
    """The ports of a provider and of servers behind one port, and the ids of the servers' processes."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=2048) as first,
        socket.create_server(("127.0.0.1", 0), backlog=2048) as second,
    ):
        for listening in (first, second):  # their connections inherit it; else events wait 40 ms for acknowledgements
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ports = first.getsockname()[1], second.getsockname()[1]
        provider_url = f"http://127.0.0.1:{ports[0]}"
        started = [SPAWN.Process(target=provider, args=(first,), daemon=True)]
        started += [
            SPAWN.Process(target=server, args=(second, url, provider_url), daemon=True) for _ in range(processes)
        ]
        for process in started:
            process.start()
        time.sleep(3 + processes)
        try:
            yield *ports, [process.pid or 0 for process in started[1:]]
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.join(30)


def memory_mib(process_ids: Sequence[int]) -> float:
    """The resident memory of the largest of some processes."""
    return max(
        int(line.split()[1])
        for one in process_ids
        for line in Path(f"/proc/{one}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ) / 1024  # fmt: skip


# The client


@dataclass(slots=True)
class Timings:
    """What a client saw: seconds from a request to its first event, and from the provider to the client for each."""

    first: list[float] = field(default_factory=list)
    events: list[float] = field(default_factory=list)
    lost: int = 0


async def ask(port: int, path: str, pace: Pace, timings: Timings) -> None:
    """One stream, over a connection of its own."""
    question = json.dumps([pace.events, pace.seconds])
    body: dict[str, Any] = {"model": "m", "stream": True}
    body |= {"input": question} if path == ANSWERS else {"messages": [{"role": "user", "content": question}]}
    text = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(text)}"
    begun = time.perf_counter()
    writer.write(head.encode() + b"\r\n\r\n" + text)
    seen = 0
    while line := await reader.readline():
        now = time.perf_counter()
        if line == b"0\r\n":
            break
        if MARK.encode() not in line or b'"output_text.done' in line or (path == ANSWERS and b".delta" not in line):
            continue
        sent = float(line.split(MARK.encode())[1])
        if not seen:
            timings.first.append(now - begun)
        timings.events.append(now - sent)
        seen += 1
    timings.lost += pace.events - seen
    writer.close()


async def one_by_one(port: int, path: str, pace: Pace, count: int) -> Timings:
    """So many streams, one after the other; the first ones do not count."""
    timings = Timings()
    for number in range(count + 5):
        await ask(port, path, pace, timings if number >= 5 else Timings())  # noqa: PLR2004 - as above
    return timings


async def at_once(port: int, path: str, pace: Pace, count: int) -> Timings:
    """So many streams at the same time, begun within two seconds."""
    timings = Timings()

    async def later(number: int) -> None:
        await asyncio.sleep(2 * number / count)
        await ask(port, path, pace, timings)

    await asyncio.gather(*map(later, range(count)))
    return timings


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
