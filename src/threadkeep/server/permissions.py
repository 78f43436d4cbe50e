"""Streams that last: how many each owner may follow at once, whether it still may, and whether its client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Receive

from threadkeep.errors import ThreadkeepError
from threadkeep.server import owners, quotas

MAX_STREAMS: Final = 100  # that each owner follows at once, in a process
SOON_SECONDS: Final = 0.1  # for which nobody looks whether a client has left
RECHECK_SECONDS: Final = 60.0  # after which the owner of a stream is asked for again


async def until_left(receive: Receive) -> None:
    """Wait until a client has left, whose request was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Attendance:
    """Work that goes on until something ends it, such as its client that leaves: what it awaits is then cancelled once.

    The cancelled tasks of a group of anyio keep themselves with all that the work had in memory, until garbage is
    collected.
    """

    def __init__(self) -> None:
        self._limit, self._ends = asyncio.timeout(None), list[asyncio.Task[Any]]()
        self._timers = list[asyncio.TimerHandle]()

    @property
    def is_ended(self) -> bool:
        """Whether something ended the work."""
        return any(task.done() for task in self._ends)

    def until(self, end: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """End the work when this is done; return its task."""
        task = asyncio.ensure_future(end)
        task.add_done_callback(self._end)
        self._ends.append(task)
        return task

    def until_soon(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The same, from a moment later on: work that is done by then takes no task for it."""
        self._timers.append(asyncio.get_running_loop().call_later(SOON_SECONDS, lambda: self.until(end())))

    def _end(self, _task: asyncio.Task[Any]) -> None:
        with suppress(RuntimeError):  # it has just ended by itself, or by another end
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for timer in self._timers:
            timer.cancel()
        for task in self._ends:
            task.remove_done_callback(self._end)
            task.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            if not self._limit.expired():
                raise
        ends, self._ends = self._ends, []
        for task in ends:
            if task.done():
                with suppress(asyncio.CancelledError):
                    task.result()  # raises what went wrong with it
        return kind is asyncio.CancelledError and self._limit.expired()


def stream_quota(most: int = MAX_STREAMS) -> quotas.Quota:
    """Return the quota of streams that each owner follows at once."""
    return quotas.Quota(most, text="Too many streams are followed{key}", code="too_many_streams")


@dataclass(frozen=True, slots=True)
class Permission:
    """What the owner was allowed when a stream began.

    Attributes:
        connection: the request.
        authenticate: who was asked.
        owner: what the answer was.
        scope: what the owner must be allowed.
    """

    connection: HTTPConnection
    authenticate: owners.Authenticate | None
    owner: owners.Owner
    scope: owners.Scope

    async def ended(self) -> None:
        """Return once it holds no longer: the key was revoked, has expired, or belongs to another owner."""
        holds = True
        while holds:
            await asyncio.sleep(RECHECK_SECONDS)
            holds = await self.holds()

    async def holds(self) -> bool:
        """Return whether it still holds; it does while the database cannot be asked."""
        try:
            owner = await owners.owner_of(self.connection, self.authenticate)
        except (HTTPException, SQLAlchemyError, ThreadkeepError):  # asked too often, or nothing can be asked
            return True
        same = owner is not None and (owner.tenant, owner.user_id) == (self.owner.tenant, self.owner.user_id)
        return same and owner is not None and self.scope in owner.scopes
