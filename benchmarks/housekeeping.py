"""The longest transaction of housekeeping in a large store: `retain()` of raw bodies, and `erase_user()`.

The store is filled as in `growth`, with conversations of many users. Meanwhile somebody appends turns; how long the
longest of these appends takes is shown, too.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.conversations import TURNS, append_turn
from benchmarks.databases import Database, each_database
from benchmarks.growth import filled
from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep import Store
from threadkeep.store.transactions import EngineTransactions

LIMIT: Final = 0.2  # seconds that a transaction may take
USERS: Final = 50
PAUSE: Final = 0.02  # seconds between two appends


def run(scale: Scale) -> list[Line]:
    with each_database(scale.folder, "NORMAL") as databases:
        return [line for database in databases for line in _on(database, scale)]


def _on(database: Database, scale: Scale) -> list[Line]:
    with database.store() as store, database.store() as other:
        filled(database, store, scale.items, users=USERS)
        uses: dict[str, Callable[[], object]] = {
            "erase_user()": lambda: store.erase_user("u1", vacuum=False),
            "retain(raw_bodies=0)": lambda: store.retain(raw_bodies=0),
        }
        lines = []
        for name, use in uses.items():
            with _appending(other) as waits, _timed() as lengths:
                use()
            among = f"{len(lengths):,} transactions, median {statistics.median(lengths) * 1e3:.0f} ms"
            print(f"{database.label}: {name} in {scale.items:,} items: {among}; {len(waits):,} appends meanwhile")
            what = f"of {name} in {scale.items:,} items, over {LIMIT} s"
            lines.append(Line(f"longest transaction {what}", database.label, LIMIT, max(lengths), 1.0))
            lines.append(Line(f"longest append meanwhile {what}", database.label, LIMIT, max(waits)))
    return lines


@contextlib.contextmanager
def _timed() -> Iterator[list[float]]:
    """Collects how long each writing transaction of this thread takes, with what it waits for."""
    lengths: list[float] = []
    write, thread = EngineTransactions.write, threading.current_thread()

    def timed(self: EngineTransactions, *arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not thread:
            return write(self, *arguments, **options)
        begun = time.perf_counter()
        try:
            return write(self, *arguments, **options)
        finally:
            lengths.append(time.perf_counter() - begun)

    EngineTransactions.write = timed  # type: ignore[method-assign] # only here, to look at it
    try:
        yield lengths
    finally:
        EngineTransactions.write = write  # type: ignore[method-assign]


@contextlib.contextmanager
def _appending(store: Store) -> Iterator[list[float]]:
    """Appends turns in a thread, and collects how long they take."""
    waits: list[float] = []
    is_over = threading.Event()
    conversation = store.create_conversation(user_id="somebody")

    def append() -> None:
        while not waits or not is_over.wait(PAUSE):
            begun = time.perf_counter()
            append_turn(conversation, TURNS[len(waits) % len(TURNS)])
            waits.append(time.perf_counter() - begun)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()
