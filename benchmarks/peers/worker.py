"""A process with one library: does what it is asked over a socket, and says how long it took.

``python -m benchmarks.peers.worker SOCKET MODULE URL``; whatever the library prints goes nowhere else than elsewhere.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.metadata import version
from multiprocessing.connection import Client
from typing import Any, Final

from benchmarks.peers.protocol import Adapter, Chat
from benchmarks.peers.turns import Turn, conversation_of, turn_of

START_SECONDS: Final = 120
# All connections to SQLite have these, whatever the library's own default is.
SETTINGS: Final = ("journal_mode=WAL", "synchronous=NORMAL")

Timed = tuple[float, float]  # seconds of wall clock and of this process's CPU time


class Worker:
    """One adapter, and the conversation that it holds open."""

    def __init__(self, kind: type[Adapter], url: str) -> None:
        self._kind, self._url = kind, url
        self._adapter = kind(url)
        self._chat: Chat | None = None
        self._writers: Writers | None = None
        gc.collect()

    def version(self) -> str | None:
        return version(self._kind.PACKAGE) if self._kind.PACKAGE else None

    def note(self) -> str:
        return self._kind.NOTE

    def formats(self) -> tuple[str, ...]:
        return self._kind.FORMATS

    def searches(self) -> bool:
        return self._kind.search is not Adapter.search

    def load(self, names: Sequence[str], seed: int, items: int) -> Timed:
        """Import conversations."""
        made = {name: conversation_of(seed + number, items) for number, name in enumerate(names)}
        return timed(lambda: self._adapter.load(made))

    def hold(self, name: str) -> None:
        """Open a conversation, and read it."""
        self._chat = self._adapter.open(name)
        self._chat.request()

    def append(self, numbers: Sequence[int]) -> Timed:
        """Append turns to the conversation that is open."""
        turns, chat = [turn_of(number) for number in numbers], self._held()
        chat.prepare(turns)

        def call() -> None:
            for turn in turns:
                chat.append(turn)

        return timed(call, len(turns))

    def again(self) -> Timed:
        """The request of the conversation that is open."""
        return timed(self._held().request)

    def warm(self, name: str, count: int) -> Timed:
        """The request of a conversation that was read before."""
        self._adapter.open(name).request()
        return timed(repeated(lambda: self._adapter.open(name).request(), count), count)

    def cold(self, name: str, count: int) -> Timed:
        """The request of a conversation of which nothing is kept in memory."""
        return timed(repeated(lambda: self._adapter.open_cold(name).request(), count), count)

    def render(self, name: str, format: str, count: int) -> Timed:
        return timed(repeated(lambda: self._adapter.render(name, format), count), count)

    def search(self, word: str, count: int) -> Timed:
        if not self._adapter.search(word):
            raise AssertionError(f"Nothing has the word {word}.")
        return timed(repeated(lambda: self._adapter.search(word), count), count)

    def texts(self, name: str) -> list[str]:
        return self._adapter.open_cold(name).texts()

    def prepare_writers(self, tasks: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Open a connection and a conversation for each writer: its name, and its turns; the first is not timed."""
        self._writers = Writers(self._kind, self._url, tasks)
        self._writers.prepare()

    def run_writers(self) -> tuple[float, float, dict[int, str]]:
        """The first and the last moment, and the turns that were refused, with the reasons."""
        if self._writers is None:
            raise AssertionError("There are no writers.")
        return self._writers.run()

    def close(self) -> None:
        self._adapter.close()

    def _held(self) -> Chat:
        if self._chat is None:
            raise AssertionError("No conversation is open.")
        return self._chat


class Writers:
    """Threads that append turns at once, each through an adapter of its own."""

    def __init__(self, kind: type[Adapter], url: str, tasks: Sequence[tuple[str, Sequence[int]]]) -> None:
        self._kind, self._url = kind, url
        self._ready, self._go = threading.Barrier(len(tasks) + 1), threading.Barrier(len(tasks) + 1)
        self._threads = [threading.Thread(target=self._write, args=task, daemon=True) for task in tasks]
        self._errors: list[BaseException] = []
        self._refused: dict[int, str] = {}
        self._moments: list[float] = []

    def prepare(self) -> None:
        for thread in self._threads:
            thread.start()
        self._ready.wait(START_SECONDS)
        if self._errors:
            raise self._errors[0]

    def run(self) -> tuple[float, float, dict[int, str]]:
        begin = time.monotonic()
        self._go.wait(START_SECONDS)
        for thread in self._threads:
            thread.join()
        return begin, max(self._moments), self._refused

    def _write(self, name: str, numbers: Sequence[int]) -> None:
        adapter = chat = None
        turns: list[Turn] = []
        try:
            adapter = self._kind(self._url)
            chat = adapter.open(name)
            chat.request()
            warm, *turns = [turn_of(number) for number in numbers]
            chat.prepare([warm, *turns])
            with contextlib.suppress(Exception):  # it may be refused, as any other one
                chat.append(warm)
        except BaseException as error:  # noqa: BLE001 - told by prepare()
            self._errors.append(error)
        self._ready.wait(START_SECONDS)
        if adapter is None or chat is None:
            return
        self._go.wait(START_SECONDS)
        for number, turn in zip(numbers[1:], turns, strict=True):
            try:
                chat.append(turn)
            except Exception as error:  # noqa: BLE001 - whatever it is, the turn was refused
                self._refused[number] = reason_of(error)
        self._moments.append(time.monotonic())
        adapter.close()


def timed(call: Callable[[], object], count: int = 1) -> Timed:
    """Seconds of each of `count` operations; older objects are kept from the garbage collector."""
    gc.freeze()
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall / count, cpu / count


def repeated(call: Callable[[], object], count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            call()

    return run


def make_durability_equal() -> None:
    """Give every connection to SQLite the same settings."""
    connect: Any = sqlite3.connect

    @wraps(connect)
    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        for setting in SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        return connection

    for module in (sqlite3, sqlite3.dbapi2):
        vars(module)["connect"] = connected


def reason_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def main() -> None:
    warnings.simplefilter("ignore")
    address, module, url = sys.argv[1:]
    make_durability_equal()
    with Client(address, "AF_UNIX") as connection:
        try:
            worker = Worker(importlib.import_module(module).Adapter, url)
        except Exception as error:  # noqa: BLE001 - a line of the report says why
            connection.send((False, reason_of(error)))
            return
        connection.send((True, worker.version()))
        while (asked := connection.recv()) is not None:
            action, *arguments = asked
            try:
                connection.send((True, getattr(worker, action)(*arguments)))
            except Exception as error:  # noqa: BLE001 - the same
                connection.send((False, reason_of(error)))
        worker.close()


if __name__ == "__main__":
    main()
