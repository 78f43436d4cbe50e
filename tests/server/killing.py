"""The programs of a server's world, each a process that can be killed: client, server, and upstream."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Event, Thread
from typing import Any

import httpx2
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.processes import forked, pipe
from tests.waiting import listens, wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, app, http_upstream

PACE = 0.005  # seconds between two words of the upstream
COUNT = "Count"  # the question whose answer does not end
DONE = "Done."
START_SECONDS = 60.0
PROBE_SECONDS = 0.05


def upstream_process(port: int) -> None:
    """A provider of Chat Completions: it counts for ever, or says that it is done."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(line for line in head.lower().splitlines() if line.startswith("content-length:"))
            body = json.loads(await reader.readexactly(int(length.partition(":")[2])))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            is_long, number = COUNT in json.dumps(body["messages"][-1]), 0
            while is_long:
                number += 1
                writer.write(_chunk(f"{number} "))
                await writer.drain()
                await asyncio.sleep(PACE)
            writer.write(_chunk(DONE) + _chunk("", finish_reason="stop") + b"data: [DONE]\n\n")
            await writer.drain()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(serve())


def _chunk(text: str, **choice: Any) -> bytes:
    found = {"index": 0, "delta": {"content": text}, "finish_reason": None, **choice}
    return b"data: %b\n\n" % json.dumps({"id": "c", "model": "m", "choices": [found]}).encode()


def server_process(url: str, tenant: str, upstream_port: int, port: int) -> None:
    """The server, as `threadkeep serve` runs it."""
    upstream = http_upstream("provider", "chat_completion", f"http://127.0.0.1:{upstream_port}/v1")
    store = AsyncStore(url, tenants=True)
    application = app(store, auth=lambda _: Owner(tenant=tenant), upstreams={"*": upstream})
    uvicorn.run(application, host="127.0.0.1", port=port, log_level="critical")


def socket_client_process(port: int, conversation_id: str, sender: Connection) -> None:
    """The same over a WebSocket."""
    asked = {"type": "response.create", "model": "m", "input": COUNT, "conversation": conversation_id}
    with (
        suppress(ConnectionClosed, BrokenPipeError),
        connect(f"ws://127.0.0.1:{port}/v1/responses", proxy=None) as connection,
    ):
        connection.send(json.dumps(asked))
        for event in map(json.loads, connection):
            if event["type"] == "response.output_text.delta":
                sender.send((time.monotonic(), event["delta"]))
            elif event["type"] in ("response.incomplete", "response.failed", "error"):
                return


def client_process(port: int, conversation_id: str, sender: Connection) -> None:
    """A client that asks to count, and tells each word that it gets, with the time."""
    body = {"model": "m", "input": COUNT, "stream": True, "conversation": conversation_id}
    with (
        suppress(httpx2.HTTPError, BrokenPipeError),
        httpx2.stream("POST", f"http://127.0.0.1:{port}/v1/responses", json=body, timeout=60) as answer,
    ):
        for line in answer.iter_lines():
            if line.startswith("data:") and "output_text.delta" in line:
                sender.send((time.monotonic(), json.loads(line[5:])["delta"]))


class Probe:
    """Writes to the database all the time, to know how long that takes on a machine that has much to do."""

    def __init__(self, store: Store) -> None:
        self._conversation, self._is_over, self._longest = store.create_conversation(), Event(), 0.0
        self._thread = Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        begun, is_over = time.monotonic(), False
        while not is_over:
            is_over = self._is_over.wait(PROBE_SECONDS)
            self._conversation.set_state("probe", begun)
            begun, last = time.monotonic(), begun
            self._longest = max(self._longest, begun - last)

    def end(self) -> float:
        """How many seconds the slowest write took."""
        self._is_over.set()
        self._thread.join()
        return self._longest


@dataclass
class World:
    """A server and its upstream, each a process of its own."""

    url: str
    tenant: str
    ports: list[int]
    processes: dict[str, BaseProcess] = field(default_factory=dict)

    def start(self, name: str) -> None:
        upstream_port, port = self.ports
        if name == "upstream":
            self.processes[name] = forked(upstream_process, upstream_port)
            wait_until(lambda: listens(upstream_port), seconds=START_SECONDS)
        else:
            self.processes[name] = forked(server_process, self.url, self.tenant, upstream_port, port)
            wait_until(lambda: listens(port), seconds=START_SECONDS)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.join()

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def client(self, conversation_id: str, *, has_socket: bool = False) -> tuple[BaseProcess, Connection]:
        """A client that has got its first word."""
        receiver, sender = pipe()
        run = socket_client_process if has_socket else client_process
        process = forked(run, self.ports[1], conversation_id, sender)
        sender.close()
        assert receiver.poll(START_SECONDS)
        return process, receiver

    def ask(self, conversation_id: str, key: str) -> None:
        """The next request, which is repeated until it is answered, as clients do."""
        body = {"model": "m", "input": "Next", "conversation": conversation_id}
        deadline = time.monotonic() + START_SECONDS
        while True:
            told: Any = None
            with suppress(httpx2.HTTPError):
                told = httpx2.post(
                    f"http://127.0.0.1:{self.ports[1]}/v1/responses", json=body, timeout=30,
                    headers={"idempotency-key": key},
                )  # fmt: skip
                if told.is_success:
                    assert told.json()["output"][0]["content"][0]["text"] == DONE
                    return
                assert told.status_code in (400, 502, 503, 500), told.text
                assert told.status_code != 400 or told.json()["error"]["code"] == "conversation_locked", told.text
            assert time.monotonic() < deadline, told and told.text
            time.sleep(0.2)


def received(receiver: Connection) -> list[tuple[float, str]]:
    """What a client that has ended got, and when."""
    words = []
    with suppress(EOFError):
        while True:
            words.append(receiver.recv())
    return words
