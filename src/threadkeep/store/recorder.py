"""Recorders: they store a streamed response while it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self

from threadkeep.domain.response import Response
from threadkeep.errors import InvalidItem, TooLarge
from threadkeep.store.database import AsyncRunner, SyncRunner
from threadkeep.store.recording import Recording

_NOT_STORED: Final = "The streamed response could not be stored: {}"


class Recorded:
    """What is known of a response that is being recorded."""

    _recording: Recording

    @property
    def response(self) -> Response | None:
        """The response as it was stored; None before its end."""
        return self._recording.response

    @property
    def partial(self) -> Response:
        """The response as far as it has come, of status in_progress until its end."""
        found = self._recording.response
        return self._recording.assembler.partial if found is None else found

    @property
    def replayed(self) -> bool:
        """Whether it was stored before, under the same idempotency key: then nothing needs to be asked or fed."""
        return self.response is not None and self.response.replayed

    @property
    def number(self) -> int | None:
        """Its place among the conversation's responses; None before it begins."""
        return self._recording.number

    @property
    def branch(self) -> int | None:
        """The branch that it is stored on; None before it begins."""
        return self._recording.branch


class Recorder(Recorded):
    """Stores a streamed response while it comes: a context manager, made by `Conversation.stream_response`.

    When the `with` statement ends, so does the response: as its events say, as `cancelled` when its generator was
    closed, else as `incomplete`. Items are written then, in one transaction; until then `feed` stores the events.
    """

    def __init__(self, recording: Recording, runner: SyncRunner) -> None:
        self._recording, self._runner = recording, runner
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._recording.beginning().run(self._runner)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end(error)
        except Exception as failure:
            if error is None:
                raise
            error.add_note(_NOT_STORED.format(failure))

    def feed(self, event: Any) -> None:
        """Take in the next event of the provider: a dict, JSON text, or an SDK's object; after the end nothing happens.

        Raises:
            CannotParse: it is no event.
            LeaseLost: somebody else has ended the response.
        """
        with self._lock:
            plan = self._recording.fed(event)
            if plan is not None:
                plan.run(self._runner)

    def cancel(self) -> None:
        """End the response here, as `cancelled`; what has come is kept.

        Raises:
            LeaseLost: somebody else has ended it.
        """
        self._end(is_cancelled=True)

    def _end(self, error: BaseException | None = None, *, is_cancelled: bool = False) -> None:
        with self._lock:
            if self._recording.response is not None:
                return
            try:
                self._recording.ending(error, is_cancelled=is_cancelled).run(self._runner)
            except (InvalidItem, TooLarge) as failure:
                self._recording.ending_badly(failure).run(self._runner)
                raise


class AsyncRecorder(Recorded):
    """Like `Recorder`, under asyncio: an async context manager, made by `AsyncConversation.stream_response`.

    The end is written also when the task is cancelled.
    """

    def __init__(self, recording: Recording, runner: AsyncRunner) -> None:
        self._recording, self._runner = recording, runner
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        try:
            await _uninterrupted(self._recording.beginning().run_async(self._runner))
        except asyncio.CancelledError as error:
            await _uninterrupted(self._end(error))  # nobody else will: the body of the `with` statement is not entered
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await _uninterrupted(self._end(error))
        except Exception as failure:
            if error is None:
                raise
            error.add_note(_NOT_STORED.format(failure))

    async def feed(self, event: Any) -> None:
        """Like `Recorder.feed`."""
        async with self._lock:
            plan = self._recording.fed(event)
            if plan is not None:
                await plan.run_async(self._runner)

    async def cancel(self) -> None:
        """Like `Recorder.cancel`."""
        await _uninterrupted(self._end(is_cancelled=True))

    async def _end(self, error: BaseException | None = None, *, is_cancelled: bool = False) -> None:
        async with self._lock:
            if self._recording.response is not None:
                return
            try:
                await self._recording.ending(error, is_cancelled=is_cancelled).run_async(self._runner)
            except (InvalidItem, TooLarge) as failure:
                await self._recording.ending_badly(failure).run_async(self._runner)
                raise


async def _uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work that is not to be cancelled with the task, however often that happens meanwhile.

    Web frameworks cancel again and again at every await until a task has ended.
    """
    task, interruption = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            interruption = cancelled
    task.result()
    if interruption is not None:
        raise interruption
