"""The thread that records: beside the server's, so that no call waits for it, with a limit to what may wait."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from threading import Event, Lock, Thread
from typing import Final
from weakref import WeakValueDictionary

from threadkeep.http.provider_answers import MAX_ANSWER_BYTES
from threadkeep.http.recorder.exchanges import CallFacts, Exchange, Overflow, Unreadable
from threadkeep.http.recorder.order import Line, Place
from threadkeep.http.recorder.storing import Locks, store_exchange
from threadkeep.store.aio import AsyncStore
from threadkeep.store.connections import error_name
from threadkeep.web.counters import Counters
from threadkeep.web.owners import Owner
from threadkeep.web.tallies import Tally

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024  # of each owner …
OWNERS: Final = 4  # … and in all as much as of so many
MAX_EXCHANGES: Final = 2000  # calls that are being recorded, or wait for it; half of them of one owner
STOP_SECONDS: Final = 10.0  # for what still waits when the server stops
RECORDED, FAILED, UNREADABLE, DROPPED = RESULTS = "recorded", "failed", "unreadable", "dropped"
_LOG_SECONDS: Final = 10.0  # between two lines in the log about the same


class RecordingThread:
    """Records exchanges in a thread with an event loop of its own, whose store nobody else uses."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        max_bytes: int = MAX_WAITING_BYTES,
        max_exchanges: int = MAX_EXCHANGES,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self.counters = Counters("threadkeep_recorder_calls", "Calls that have passed.", "result", RESULTS)
        self._store, self._max_bytes, self._max_exchanges = store, max_bytes, max_exchanges
        self._stop_seconds, self._locks, self._max_answer_bytes = stop_seconds, Locks(), max_answer_bytes
        self._waiting, self._lock = Tally(), Lock()  # bytes, by the names of owners
        self._open: set[Exchange] = set()
        self._lines: WeakValueDictionary[Owner, Line] = WeakValueDictionary()
        self._logged: dict[str, float] = {}
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

    async def stop(self) -> None:
        """Record what waits, within the limit of time; what is left then is dropped, and counted."""
        for exchange in list(self._open):
            exchange.end("stopped")
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(self._thread.join, self._stop_seconds * 2)
        self._loop = None

    def begin(self, facts: CallFacts) -> Exchange | None:
        """Return what a call is noted with; None if it cannot be recorded, which is counted."""
        if self._loop is None or self._is_full(facts.owner.name):
            self._count(DROPPED, "calls are not recorded: too many of them wait")
            return None
        place = self._line(facts.owner).place()
        exchange = Exchange(
            facts, self._loop, partial(self._take, facts.owner.name), self._max_bytes, has_ended=place.end
        )
        self._open.add(exchange)
        asyncio.run_coroutine_threadsafe(self._record(exchange, place), self._loop)
        return exchange

    def _line(self, owner: Owner) -> Line:
        return self._lines.setdefault(owner, Line())

    def _is_full(self, name: Hashable) -> bool:
        """Whether no more calls can be recorded, in all or of an owner."""
        if len(self._open) < max(1, self._max_exchanges // 2):
            return False
        of_owner = sum(1 for exchange in list(self._open) if exchange.facts.owner.name == name)
        return len(self._open) >= self._max_exchanges or of_owner >= self._max_exchanges // 2

    def health(self) -> Mapping[str, int]:
        """Return what /healthz tells: how calls were recorded so far, and how many are being recorded or wait."""
        return {**self.counters.counts(), "open": len(self._open), "waiting_bytes": self._waiting.total()}

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
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self._stop_seconds)
            await _cancel(left)
        await self._store.close()

    async def _record(self, exchange: Exchange, place: Place) -> None:
        try:
            await place.turn()
            await store_exchange(self._store, exchange, self._locks, self._max_answer_bytes)
        except Overflow:
            self._count(DROPPED, "a call is not recorded: it is too large, or too much of others waits")
        except Unreadable as error:
            self._count(UNREADABLE, "a call is not recorded", str(error))
        except asyncio.CancelledError:
            self._count(DROPPED, "a call is not recorded: the server stops")
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, calls go on
            self._count(FAILED, "a call is not recorded", error_name(error))
        else:
            self.counters.add(RECORDED)
        finally:
            exchange.drop()
            self._open.discard(exchange)
            place.leave()


async def _cancel(tasks: Iterable[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
