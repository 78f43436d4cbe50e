"""`threadkeep serve --workers`: several processes at one port, which are replaced, killed and ended."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.sync.client import connect

from tests.factories import texts_of
from tests.waiting import wait_until
from threadkeep import Store

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")

COUNT = 2


class Served:
    """A server with workers."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.url = f"sqlite:///{folder / 'chat.db'}"
        command = [sys.executable, "-m", "threadkeep", "--url", self.url, "serve", "--port", "0", *options]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--workers", str(COUNT)], stderr=log, start_new_session=True,
                env=os.environ | {"PROVIDER_API_KEY": "k", "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    @property
    def lines(self) -> list[str]:
        """What was printed."""
        return self._log.read_text().splitlines()

    @property
    def address(self) -> str:
        """The URL of /v1, once it is served."""
        found = [re.search(r"http://\S+/v1", line) for line in self.lines if "serving" in line]
        return found[0].group() if found and found[0] else ""

    def workers(self) -> set[int]:
        """The workers that run."""
        try:
            text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except OSError:
            return set()
        return {int(number) for number in text.split()}

    def figures(self) -> str:
        return httpx2.get(f"{self.address.removesuffix('/v1')}/metrics").text

    def wait(self) -> None:
        """Wait until all workers serve."""
        wait_until(lambda: self.address, lambda: "\n".join(self.lines), seconds=60)
        names = {f'worker="{number}"' for number in range(COUNT)}
        wait_until(lambda: {name for name in names if name in self.figures()} == names, seconds=60)


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Served]:
    server = Served(folder, *options)
    try:
        server.wait()
        yield server
    finally:
        for pid in server.workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.process.kill()
        server.process.wait()


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@contextmanager
def provider(goes_on: Event) -> Iterator[int]:
    """A provider of Chat Completions that says a word, and the last one when it may; its port."""
    port, loop = list[int](), asyncio.new_event_loop()

    def chunk(text: str, **choice: Any) -> bytes:
        found = {"index": 0, "delta": {"content": text}, "finish_reason": None, **choice}
        return b"data: %b\n\n" % json.dumps({"id": "c", "model": "m", "choices": [found]}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + chunk("One "))
        await writer.drain()
        await asyncio.to_thread(goes_on.wait)
        writer.write(chunk("two") + chunk("", finish_reason="stop") + b"data: [DONE]\n\n")
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.append(server.sockets[0].getsockname()[1])
        async with server:
            await server.serve_forever()

    thread = Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    wait_until(lambda: port)
    yield port[0]
    goes_on.set()


@pytest.mark.slow
def test_a_restart_drops_no_stream_and_no_request(tmp_path: Path) -> None:
    goes_on = Event()
    with (
        provider(goes_on) as port,
        served(tmp_path, "--upstream", f"provider=chat_completion@http://127.0.0.1:{port}/v1") as server,
    ):
        before = server.workers()
        assert len(before) == COUNT
        body = {"model": "m", "input": "Count", "stream": True}
        asked = httpx2.post(f"{server.address}/responses", json=body | {"stream": False, "background": True}).json()
        with (
            httpx2.stream("POST", f"{server.address}/responses", json=body, timeout=90) as answer,
            connect(f"{server.address.replace('http', 'ws')}/responses", proxy=None) as socket,
        ):
            lines = answer.iter_lines()
            next(line for line in lines if "One " in line)
            socket.send(json.dumps({"type": "response.create", "model": "m", "input": "Count"}))
            while "One " not in str(socket.recv()):
                pass
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(server.workers() - before) == COUNT, seconds=60)
            for _ in range(10):
                assert httpx2.get(f"{server.address}/conversations").status_code == 200
            goes_on.set()
            assert [line for line in lines if line.startswith("data:") and "response.completed" in line]
            told = list[str]()
            with suppress(ConnectionClosed):
                told.extend(json.loads(event)["type"] for event in socket)
            assert (told[-1], socket.close_code) == ("response.completed", CloseCode.SERVICE_RESTART)
        wait_until(lambda: server.workers().isdisjoint(before), lambda: "\n".join(server.lines), seconds=60)
        found = httpx2.get(f"{server.address}/responses/{asked['id']}").json()
        assert found["status"] == "completed"  # though its process was replaced
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert not any(map(is_alive, server.workers()))
        assert [line for line in server.lines if "serving" in line and "v1" in line] == server.lines[1:2]


@pytest.mark.slow
def test_of_what_killed_workers_have_acknowledged_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    said = list[str]()

    def say(address: str, number: int) -> None:
        key = f"text {number}"
        headers, body = {"Idempotency-Key": key}, {"items": [{"type": "message", "role": "user", "content": key}]}
        while True:  # a client repeats what was not answered
            with suppress(httpx2.TransportError):
                sent = httpx2.post(f"{address}/conversations/{conversation}/items", json=body, headers=headers)
                assert sent.status_code in (200, 201), sent.text
                said.append(key)
                return

    with served(tmp_path) as server:
        conversation = httpx2.post(f"{server.address}/conversations", json={}).json()["id"]
        for number in range(40):
            say(server.address, number)
            if number % 10 == 5:
                killed = min(server.workers())
                os.kill(killed, signal.SIGKILL)
        wait_until(lambda: len([pid for pid in server.workers() if is_alive(pid)]) == COUNT, seconds=60)
        server.wait()
    with Store(server.url, tenants=True) as store:
        stored = store.for_tenant("default").get_conversation(conversation).transcript()
        assert texts_of(stored) == said == [f"text {number}" for number in range(40)]


@pytest.mark.slow
def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        workers = server.workers()
        loaded = [Path(f"/proc/{one}/maps").read_text() for one in (server.process.pid, *workers)]
        assert ["_sqlite3" in text for text in loaded] == [False, True, True]  # it loads only what it needs itself
        server.process.kill()
        wait_until(lambda: not any(map(is_alive, workers)), seconds=60)


@pytest.mark.slow
def test_a_worker_that_cannot_start_says_why_once(tmp_path: Path) -> None:
    server = Served(tmp_path, "--upstream", "nothing")
    assert server.process.wait(60) == 2
    assert sum("NAME=FORMAT@URL" in line for line in server.lines) == 1, server.lines
    server = Served(tmp_path, "--host", "0.0.0.0")
    assert server.process.wait(60) == 2
    assert sum("Make keys with" in line for line in server.lines) == 1, server.lines
