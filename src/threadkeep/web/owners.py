"""Who calls: the owner of what a request may see, and the authentication that names it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from inspect import isawaitable
from ipaddress import ip_address
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from threadkeep.domain.api_keys import SCOPES, ApiScope
from threadkeep.errors import InvalidOption
from threadkeep.store.aio import AsyncStore
from threadkeep.web.courses import note_owner

Scope: TypeAlias = ApiScope


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose conversations a request may see, and what it may do with them.

    Attributes:
        user_id: the user; None for all users.
        tenant: the name of the tenant; None in a database without tenants.
        scopes: any of "read", "write" and "usage".
        key: the id of the key that was used, for logs and limits; None without keys.
    """

    user_id: str | None = None
    tenant: str | None = None
    scopes: frozenset[Scope] = SCOPES
    key: str | None = None

    def __post_init__(self) -> None:
        if unknown := self.scopes - SCOPES:
            known = ", ".join(sorted(SCOPES))
            raise InvalidOption(f"cannot have {', '.join(sorted(unknown))}; known are {known}.", argument="scopes")

    @property
    def name(self) -> Hashable:
        """What requests of this owner are counted by: the key, or else tenant and user."""
        return self.key or (self.tenant, self.user_id)

    async def store(self, store: AsyncStore) -> AsyncStore:
        """Return the store, limited to what this owner has: everything else does not exist in it.

        Raises:
            NotFound: there is no such tenant.
        """
        if self.tenant is not None:
            store = await store.for_tenant(self.tenant)
        return store if self.user_id is None else store.for_user(self.user_id)


USER: Final = "x-threadkeep-user"  # for which of its users somebody calls who may see those of all
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")  # headers of proxies, whose callers are elsewhere

Authenticate: TypeAlias = Callable[[HTTPConnection], Owner | Awaitable[Owner | None] | None]


async def owner_of(connection: HTTPConnection, authenticate: Authenticate | None) -> Owner | None:
    """Return the owner that the application names; None for nobody.

    Without authentication, everything belongs to whoever calls from this machine, by a name of this machine: pages of
    other sites, whose host names may point here, are nobody.

    Raises:
        HTTPException: the owner has too many requests in flight.
    """
    if authenticate is None:
        return Owner() if is_local(connection) else None
    found: Any = authenticate(connection)
    owner: Owner | None = await found if isawaitable(found) else found
    if owner is not None:
        note_owner(owner.name)
    if owner is not None and owner.key is not None:
        connection.scope.setdefault("state", {})["key"] = owner.key
    return owner


def acting(authenticate: Authenticate | None) -> Authenticate:
    """Return an authentication by which an owner of what all users have may call for one of them.

    The header ``x-threadkeep-user`` names that user. Owners of what one user has stay who they are.
    """

    async def found(connection: HTTPConnection) -> Owner | None:
        owner, user_id = await owner_of(connection, authenticate), user_in(connection.headers)
        if owner is None or owner.user_id is not None or user_id is None:
            return owner
        return replace(owner, user_id=user_id)

    return found


def user_in(headers: Mapping[str, str]) -> str | None:
    """Return the user that headers name, in UTF-8 or else Latin-1; None if there is none."""
    named = headers.get(USER)
    if named is None or named.isascii():
        return named
    try:
        return named.encode("latin-1").decode()
    except UnicodeDecodeError:
        return named


def local_owner(owner: Owner) -> Authenticate:
    """Return the authentication by which everything belongs to whoever calls from this machine: to this owner."""
    return lambda connection: owner if is_local(connection) else None


def is_local(connection: HTTPConnection) -> bool:
    """Return whether a request comes from this machine, and calls it by a name that can mean no other.

    What pages of other sites have a browser send, also those of other ports of this machine, does not; nor does what a
    proxy passes on, whatever name it uses.
    """
    client, headers = connection.client, connection.headers
    host = headers.get("host", "")
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") or any(name in headers for name in _FORWARDED):
        return False
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return (
        (client is None or is_loopback(client.host)) and not any(sign in host for sign in "@/\\") and is_loopback(name)
    )


def is_loopback(host: str) -> bool:
    """Return whether a host name or address means this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
