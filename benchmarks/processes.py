"""Processes that begin at once: how long they take together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Final, TypeVar

T = TypeVar("T")

START_SECONDS: Final = 60.0  # until all of them must be ready

Times = SimpleQueue[tuple[float, float]]
# A task, what they wait for, and where each of them puts its first and last moment
Work = Callable[[T, Barrier, Times], None]


def seconds_of(context: ForkServerContext, work: Work[T], tasks: Sequence[T]) -> float:
    """From the common start to the end of the last.

    Raises:
        RuntimeError: one of them failed; its own message stands above.
    """
    barrier, times = context.Barrier(len(tasks), timeout=START_SECONDS), context.SimpleQueue()
    processes = [context.Process(target=work, args=(task, barrier, times)) for task in tasks]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("A writer failed.")
    found: list[tuple[float, float]] = [times.get() for _ in processes]
    return max(end for _, end in found) - min(begin for begin, _ in found)


def timed(
    call: Callable[[], object], warm: int, count: int, barrier: Barrier | threading.Barrier
) -> tuple[float, float]:
    """The first and the last moment of so many calls, after some that are not timed, when all others are ready, too."""
    for _ in range(warm):
        call()
    barrier.wait()
    begin = time.monotonic()
    for _ in range(count):
        call()
    return begin, time.monotonic()
