"""Who may see the pages: the application's own authentication, a token of the start, or whoever is on this machine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import compare_digest, token_urlsafe
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response

from threadkeep.web.keys import KeysOnceMade
from threadkeep.web.owners import Authenticate, Owner, is_local, owner_of

KEY_COOKIE: Final = "threadkeep_key"
FORM_COOKIE: Final = "threadkeep_form"
KEY_SECONDS: Final = 12 * 60 * 60
MAX_FORM_BYTES: Final = 8_192
FORM_SECONDS: Final = 5.0  # for which a form may take to arrive
SEE_OTHER: Final = 303
FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class Access:
    """How the owner of a request is found.

    Attributes:
        authenticate: tells the owner of a request; None for whoever is on this machine.
        token: what the address that was printed at the start contains, and from then on a cookie; None for none.
        owner: what whoever has the token, or is on this machine, may see.
        has_form: whether somebody without a key is asked for one.
        keys: what is asked instead, once the database has keys; None for nothing.
    """

    authenticate: Authenticate | None = None
    token: str | None = None
    owner: Owner = field(default_factory=Owner)
    has_form: bool = False
    keys: KeysOnceMade | None = None

    async def now(self) -> Access:
        """Return how the owner of a request is found now that there may be keys."""
        if self.keys is None or not await self.keys.are_made():
            return self
        return Access(self.keys.keys, has_form=True)

    async def owner_of(self, request: Request) -> Owner | None:
        """Return the owner of a request; None for nobody."""
        if self.authenticate is not None:
            return await owner_of(request, self.authenticate)
        if not is_local(request):
            return None
        if self.token is None:
            return self.owner
        return self.owner if _is_same(request.cookies.get(self.token_cookie), self.token) else None

    async def asked(self, connection: HTTPConnection) -> Owner | None:
        """Return the owner of a request as it is found now; None for nobody: an `Authenticate`."""
        return await (await self.now()).owner_of(Request(connection.scope))

    @property
    def token_cookie(self) -> str:
        """The name of the cookie: cookies are not told apart by ports, and several viewers may run."""
        return f"threadkeep_{sha256((self.token or '').encode()).hexdigest()[:12]}"

    def exchange(self, request: Request) -> Response | None:
        """Return the redirect to the address without the token, which sets the cookie; None without a valid token."""
        if self.token is None or not is_local(request):
            return None
        if not _is_same(request.query_params.get("token"), self.token):
            return None
        rest = urlencode([pair for pair in parse_qsl(request.url.query, keep_blank_values=True) if pair[0] != "token"])
        response = RedirectResponse(request.url.path + (f"?{rest}" if rest else ""), SEE_OTHER)
        _set_cookie(response, request, self.token_cookie, self.token)
        return response


def _is_same(given: str | None, token: str) -> bool:
    return given is not None and compare_digest(given.encode(), token.encode())


def _set_cookie(response: Response, request: Request, name: str, value: str, seconds: int | None = None) -> None:
    secure, path = request.url.scheme == "https", request.scope.get("root_path") or "/"
    response.set_cookie(name, value, max_age=seconds, path=path, secure=secure, httponly=True, samesite="strict")


# Signing in with a key


def present_key(request: Request) -> None:
    """Let a request with the cookie of a key carry it as `Authorization`, as programs send it."""
    key = request.cookies.get(KEY_COOKIE)
    if key is not None and "authorization" not in request.headers:
        header = (b"authorization", b"Bearer " + key.encode("latin-1", "replace"))
        request.scope["headers"] = [*request.scope["headers"], header]
        vars(request).pop("_headers", None)


def offer_form(request: Request, response: Response) -> str:
    """Give whoever gets a form a secret that it has to bring back; return it. Forms of one browser share it."""
    secret = request.cookies.get(FORM_COOKIE) or token_urlsafe(24)
    _set_cookie(response, request, FORM_COOKIE, secret)
    return secret


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that was sent by a page of this site, with the secret that it was given.

    Raises:
        HTTPException: it comes from elsewhere, is too large, or takes too long.
    """
    origin = request.headers.get("origin")
    if origin != f"{request.url.scheme}://{request.headers.get('host', '')}":
        raise HTTPException(FORBIDDEN, "The form was not sent by a page of this site")
    secret = request.cookies.get(FORM_COOKIE)
    try:
        async with asyncio.timeout(FORM_SECONDS):
            body = b"" if secret is None else await _read_body(request)
    except TimeoutError as error:
        raise HTTPException(408, "The form took too long to arrive") from error
    fields = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
    if secret is None or not _is_same(fields.get("form"), secret):
        raise HTTPException(FORBIDDEN, "The form is out of date: open it again")
    return fields


async def _read_body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, "The form is too large")
    return body


def keep_key(request: Request, response: Response, key: str) -> None:
    """Set the cookie of a key."""
    _set_cookie(response, request, KEY_COOKIE, key, KEY_SECONDS)


def forget_key(request: Request, response: Response) -> None:
    """Remove the cookies of keys and forms."""
    path = request.scope.get("root_path") or "/"
    for name in (KEY_COOKIE, FORM_COOKIE):
        response.delete_cookie(name, path=path)
