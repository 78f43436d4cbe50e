"""Streams that last: how many each owner may follow at once, and whether it still may."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Receive

from threadkeep.domain.api_keys import ApiScope
from threadkeep.errors import ThreadkeepError
from threadkeep.server import owners, quotas

MAX_STREAMS: Final = 100  # that each owner follows at once, in a process
RECHECK_SECONDS: Final = 60.0  # after which the owner of a stream is asked for again


async def until_left(receive: Receive) -> None:
    """Wait until a client has left, whose request was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


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
    scope: ApiScope

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
