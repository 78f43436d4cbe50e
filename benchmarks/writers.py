"""Writers at the same time: 16 processes on PostgreSQL, and threads of a process, of which each has a conversation.

Threads that write to a SQLite file share a transaction; PostgreSQL syncs once for connections that commit together.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from typing import Final

from benchmarks.conversations import TURNS, append_turn, floor_of, stored
from benchmarks.databases import Database, postgres_database, postgres_missing, sqlite_database
from benchmarks.floor import Floor
from benchmarks.processes import Times, seconds_of, timed
from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep import Conversation, Store

WRITERS: Final = 16
SIZE: Final = 20
# number of conversations -> goal: turns a second, of the floor's
MUST: Final = {1: 0.45, WRITERS: 0.4}
THREADS: Final = 64
MUST_OF_THREADS: Final = {"sqlite": 3.0, "postgresql": 4.0}  # turns a second, of those of one thread
WARM: Final = 3  # turns that each writer appends before the start


@dataclass(frozen=True, slots=True)
class Task:
    """What a writer does: append so many turns to a conversation, through the library or by hand."""

    database: Database
    id: str
    turns: int
    tenant: int = 0
    by_hand: bool = False


def run(scale: Scale) -> list[Line]:
    lines = [_threads(sqlite_database(scale.folder, "FULL"), scale)]
    if postgres_missing() is not None:
        return lines
    with postgres_database() as database:
        lines.append(_threads(database, scale))
    return lines + _processes(scale)


def _threads(database: Database, scale: Scale) -> Line:
    """Turns a second of many threads, over those of one."""
    rates: dict[int, list[float]] = {1: [], THREADS: []}
    with database.store() as store:
        for _ in range(scale.writer_rounds):
            for count, found in rates.items():
                talks = [store.get_conversation(id_) for id_ in stored(store, SIZE, count)]
                turns = scale.turns if count > 1 else 4 * scale.turns
                barrier = threading.Barrier(count)
                with ThreadPoolExecutor(count) as pool:
                    times = list(pool.map(lambda talk: _append(talk, turns, barrier), talks))  # noqa: B023 - it is over
                found.append(turns * count / (max(end for _, end in times) - min(begin for begin, _ in times)))
    one, many = (statistics.median(found) for found in rates.values())
    must = MUST_OF_THREADS[database.kind]
    what = f"{THREADS} threads, a conversation each, over one"
    return Line(what, database.label, one, many, must, unit="turns/s", is_least=True)


def _append(talk: Conversation, turns: int, barrier: threading.Barrier) -> tuple[float, float]:
    text, body = TURNS[0]
    return timed(lambda: talk.add_turn(text, body, "open_responses"), WARM, turns, barrier)


def _processes(scale: Scale) -> list[Line]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.writers", "psycopg"])
    with postgres_database() as database, database.store() as store:
        floor = floor_of(database)
        order = [(spread, by_hand) for spread in MUST for by_hand in (False, True)]
        rates: dict[tuple[int, bool], list[float]] = {one: [] for one in order}
        shuffle = random.Random(WRITERS)
        for _ in range(scale.writer_rounds):
            shuffle.shuffle(order)
            for spread, by_hand in order:
                ids = list(stored(store, SIZE, spread))
                tasks = [
                    Task(database, ids[number % spread], scale.turns, floor.tenant, by_hand)
                    for number in range(WRITERS)
                ]
                rates[spread, by_hand].append(_rate(context, tasks))
                _check(floor, ids, (scale.turns + WARM) * WRITERS)
        floor.driver.close()
    return [
        Line(
            f"{WRITERS} writers, {spread} conversation{'s' if spread > 1 else ''}", "PostgreSQL",
            statistics.median(rates[spread, True]), statistics.median(rates[spread, False]), must,
            unit="turns/s", is_least=True,
        )
        for spread, must in MUST.items()
    ]  # fmt: skip


def _rate(context: ForkServerContext, tasks: list[Task]) -> float:
    """Turns a second of all writers."""
    return sum(task.turns for task in tasks) / seconds_of(context, _write, tasks)


def _write(task: Task, barrier: Barrier, times: Times) -> None:
    if not task.by_hand:
        with Store(task.database.url) as store:
            conversation = store.get_conversation(task.id)
            times.put(timed(lambda: append_turn(conversation, TURNS[0]), WARM, task.turns, barrier))
    else:
        floor = Floor(task.database.driver(), task.tenant, is_sqlite=False)
        key = floor.key_of(task.id)
        times.put(timed(lambda: floor.append_turn(key, TURNS[0]), WARM, task.turns, barrier))
        floor.driver.close()


def _check(floor: Floor, ids: list[str], turns: int) -> None:
    """Nothing is lost, doubled or out of place: positions have no gaps, and each turn has both of its items."""
    kinds = (
        "SELECT position, origin FROM threadkeep_items WHERE tenant_id = %s AND conversation_id = %s ORDER BY position"
    )
    answers = 0
    for name in ids:
        rows = floor.driver.read(kinds, (floor.tenant, floor.key_of(name)))
        if [row[0] for row in rows] != list(range(len(rows))):
            raise AssertionError(f"{name} has gaps.")
        answers += sum(row[1] is not None for row in rows[SIZE:])
    if answers != turns:
        raise AssertionError(f"{answers} answers of {turns} are there.")
