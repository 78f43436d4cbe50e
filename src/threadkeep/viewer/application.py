"""The viewer as an ASGI application, for a server of its own or mounted in another application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from threadkeep.errors import InvalidOption, NotFound
from threadkeep.server import answers, limits, owners
from threadkeep.server.keys import KeysOnceMade
from threadkeep.store.aio import AsyncStore
from threadkeep.viewer import access as accesses
from threadkeep.viewer import comparing, dashboard, exporting, listing, pages, requests, thread
from threadkeep.viewer.access import Access, Token
from threadkeep.viewer.filters import SavedView

DOCUMENTS: Final = frozenset({"application/pdf"})  # told by their type, but only to be saved
UNKNOWN: Final = "application/octet-stream"
_DAY: Final = 86_400


async def media(view: pages.View) -> Response:
    """Answer with stored media: pictures as they are, everything else as a download."""
    name = view.request.path_params["hash"]
    try:
        found = await view.store.media(name)
    except InvalidOption as error:
        raise NotFound("There are no such media.") from error
    media_type = (found.media_type or "").lower()
    headers = {
        "cache-control": f"private, max-age={_DAY}",
        "vary": "Authorization, Cookie",
        "content-security-policy": "default-src 'none'; sandbox",
    }
    if media_type not in answers.PICTURES:
        headers["content-disposition"] = f"attachment; filename={quote(found.hash[:12])}"
        media_type = media_type if media_type in DOCUMENTS else UNKNOWN
    return Response(found.content, media_type=media_type, headers=headers)


_A_YEAR: Final = 31_536_000
SEE_OTHER: Final = 303


def app(
    store: AsyncStore,
    *,
    auth: owners.Authenticate | None = None,
    token: str | None = None,
    token_once: bool = False,
    owner: owners.Owner | None = None,
    sign_in: bool = False,
    keys: KeysOnceMade | None = None,
    saved_views: Mapping[str, str] | Callable[[owners.Owner], Mapping[str, str]] | None = None,
) -> Starlette:
    """Return the viewer, an ASGI application; mount it, or run it with a server such as uvicorn.

    It only reads. Without `auth`, pages are answered only to this machine, called by a name of this machine.

    Args:
        store: the database.
        auth: returns the Owner of a Starlette request, or None to refuse it. Ids of other owners return 404. The scope
            "read" is for conversations, "usage" for what they used; together with "tenants" for what
            all tenants used, if the store has some and the owner is of none.
        token: instead of `auth`: the address has to end with ``?token=`` and this text, or the browser to have opened
            such an address before, which gave it a cookie with another secret.
        token_once: accept the token only from the first browser that brings it.
        owner: what those without `auth` may see; by default everything.
        sign_in: show a form for a key to those whom `auth` does not know. The browser keeps the key in a cookie, and
            `auth` gets it as the header ``Authorization: Bearer …``.
        keys: once the database has keys, they are asked for as with `auth` and `sign_in`; until then, `token` and
            `owner` apply.
        saved_views: names of filters, and their addresses without the path of the viewer, such as ``{"Failures of this
            week": "/?errors=1&days=7"}``. Pages with filters show them to owners without tenant and user; a
            function returns those of any Owner.

    Raises:
        InvalidOption: the arguments contradict each other, or an address of a saved view has no filters.
    """
    if auth is not None and (token is not None or owner is not None or keys is not None):
        raise InvalidOption("cannot be combined with `token`, `owner` or `keys`.", argument="auth")
    if sign_in and auth is None:
        raise InvalidOption("needs `auth`, which is asked about the key.", argument="sign_in")
    access = Access(auth, _token(token, is_for_one=token_once), owner or owners.Owner(), has_form=sign_in, keys=keys)
    routes = [
        Route("/", pages.endpoint("read", listing.list_page)),
        Route("/c/{id}", pages.endpoint("read", thread.thread_page)),
        Route("/c/{id}/items", pages.endpoint("read", thread.fragment)),
        Route("/c/{id}/tail", pages.endpoint("read", thread.tail)),
        Route("/c/{id}/export/{kind}", pages.endpoint("read", exporting.export_file)),
        Route("/c/{id}/responses/{number}", pages.endpoint("read", requests.seen_page)),
        Route("/c/{id}/responses/{number}/body", pages.endpoint("read", requests.body_file)),
        Route("/compare", pages.endpoint("read", comparing.compare_page)),
        Route("/search", pages.endpoint("read", listing.search_page)),
        Route("/usage", pages.endpoint("usage", dashboard.usage_page)),
        Route("/usage/tools", pages.endpoint("usage", dashboard.tools_page)),
        Route("/tenants", pages.endpoint("usage", dashboard.tenants_page)),
        Route("/tenant", pages.endpoint("usage", dashboard.tenant_page)),
        Route("/usage.csv", pages.endpoint("usage", dashboard.usage_csv)),
        Route("/media/{hash}", pages.endpoint("read", media)),
        Route("/static/{name}", _static),
    ]
    if sign_in or keys is not None:
        routes += [
            Route("/sign-in", _sign_in, methods=["GET", "POST"]),
            Route("/sign-out", _sign_out, methods=["POST"]),
        ]
    made = Starlette(
        routes=routes,
        middleware=[Middleware(pages.SecureHeaders), Middleware(answers.OwnPages), Middleware(limits.BoundedHeads)],
        exception_handlers={HTTPException: pages.answer_error, Exception: pages.answer_error},
    )
    made.state.viewer = pages.Viewer(store, access, saved=_saved(saved_views or {}))
    return made


def _saved(
    views: Mapping[str, str] | Callable[[owners.Owner], Mapping[str, str]],
) -> Callable[[owners.Owner], list[SavedView]]:
    """A function that returns the saved views of an owner; those for all are not for tenants and users.

    Names and filters may say whom there is besides.
    """
    if callable(views):
        return lambda owner: [SavedView.of(*pair) for pair in views(owner).items()]
    known = [SavedView.of(*pair) for pair in views.items()]
    return lambda owner: known if owner.user_id is None and owner.tenant is None else []


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
    if name not in pages.STATIC:
        return pages.error_page(request, HTTPException(404, "There is no such file"))
    content, _ = pages.asset(name)
    return Response(content, media_type=pages.STATIC[name], headers={"cache-control": f"private, max-age={_A_YEAR}"})


async def _sign_in(request: Request) -> Response:
    """The form for a key, and what it sends."""
    try:
        access: Access = await request.app.state.viewer.access.now()
        if not access.has_form:
            return pages.error_page(request, HTTPException(404, "There are no keys"))
        if request.method == "GET":
            return pages.nobody(request, access)
        key = (await accesses.read_form(request)).get("key", "").strip()
        if not (key.isascii() and key.isprintable()):
            return pages.nobody(request, access, "A key has only letters, digits and signs of ASCII.")
        if not await _is_known(request, access, key):
            return pages.nobody(request, access, "This key is unknown, or not valid any more.")
    except Exception as error:  # noqa: BLE001 - logged, and shown without details
        return pages.error_page(request, error)
    response = _to_the_list(request)
    accesses.keep_key(request, response, key)
    return response


async def _is_known(request: Request, access: Access, key: str) -> bool:
    """Whether a key exists."""
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
        return pages.error_page(request, error)
    response = _to_the_list(request)
    accesses.forget_key(request, response)
    return response


def _to_the_list(request: Request) -> Response:
    return RedirectResponse(request.scope.get("root_path", "").rstrip("/") + "/", SEE_OTHER)
