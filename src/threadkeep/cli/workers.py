"""Several processes that serve at one port: a supervisor starts them, and again when one has ended.

The supervisor listens, and the workers accept: what waits to be accepted outlasts each of them. A worker is the same
command once more, with what it inherits named in its environment, so nothing is forked with threads or connections.

* A worker says that it serves by a byte on its `life`, a socket. When the supervisor has ended, however, that has an
  end, too, and the worker ends.
* SIGHUP to the supervisor replaces them one after the other: a new one that serves, then SIGHUP to the old one, which
  accepts no more connections and ends with the last of its answers. Where a new one fails, the others stay.
* SIGTERM and SIGINT end all of them as they end a single process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from secrets import token_urlsafe
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

VARIABLE: Final = "THREADKEEP_WORKER"
START_SECONDS: Final = 60.0  # until a worker must serve
END_SECONDS: Final = 40.0  # until one must have ended that was told to
STABLE_SECONDS: Final = 10.0  # after which a worker that ends is started again at once
MAX_PAUSE: Final = 5.0  # before one is started again that ended early
_READY: Final = b"r"


class Inherited(NamedTuple):
    """What a worker has of its supervisor: the numbers of two sockets, and what all workers share.

    `number` names its place among the workers. `speaks`: it is the one that says where they serve. `folder` has what
    they share: their figures, and how often each key has asked. `token` opens the pages of the viewer.
    """

    listening: int
    life: int
    number: int
    speaks: bool
    folder: str
    token: str


@cache
def inherited() -> Inherited | None:
    """What this process has inherited, and those that it starts do not; None if it is no worker."""
    text = os.environ.pop(VARIABLE, None)
    return None if text is None else Inherited(*json.loads(text))


def supervise(listening: socket.socket, count: int) -> int:
    """Run workers until this process is told to end; return its exit status, that of a first worker that fails."""
    with tempfile.TemporaryDirectory(prefix="threadkeep-") as folder:
        return asyncio.run(_Supervisor(listening, count, folder).run())


class _Worker:
    """A process, and the end of its life that the supervisor has."""

    def __init__(self, process: asyncio.subprocess.Process, life: socket.socket) -> None:
        self.process, self.life, self.begun_at = process, life, time.monotonic()
        self.ended = asyncio.ensure_future(process.wait())

    async def is_ready(self, stop: asyncio.Event) -> bool:
        """Wait until it serves; False if it ends, takes too long, or is not to start any more."""
        self.life.setblocking(False)
        said = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(self.life, 1))
        stopped = asyncio.ensure_future(stop.wait())
        waits = said, stopped, self.ended
        await asyncio.wait(waits, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in (said, stopped):
            task.cancel()
        await asyncio.gather(said, stopped, return_exceptions=True)
        return not said.cancelled() and said.exception() is None and said.result() == _READY

    def tell(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended; `send_signal` could take its exit status before asyncio does."""
        if not self.ended.done():
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


class _Supervisor:
    def __init__(self, listening: socket.socket, count: int, folder: str) -> None:
        self._listening, self._count, self._folder = listening, count, folder
        self._token = token_urlsafe(24)
        self._workers: list[_Worker] = []
        self._leaving: list[_Worker] = []  # which end with the last of their answers
        self._stop, self._replace = asyncio.Event(), asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number, event in (
            (signal.SIGTERM, self._stop), (signal.SIGINT, self._stop), (signal.SIGHUP, self._replace)
        ):  # fmt: skip
            loop.add_signal_handler(number, event.set)
        try:
            first = await self._start(0, speaks=True)
            if not await first.is_ready(self._stop):
                return 0 if self._stop.is_set() else await self._failed(first)
            others = [await self._start(number) for number in range(1, self._count)]
            await asyncio.gather(*(other.is_ready(self._stop) for other in others))
            while not self._stop.is_set():
                await self._keep()
        finally:
            await self._end()
        return 0

    async def _start(self, number: int, *, speaks: bool = False) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            place = Inherited(
                self._listening.fileno(), theirs.fileno(), number, speaks, self._folder, self._token
            )  # fmt: skip
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "threadkeep", *sys.argv[1:], stdin=asyncio.subprocess.DEVNULL,
                env=os.environ | {VARIABLE: json.dumps(place)}, pass_fds=(place.listening, place.life), process_group=0,
            )  # fmt: skip
        worker = _Worker(process, ours)
        self._workers[number : number + 1] = [worker]
        return worker

    async def _failed(self, worker: _Worker) -> int:
        """The exit status for a first worker that does not serve: it has said why."""
        worker.tell(signal.SIGKILL)
        status = await worker.ended
        return status if status > 0 else 1

    async def _keep(self) -> None:
        """Wait for a signal, or for the end of a worker, and do what there is to do."""
        events = [asyncio.ensure_future(event.wait()) for event in (self._stop, self._replace)]
        ends = [worker.ended for worker in (*self._workers, *self._leaving)]
        await asyncio.wait([*events, *ends], return_when=asyncio.FIRST_COMPLETED)
        for event in events:
            event.cancel()
        for worker in [one for one in self._leaving if one.ended.done()]:
            self._leaving.remove(worker)
            worker.life.close()
        for number, worker in enumerate(self._workers):
            if worker.ended.done() and not self._stop.is_set():
                await self._restart(number, worker)
        if self._replace.is_set() and not self._stop.is_set():
            self._replace.clear()
            await self._replace_all()

    async def _restart(self, number: int, ended: _Worker) -> None:
        """Start a worker in the place of one that has ended; after a pause, if that was soon."""
        ended.life.close()
        status = ended.ended.result()
        logger.error("Worker %d has ended with the status %d, and is started again.", number, status)
        if time.monotonic() - ended.begun_at < STABLE_SECONDS:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), MAX_PAUSE if status > 0 else 0.1)
        if not self._stop.is_set():
            await self._start(number)

    async def _replace_all(self) -> None:
        for number, old in enumerate(list(self._workers)):
            new = await self._start(number)
            if not await new.is_ready(self._stop):
                self._workers[number] = old
                new.tell(signal.SIGKILL)
                await new.ended
                if not self._stop.is_set():
                    logger.error("A new worker does not serve. Those that serve go on.")
                return
            self._leaving.append(old)
            old.tell(signal.SIGHUP)
        logger.info("All workers were replaced.")

    async def _end(self) -> None:
        """End all workers."""
        workers = [worker for worker in (*self._workers, *self._leaving) if not worker.ended.done()]
        for worker in workers:
            worker.tell(signal.SIGTERM)
        if workers:
            _, late = await asyncio.wait([worker.ended for worker in workers], timeout=END_SECONDS)
            for worker in workers:
                if worker.ended in late:
                    worker.tell(signal.SIGKILL)
                await worker.ended
        for worker in (*self._workers, *self._leaving):
            worker.life.close()


# ---------------------------------------------------------------------------------------------------------------------
# The side of a worker


def say_ready(place: Inherited) -> socket.socket:
    """Tell the supervisor that this worker serves; return the socket that has an end when the supervisor has."""
    life = socket.socket(fileno=place.life)
    life.send(_READY)
    life.setblocking(False)
    return life
