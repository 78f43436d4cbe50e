"""Hostile providers: what they write, byte for byte, and faces of the server in front of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import httpx2

from tests.databases import Database
from tests.server.conftest import MAKERS
from tests.server.scripts import script
from tests.server.servers import running
from tests.server.test_upstreams import amazon_message
from tests.waiting import wait_until
from threadkeep import AsyncStore, Conversation, Store
from threadkeep.http import Owner, RecordedUpstream, http_upstream, recorder_app
from threadkeep.store.work.caches import DEFAULT_BYTES

DONE = b"data: [DONE]\n\n"
GARBAGE = b'data: {{{\n\ndata: {"type": 1}\n\n\xff\xfe\xc3 event: \x00\n\nnot a line\n'
SSE = ("content-type: text/event-stream",)
TEXT = "Let me see."


def sse(*events: Any) -> bytes:
    """Events as a provider sends them."""
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def answer(format_: str) -> bytes:
    """A whole answer of a format, without what may follow it."""
    events = script(format_, [TEXT[:7], TEXT[7:]])
    return b"".join(map(amazon_message, events)) if format_ == "converse" else sse(*events)


def delta(text: str) -> dict[str, Any]:
    """A piece of an answer of Chat Completions."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


@dataclass
class Script:
    """What a provider writes: a head, pieces of a body, and what it does after them.

    `after`: "end" closes the connection, "open" leaves it open without a word, "reset" breaks it, and "next" ends the
    body and waits for the next request. `pause`: seconds after each piece.
    """

    pieces: Iterable[bytes] = ()
    headers: tuple[str, ...] = SSE
    status: str = "200 OK"
    after: str = "end"
    pause: float = 0.0


@dataclass
class Provider:
    """A provider that answers each call with its script."""

    script: Script
    url: str = ""
    calls: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    loop: Any = None
    stopped: Any = None
    left: Event = field(default_factory=Event)  # a client has closed its connection

    def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.ensure_future(self._answer(reader, writer)))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._write(reader, writer)
        finally:
            if self.script.after == "reset":
                writer.transport.abort()
            else:
                writer.close()

    async def _write(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await self._write_one(reader, writer):
            pass

    async def _write_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return whether the connection takes another one."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next((line for line in head.splitlines() if line.startswith("content-length:")), ":0")
        await reader.readexactly(int(length.partition(":")[2]))
        self.calls += 1
        is_kept = self.script.after == "next"
        framing = "transfer-encoding: chunked" if is_kept else "connection: close"
        lines = [f"HTTP/1.1 {self.script.status}", *self.script.headers, framing, "", ""]
        writer.write("\r\n".join(lines).encode())
        for piece in [*self.script.pieces, b""] if is_kept else self.script.pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_kept else piece)
            await writer.drain()
            await asyncio.sleep(self.script.pause)
        if self.script.after == "open":
            await reader.read()
            self.left.set()
        elif self.script.after == "reset":
            await asyncio.sleep(0.2)  # what was written is there
        return is_kept


@contextmanager
def provided(script_: Script) -> Iterator[Provider]:
    """A provider on a port of this machine."""
    provider, is_ready = Provider(script_), Event()

    async def serve() -> None:
        provider.loop, provider.stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(provider.handle, "127.0.0.1", 0)
        provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        is_ready.set()
        await provider.stopped.wait()
        server.close()
        for task in provider.tasks:
            task.cancel()
        await asyncio.gather(*provider.tasks, return_exceptions=True)

    thread = Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    is_ready.wait()
    try:
        yield provider
    finally:
        provider.loop.call_soon_threadsafe(provider.stopped.set)
        thread.join(20)


FACES = ("responses", "rest", "recorder")
PATHS = {
    "chat_completion": "/v1/chat/completions", "messages": "/v1/messages", "open_responses": "/v1/responses",
    "gemini": "/v1/models/m:streamGenerateContent?alt=sse", "interactions": "/v1/interactions",
}  # fmt: skip
ASKED: dict[str, dict[str, Any]] = {
    "chat_completion": {"messages": [{"role": "user", "content": "Hi"}]},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    "open_responses": {"input": "Hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "interactions": {"model": "m", "input": "Hi"},
}


@dataclass
class World:
    """A face of the server before a hostile provider, and what it has stored."""

    url: str
    face: str
    format: str
    provider: Provider
    store: Any
    application: Any
    answered: str = ""

    @contextmanager
    def asked(self, *, is_stream: bool = True) -> Iterator[httpx2.Response]:
        """The answer to a question, as it comes."""
        if self.face == "recorder":
            path, body = PATHS[self.format], {"model": "m", "stream": is_stream, **ASKED[self.format]}
        elif self.face == "responses":
            path, body = "/v1/responses", {"model": "m", "input": "Hi", "stream": is_stream}
        else:
            made = httpx2.post(f"{self.url}/api/conversations", json={"model": "m"}, timeout=30).json()
            path, body = f"/api/conversations/{made['id']}/messages", {"content": "Hi", "stream": is_stream}
        with httpx2.stream("POST", self.url + path, json=body, timeout=60) as response:
            yield response

    def ask(self, *, is_stream: bool = True) -> tuple[int, str]:
        """The status and the text of the whole answer."""
        with self.asked(is_stream=is_stream) as response:
            return response.status_code, response.read().decode("utf-8", "replace")

    def ended(self) -> tuple[str, str]:
        """The status and the text of the response that was stored, once it has ended."""

        def response() -> Any:
            [conversation] = self.conversations()
            return next(iter(conversation.responses()), None)

        wait_until(lambda: self.conversations() and (found := response()) and found.status != "in_progress")
        [conversation] = self.conversations()
        items = conversation.output_items(response().number)
        return response().status, "".join(getattr(one.item, "text", None) or "" for one in items)

    def usage(self) -> Any:
        """The attempts in the ledger, by status, once there are some."""
        wait_until(lambda: self.store.usage(by="status"))
        return self.store.usage(by="status")

    def conversations(self) -> list[Conversation]:
        return list(self.store.list_conversations())


@contextmanager
def hostile(
    database: Database, face: str, format_: str, script_: Script, *, memory_bytes: int = DEFAULT_BYTES, **options: Any
) -> Iterator[World]:
    """A face of the server before a provider; `options` are those of its application, `memory_bytes` of its store."""
    tenant = uuid4().hex
    with provided(script_) as provider, Store(database.url, tenants=True) as store:
        scoped = store.create_tenant(tenant)
        options.setdefault("auth", lambda _: Owner(tenant=tenant))
        mine = AsyncStore(database.url, tenants=True, memory_bytes=memory_bytes)
        spoken: Any = format_
        if face == "recorder":
            made: Any = recorder_app(mine, [RecordedUpstream("provider", spoken, provider.url)], **options)
            serving = running(made)
        else:
            upstreams = {"*": http_upstream("provider", spoken, f"{provider.url}/v1")}
            made = MAKERS[face](mine, upstreams=upstreams, **options)
            serving = running(made, mine)
        with serving as url:
            yield World(url, face, format_, provider, scoped, made)


async def ticked(work: AsyncIterator[Any], each: Callable[[], object] = lambda: None) -> list[int]:
    """How many events of `work` came between two turns of the event loop."""
    counts, is_over = [0], False

    async def tick() -> None:
        while not is_over:
            counts.append(0)
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    async for _ in work:
        counts[-1] += 1
        each()
    is_over = True
    await ticking
    return counts
