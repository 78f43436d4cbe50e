"""Heartbeats, which renew the lease of a response while its recorder lives, even if nothing is fed.

A recorder that nobody holds any more has no heartbeat, nor has one in a process that was forked from its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from weakref import ref

NAME: Final = "threadkeep-lease"

# Renews the lease where that is due; returns after how many seconds it is due again, None: never
Beat = Callable[[Any], float | None]
AsyncBeat = Callable[[Any], Awaitable[float | None]]


class Heartbeat:
    """The heartbeat of a recorder: a daemon thread, which does not keep the process alive."""

    def __init__(self, recorder: Any, beat: Beat, wait: float) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=_run, args=(ref(recorder), beat, wait, self._ended), name=NAME, daemon=True
        )
        with suppress(RuntimeError):  # the interpreter is about to end
            self._thread.start()

    def end(self) -> None:
        """Stop the heartbeat; call this without holding the lock that a beat takes."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()


def _run(owner: ref[Any], beat: Beat, wait: float | None, ended: threading.Event) -> None:
    while wait is not None and not ended.wait(wait):
        wait = _beaten(owner, beat)


def _beaten(owner: ref[Any], beat: Beat) -> float | None:
    """What a beat returns; in a function of its own, so that nothing holds the recorder between two of them."""
    recorder = owner()
    return None if recorder is None else beat(recorder)


class AsyncHeartbeat:
    """The heartbeat of a recorder under asyncio: a task."""

    def __init__(self, recorder: Any, beat: AsyncBeat, wait: float) -> None:
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(_run_async(ref(recorder), beat, wait, self._ended), name=NAME)

    async def end(self) -> None:
        """Stop the heartbeat; await this without holding the lock that a beat takes."""
        self._ended.set()
        await asyncio.wait([self._task])


async def _run_async(owner: ref[Any], beat: AsyncBeat, wait: float | None, ended: asyncio.Event) -> None:
    while wait is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await ended.wait()
            return
        wait = await _beaten_async(owner, beat)


async def _beaten_async(owner: ref[Any], beat: AsyncBeat) -> float | None:
    recorder = owner()
    return None if recorder is None else await beat(recorder)
