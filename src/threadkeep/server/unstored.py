"""Answers that are not in the database: those with `store: false`, and those that it did not take when they ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from threadkeep.domain.jsontext import mismatch
from threadkeep.errors import InvalidOption, LeaseLost, NotFound
from threadkeep.server.problems import Problem
from threadkeep.server.request_state import retry_headers
from threadkeep.store.aio import AsyncStore
from threadkeep.store.usage.observing import ObservedCall, add_observer
from threadkeep.store.work.connections import AWAY

logger = logging.getLogger(__name__)

STORE_SECONDS: Final = 600.0  # for which an answer is tried to be stored
FIRST_PAUSE: Final = 0.25  # seconds before the first try; each pause is twice as long as the one before …
LONGEST_PAUSE: Final = 1.0  # … up to this
RETRY_SECONDS: Final = 5  # after which a client may ask for what was stored
StoreFalse: TypeAlias = Literal["ledger", "keep"]  # what is kept of requests with `store: false`
MAX_ANSWERS: Final = 64  # of one database in memory, which keeps the room that the largest took
Write: TypeAlias = Callable[[], Awaitable[Any]]  # may be called again where it raised an error


class Unstored:
    """The answers of a process that wait for the database, each as long as it lasts, but not for ever."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    def add(self, write: Write, give_up: Callable[[], None] = lambda: None) -> None:
        """Store what the database did not take, once that is possible; `give_up` is called where it never was."""
        task = asyncio.ensure_future(self._store(write, give_up))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Try once more; what cannot be stored then is lost, but for what had come before the database was away."""
        self._closing.set()
        await asyncio.gather(*self._tasks)

    async def _store(self, write: Write, give_up: Callable[[], None]) -> None:
        now, pause = asyncio.get_running_loop().time, FIRST_PAUSE
        end = now() + STORE_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
            try:
                await write()
            except AWAY:
                if self._closing.is_set() or now() >= end:
                    give_up()
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
        503, text, code="database", type="server_error",
        headers={"retry-after": str(RETRY_SECONDS), **retry_headers()},
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Answers with `store: false` are made in a database in memory


def check_store_false(value: object) -> None:
    """Raise InvalidOption for what is no way to answer requests with `store: false`."""
    if value not in (known := get_args(StoreFalse)):
        raise mismatch(InvalidOption, " or ".join(map(repr, known)), value, "store_false")


@dataclass(slots=True)
class Memory:
    """A database in memory, with the conversations of answers that are not stored.

    Attributes:
        store: the database.
        calls: of each conversation in it, the calls for the ledger.
        begun: how many conversations it has had.
        going_on: how many it has.
        is_full: whether it gets no more, and is closed with the last one that goes on.
    """

    store: AsyncStore = field(default_factory=lambda: AsyncStore("sqlite://", search=False))
    calls: dict[str, list[ObservedCall]] = field(default_factory=dict)
    begun: int = 0
    going_on: int = 0
    is_full: bool = False

    def __post_init__(self) -> None:
        add_observer(self.store, lambda call: self.calls.setdefault(call.conversation_id, []).append(call))

    async def leave(self) -> None:
        """Note that an answer is over."""
        self.going_on -= 1
        if self.is_full and not self.going_on:
            await self.store.close()


class Memories:
    """Where the requests of a process are answered that are not stored: a new database after some answers."""

    def __init__(self) -> None:
        self._memory: Memory | None = None

    def take(self) -> Memory:
        """Return the database for one more answer, which must `leave` it."""
        memory = self._memory = self._memory or Memory()
        memory.begun += 1
        memory.going_on += 1
        if memory.begun >= MAX_ANSWERS:
            memory.is_full, self._memory = True, None
        return memory

    async def close(self) -> None:
        """Close the database, if there is one and it has no answer."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.is_full = True
            if not memory.going_on:
                await memory.store.close()
