"""Authentication by the keys that the database has: `Store.keys`."""

from __future__ import annotations

import logging
from collections import OrderedDict
from datetime import UTC, datetime
from hashlib import sha256
from time import monotonic
from typing import Final, NamedTuple

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import HTTPConnection

from threadkeep.domain.api_keys import ApiKey
from threadkeep.errors import NotFound, ThreadkeepError
from threadkeep.server import limits, quotas
from threadkeep.server.owners import KEY, Authenticate, Owner, owner_of
from threadkeep.store.aio import AsyncStore

logger = logging.getLogger(__name__)

CACHE_SECONDS: Final = 5.0  # for which a key is not asked for again
MAX_CACHED: Final = 10_000  # keys


class _CachedKey(NamedTuple):
    key: ApiKey
    until: float


class KeyAuthentication:
    """Finds the owner of requests by their keys: an `Authenticate`.

    A key is read again after some seconds, so that one that was revoked is refused from then on, in every process. Of
    unknown keys nothing is remembered. While the database cannot be asked, a known key counts as before.
    """

    def __init__(self, store: AsyncStore, *, tenant: str | None = None, seconds: float = CACHE_SECONDS) -> None:
        """Take the keys of the store that is served: all of them, or a tenant's, each known for `seconds`."""
        self._store, self._only, self._seconds = store, tenant, seconds
        self._known: OrderedDict[bytes, _CachedKey] = OrderedDict()

    async def __call__(self, connection: HTTPConnection) -> Owner | None:
        """Return the owner of a request by the key in its headers; None if it has none, or none that is valid."""
        secret = secret_of(connection)
        return None if secret is None else await self.owner(secret)

    async def owner(self, secret: str) -> Owner | None:
        """Return the owner of a key by its secret; None for one that is not valid (any more)."""
        name = sha256(secret.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(name)
        if known is None or known.until <= monotonic() or not known.key.is_valid(datetime.now(UTC)):
            try:
                found = await self._store.keys.find(secret)
            except (SQLAlchemyError, ThreadkeepError):
                if known is None or not known.key.is_valid(datetime.now(UTC)):
                    raise
                return self._owner(known.key)
            if found is None or self._only not in (None, found.tenant):
                self._known.pop(name, None)
                return None
            await self._note_use(found)
            known = self._known[name] = _CachedKey(found, monotonic() + self._seconds)
            self._known.move_to_end(name)
            if len(self._known) > MAX_CACHED:
                self._known.popitem(last=False)
        return self._owner(known.key)

    async def _note_use(self, key: ApiKey) -> None:
        try:
            await self._store.keys.note_use(key.id)
        except SQLAlchemyError:  # a database that can only be read is served nevertheless
            logger.warning("It could not be noted that the key %s is used.", key.id, exc_info=True)

    def _owner(self, key: ApiKey) -> Owner:
        return Owner(key.user_id, key.tenant if self._store.keys.all_tenants else None, key.scopes, key.id)


class KeysOnceMade:
    """Authenticates by keys as soon as the database has one; until then, as it is given: an `Authenticate`.

    The database is asked every few seconds, so that a key that is made while a server runs counts there, too.
    """

    def __init__(
        self,
        store: AsyncStore,
        until_then: Authenticate,
        *,
        tenant: str | None = None,
        rates: quotas.Rates | None = None,
        seconds: float = CACHE_SECONDS,
    ) -> None:
        """Take the keys of a store with tenants: all of them, or a tenant's, looked for every few `seconds`.

        `rates`: how often each owner may ask; None for any number.
        """
        self._store, self._tenant, self._seconds = store, tenant, seconds
        keys: Authenticate = KeyAuthentication(store, tenant=tenant)
        self.keys: Final = keys if rates is None else limits.rated(keys, rates)
        self._until_then = until_then if rates is None else limits.rated(until_then, rates)
        self._has_keys, self._asked = False, float("-inf")

    async def __call__(self, connection: HTTPConnection) -> Owner | None:
        """Return the owner of a request, or None."""
        return await owner_of(connection, self.keys if await self.are_made() else self._until_then)

    async def are_made(self) -> bool:
        """Return whether there is a key, as was known some seconds ago; one that was revoked is one, too."""
        if not self._has_keys and monotonic() - self._asked >= self._seconds:
            asked = monotonic()
            try:
                store = self._store if self._tenant is None else await self._store.for_tenant(self._tenant)
                self._has_keys = await store.keys.exist()
            except NotFound:
                pass
            except (SQLAlchemyError, ThreadkeepError):
                if self._asked < 0:  # it has never been known
                    raise
            self._asked = asked
        return self._has_keys


def secret_of(connection: HTTPConnection) -> str | None:
    """Return the key that a request brings: in ``x-threadkeep-key`` or as its bearer token; None without one."""
    if own := connection.headers.get(KEY):
        return own
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None
