"""The thread that records, apart from the server's, with a limit to what may wait.

No call waits for its own recording. One that would come before many that are not stored yet waits a moment for these,
so that calls that come faster than a database stores them are slowed down, and not left out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Lock, Thread
from typing import Final
from weakref import WeakValueDictionary

from prometheus_client.core import GaugeMetricFamily, Metric

from threadkeep.errors import NotFound, ResponseInProgress
from threadkeep.server.observing import Counters
from threadkeep.server.owners import Owner
from threadkeep.server.provider_answers import MAX_ANSWER_BYTES
from threadkeep.server.quotas import Tally
from threadkeep.server.recorder.backlog import CallQueue, QueuePlace, SpoolBacklog, is_usable
from threadkeep.server.recorder.exchanges import READ_SECONDS, CallFacts, Exchange, Overflow, Unreadable
from threadkeep.server.recorder.spool import Spool, SpooledCall, SpoolFull
from threadkeep.server.recorder.spooling import SpooledExchange
from threadkeep.server.recorder.storing import PartlyStored, store_exchange
from threadkeep.server.service import answer_quota
from threadkeep.server.sessions import Locks
from threadkeep.store.aio import AsyncStore
from threadkeep.store.work.connections import AWAY, error_name

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024  # of each owner …
OWNERS: Final = 4  # … and in all as much as of so many
MAX_EXCHANGES: Final = 2000  # calls that are being recorded, or wait for it; half of them of one owner
WAIT_SECONDS: Final = 1.0  # for which a call waits at most until fewer wait before it, as long as some are stored
STOP_SECONDS: Final = 10.0  # for what still waits when the server stops
RECORDED, FAILED, UNREADABLE, DROPPED = RESULTS = "recorded", "failed", "unreadable", "dropped"
BEGIN_SECONDS: Final = 0.1  # after which a call is stored while it goes on; one that has ended is stored in one piece
SPOOLED_TRIES: Final = 5  # to store a call of the spool while the database can be used, in more than a lease …
ROOM_SECONDS: Final = 5.0  # for which a stream waits to be put together; what comes of it waits as what is not stored
RETRY_SECONDS: Final = 0.25  # … after twice as long each time
_HELP: Final = {
    "open": "Calls that are in progress, or wait in memory.",
    "waiting_bytes": "Bytes of calls in memory.",
    "answer_bytes": "Bytes of streams in progress that have been read.",
    "spooled": "Calls in the spool that are not stored yet.",
    "spooled_bytes": "Bytes of the files of the spool.",
    "behind_seconds": "Seconds since the oldest call began that is not stored yet.",
}
_LOG_SECONDS: Final = 10.0  # between two lines in the log about the same


class RecordingThread:
    """Records exchanges in a thread with an event loop of its own, with a store of its own."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        max_bytes: int = MAX_WAITING_BYTES,
        max_exchanges: int = MAX_EXCHANGES,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        stop_seconds: float = STOP_SECONDS,
        spool: Spool | None = None,
    ) -> None:
        self._backlog = None if spool is None else SpoolBacklog(spool, self._store_spooled, max_answer_bytes)
        self.counters = Counters("threadkeep_recorder_calls", "Calls that have passed.", "result", RESULTS)
        self._store, self._max_bytes, self._max_exchanges = store, max_bytes, max_exchanges
        self._stop_seconds, self._locks, self._max_answer_bytes = stop_seconds, Locks(), max_answer_bytes
        self._waiting, self._lock = Tally(), Lock()  # bytes, by the names of owners
        self._answer_bytes = answer_quota(max_answer_bytes, seconds=ROOM_SECONDS)
        self._open: set[Exchange] = set()
        self._behind, self._stored_at = Tally(), float("-inf")  # calls whose clients have the answer; the last stored
        self._news: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None  # for those that wait for fewer
        self._ended = deque[tuple[Exchange, QueuePlace]]()  # calls that are to be stored
        self._lines: WeakValueDictionary[Owner, CallQueue] = WeakValueDictionary()
        self._logged: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: Thread | None = None

    # The server's thread

    def start(self) -> None:
        """Begin to record."""
        is_ready = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._run(is_ready)), name="threadkeep-recorder", daemon=True)
        self._thread.start()
        is_ready.wait()
        if self._backlog is not None:
            self._backlog.start(self._loop)

    async def stop(self) -> None:
        """Record what waits, within the limit of time; what is left then is dropped, and counted."""
        for exchange in list(self._open):
            exchange.end("stopped")
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        if self._backlog is not None:
            await self._backlog.stop_writing(self._stop_seconds)
        self._loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(self._thread.join, self._stop_seconds * 2)
        self._loop = None
        if self._backlog is not None:
            self._backlog.close()

    async def room(self, owner: Owner) -> None:
        """Wait while too many calls of an owner are not stored that its clients have, as long as some are stored."""
        end = time.monotonic() + WAIT_SECONDS
        while self._behind[owner.name] >= max(1, self._max_exchanges // 8):
            now = time.monotonic()
            if now >= end or now - self._stored_at >= WAIT_SECONDS:
                return
            with self._lock:
                self._news = news = self._news or (asyncio.get_running_loop(), asyncio.Event())
            with suppress(TimeoutError):
                async with asyncio.timeout(end - now):
                    await news[1].wait()

    def begin(self, facts: CallFacts) -> Exchange | None:
        """Return what a call is noted with; None if it cannot be recorded, which is counted."""
        if self._loop is None or self._is_full(facts.owner.name):
            self._count(DROPPED, "calls are not recorded: too many of them wait")
            return None
        place, backlog = self._line(facts.owner).place(), self._backlog
        take = partial(self._take, facts.owner.name)
        if backlog is None:
            has_ended = partial(self._note_end, place)
            exchange = Exchange(facts, self._loop, take, self._max_bytes, has_ended=has_ended, is_read=False)
            self._open.add(exchange)
            exchange.timer = asyncio.get_running_loop().call_later(BEGIN_SECONDS, self._begin_storing, exchange, place)
        else:
            exchange = Exchange(facts, backlog.loop, take, self._max_bytes, is_spooled=True)
            self._open.add(exchange)
            exchange.done = asyncio.run_coroutine_threadsafe(self._spool(backlog, exchange, place), backlog.loop)
        return exchange

    def _note_end(self, place: QueuePlace, exchange: Exchange) -> None:
        """Note that a client has the answer to a call, which is not stored yet."""
        place.end()
        with self._lock:
            if exchange in self._open:
                exchange.is_behind = True
                if not self._behind:
                    self._stored_at = time.monotonic()  # from when on it is waited for one that is stored
                self._behind.add(exchange.facts.owner.name, 1)
        if exchange.timer is not None:
            exchange.timer.cancel()
        self._begin_storing(exchange, place)

    def _begin_storing(self, exchange: Exchange, place: QueuePlace) -> None:
        """Have a call stored soon, with others."""
        with self._lock:  # else two threads may each take the other's call for one that was there before
            self._ended.append((exchange, place))
            is_first = len(self._ended) == 1
        if is_first and self._loop is not None:
            with suppress(RuntimeError):  # the recorder has ended
                self._loop.call_soon_threadsafe(self._loop.call_later, READ_SECONDS, self._start_all)

    def _line(self, owner: Owner) -> CallQueue:
        return self._lines.setdefault(owner, CallQueue())

    def _is_full(self, name: Hashable) -> bool:
        """Whether no more calls can be recorded, in all or of an owner."""
        if len(self._open) < max(1, self._max_exchanges // 2):
            return False
        of_owner = sum(1 for exchange in list(self._open) if exchange.facts.owner.name == name)
        return len(self._open) >= self._max_exchanges or of_owner >= self._max_exchanges // 2

    def health(self) -> Mapping[str, int]:
        """Return what /healthz tells: how calls were recorded so far, and how many are being recorded or wait."""
        behind = self.behind()  # first: what has been stored since is counted, and not told as missing
        return {**self.counters.counts(), **behind}

    def is_busy(self) -> bool:
        """Whether calls pass, or wait to be stored."""
        return bool(self._open or self._backlog)

    def behind(self) -> Mapping[str, int]:
        """Return how much is not stored yet, and for how many seconds the oldest of it waits."""
        told = {
            "open": len(self._open), "waiting_bytes": self._waiting.total(), "answer_bytes": self._answer_bytes.total,
        }  # fmt: skip
        moments = [exchange.facts.at.timestamp() for exchange in list(self._open)]
        if self._backlog is not None:
            told |= {"spooled": len(self._backlog), "spooled_bytes": self._backlog.size}
            moments += self._backlog.oldest
        return {**told, "behind_seconds": max(0, round(time.time() - min(moments, default=time.time())))}

    def collect(self) -> Iterator[Metric]:
        """Yield the figures for Prometheus."""
        yield from self.counters.collect()
        for name, value in self.behind().items():
            yield GaugeMetricFamily(f"threadkeep_recorder_{name}", _HELP[name], value)

    # Both

    def _take(self, name: Hashable, size: int) -> bool:
        with self._lock:
            mine, all_ = self._waiting[name] + size, self._waiting.total() + size
            if size > 0 and (mine > self._max_bytes or all_ > OWNERS * self._max_bytes):
                return False
            self._waiting.add(name, size)
            return True

    def _count(self, name: str, problem: str, detail: str = "") -> None:
        """Count a problem, and log it unless that has just been done; `detail` says nothing of what was sent."""
        count, now = self.counters.add(name), time.monotonic()
        if now - self._logged.get(name, float("-inf")) >= _LOG_SECONDS:
            self._logged[name] = now
            logger.warning("%s%s (%d so far)", problem.capitalize(), f": {detail}" if detail else "", count)

    # The recorder's thread

    async def _run(self, is_ready: Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        is_ready.set()
        await self._stopping.wait()
        self._start_all()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self._stop_seconds)
            await _cancel(left)
        await self._store.close()

    def _start_all(self) -> None:
        """Begin to store calls, unless that has begun."""
        while self._ended:
            exchange, place = self._ended.popleft()
            if not exchange.is_read:
                exchange.is_read = True
                self._tasks.add(task := asyncio.create_task(self._record(exchange, place)))
                task.add_done_callback(self._tasks.discard)

    async def _record(self, exchange: Exchange, place: QueuePlace) -> None:
        try:
            with self._counted(exchange):
                await place.turn()
                if await store_exchange(self._store, exchange, self._locks, self._max_answer_bytes, self._answer_bytes):
                    self.counters.add(RECORDED)
        finally:
            place.leave()

    async def _spool(self, backlog: SpoolBacklog, exchange: Exchange, place: QueuePlace) -> None:
        with self._counted(exchange):
            await backlog.write(exchange, place)

    async def _store_spooled(self, call: SpooledCall) -> None:
        """Store a call of the spool; while the database cannot be used, it waits.

        If its conversation is deleted while it is stored, it begins a new one, or is on the bill alone.
        """
        tries = 0
        while True:
            exchange = None
            try:
                exchange = SpooledExchange(call, self._max_bytes)
                is_stored = await store_exchange(self._store, exchange, self._locks, self._max_answer_bytes)
            except (*AWAY, NotFound, ResponseInProgress) as error:
                tries += await is_usable(self._store)
                if tries < SPOOLED_TRIES:
                    await asyncio.sleep(RETRY_SECONDS * 2**tries)
                    continue
                self._count(FAILED, "a call is not recorded", error_name(error))
            except Unreadable as error:
                self._count(UNREADABLE, "a call is not recorded", str(error))
            except PartlyStored as error:
                self._count(FAILED, "a call is not recorded whole", str(error))
            except Overflow:
                self._count(DROPPED, "a call is not recorded: it is too large")
            except Exception as error:  # noqa: BLE001 - whatever it is, calls go on
                self._count(FAILED, "a call is not recorded", error_name(error))
            else:
                if is_stored:
                    self.counters.add(RECORDED)
            return

    @contextmanager
    def _counted(self, exchange: Exchange) -> Iterator[None]:
        """Count and log what keeps a call from being recorded; then, nothing of it waits any more."""
        try:
            yield
        except SpoolFull as error:
            self._count(DROPPED, "a call is not recorded: the spool has no room", str(error))
        except Overflow as error:
            problem = "a call is not recorded whole: it is too large, or too much of others waits"
            self._count(DROPPED, problem, str(error))
        except Unreadable as error:
            self._count(UNREADABLE, "a call is not recorded", str(error))
        except asyncio.CancelledError:
            self._count(DROPPED, "a call is not recorded: the server stops")
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, calls go on
            self._count(FAILED, "a call is not recorded", error_name(error))
        finally:
            exchange.drop()
            self._leave(exchange)

    def _leave(self, exchange: Exchange) -> None:
        """Note that nothing of a call waits any more."""
        self._stored_at = time.monotonic()
        with self._lock:
            self._open.discard(exchange)
            if exchange.is_behind:
                self._behind.add(exchange.facts.owner.name, -1)
            news, self._news = self._news, None
        if news is not None:
            with suppress(RuntimeError):  # the server has ended
                news[0].call_soon_threadsafe(news[1].set)


async def _cancel(tasks: Iterable[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
