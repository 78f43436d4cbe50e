"""Access to the pages: the application's own authentication, a token of the start, or requests from this machine."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import compare_digest, token_urlsafe
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response

from threadkeep.server.keys import KeysOnceMade
from threadkeep.server.owners import Authenticate, Owner, is_local, on_behalf, owner_of

KEY_COOKIE: Final = "threadkeep_key"
FORM_COOKIE: Final = "threadkeep_form"
KEY_SECONDS: Final = 12 * 60 * 60
MAX_FORM_BYTES: Final = 8_192
FORM_SECONDS: Final = 5.0  # for which a form may take to arrive
MAX_FORMS: Final = 20  # that arrive at once
SEE_OTHER: Final = 303
FORBIDDEN: Final = 403


@dataclass(slots=True)
class Token:
    """What an address has to contain, to be exchanged for a cookie with another secret.

    Attributes:
        text: the token in the address, which others may read: in the command line of the browser, or in its history.
        is_for_one: whether only one browser may exchange it.
        is_used: whether one has.
        secret: what the cookie contains.
    """

    text: str
    is_for_one: bool = False
    is_used: bool = False
    secret: str = field(default_factory=lambda: token_urlsafe(24))

    @property
    def cookie(self) -> str:
        """The name of the cookie: browsers share cookies between ports, and several viewers may run."""
        return f"threadkeep_{sha256(self.text.encode()).hexdigest()[:12]}"

    def is_kept_by(self, request: Request) -> bool:
        """Return whether a request has the cookie."""
        return _is_same(request.cookies.get(self.cookie), self.secret)

    def is_accepted(self, request: Request) -> bool:
        """Return whether the address of a request has the token, and the browser may exchange it."""
        if request.method != "GET" or not _is_same(request.query_params.get("token"), self.text):
            return False
        return self.is_kept_by(request) or not (self.is_for_one and self.is_used)


@dataclass(frozen=True, slots=True)
class Access:
    """How the owner of a request is found.

    Attributes:
        authenticate: returns the owner of a request; None to accept any request from this machine.
        token: what the address that was printed at the start contains; None for none.
        owner: for requests with the token, or from this machine.
        has_form: whether a request without a key gets a form for one.
        keys: what is asked instead, once the database has keys; None for nothing.
    """

    authenticate: Authenticate | None = None
    token: Token | None = None
    owner: Owner = field(default_factory=Owner)
    has_form: bool = False
    keys: KeysOnceMade | None = None

    def can_forget(self, request: Request) -> bool:
        """Return whether there is a key to sign out from: the browser keeps one."""
        return (self.has_form or self.keys is not None) and KEY_COOKIE in request.cookies

    async def now(self) -> Access:
        """Return how the owner of a request is found now that there may be keys."""
        if self.keys is None or not await self.keys.are_made():
            return self
        return Access(self.keys.keys, has_form=True)

    async def owner_of(self, request: Request) -> Owner | None:
        """Return the owner of a request; None without access."""
        if self.authenticate is not None:
            return await owner_of(request, self.authenticate)
        if not is_local(request):
            return None
        is_known = self.token is None or self.token.is_kept_by(request)
        return on_behalf(self.owner, request.headers) if is_known else None

    async def asked(self, connection: HTTPConnection) -> Owner | None:
        """Return the current owner of a request; None without access: an `Authenticate`."""
        return await (await self.now()).owner_of(Request(connection.scope))

    def exchange(self, request: Request) -> Response | None:
        """Return the redirect to the address without the token, which sets the cookie; None without a valid token."""
        if self.token is None or not is_local(request) or not self.token.is_accepted(request):
            return None
        self.token.is_used = True
        rest = urlencode([pair for pair in parse_qsl(request.url.query, keep_blank_values=True) if pair[0] != "token"])
        response = RedirectResponse(request.url.path + (f"?{rest}" if rest else ""), SEE_OTHER)
        _set_cookie(response, request, self.token.cookie, self.token.secret)
        return response


def _is_same(given: str | None, token: str) -> bool:
    return given is not None and compare_digest(given.encode(), token.encode())


def _set_cookie(response: Response, request: Request, name: str, value: str, seconds: int | None = None) -> None:
    secure, path = request.url.scheme == "https", request.scope.get("root_path") or "/"
    response.set_cookie(name, value, max_age=seconds, path=path, secure=secure, httponly=True, samesite="strict")


# Signing in with a key


def present_key(request: Request, key: str | None = None) -> Request:
    """Return a request that carries a key as `Authorization`, as programs send it: by default, its cookie's."""
    key = request.cookies.get(KEY_COOKIE) if key is None else key
    if key is None or "authorization" in request.headers:
        return request
    header = (b"authorization", b"Bearer " + key.encode("latin-1", "replace"))
    return Request({**request.scope, "headers": [*request.scope["headers"], header]}, request.receive)


def secret_of_forms(request: Request) -> str:
    """Return the secret that forms have to bring back: the browser's cookie, or a new one."""
    return request.cookies.get(FORM_COOKIE) or token_urlsafe(24)


def keep_secret(request: Request, response: Response, secret: str) -> None:
    """Set the cookie of the secret of forms."""
    if request.cookies.get(FORM_COOKIE) != secret:
        _set_cookie(response, request, FORM_COOKIE, secret)


class Forms:
    """The forms that are arriving from unknown clients: only so many, the latest."""

    def __init__(self, most: int = MAX_FORMS) -> None:
        self._most, self._arriving = most, OrderedDict[asyncio.Timeout, None]()

    @asynccontextmanager
    async def one_more(self) -> AsyncIterator[None]:
        """Wait for a form; if there are too many, the one that has been waited for longest is given up.

        Raises:
            TimeoutError: it did not arrive in time, or was given up.
        """
        async with asyncio.timeout(FORM_SECONDS) as patience:
            self._arriving[patience] = None
            try:
                if len(self._arriving) > self._most:
                    longest, _ = self._arriving.popitem(last=False)
                    if not longest.expired():
                        longest.reschedule(asyncio.get_running_loop().time())
                yield
            finally:
                self._arriving.pop(patience, None)


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
        async with request.app.state.viewer.forms.one_more():
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
