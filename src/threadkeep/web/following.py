"""Streams that last: how many each owner may follow at once, and whether it still may."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Receive

from threadkeep.domain.api_keys import ApiScope
from threadkeep.errors import ThreadkeepError
from threadkeep.web.owners import Authenticate, Owner, owner_of
from threadkeep.web.tallies import Tally

MAX_STREAMS: Final = 100  # that each owner follows at once, in a process
RECHECK_SECONDS: Final = 60.0  # after which the owner of a stream is asked for again
RETRY_SECONDS: Final = 5  # after which somebody who follows too many may try again
_TOO_MANY: Final = 429


async def until_left(receive: Receive) -> None:
    """Wait until a client has left, whose request was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class OpenStreams:
    """How many streams each owner follows: by its key, or else by tenant and user."""

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self._most, self._open = most, Tally()

    def is_full(self, owner: Owner) -> bool:
        """Return whether this owner follows as many as it may."""
        return self._open[owner.name] >= self._most

    @contextmanager
    def one_more(self, owner: Owner) -> Iterator[None]:
        """Count a stream while it lasts.

        Raises:
            HTTPException: this owner follows as many as it may.
        """
        if self.is_full(owner):
            headers = {"retry-after": str(RETRY_SECONDS)}
            raise HTTPException(_TOO_MANY, "Too many streams are followed with this key", headers=headers)
        with self._open.one_more(owner.name):
            yield


@dataclass(frozen=True, slots=True)
class Permission:
    """What somebody was allowed when a stream began.

    Attributes:
        connection: the request.
        authenticate: who was asked.
        owner: what the answer was.
        scope: what the owner must be allowed.
    """

    connection: HTTPConnection
    authenticate: Authenticate | None
    owner: Owner
    scope: ApiScope

    async def ended(self) -> None:
        """Return once it holds no longer: the key was revoked, has expired, or is somebody else's."""
        holds = True
        while holds:
            await asyncio.sleep(RECHECK_SECONDS)
            holds = await self.holds()

    async def holds(self) -> bool:
        """Return whether it still holds; it does while the database cannot be asked."""
        try:
            owner = await owner_of(self.connection, self.authenticate)
        except (HTTPException, SQLAlchemyError, ThreadkeepError):  # asked too often, or nothing can be asked
            return True
        same = owner is not None and (owner.tenant, owner.user_id) == (self.owner.tenant, self.owner.user_id)
        return same and owner is not None and self.scope in owner.scopes
