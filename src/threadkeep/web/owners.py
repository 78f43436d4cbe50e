"""Who calls: the owner of what a request may see, and the authentication that names it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from inspect import isawaitable
from ipaddress import ip_address
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
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
        names_user: whether the request names the user, with a key for all users.
    """

    user_id: str | None = None
    tenant: str | None = None
    scopes: frozenset[Scope] = SCOPES
    key: str | None = None
    names_user: bool = False

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


USER: Final = "x-threadkeep-user"  # the user for whom a request is made, with a key for all users
MAX_USER_BYTES: Final = 255  # of a user's id in UTF-8
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")  # headers of proxies, whose callers are elsewhere

Authenticate: TypeAlias = Callable[[HTTPConnection], Owner | Awaitable[Owner | None] | None]


class UserRefused(HTTPException):
    """The header ``x-threadkeep-user`` names no user for whom the request may be made; `code` is that of the answer."""

    def __init__(self, status: int, detail: str, code: str) -> None:
        super().__init__(status, detail)
        self.code = code


async def owner_of(connection: HTTPConnection, authenticate: Authenticate | None) -> Owner | None:
    """Return the owner of a request, on every face of a server; None if there is none.

    Without authentication, requests from this machine own everything, if they call it by a name of this machine: pages
    of other sites, whose host names may point here, do not. An owner of all users' data owns the data of one user in
    requests that name that user, see `on_behalf`.

    Raises:
        HTTPException: the owner has too many requests in flight.
        UserRefused: the request is made for a user for whom this owner may not call.
    """
    owner = await _authenticated(connection, authenticate)
    return None if owner is None else on_behalf(owner, connection.headers)


async def _authenticated(connection: HTTPConnection, authenticate: Authenticate | None) -> Owner | None:
    if authenticate is None:
        return Owner() if is_local(connection) else None
    found: Any = authenticate(connection)
    owner: Owner | None = await found if isawaitable(found) else found
    if owner is not None:
        note_owner(owner.name)
    if owner is not None and owner.key is not None:
        connection.scope.setdefault("state", {})["key"] = owner.key
    return owner


def on_behalf(owner: Owner, headers: Headers) -> Owner:
    """Return the owner of a request with these headers: ``x-threadkeep-user`` limits an owner of all users to one.

    Raises:
        UserRefused: the header is empty, too long or there twice (400), or names another user than the owner's (403).
    """
    named = [_decoded(value) for value in headers.getlist(USER)]
    if not named:
        return owner
    if len(named) > 1:
        raise UserRefused(400, f"{USER} must be there once, not {len(named)} times", "invalid_value")
    [user_id] = named
    if not user_id or len(user_id.encode("utf-8", "surrogatepass")) > MAX_USER_BYTES:
        raise UserRefused(400, f"{USER} must be the id of a user, of 1 to {MAX_USER_BYTES} bytes", "invalid_value")
    if owner.user_id not in (None, user_id):
        raise UserRefused(403, f"The key is not for the user that {USER} names", "wrong_user")
    return owner if owner.user_id is not None else replace(owner, user_id=user_id, names_user=True)


def _decoded(value: str) -> str:
    """The value of a header in UTF-8, or else Latin-1."""
    try:
        return value if value.isascii() else value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


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
