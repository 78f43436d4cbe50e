"""The calls in a spool: written in a thread of its own, and stored in the order in which their answers ended."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from threading import Lock, Thread
from time import time
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from threadkeep.errors import ThreadkeepError
from threadkeep.server.recorder.exchanges import Exchange
from threadkeep.server.recorder.spool import Spool, SpooledCall
from threadkeep.server.recorder.spooling import spool_exchange
from threadkeep.store.aio import AsyncStore, check_ready

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4  # calls that are stored at the same time
_READY_SECONDS: Final = 5.0


class SpoolBacklog:
    """Writes calls to a spool, and has them stored."""

    def __init__(self, spool: Spool, store: Callable[[SpooledCall], Awaitable[None]], most: int) -> None:
        self._spool, self._store, self._most = spool, store, most
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._waiting: deque[tuple[SpooledCall, QueuePlace, float]] = deque()
        self._storing: dict[SpooledCall, float] = {}  # and when they began
        # when the calls that earlier processes left had ended, until they are stored
        self._left_at: float | None = time() if spool.size else None
        self._storer: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._is_ending = False

    def __len__(self) -> int:
        """How many calls wait; of those that earlier processes left, one at a time is known."""
        return len(self._waiting) + max(len(self._storing), self._left_at is not None)

    @property
    def size(self) -> int:
        """How many bytes the spool has."""
        return self._spool.size

    @property
    def oldest(self) -> list[float]:
        """When the oldest of the calls began that wait."""
        left = [] if self._left_at is None else [self._left_at]
        return [*left, *list(self._storing.values()), *(at for _, _, at in list(self._waiting)[:1])]

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where calls are written, once it has been started."""
        assert self._loop is not None  # noqa: S101 - nothing is written before
        return self._loop

    def start(self, storer: asyncio.AbstractEventLoop | None) -> None:
        """Begin to write, and to have calls stored in an event loop."""
        assert storer is not None  # noqa: S101 - it has been started
        self._storer, self._loop = storer, asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="threadkeep-spool", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._run(), storer)

    async def write(self, exchange: Exchange, place: QueuePlace) -> None:
        """Write a call while it passes. Errors as for `spool_exchange`."""
        call = self._spool.begin()
        try:
            await spool_exchange(self._spool, call, exchange, self._most)
        except BaseException:
            try:
                self._spool.finish(call)
            finally:
                place.leave()
            raise
        place.end()
        self._waiting.append((call, place, exchange.facts.at.timestamp()))
        self._wake()

    def _wake(self) -> None:
        if self._storer is not None and self._news is not None:
            with suppress(RuntimeError):  # it has ended
                self._storer.call_soon_threadsafe(self._news.set)

    async def _run(self) -> None:
        """Store what earlier processes left, one by one, and then what comes."""
        self._news, free = asyncio.Event(), asyncio.Semaphore(AT_ONCE)
        recovered = self._spool.recover()
        while (found := await asyncio.to_thread(_next, recovered)) is not None:
            with suppress(OSError):  # its file may have been removed
                self._left_at = found.modified
            await self._store_one(found, self._left_at or time())
        self._left_at = None
        tasks = set()
        while self._waiting or not self._is_ending:
            if not self._waiting:
                self._news.clear()
                if not self._waiting and not self._is_ending:
                    await self._news.wait()
                continue
            call, place, at = self._waiting[0]
            await place.turn()
            await free.acquire()
            self._storing[call] = at
            self._waiting.popleft()
            tasks.add(task := asyncio.create_task(self._store_one(call, at, place)))
            task.add_done_callback(tasks.discard)
            task.add_done_callback(lambda _: free.release())

    async def _store_one(self, call: SpooledCall, at: float, place: QueuePlace | None = None) -> None:
        self._storing[call] = at
        try:
            await self._store(call)
            self._spool.finish(call)
        finally:
            del self._storing[call]
            if place is not None:
                place.leave()

    async def stop_writing(self, seconds: float) -> None:
        """Wait until calls that have ended are in the spool."""

        async def rest() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                _, left = await asyncio.wait(others, timeout=seconds)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(rest(), self.loop))
        self._is_ending = True
        self._wake()

    def close(self) -> None:
        """End; what is not stored by now is left to the next process."""
        if self._thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()
        self._spool.close()


def _next(calls: Iterator[SpooledCall]) -> SpooledCall | None:
    try:
        return next(calls, None)
    except OSError:
        logger.exception("What another process left in the spool cannot be read.")
        return None


async def is_usable(store: AsyncStore) -> bool:
    """Return whether the database can be used: if a call cannot be stored then, it is the call."""
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await check_ready(store)
    except (SQLAlchemyError, ThreadkeepError, TimeoutError, OSError):
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# The order in which the calls of an owner are stored: an answer before the calls of a client that had it


class CallQueue:
    """The calls of an owner, each with its beginning and its end as numbers; a call costs little, however many wait."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.numbers = count()
        self.ended: OrderedDict[QueuePlace, int] = OrderedDict()  # but not stored yet, by their ends
        self.waiting: list[tuple[int, QueuePlace, asyncio.Event]] = []  # a heap, by their beginnings

    def place(self) -> QueuePlace:
        """Return the place of a call that begins now."""
        return QueuePlace(self)

    def is_due(self, place: QueuePlace) -> bool:
        """Whether all calls are stored that had ended when that one began."""
        return not self.ended or next(iter(self.ended.values())) > place.begun


class QueuePlace:
    """A call in a line."""

    __slots__ = ("__weakref__", "_has_left", "_line", "begun")

    def __init__(self, line: CallQueue) -> None:
        self._line, self._has_left = line, False
        with line.lock:
            self.begun = next(line.numbers)

    def end(self) -> None:
        """Note that the client has the answer: calls that begin from now on are stored after this one."""
        with self._line.lock:
            if not self._has_left:
                self._line.ended[self] = next(self._line.numbers)

    async def turn(self) -> None:
        """Wait until the calls are stored that had ended when this one began."""
        line = self._line
        with line.lock:
            if line.is_due(self):
                return
            is_next = asyncio.Event()
            heappush(line.waiting, (self.begun, self, is_next))
        await is_next.wait()

    def leave(self) -> None:
        """Let those follow that wait for this call: it is stored, or cannot be."""
        line = self._line
        with line.lock:
            self._has_left = True
            line.ended.pop(self, None)
            while line.waiting and line.is_due(line.waiting[0][1]):
                heappop(line.waiting)[2].set()
