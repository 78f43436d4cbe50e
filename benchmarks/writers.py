"""16 processes that append turns on PostgreSQL, to one conversation and to one each."""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from typing import Final

from benchmarks.conversations import TURNS, append_turn, floor_of, stored
from benchmarks.databases import Database, postgres_database, postgres_missing
from benchmarks.floor import Floor
from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep import Store

WRITERS: Final = 16
SIZE: Final = 20
# number of conversations -> goal: turns a second, of the floor's
MUST: Final = {1: 0.45, WRITERS: 0.4}
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
    if postgres_missing() is not None:
        return []
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
    """Turns a second of all writers, from their common start to the end of the last."""
    barrier, times = context.Barrier(len(tasks)), context.SimpleQueue()
    processes = [context.Process(target=_write, args=(task, barrier, times)) for task in tasks]
    for process in processes:
        process.start()
    found = [times.get() for _ in processes]
    for process in processes:
        process.join()
    begin, end = min(one[0] for one in found), max(one[1] for one in found)
    turns: float = sum(task.turns for task in tasks) / (end - begin)
    return turns


def _write(task: Task, barrier: Barrier, times: multiprocessing.SimpleQueue[tuple[float, float]]) -> None:
    if not task.by_hand:
        with Store(task.database.url) as store:
            conversation = store.get_conversation(task.id)
            times.put(_timed(lambda: append_turn(conversation, TURNS[0]), task.turns, barrier))
    else:
        floor = Floor(task.database.driver(), task.tenant, is_sqlite=False)
        key = floor.key_of(task.id)
        times.put(_timed(lambda: floor.append_turn(key, TURNS[0]), task.turns, barrier))
        floor.driver.close()


def _timed(append: Callable[[], None], turns: int, barrier: Barrier) -> tuple[float, float]:
    for _ in range(WARM):
        append()
    barrier.wait()
    begin = time.monotonic()
    for _ in range(turns):
        append()
    return begin, time.monotonic()


def _check(floor: Floor, ids: list[str], turns: int) -> None:
    """Nothing is lost, doubled or out of place: positions have no gaps, and each turn has both of its items."""
    kinds = "SELECT position, origin FROM items WHERE tenant_id = %s AND conversation_id = %s ORDER BY position"
    answers = 0
    for name in ids:
        rows = floor.driver.read(kinds, (floor.tenant, floor.key_of(name)))
        if [row[0] for row in rows] != list(range(len(rows))):
            raise AssertionError(f"{name} has gaps.")
        answers += sum(row[1] is not None for row in rows[SIZE:])
    if answers != turns:
        raise AssertionError(f"{answers} answers of {turns} are there.")
