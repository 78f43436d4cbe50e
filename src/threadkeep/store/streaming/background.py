"""Feeding a recorder without waiting for the database: for those who pass events on while they store them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import aclosing
from functools import partial
from types import coroutine
from typing import Any, Final, TypeVar

from threadkeep.store.aio import AsyncRecorder, end_recording, uninterrupted
from threadkeep.store.reading.responses import ResponseDetails
from threadkeep.store.streaming.writer import LOG
from threadkeep.store.work.connections import AWAY, LARGE_BYTES, error_name

T = TypeVar("T")

GATHER_SECONDS: Final = 0.1  # for which the first batch waits, so that an answer that comes at once is stored at once
CHECK_SECONDS: Final = 0.25  # between two looks at whether the response is to be cancelled


def written_response(recorder: AsyncRecorder) -> ResponseDetails | None:
    """Return a response as its recorder stored it; None before its end, and where only the database knows all of it."""
    return recorder.writer.written


async def at_once_or_within(
    limit: asyncio.Timeout, awaited: Awaitable[T], before: Callable[[], Awaitable[object]] | None = None
) -> T:
    """Return what is awaited, within a time; what need not be waited for takes no timer, such as an event in memory.

    `before` is called and awaited before what must be waited for.
    """
    # The first step is taken by hand: it ends, or yields what must be waited for. An `async with limit` around all
    # would enter the limit, and arm its timer where it has one, for each event that is there already.
    steps = awaited.__await__()
    result: T
    try:
        waited = next(steps)
    except StopIteration as done:
        result = done.value
    else:
        async with limit:
            failure: BaseException | None = None
            try:
                if before is not None:
                    await before()
            except BaseException as error:  # noqa: BLE001 - it is raised to what waits, which ends with it
                failure = error
            try:
                result = await _resumed(steps, waited, failure)
            finally:
                del failure  # which has this frame in its traceback
    return result


@coroutine
def _resumed(steps: Any, waited: Any, failure: BaseException | None = None) -> Generator[Any, Any, Any]:
    """Go on with something awaitable that has begun to wait, for a future of asyncio, or with a failure."""
    while True:
        sent = None
        if failure is None:
            try:
                sent = yield waited
            except BaseException as error:  # noqa: BLE001 - it is for what waits
                failure = error
        step = partial(steps.send, sent) if failure is None else partial(steps.throw, failure)
        failure = None
        try:
            waited = step()
        except StopIteration as done:
            return done.value
        finally:
            del step  # which has the error that was thrown, whose traceback has this frame


class BackgroundFeed:
    """Feeds an `AsyncRecorder` whose batches are written while further events come.

    While the database cannot be reached, what comes waits, and is stored with what follows.
    """

    def __init__(self, recorder: AsyncRecorder, *, has_written: Callable[[int], object] | None = None) -> None:
        """`has_written` is called after each batch that was written, with how many bytes of events are not."""
        self._recorder = recorder
        recorder.writer.has_written = has_written
        self._writing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Timeout | None = None
        self._ending: asyncio.Task[None] | None = None
        self._gathering: asyncio.TimerHandle | None = None  # until the first batch begins
        self._has_gathered = False
        self.is_large = False  # whether the event that was yielded last is a large one

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of events are not written yet: as long as the database cannot be reached, ever more."""
        return self._recorder.writer.waiting_bytes

    async def each(self, events: AsyncGenerator[Sequence[Any]]) -> AsyncGenerator[Any]:
        """Feed and yield the events until the last, or until the response is to be cancelled, even if none comes.

        They come in lists of those that came at once. Those that come as text are yielded as objects. After
        `cancel_response`, the response is stored even if its consumer is stuck on an event. The iterator of events is
        closed at the end. Errors as for `feed`.
        """
        writer = self._recorder.writer
        async with aclosing(events):
            self._check_later(events)
            try:
                while not self._recorder.cancel_requested:
                    for event in (batch := await self._next(events)):
                        if writer.cancel_requested or writer.is_over:
                            break
                        self.is_large = isinstance(event, str | bytes) and len(event) > LARGE_BYTES
                        take = partial(writer.take_value, event)
                        value = await self.in_thread(take) if self.is_large else take()
                        if event is batch[-1]:
                            self._write_if_due()
                        if value is not None:  # not what follows the end
                            yield value
                    if not batch:
                        return
            finally:
                self._next_check.cancel()
                if self._gathering is not None:
                    self._gathering.cancel()
                if self._ending is not None:
                    await self._ending

    async def _next(self, events: AsyncGenerator[Sequence[Any]]) -> Sequence[Any]:
        """Wait for events; none where there are no more, or the response is to be cancelled."""
        try:
            self._waiting = asyncio.timeout(None)
            return await at_once_or_within(self._waiting, anext(events))
        except StopAsyncIteration:
            return ()
        except TimeoutError:
            if not self._recorder.cancel_requested:  # the provider's own
                raise
            return ()
        finally:
            self._waiting = None

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do something with the recorder in a thread; it does not end before that."""
        async with self._recorder.lock:
            return await uninterrupted(asyncio.to_thread(work))

    def _check_later(self, events: AsyncGenerator[Sequence[Any]]) -> None:
        self._next_check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check, events)

    def _check(self, events: AsyncGenerator[Sequence[Any]]) -> None:
        """End the response, if it is to be cancelled: stop waiting for an event, or for its consumer."""
        if not self._recorder.cancel_requested:
            self._check_later(events)
        elif self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())
        else:
            self._ending = asyncio.create_task(self._end(events))

    async def _end(self, events: AsyncGenerator[Sequence[Any]]) -> None:
        async with aclosing(events):
            await end_recording(self._recorder)

    def feed(self, event: Any) -> None:
        """Take the next event. Errors as for `Recorder.feed`; database errors are raised by a later event."""
        self._recorder.writer.take(event)
        self._write_if_due()

    def _write_if_due(self) -> None:
        """Begin to write a batch, if one is due and none is being written; raise what went wrong with the last one."""
        if self._writing is not None and self._writing.done():
            writing, self._writing = self._writing, None
            writing.result()
        if self._writing is None and self._recorder.writer.is_due:
            if self._has_gathered:
                self._begin_writing()
            elif self._gathering is None:
                self._gathering = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._begin_writing)

    def _begin_writing(self) -> None:
        self._gathering, self._has_gathered = None, True
        if self._writing is None and not self._recorder.writer.is_left:
            self._writing = asyncio.create_task(self._write())
            self._writing.add_done_callback(_noticed)

    async def _write(self) -> None:
        recorder = self._recorder
        async with recorder.lock:
            if recorder.response is None:
                try:
                    await recorder.run_sync(recorder.writer.flush)
                    while recorder.writer.is_due:  # more has come in the meantime, and maybe nothing comes after it
                        await recorder.run_sync(recorder.writer.flush)
                except AWAY as error:
                    LOG.warning("A part of a streamed response is not stored yet: %s", error_name(error))


def _noticed(writing: asyncio.Task[None]) -> None:
    """Let asyncio log no error of which the end of the recorder tells, if no further event does."""
    if not writing.cancelled():
        writing.exception()
