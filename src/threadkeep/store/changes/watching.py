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
from typing import Any, Final, Generic, Self, TypeVar
from weakref import finalize

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from threadkeep.db import backends, engines, refusals
from threadkeep.domain.jsontext import mismatch
from threadkeep.domain.stored import Change, ChangePage
from threadkeep.errors import DatabaseUnavailable, InvalidOption, PoolExhausted
from threadkeep.store.changes.feed import NOW, not_committed
from threadkeep.store.work.transactions import EngineTransactions, Transactions

CHANNEL: Final = "threadkeep_changes"
GATHERING: Final = 0.05  # seconds between two notifications
CHECKING: Final = 0.5  # seconds after which a listener sees that it was closed
RECONNECTING: Final = 1.0  # seconds, doubled up to …
MOST_RECONNECTING: Final = 30.0
CONNECTING: Final = 10  # seconds
LOG: Final = logging.getLogger("threadkeep.changes")


def _shown(error: Exception) -> str:
    return type(error).__name__  # the text of the driver may have a password in it


class Notifier(engines.Inheritable):
    """Tells listeners of commits, many with one notification."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._inherited: list[object] = []
        self._begin()

    def _begin(self) -> None:
        self._connection: Any = None
        self._committed, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        """Say that something was committed; returns at once."""
        self._committed.set()
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="threadkeep-notify", daemon=True)
            with suppress(RuntimeError):  # the interpreter is about to end
                self._thread.start()

    def close(self) -> None:
        """Tell of the last commits, and end."""
        self._ended.set()
        self._committed.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(CONNECTING)

    def give_up(self) -> None:
        """The connection is the parent's; a thread is not inherited."""
        self._inherited.append(self._connection)
        self._begin()

    def _run(self) -> None:
        while True:
            self._committed.wait()
            is_last = self._ended.is_set()
            self._committed.clear()
            self._send()
            if is_last:
                break
            self._ended.wait(GATHERING)
            if self._ended.is_set():
                self._committed.set()
        self._disconnect()

    def _send(self) -> None:
        for _ in range(2):  # the connection may have been lost since the last one
            try:
                if self._connection is None:
                    self._connection = backends.backend_of(self._engine).notification_connection(
                        self._engine, CONNECTING
                    )
                self._connection.execute(f"NOTIFY {CHANNEL}")
            except Exception as error:  # noqa: BLE001 - whatever it is: listeners poll
                LOG.warning("Watchers could not be notified of changes: %s", _shown(error))
                self._disconnect()
            else:
                return

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


class Listener:
    """Calls a function when something may have been committed, from a thread of its own; reconnects by itself."""

    def __init__(self, engine: Engine, wake: Callable[[], object]) -> None:
        self._engine, self._wake, self._ended = engine, wake, threading.Event()
        self._thread = threading.Thread(target=self._run, name="threadkeep-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; the connection is closed soon after."""
        self._ended.set()

    def _run(self) -> None:
        pause = RECONNECTING
        while not self._ended.is_set():
            try:
                with backends.backend_of(self._engine).notification_connection(self._engine, CONNECTING) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    pause = RECONNECTING
                    self._wake()  # what was committed before
                    while not self._ended.is_set():
                        for _ in connection.notifies(timeout=CHECKING, stop_after=1):
                            self._wake()
            except Exception as error:  # noqa: BLE001 - whatever it is: its owner polls
                LOG.warning("Cannot listen for changes; polling instead: %s", _shown(error))
                self._ended.wait(pause)
                pause = min(pause * 2, MOST_RECONNECTING)


# ---------------------------------------------------------------------------------------------------------------------
# Following the change feed: iterators that go on where the feed ends, and outlive outages of the database

REMEMBERED: Final = 10_000  # changes that are not given again
OUTAGE_SECONDS: Final = 30.0  # the longest pause between attempts to reach a database that is away
MOST_POLL: Final = 86_400.0

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
    """The feed that is followed: how to read it, and, where commits are notified, how to wait for them."""

    def __init__(self, transactions: Transactions, read: R, poll: float) -> None:
        if not isinstance(transactions, EngineTransactions):
            raise not_committed()
        self.read, self.poll, self._transactions = read, poll_seconds(poll), transactions

    def is_open(self) -> bool:
        """Whether the store is."""
        return not self._transactions.is_closed

    def follow(self, wakening: Wakening) -> Callable[[], object]:
        """Wake a watcher after possible commits, and end it with the store; return a function that stops that."""
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
    if isinstance(error, PoolExhausted | DatabaseUnavailable):
        return True
    if not isinstance(error, DBAPIError):
        return False
    is_server = getattr(error.orig, "sqlite_errorcode", None) is None
    return (
        error.connection_invalidated
        or refusals.is_transient(error)
        or (is_server and isinstance(error, OperationalError))
    )


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
