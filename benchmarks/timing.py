"""Timing: rounds in shuffled order, medians of wall clock and CPU time, and of the ratios within a round."""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CALLS: Final = 3  # timed calls of each case in each round, after one that is not timed
SYNCED_BYTES: Final = 4096
SYNCS: Final = 50


def nothing() -> None:
    """For cases that need no preparation."""


@dataclass(slots=True)
class Case:
    """One of the things that are compared: `prepare` is called before each call of `call` and not timed.

    `each_round` is called at the start of every round; `count` says how many operations a call makes.
    """

    name: str
    call: Callable[[], object]
    prepare: Callable[[], object] = nothing
    each_round: Callable[[], object] = nothing
    count: int = 1
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)

    def run(self) -> None:
        """A call that is not timed, then the timed ones."""
        self.each_round()
        for number in range(CALLS + 1):
            self.prepare()
            cpu, wall = time.process_time(), time.perf_counter()
            self.call()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if number:
                self.walls.append(wall / self.count)
                self.cpus.append(cpu / self.count)

    @property
    def wall(self) -> float:
        """Median seconds of an operation."""
        return statistics.median(self.walls)

    @property
    def cpu(self) -> float:
        """Median seconds of this process's CPU time for an operation."""
        return statistics.median(self.cpus)


def ratio(ours: Sequence[float], base: Sequence[float]) -> float:
    """The median of the ratios that the rounds show: the machine's speed drifts, within a round hardly ever."""
    return statistics.median(a / b for a, b in zip(_of_rounds(ours), _of_rounds(base), strict=True))


def difference(ours: Sequence[float], base: Sequence[float]) -> float:
    """The median of the differences that the rounds show."""
    return statistics.median(a - b for a, b in zip(_of_rounds(ours), _of_rounds(base), strict=True))


def _of_rounds(times: Sequence[float]) -> list[float]:
    return [statistics.median(times[first : first + CALLS]) for first in range(0, len(times), CALLS)]


def run_rounds(cases: Sequence[Case], rounds: int) -> None:
    """Run all cases in every round, each time in another order; long-lived objects are kept from the collector."""
    order = list(cases)
    shuffle = random.Random(len(order))
    gc.collect()
    gc.freeze()
    try:
        for _ in range(rounds):
            shuffle.shuffle(order)
            for case in order:
                case.run()
    finally:
        gc.unfreeze()


def fdatasync_seconds(folder: Path) -> float:
    """Median time of an append of 4 KiB with fdatasync: what a commit waits for at least."""
    times = []
    with (folder / "fdatasync").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            begin = time.perf_counter()
            file.write(bytes(SYNCED_BYTES))
            getattr(os, "fdatasync", os.fsync)(file.fileno())
            times.append(time.perf_counter() - begin)
    return statistics.median(times)
