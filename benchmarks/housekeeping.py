"""The longest transaction of housekeeping in a large store: `retain()` of raw bodies, and `erase_user()`.

The store is filled as in `growth`, with conversations of many users. Meanwhile somebody appends turns; how long the
longest of these appends takes is shown, too. A transaction is measured from when it has begun, on SQLite from when it
has the write lock, to when it is committed, with all that other programs take of the machine meanwhile.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from benchmarks.conversations import TURNS, append_turn
from benchmarks.databases import Database, mariadb_database, postgres_database, postgres_missing, sqlite_database
from benchmarks.growth import filled
from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep import Store
from threadkeep.store.work.transactions import EngineTransactions

LIMIT: Final = 0.2  # seconds that a transaction may take
USERS: Final = 50
PAUSE: Final = 0.02  # seconds between two appends


class Taken(NamedTuple):
    """A transaction: what it did, the seconds from its beginning to its end, those of its COMMIT, and CPU time here."""

    what: str
    seconds: float
    commit: float
    cpu: float


def run(scale: Scale) -> list[Line]:
    return [line for kind in ("sqlite", "postgresql", "mariadb") for line in _of_kind(kind, scale)]


def _of_kind(kind: str, scale: Scale) -> list[Line]:
    """One database after the other: all of them at once would take three times the disk."""
    if kind == "sqlite":
        lines = _on(sqlite_database(scale.folder, "NORMAL"), scale)
        for file in scale.folder.glob("NORMAL_*.db*"):
            file.unlink()
        return lines
    if kind == "postgresql" and postgres_missing() is not None:
        return []
    with postgres_database() if kind == "postgresql" else mariadb_database() as database:
        return [] if database is None else _on(database, scale)


def _on(database: Database, scale: Scale) -> list[Line]:
    with database.store() as store, database.store() as other:
        filled(database, store, scale.items, users=USERS)
        uses: dict[str, Callable[[], object]] = {
            "erase_user()": lambda: store.erase_user("u1", vacuum=False),
            "retain(raw_bodies=0)": lambda: store.retain(raw_bodies=0),
        }
        lines = []
        for name, use in uses.items():
            begun = time.perf_counter()
            with appending(other) as waits, _timed() as taken:
                use()
            seconds = time.perf_counter() - begun
            _print(f"{database.label}: {name} in {scale.items:,} items, {seconds:.0f} s", taken, waits)
            what = f"of {name} in {scale.items:,} items, over {LIMIT} s"
            longest = max(one.seconds for one in taken)
            lines.append(Line(f"longest transaction {what}", database.label, LIMIT, longest, 1.0))
            lines.append(Line(f"longest append meanwhile {what}", database.label, LIMIT, max(waits)))
    return lines


def _print(title: str, taken: list[Taken], waits: list[float]) -> None:
    """Print how long transactions took, by what they did."""
    print(f"{title}; {len(waits):,} appends meanwhile, {_lengths(waits)}")
    kinds = defaultdict(list)
    for one in taken:
        kinds[one.what].append(one)
    for what, some in kinds.items():
        slowest = max(some, key=lambda one: one.seconds)
        lengths = _lengths([one.seconds for one in some])
        parts = f"{slowest.commit * 1e3:.0f} ms of it COMMIT, {slowest.cpu * 1e3:.0f} ms CPU time here"
        print(f"  {what}: {len(some):,} transactions, {lengths} ({parts})")


def _lengths(seconds: list[float]) -> str:
    """The median, the 99th of a hundred, and the longest."""
    ordered = sorted(seconds)
    figures = statistics.median(ordered), ordered[len(ordered) * 99 // 100], ordered[-1]
    return "median {:.0f}, 99 % {:.0f}, longest {:.0f} ms".format(*(figure * 1e3 for figure in figures))


@contextlib.contextmanager
def _timed() -> Iterator[list[Taken]]:
    """Collects how long each writing transaction of this thread takes, without what it waits for before it begins."""
    taken: list[Taken] = []
    write, thread = EngineTransactions.write, threading.current_thread()

    def timed(self: EngineTransactions, work: Any, **options: Any) -> Any:
        if threading.current_thread() is not thread:
            return write(self, work, **options)
        begun = cpu = commit = 0.0

        def begin(connection: Connection) -> Any:  # once more if it is repeated
            nonlocal begun, cpu, commit
            begun, cpu = time.perf_counter(), time.thread_time()
            result = work(connection)
            commit = time.perf_counter()
            return result

        result = write(self, begin, **options)
        now = time.perf_counter()
        taken.append(Taken(_name(work), now - begun, now - commit, time.thread_time() - cpu))
        return result

    EngineTransactions.write = timed  # type: ignore[method-assign] # only here, to look at it
    try:
        yield taken
    finally:
        EngineTransactions.write = write  # type: ignore[method-assign]


def _name(work: Any) -> str:
    """The function that does the work of a transaction."""
    while isinstance(work, partial):
        work = work.args[0] if work.args else work.func
    name: str = work.__name__
    return name


@contextlib.contextmanager
def appending(store: Store) -> Iterator[list[float]]:
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
