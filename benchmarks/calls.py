"""Calls a second of the server beside a bare pass-through, and beside another build: 16 clients, all in turns.

The provider answers at once. Client, provider, and each server are processes of their own. The client is wrk, where
that is installed, and else the least that Python can do, so that it is not the bottleneck. CPU time is that of a
server, with what follows the answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.databases import Database, postgres_database
from benchmarks.report import ANSWERS, CONTINUED, ITEMS, RECORDER, STORED, Line
from benchmarks.scale import Scale

CLIENTS: Final = 16
CALLS: Final = 20  # of each client in a round, without wrk
SECONDS: Final = 3  # of a round, with wrk
CHATS = 64  # conversations that go on
MOST_MIB: Final = 150  # of a process that has recorded 5,000 calls
PATHS: Final = {ANSWERS: "/v1/responses", CONTINUED: "/v1/responses", RECORDER: "/record/provider/v1/chat/completions"}
LEAST: Final = {ANSWERS: 0.35, CONTINUED: 0.3, RECORDER: 0.5, STORED: 0.3}  # over the bare pass-through
LEAST_AGAINST, MOST_CPU_AGAINST = 2.0, 0.5  # over the other build, of answers
_FILE: Final = Path(__file__).with_name("answering.py")
_SETTLED: Final = 0.02  # of a second of CPU time in a quarter of one: nothing goes on
_SCRIPT: Final = """
local number, start, chats = 0, "", {}
function init(args)
  start = args[1]
  for index = 3, #args do chats[#chats + 1] = args[index] end
  wrk.method, wrk.headers["content-type"] = "POST", "application/json"
  template = args[2]
end
function request()
  number = number + 1
  local body = template:gsub("NUMBER", start .. number):gsub("CHAT", chats[number % #chats + 1] or "")
  return wrk.format(nil, nil, nil, body)
end
"""


class Round(NamedTuple):
    """What a round of calls took: calls a second, seconds of CPU time for each, and calls stored a second meanwhile."""

    rate: float
    cpu: float
    stored: float = 0.0


@dataclass(slots=True)
class Server:
    """A process, and what rounds of calls took."""

    process: subprocess.Popen[bytes]
    port: int
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    chats: list[str] = field(default_factory=list)  # ids of conversations that go on

    def cpu_seconds(self) -> float:
        """The CPU time of its threads so far, which the system counts in nanoseconds."""
        found = 0
        for path in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(OSError):  # the thread has ended
                found += int((path / "schedstat").read_text().split()[0])
        return found / 1e9

    def asked(self, path: str, body: Any = None) -> Any:
        """What a path answers."""
        text = None if body is None else json.dumps(body).encode()
        asking = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", text, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asking, timeout=60) as answer:
            return json.load(answer)

    def recorded(self) -> int:
        """How many calls the recorder has stored."""
        return int(self.asked("/healthz")["/record"]["recorded"])

    def settle(self) -> None:
        """Wait until nothing goes on: a recorder stores after it has answered."""
        now = self.cpu_seconds()
        before = float("-inf")
        while now - before >= _SETTLED:
            time.sleep(0.25)
            before, now = now, self.cpu_seconds()

    def begin_chats(self) -> None:
        """Create conversations, with their items."""
        said = {"type": "message", "content": "The capital of France is Paris. " * 5}
        for _ in range(CHATS):
            items = [{**said, "role": role} for role in ("user", "assistant")] * 10
            chat = self.asked("/v1/conversations", {"items": items})["id"]
            for _ in range(ITEMS // len(items) - 1):
                self.asked(f"/v1/conversations/{chat}/items", {"items": items})
            self.chats.append(chat)


class Client(asyncio.Protocol):
    """A connection with one call after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self._came, self._answer = b"", asyncio.get_running_loop().create_future()

    async def call(self, path: str, body: str) -> None:
        self._came, self._answer = b"", asyncio.get_running_loop().create_future()
        head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        text = body.encode()
        self.transport.write(head % (path.encode(), len(text)) + text)
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


def _template(what: str) -> str:
    question = "What is the capital of country NUMBER?"
    if what == RECORDER:
        return json.dumps({"model": "m", "messages": [{"role": "user", "content": question}]})
    return json.dumps({"model": "m", "input": question} | ({"conversation": "CHAT"} if what == CONTINUED else {}))


async def _called(port: int, what: str, template: str, chats: Sequence[str]) -> int:
    """Ask with clients of Python; return how many calls were answered."""
    loop, numbers = asyncio.get_running_loop(), iter(range(CLIENTS * CALLS))
    clients = [(await loop.create_connection(Client, "127.0.0.1", port))[1] for _ in range(CLIENTS)]

    async def calls(client: Client) -> None:
        for number in numbers:
            body = template.replace("NUMBER", f"{number} of {time.time_ns()}")
            await client.call(PATHS[what], body.replace("CHAT", chats[number % len(chats)] if chats else ""))

    await asyncio.gather(*map(calls, clients))
    for client in clients:
        client.transport.close()
    return CLIENTS * CALLS


def _called_by_wrk(wrk: str, url: str, template: str, chats: Sequence[str]) -> int:
    """Ask with wrk; return how many calls were answered. What is refused does not count, and is said."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT)
        script.flush()
        command = [wrk, "-t1", f"-c{CLIENTS}", f"-d{SECONDS}s", "--timeout", "30s", "-s", script.name, url, "--"]
        command += [secrets.token_hex(4), template, *chats]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, refused = re.search(r"(\d+) requests in ", said), re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    if found is None or "Socket errors" in said:
        raise RuntimeError(said)
    if refused is not None:
        print(f"serving: {refused[1]} of {found[1]} calls of {url} were refused", file=sys.stderr)
    answered = int(found[1]) - (0 if refused is None else int(refused[1]))
    return max(1, answered)  # of a server that has to load its modules first, on a busy machine


def _round(server: Server, what: str) -> Round:
    template, wrk, is_recording = _template(what), shutil.which("wrk"), what == RECORDER and bool(server.chats)
    chats = server.chats if what == CONTINUED else []
    cpu, begun, before = server.cpu_seconds(), time.perf_counter(), server.recorded() if is_recording else 0
    if wrk is None:
        count = asyncio.run(_called(server.port, what, template, chats))
    else:
        count = _called_by_wrk(wrk, f"http://127.0.0.1:{server.port}{PATHS[what]}", template, chats)
    seconds, stored = time.perf_counter() - begun, (server.recorded() - before) if is_recording else 0
    if is_recording:
        server.settle()
    return Round(count / seconds, (server.cpu_seconds() - cpu) / count, stored / seconds)


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
            print(f"serving: this build is at port {servers[1].port}", file=sys.stderr)
            if scale.against is not None:
                place = f"sqlite:///{scale.folder}/{secrets.token_hex(4)}.db"
                if database.kind != "sqlite":
                    place = stack.enter_context(postgres_database(is_empty=True)).url
                servers.append(stack.enter_context(_started("threadkeep", place, url, scale.against)))
            for server in servers[1:]:
                _until_ready(server)
                server.begin_chats()
            _rounds(servers, scale.call_rounds)
            yield from _lines(database, *servers)
            _print_memory(database, servers[1], scale.recorded)


def _until_ready(server: Server) -> None:
    while True:
        try:
            server.asked("/healthz")
        except OSError:
            time.sleep(0.1)
        else:
            return


def _rounds(servers: Sequence[Server], count: int) -> None:
    for number in range(-1, count):  # the first one does not count: modules are loaded
        for what in PATHS:
            for server in servers:
                taken = _round(server, what)
                if number >= 0:
                    server.rounds.setdefault(what, []).append(taken)


def _print_memory(database: Database, server: Server, calls: int) -> None:
    """What the process takes after so many recorded calls."""
    while server.recorded() < calls:
        _round(server, RECORDER)
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    size = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    dropped = server.asked("/healthz")["/record"]["dropped"]
    print(
        f"serving: {server.recorded():,} calls recorded on {database.label}, {dropped} dropped: the process has "
        f"{size:.0f} MiB, at most {MOST_MIB}",
        file=sys.stderr,
    )


def _lines(database: Database, bare: Server, ours: Server, other: Server | None = None) -> Iterator[Line]:
    for what in PATHS:
        yield _line(f"{what}, over a bare pass-through", database, bare, ours, what, LEAST[what])
        if what == RECORDER:
            pairs = [*zip(bare.rounds[what], ours.rounds[what], strict=True)]
            before = statistics.median(base.rate for base, _ in pairs)
            stored = statistics.median(one.stored for _, one in pairs)
            ratio = statistics.median(one.stored / base.rate for base, one in pairs)
            yield Line(
                f"{STORED}, over a bare pass-through", database.label, before, stored, LEAST[STORED], unit="calls/s",
                is_least=True, measured=ratio,
            )  # fmt: skip
        if other is not None:
            least, most = (LEAST_AGAINST, MOST_CPU_AGAINST) if what == ANSWERS else (None, None)
            yield _line(f"{what}, over the other build", database, other, ours, what, least)
            pairs = [*zip(other.rounds[what], ours.rounds[what], strict=True)]
            cpu = statistics.median(one.cpu / base.cpu for base, one in pairs)
            before, now = (statistics.median(one.cpu for one in server.rounds[what]) for server in (other, ours))
            yield Line(f"{what}: CPU time of a call", database.label, before, now, must=most, measured=cpu)


def _line(what: str, database: Database, base: Server, ours: Server, kind: str, least: float | None) -> Line:
    """Both in the same rounds."""
    pairs = [*zip(base.rounds[kind], ours.rounds[kind], strict=True)]
    before, now = (statistics.median(one.rate for one in server.rounds[kind]) for server in (base, ours))
    return Line(
        what, database.label, before, now, must=least, unit="calls/s", is_least=True,
        measured=statistics.median(one.rate / other.rate for other, one in pairs),
        cpu_ratio=statistics.median(one.cpu / other.cpu for other, one in pairs),
    )  # fmt: skip
