"""Feeding a recorder without waiting for the database: for those who pass events on while they store them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar

from threadkeep.domain.objects import body_object
from threadkeep.errors import CannotParse
from threadkeep.store.aio import AsyncRecorder, uninterrupted
from threadkeep.store.connections import AWAY, error_name
from threadkeep.store.streaming.writer import LOG

T = TypeVar("T")

LARGE_BYTES: Final = 256 * 1024  # an event of that length is read in a thread: others would wait for it
CHECK_SECONDS: Final = 0.25  # between two looks at whether the response is to be cancelled


class BackgroundFeed:
    """Feeds an `AsyncRecorder` whose batches are written while further events come.

    While the database cannot be reached, what comes waits, and is stored with what follows.
    """

    def __init__(self, recorder: AsyncRecorder, *, has_written: Callable[[], object] | None = None) -> None:
        """`has_written` is called after each batch that was written."""
        self._recorder = recorder
        recorder._writer.has_written = has_written
        self._writing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Timeout | None = None
        self._ending: asyncio.Task[None] | None = None
        self.is_large = False  # whether the event that was yielded last is a large one

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of events are not written yet: as long as the database cannot be reached, ever more."""
        return self._recorder._writer.waiting_bytes

    async def each(self, events: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
        """Feed and yield the events until the last, or until the response is to be cancelled, even if none comes.

        Those that come as text are yielded as objects.

        One that is to be cancelled ends also while nobody takes the event that was yielded. The iterator of events is
        closed at the end. Errors as for `feed`.
        """
        async with aclosing(events):
            self._check_later(events)
            try:
                while not self._recorder.cancel_requested:
                    try:
                        async with asyncio.timeout(None) as self._waiting:
                            event = await anext(events)
                    except StopAsyncIteration:
                        return
                    except TimeoutError:
                        if not self._recorder.cancel_requested:  # the provider's own
                            raise
                        return
                    finally:
                        self._waiting = None
                    if (event := await self._fed(event)) is not None:
                        yield event
            finally:
                self._next_check.cancel()
                if self._ending is not None:
                    await self._ending

    async def _fed(self, event: Any) -> Any:
        """Feed an event, and return it as an object, in a thread for a large one; None for what follows the end."""
        self.is_large = isinstance(event, str | bytes) and len(event) > LARGE_BYTES
        event = await self.in_thread(lambda: self._taken(event)) if self.is_large else self._taken(event)
        self._write_if_due()
        return event

    def _taken(self, event: Any) -> Any:
        writer = self._recorder._writer
        try:
            event = body_object(event)
        except CannotParse:
            if not writer.assembler.is_ended:
                raise
            return None
        writer.take(event)
        return event

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do something with the recorder in a thread; it does not end meanwhile."""
        async with self._recorder._lock:
            return await uninterrupted(asyncio.to_thread(work))

    def _check_later(self, events: AsyncGenerator[Any]) -> None:
        self._next_check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check, events)

    def _check(self, events: AsyncGenerator[Any]) -> None:
        """End the response, if it is to be cancelled: nobody waits any more for an event, or for one to be taken."""
        if not self._recorder.cancel_requested:
            self._check_later(events)
        elif self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())
        else:
            self._ending = asyncio.create_task(self._end(events))

    async def _end(self, events: AsyncGenerator[Any]) -> None:
        async with aclosing(events):
            await uninterrupted(self._recorder._end())

    def feed(self, event: Any) -> None:
        """Take the next event. Errors as for `Recorder.feed`; those of the database come with a later event."""
        self._recorder._writer.take(event)
        self._write_if_due()

    def _write_if_due(self) -> None:
        """Begin to write a batch, if one is due and none is being written; raise what went wrong with the last one."""
        if self._writing is not None and self._writing.done():
            writing, self._writing = self._writing, None
            writing.result()
        if self._writing is None and self._recorder._writer.is_due:
            self._writing = asyncio.create_task(self._write())
            self._writing.add_done_callback(_noticed)

    async def _write(self) -> None:
        recorder = self._recorder
        async with recorder._lock:
            if recorder.response is None:
                try:
                    await recorder._run(recorder._writer.flush)
                    while recorder._writer.is_due:  # more has come in the meantime, and maybe nothing comes after it
                        await recorder._run(recorder._writer.flush)
                except AWAY as error:
                    LOG.warning("A part of a streamed response is not stored yet: %s", error_name(error))


def _noticed(writing: asyncio.Task[None]) -> None:
    """Let asyncio log no error of which the end of the recorder tells, if no further event does."""
    if not writing.cancelled():
        writing.exception()
