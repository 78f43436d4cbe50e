"""Who calls: the owner of what a request may see, and the authentication that names it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from datetime import datetime
from inspect import isawaitable
from ipaddress import ip_address
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from threadkeep.domain.api_keys import SCOPES, ApiScope
from threadkeep.errors import InvalidOption
from threadkeep.server.request_state import note_owner
from threadkeep.store.aio import AsyncStore, begun_at
from threadkeep.store.history_sync.sync import short_digest

Scope: TypeAlias = ApiScope | Literal["tenants"]
KNOWN_SCOPES: Final[frozenset[Scope]] = SCOPES | frozenset({"tenants"})


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose conversations a request may see, and what it may do with them.

    Attributes:
        user_id: the user; None for all users.
        tenant: the name of the tenant; None in a database without tenants.
        scopes: any of "read", "write" and "usage"; "tenants" for reports over all tenants, which no key in the database
            has, and nothing but an owner without a tenant gets.
        key: the id of the key that was used, for logs and limits; None without keys.
        names_user: whether the request names the user, with a key for all users.
    """

    user_id: str | None = None
    tenant: str | None = None
    scopes: frozenset[Scope] = SCOPES
    key: str | None = None
    names_user: bool = False

    def __post_init__(self) -> None:
        if unknown := self.scopes - KNOWN_SCOPES:
            known = ", ".join(sorted(KNOWN_SCOPES))
            raise InvalidOption(f"cannot have {', '.join(sorted(unknown))}; known are {known}.", argument="scopes")

    @property
    def name(self) -> Hashable:
        """What requests of this owner are counted by: the key, or else tenant and user."""
        return self.key or (self.tenant, self.user_id)

    async def store(self, store: AsyncStore, since: datetime | None = None) -> AsyncStore:
        """Return the store, limited to what this owner has: everything else does not exist in it.

        `since` is when the work began for which it is: it writes nothing about users who were erased later.

        Raises:
            NotFound: there is no such tenant.
        """
        if self.tenant is not None:
            store = await store.for_tenant(self.tenant)
        store = store if self.user_id is None else store.for_user(self.user_id)
        return store if since is None else begun_at(store, since)


KEY: Final = "x-threadkeep-key"  # where Authorization is a provider's
USER: Final = "x-threadkeep-user"  # the user for whom a request is made, with a key for all users
MAX_USER_BYTES: Final = 255  # of a user's id in UTF-8
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")  # headers of proxies, whose callers are elsewhere

Authenticate: TypeAlias = Callable[[HTTPConnection], Owner | Awaitable[Owner | None] | None]


class HeaderRefused(HTTPException):
    """A header by which a request may not be made, or which is there twice; `code` is the answer's."""

    def __init__(self, status: int, detail: str, code: str) -> None:
        super().__init__(status, detail)
        self.code = code


def check_once(headers: Headers, *names: str) -> None:
    """Raise HeaderRefused for a header that is there twice: which one is meant cannot be known."""
    for name in names:
        if (count := len(headers.getlist(name))) > 1:
            raise HeaderRefused(400, f"{name} must be there once, not {count} times", "invalid_value")


async def owner_of(connection: HTTPConnection, authenticate: Authenticate | None) -> Owner | None:
    """Return the owner of a request, on every face of a server; None if there is none.

    Without authentication, requests from this machine own everything, if they call it by a name of this machine: pages
    of other sites, whose host names may point here, do not. An owner of all users' data owns the data of one user in
    requests that name that user, see `on_behalf`.

    Raises:
        HTTPException: the owner has too many requests in flight.
        HeaderRefused: there are two keys, or the request is made for a user for whom this owner may not call.
        TypeError: `authenticate` returns something else.
    """
    check_once(connection.headers, "Authorization", KEY)
    owner = await _authenticated(connection, authenticate)
    return None if owner is None else on_behalf(owner, connection.headers)


async def _authenticated(connection: HTTPConnection, authenticate: Authenticate | None) -> Owner | None:
    if authenticate is None:
        return Owner() if is_local(connection) else None
    owner = await authenticated(connection, authenticate)
    if owner is not None:
        note_owner(owner.name)
    if owner is not None and owner.key is not None:
        connection.scope.setdefault("state", {})["key"] = owner.key
    return owner


async def authenticated(connection: HTTPConnection, authenticate: Authenticate) -> Owner | None:
    """Return the owner whom `authenticate` returns, at once or when it is awaited.

    Raises:
        TypeError: it returns something else.
    """
    found: Any = authenticate(connection)
    owner = await found if isawaitable(found) else found
    if owner is None or isinstance(owner, Owner):
        return owner
    # its value may be the key itself, which is not for logs
    raise TypeError(f"auth must return an Owner or None, not a value of the type {type(owner).__name__}")


def on_behalf(owner: Owner, headers: Headers) -> Owner:
    """Return the owner of a request with these headers: ``x-threadkeep-user`` limits an owner of all users to one.

    Raises:
        HeaderRefused: the header is empty, too long or there twice (400), or names another user than the owner's (403).
    """
    check_once(headers, USER)
    if USER not in headers:
        return owner
    user_id = _decoded(headers[USER])
    if not user_id or len(user_id.encode("utf-8", "surrogatepass")) > MAX_USER_BYTES:
        raise HeaderRefused(400, f"{USER} must be the id of a user, of 1 to {MAX_USER_BYTES} bytes", "invalid_value")
    if owner.user_id not in (None, user_id):
        raise HeaderRefused(403, f"The key is not for the user that {USER} names", "wrong_user")
    return owner if owner.user_id is not None else replace(owner, user_id=user_id, names_user=True)


def _decoded(value: str) -> str:
    """The value of a header in UTF-8, or else Latin-1."""
    try:
        return value if value.isascii() else value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def local_owner(owner: Owner) -> Authenticate:
    """Return the authentication by which everything belongs to this owner, for calls from this machine."""
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


# Names that applications give: with a key of one user, they are that user's, and others cannot learn them

_DIGITS: Final = 16  # of the digest of a user, which ends its names


def own_name(name: str, user_id: str | None) -> str:
    """Return the `external_id` under which a conversation is stored: with a user, one of that user alone."""
    return name if user_id is None or not name else f"{name}{_end(user_id)}"


def shown_name(name: str | None, user_id: str | None) -> str | None:
    """Return an `external_id` as the application of its user knows it."""
    return name if name is None or user_id is None else name.removesuffix(_end(user_id))


def own_key(key: str | None, user_id: str | None) -> str | None:
    """Return the idempotency key of what is created: with a user, one of that user alone."""
    return key if user_id is None or not key else short_digest(f"{user_id}\0{key}")


def known_names(name: str, user_id: str | None) -> list[str]:
    """Return the names by which a user (None: any) may have a conversation, of an `external_id`."""
    return [name] if user_id is None else [name, own_name(name, user_id)]


def _end(user_id: str) -> str:
    return f"@{short_digest(user_id)[:_DIGITS]}"
