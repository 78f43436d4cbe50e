"""Answers that the database did not take when they ended: they are stored when it is back."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from threadkeep.errors import LeaseLost, NotFound
from threadkeep.server.problems import Problem
from threadkeep.store.aio import AsyncRecorder, end_recording
from threadkeep.store.work.connections import AWAY

logger = logging.getLogger(__name__)

STORE_SECONDS: Final = 600.0  # for which an answer is tried to be stored
FIRST_PAUSE: Final = 0.25  # seconds before the first try; each pause is twice as long as the one before …
LONGEST_PAUSE: Final = 1.0  # … up to this
RETRY_SECONDS: Final = 5  # after which a client may ask for what was stored


class Unstored:
    """The answers of a process that wait for the database, each as long as it lasts, but not for ever."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    def add(self, recorder: AsyncRecorder) -> None:
        """Store the response of a recorder that was left, once that is possible."""
        task = asyncio.ensure_future(self._store(recorder))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Try once more; what cannot be stored then is lost, but for what had come before the database was away."""
        self._closing.set()
        await asyncio.gather(*self._tasks)

    async def _store(self, recorder: AsyncRecorder) -> None:
        now, pause = asyncio.get_running_loop().time, FIRST_PAUSE
        end = now() + STORE_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
            try:
                await end_recording(recorder)
            except AWAY:
                if self._closing.is_set() or now() >= end:
                    recorder.writer.give_up()
                    logger.exception("The end of an answer is lost: the database cannot be used.")
                    return
            except (LeaseLost, NotFound):
                logger.info("An answer that waited for the database was ended or deleted by somebody else.")
                return
            except Exception:
                logger.exception("The end of an answer is lost.")
                return
            else:
                logger.info("An answer was stored that had waited for the database.")
                return
            pause = min(2 * pause, LONGEST_PAUSE)


def not_stored(id: str) -> Problem:
    """Return the answer to a client whose response is not stored yet."""
    text = f"The database cannot be used now. The answer is complete, and is stored when that is back, as {id}."
    return Problem(
        503, text, code="database", type="server_error", headers={"retry-after": str(RETRY_SECONDS)},
    )  # fmt: skip
