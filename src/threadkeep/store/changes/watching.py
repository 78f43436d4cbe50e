"""Following the change feed: iterators that go on where the feed ends, and outlive outages of the database."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Generic, Self, TypeVar
from weakref import finalize

from sqlalchemy.exc import DBAPIError, OperationalError

from threadkeep.db.dialects import is_transient
from threadkeep.domain.changes import Change, ChangePage
from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption, PoolExhausted
from threadkeep.store.changes.cursors import NOW
from threadkeep.store.changes.notify import Listener
from threadkeep.store.changes.reading import not_committed
from threadkeep.store.transactions import EngineTransactions, Transactions

REMEMBERED: Final = 10_000  # changes that are not given again
OUTAGE_SECONDS: Final = 30.0  # the longest pause between attempts to reach a database that is away
MOST_POLL: Final = 86_400.0
LOG: Final = logging.getLogger("threadkeep.changes")

R = TypeVar("R")


def poll_seconds(poll: object) -> float:
    """How long to wait before looking again."""
    if isinstance(poll, bool) or not isinstance(poll, int | float) or not 0 < poll <= MOST_POLL:
        raise mismatch(InvalidOption, f"a number of seconds up to {MOST_POLL:,.0f}", poll, "poll")
    return float(poll)


# Read a page after a cursor
ReadPage = Callable[[str | None], ChangePage]
AsyncReadPage = Callable[[str | None], Awaitable[ChangePage]]


class Wakening:
    """How a watcher that waits is woken, and whether it is to end."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake, self.is_over = wake, False

    def end(self) -> None:
        """Let it end."""
        self.is_over = True
        self.wake()


class Feed(Generic[R]):
    """The feed that is followed: how to read it, and, where commits are told, how to wait for them."""

    def __init__(self, transactions: Transactions, read: R, poll: float) -> None:
        if not isinstance(transactions, EngineTransactions):
            raise not_committed()
        self.read, self.poll, self._transactions = read, poll_seconds(poll), transactions

    def is_open(self) -> bool:
        """Whether the store is."""
        return not self._transactions.is_closed

    def follow(self, wakening: Wakening) -> Callable[[], object]:
        """Wake somebody when something may have been committed, and end it with the store; return what stops that."""
        self._transactions.watchers.add(wakening)
        if self._transactions.notifier is None:
            return _nothing
        return finalize(wakening, Listener(self._transactions.engine, wakening.wake).close)


class _Progress:
    """What a watcher has read and not given yet, and how long it pauses next."""

    def __init__(self, page: ChangePage, poll: float) -> None:
        self._poll, self._pause = poll, poll
        self._waiting: deque[Change] = deque()
        self._known: deque[int] = deque()
        self._known_set: set[int] = set()
        self.add(page)

    def take(self) -> Change | None:
        """The next change that was not given before."""
        while self._waiting:
            change = self._waiting.popleft()
            if change.id not in self._known_set:
                self._known.append(change.id)
                self._known_set.add(change.id)
                if len(self._known) > REMEMBERED:
                    self._known_set.discard(self._known.popleft())
                return change
        return None

    def add(self, page: ChangePage) -> float:
        """Take in what was read; return how long to pause."""
        self._waiting.extend(page.changes)
        self.end, self._pause = page.cursor, self._poll
        return 0.0 if page.changes else self._poll

    def fail(self, error: Exception) -> float:
        """Return how long to pause after an outage of the database; other errors are raised."""
        if not _is_outage(error):
            raise error
        pause, self._pause = self._pause, min(self._pause * 2, max(OUTAGE_SECONDS, self._poll))
        LOG.warning("The change feed cannot be read; trying again in %.1f seconds: %s", pause, type(error).__name__)
        return pause


def _is_outage(error: Exception) -> bool:
    if isinstance(error, PoolExhausted):
        return True
    if not isinstance(error, DBAPIError):
        return False
    is_server = getattr(error.orig, "sqlite_errorcode", None) is None
    return error.connection_invalidated or is_transient(error) or (is_server and isinstance(error, OperationalError))


class WatcherAttributes:
    """What both kinds of watchers have."""

    _cursor: str | None

    @property
    def cursor(self) -> str | None:
        """Continues after the last change that was given, in `watch` or `changes`; keep it to go on from there."""
        return self._cursor


class ChangeWatcher(WatcherAttributes):
    """Changes as they are committed: an iterator that ends when it or its store is closed, from `Store.watch`."""

    def __init__(self, feed: Feed[ReadPage], after: str | None) -> None:
        page = feed.read(after)
        self._feed, self._progress, self._cursor = (
            feed,
            _Progress(page, feed.poll),
            page.cursor if after == NOW else after,
        )
        self._woken = threading.Event()
        self._wakening = Wakening(self._woken.set)
        self._release = feed.follow(self._wakening)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        """Wait for the next change.

        Raises:
            CursorExpired: as for `Store.changes`.
        """
        while not self._wakening.is_over and self._feed.is_open():
            change = self._progress.take()
            if change is not None:
                self._cursor = change.cursor
                return change
            self._cursor = self._progress.end
            self._woken.clear()  # before looking, so that what comes meanwhile is not missed
            try:
                pause = self._progress.add(self._feed.read(self._cursor))
            except Exception as error:  # noqa: BLE001 - raised unless it is an outage
                pause = self._progress.fail(error) if self._feed.is_open() else 0.0
            if pause and not self._wakening.is_over:
                self._woken.wait(pause)
        self.close()
        raise StopIteration

    def close(self) -> None:
        """End the iteration, also from another thread."""
        self._wakening.end()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncChangeWatcher(WatcherAttributes):
    """Like `ChangeWatcher`, for ``async for``, from `AsyncStore.watch`.

    It begins to watch when ``async with`` or ``async for`` does.
    """

    def __init__(self, feed: Feed[AsyncReadPage], after: str | None) -> None:
        self._feed, self._after, self._cursor = feed, after, after
        self._progress: _Progress | None = None
        self._woken, self._wakening = asyncio.Event(), Wakening(_nothing)
        self._release: Callable[[], object] = _nothing

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change; errors as for `ChangeWatcher`."""
        progress = await self._begun()
        while not self._wakening.is_over and self._feed.is_open():
            change = progress.take()
            if change is not None:
                self._cursor = change.cursor
                return change
            self._cursor = progress.end
            self._woken.clear()
            try:
                pause = progress.add(await self._feed.read(self._cursor))
            except Exception as error:  # noqa: BLE001 - raised unless it is an outage
                pause = progress.fail(error) if self._feed.is_open() else 0.0
            if pause and not self._wakening.is_over:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
        await self.close()
        raise StopAsyncIteration

    async def close(self) -> None:
        """End the iteration, also from another task."""
        self._wakening.end()
        self._release()

    async def __aenter__(self) -> Self:
        await self._begun()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _begun(self) -> _Progress:
        if self._progress is None:
            page = await self._feed.read(self._after)
            self._progress = _Progress(page, self._feed.poll)
            self._cursor = page.cursor if self._after == NOW else self._after
            self._wakening.wake = partial(_set_soon, asyncio.get_running_loop(), self._woken)
            self._release = self._feed.follow(self._wakening)
        return self._progress


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(event.set)


def _nothing() -> None:
    """Release nothing."""
