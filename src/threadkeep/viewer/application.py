"""The viewer as an ASGI application, for a server of its own or mounted in another application."""

from __future__ import annotations

from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from threadkeep.errors import InvalidOption, NotFound
from threadkeep.store.aio import AsyncStore
from threadkeep.viewer import access as accesses
from threadkeep.viewer.access import Access, Token
from threadkeep.viewer.dashboard import tools_page, usage_csv, usage_page
from threadkeep.viewer.exporting import export_file
from threadkeep.viewer.finding import search_page
from threadkeep.viewer.listing import list_page
from threadkeep.viewer.media import media
from threadkeep.viewer.pages import (
    STATIC,
    SecureHeaders,
    Viewer,
    answer_error,
    asset,
    endpoint,
    error_page,
    nobody,
)
from threadkeep.viewer.seen import body_file, seen_page
from threadkeep.viewer.tailing import tail
from threadkeep.viewer.thread import fragment, thread_page
from threadkeep.web.keys import KeysOnceMade
from threadkeep.web.limits import BoundedHeads
from threadkeep.web.owners import Authenticate, Owner

_A_YEAR: Final = 31_536_000
SEE_OTHER: Final = 303


def app(
    store: AsyncStore,
    *,
    auth: Authenticate | None = None,
    token: str | None = None,
    token_once: bool = False,
    owner: Owner | None = None,
    sign_in: bool = False,
    keys: KeysOnceMade | None = None,
) -> Starlette:
    """Return the viewer, an ASGI application; mount it, or run it with a server such as uvicorn.

    It only reads. Without `auth`, pages are answered only to this machine, called by a name of this machine.

    Args:
        store: the database.
        auth: tells whose request it is, from a request of Starlette: an Owner, or None for nobody. What does not belong
            to that owner does not exist. The scope "read" is for conversations, "usage" for what they used.
        token: instead of `auth`: the address has to end with ``?token=`` and this text, or the browser to have opened
            such an address before, which gave it a cookie with another secret.
        token_once: accept the token only from the first browser that brings it.
        owner: what those without `auth` may see; by default everything.
        sign_in: show a form for a key to those whom `auth` does not know. The browser keeps the key in a cookie, and
            `auth` gets it as the header ``Authorization: Bearer …``.
        keys: once the database has keys, they are asked for as with `auth` and `sign_in`; until then, `token` and
            `owner` apply.

    Raises:
        InvalidOption: the arguments contradict each other.
    """
    if auth is not None and (token is not None or owner is not None or keys is not None):
        raise InvalidOption("cannot be combined with `token`, `owner` or `keys`.", argument="auth")
    if sign_in and auth is None:
        raise InvalidOption("needs `auth`, which is asked about the key.", argument="sign_in")
    access = Access(auth, _token(token, is_for_one=token_once), owner or Owner(), has_form=sign_in, keys=keys)
    routes = [
        Route("/", endpoint("read", list_page)),
        Route("/c/{id}", endpoint("read", thread_page)),
        Route("/c/{id}/items", endpoint("read", fragment)),
        Route("/c/{id}/tail", endpoint("read", tail)),
        Route("/c/{id}/export/{kind}", endpoint("read", export_file)),
        Route("/c/{id}/responses/{number}", endpoint("read", seen_page)),
        Route("/c/{id}/responses/{number}/body", endpoint("read", body_file)),
        Route("/search", endpoint("read", search_page)),
        Route("/usage", endpoint("usage", usage_page)),
        Route("/usage/tools", endpoint("usage", tools_page)),
        Route("/usage.csv", endpoint("usage", usage_csv)),
        Route("/media/{hash}", endpoint("read", media)),
        Route("/static/{name}", _static),
    ]
    if sign_in or keys is not None:
        routes += [
            Route("/sign-in", _sign_in, methods=["GET", "POST"]),
            Route("/sign-out", _sign_out, methods=["POST"]),
        ]
    made = Starlette(
        routes=routes,
        middleware=[Middleware(SecureHeaders), Middleware(BoundedHeads)],
        exception_handlers={HTTPException: answer_error, Exception: answer_error},
    )
    made.state.viewer = Viewer(store, access)
    return made


def _token(text: str | None, *, is_for_one: bool) -> Token | None:
    """The token of an address; None for none, of which nothing more can be asked."""
    if text is not None:
        return Token(text, is_for_one)
    if is_for_one:
        raise InvalidOption("needs `token`, which is accepted once.", argument="token_once")
    return None


async def _static(request: Request) -> Response:
    """A file that pages use. Its address has the hash of its content, so browsers may keep it."""
    name = request.path_params["name"]
    if name not in STATIC:
        return error_page(request, HTTPException(404, "There is no such file"))
    content, _ = asset(name)
    return Response(content, media_type=STATIC[name], headers={"cache-control": f"private, max-age={_A_YEAR}"})


async def _sign_in(request: Request) -> Response:
    """The form for a key, and what it sends."""
    try:
        access: Access = await request.app.state.viewer.access.now()
        if not access.has_form:
            return error_page(request, HTTPException(404, "There are no keys"))
        if request.method == "GET":
            return nobody(request, access)
        key = (await accesses.read_form(request)).get("key", "").strip()
        if not (key.isascii() and key.isprintable()):
            return nobody(request, access, "A key has only letters, digits and signs of ASCII.")
        if not await _is_known(request, access, key):
            return nobody(request, access, "This key is unknown, or not valid any more.")
    except Exception as error:  # noqa: BLE001 - logged, and shown without details
        return error_page(request, error)
    response = _to_the_list(request)
    accesses.keep_key(request, response, key)
    return response


async def _is_known(request: Request, access: Access, key: str) -> bool:
    """Whether a key is somebody's."""
    owner = await access.owner_of(accesses.present_key(request, key))
    if owner is None:
        return False
    try:
        await owner.store(request.app.state.viewer.store)
    except NotFound:
        return False
    return True


async def _sign_out(request: Request) -> Response:
    """Forget the key."""
    try:
        await accesses.read_form(request)
    except HTTPException as error:
        return error_page(request, error)
    response = _to_the_list(request)
    accesses.forget_key(request, response)
    return response


def _to_the_list(request: Request) -> Response:
    return RedirectResponse(request.scope.get("root_path", "").rstrip("/") + "/", SEE_OTHER)
