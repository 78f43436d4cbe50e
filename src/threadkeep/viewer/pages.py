"""What all pages share: who looks, templates, headers, and how errors become pages.

Where pages and files are made: in threads of their own, so that long texts keep no call of the store waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from jinja2 import Environment, PackageLoader, StrictUndefined
from sqlalchemy.exc import DBAPIError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from threadkeep import errors
from threadkeep.server import permissions, problems
from threadkeep.server.owners import Owner, Scope
from threadkeep.store.aio import AsyncStore
from threadkeep.store.store import Store
from threadkeep.viewer import texts
from threadkeep.viewer.access import Access, Forms, keep_secret, present_key, secret_of_forms
from threadkeep.viewer.filters import PAGES, SavedView, shared_pairs

MAX_FILES: Final = 8  # that are made or wait, in a process
RETRY_SECONDS: Final = 5  # after which somebody who wants too many may try again
_PAGE_THREADS: Final = 2
_LATER: Final = {"retry-after": str(RETRY_SECONDS)}


class Drawing:
    """Makes one page at a time for each owner, and one file, so that owners do not wait for each other's queues."""

    def __init__(self) -> None:
        self._for_pages = ThreadPoolExecutor(_PAGE_THREADS, "threadkeep-pages")
        self._for_files = ThreadPoolExecutor(1, "threadkeep-files")
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._files: set[Hashable] = set()  # names of owners
        self._downloads: set[Hashable] = set()

    async def page(self, owner: Owner, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function makes for a page, when it is this owner's turn."""
        turn = self._turns.setdefault(owner.name, asyncio.Lock())
        async with turn:
            return await _in(self._for_pages, function, *args, **kwargs)

    async def file(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function makes for a file that counts as `one_file`."""
        return await _in(self._for_files, function, *args, **kwargs)

    @contextmanager
    def one_file(self, owner: Owner) -> Iterator[None]:
        """Count a file while it is made.

        Raises:
            HTTPException: one is being made for this owner, or too many are.
        """
        if owner.name not in self._files and len(self._files) >= MAX_FILES:
            raise HTTPException(503, "Too many files are being made", headers=_LATER)
        with _one_of(self._files, owner, "made"):
            yield

    @contextmanager
    def one_download(self, owner: Owner) -> Iterator[None]:
        """Count a file that is sent while it is read, as slowly as its owner takes it; errors as for `one_file`."""
        with _one_of(self._downloads, owner, "downloaded"):
            yield


@contextmanager
def _one_of(files: set[Hashable], owner: Owner, done: str) -> Iterator[None]:
    if owner.name in files:
        raise HTTPException(429, f"Another file is being {done} with this key", headers=_LATER)
    files.add(owner.name)
    try:
        yield
    finally:
        files.discard(owner.name)


async def _in(threads: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, partial(function, *args, **kwargs))


logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # without any, browsers do not say which site sends a form
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
STATIC: Final = {"viewer.css": "text/css", "viewer.js": "text/javascript", "icon.svg": "image/svg+xml"}
UNAUTHORIZED: Final = 401
LIVE_SECONDS: Final = range(5, 3_601)  # after which pages can be renewed
SERVER_ERROR: Final = 500  # the first status of the server's own
# kind of error -> status; the first that fits applies
_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (errors.NotFound, 404), (errors.InvalidOption, 400), (errors.UnknownFormat, 400), (errors.PoolExhausted, 503),
    (errors.SchemaError, 503), (errors.DatabaseUnavailable, 503), (DBAPIError, 503),
)  # fmt: skip
_HEADINGS: Final = {
    400: "This cannot be shown",
    401: "Who are you?",
    403: "Not for you",
    404: "Not found",
    405: "This is for reading only",
    408: "Too slow",
    413: "Too large",
    429: "Too many at once",
    503: "Not now",
}


@dataclass(frozen=True, slots=True)
class Viewer:
    """The settings of the viewer: the database, and who may see it; and what goes on in it."""

    store: AsyncStore
    access: Access
    drawing: Drawing = field(default_factory=Drawing)
    forms: Forms = field(default_factory=Forms)
    saved: Callable[[Owner], Iterable[SavedView]] = lambda _: ()


class View(NamedTuple):
    """An authorized page: the request, the store limited to its owner, and the owner's scopes."""

    request: Request
    store: AsyncStore
    permission: permissions.Permission

    @property
    def scopes(self) -> frozenset[Scope]:
        """What they may do here: a store for all tenants has only pages about these, and others have none of them."""
        is_of_all = self.store.sync.handle.needs_tenant
        return frozenset(one for one in self.permission.owner.scopes if (one == "tenants") is is_of_all)

    async def read(self, function: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function makes of the store, without blocking."""
        return await self.store.run_sync(function, *args, **kwargs)

    @property
    def drawing(self) -> Drawing:
        """Where pages and files are made."""
        viewer: Viewer = self.request.app.state.viewer
        return viewer.drawing

    async def drawn(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function makes for this page, with no connection, because long texts take a while."""
        return await self.drawing.page(self.permission.owner, function, *args, **kwargs)

    def saved_views(self) -> list[tuple[str, str]]:
        """Return the names and addresses of the saved views that the reader may open."""
        viewer: Viewer = self.request.app.state.viewer
        base = self.request.scope.get("root_path", "").rstrip("/")
        views = () if "tenants" in self.scopes else viewer.saved(self.permission.owner)
        return [(one.name, f"{base}{one.path}?{one.query}") for one in views if PAGES[one.path] in self.scopes]

    def query(self, name: str) -> str | None:
        """Return a parameter of the address; None if it is absent or empty."""
        return self.request.query_params.get(name, "").strip() or None

    def number(self, name: str, default: int | None = None, least: int = 0) -> int | None:
        """Return a parameter that is a whole number.

        Raises:
            InvalidOption: it is none.
        """
        text = self.query(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 19) or int(text) < least:  # noqa: PLR2004 - 64 bits
            raise errors.InvalidOption(f"must be a whole number from {least} on, not {text[:40]!r}.", argument=name)
        return int(text)

    def live(self) -> int | None:
        """Return the seconds after which the reader wants the page renewed; None if it stays.

        Raises:
            InvalidOption: these are none.
        """
        seconds = self.number("live", least=LIVE_SECONDS.start)
        if seconds is not None and seconds not in LIVE_SECONDS:
            raise errors.InvalidOption(f"must be at most {LIVE_SECONDS[-1]} seconds, not {seconds}.", argument="live")
        return seconds

    def page(self, template: str, live: int | None = None, /, **values: Any) -> Response:
        """Return the page of a template; one that is `live` has no fields, whose texts a browser would lose."""
        kept = shared_pairs(self.request.query_params)
        page = render_page(self.request, template, 200, scopes=self.scopes, kept=kept, live=live, **values)
        if live is not None:
            page.headers["refresh"] = str(live)
        return page


Handler: TypeAlias = Callable[[View], Awaitable[Response]]


@cache
def environment() -> Environment:
    """Return the templates; whatever they show is escaped, and its invisible characters are written out."""
    made = Environment(
        loader=PackageLoader("threadkeep.viewer"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=texts.visible,
    )
    for name in (
        "count", "short_count", "money", "duration", "percent", "size", "moment", "short_moment", "first_line",
        "plain_line", "labels_text", "cut", "query_text", "named_tool", "money_padding", "day", "clock", "heading",
    ):  # fmt: skip
        made.filters[name] = getattr(texts, name)
    made.globals["asset"] = lambda name: f"{name}?{asset(name)[1]}"
    return made


@cache
def asset(name: str) -> tuple[bytes, str]:
    """Return a file that pages use, and the beginning of its hash."""
    content = files("threadkeep.viewer").joinpath("static", name).read_bytes()
    return content, sha256(content).hexdigest()[:12]


def render_page(request: Request, template: str, status: int, /, **values: Any) -> HTMLResponse:
    """Return a page. Links are written behind the path under which the viewer is mounted.

    A page with a form has a `secret`, which the form brings back; so have all pages of those who may sign out.
    """
    base = request.scope.get("root_path", "").rstrip("/")
    access: Access = request.app.state.viewer.access
    secret = secret_of_forms(request) if values.get("has_form") or access.can_forget(request) else None
    values = {
        "scopes": frozenset(), "kept": (), "live": None, "now": datetime.now(UTC), "base": base,
        "path": request.url.path, "query": request.query_params, "secret": secret,
        "can_sign_out": access.can_forget(request), **values,
    }  # fmt: skip
    values["with_query"] = lambda **changes: _with_query(request, changes)
    page = HTMLResponse(environment().get_template(template).render(values), status)
    if secret is not None:
        keep_secret(request, page, secret)
    return page


def _with_query(request: Request, changes: dict[str, Any]) -> str:
    """The address of the page with some parameters changed; None removes one."""
    pairs = [pair for pair in request.query_params.multi_items() if pair[0] not in changes and pair[1]]
    pairs += [(name, str(value)) for name, value in changes.items() if value is not None]
    return f"?{texts.query_text(pairs)}"


def endpoint(scope: Scope, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a page for those who have a scope; errors are pages, too."""

    async def answer(request: Request) -> Response:
        viewer: Viewer = request.app.state.viewer
        try:
            access = await viewer.access.now()
            return access.exchange(request) or await _answer(request, viewer.store, access, scope, handler)
        except Exception as error:  # noqa: BLE001 - logged, and shown without details
            return error_page(request, error)

    return answer


async def _answer(request: Request, store: AsyncStore, access: Access, scope: Scope, handler: Handler) -> Response:
    if access.has_form:
        request = present_key(request)
    owner = await access.owner_of(request)
    if owner is None:
        return nobody(request, access)
    if scope not in owner.scopes:
        raise HTTPException(403, f"This needs the scope {scope!r}")
    try:
        store = await owner.store(store)
    except errors.NotFound:
        return nobody(request, access)
    return await handler(View(request, store, permissions.Permission(request, access.asked, owner, scope)))


def nobody(request: Request, access: Access, problem: str | None = None) -> Response:
    """Return the page for those who are not known: with a form for a key, or how to get in."""
    if not access.has_form:
        detail = "These pages are only for those whom the application knows."
        if access.token is not None:
            detail = "Open the address that was printed when the server started: it ends with a token."
            if access.token.is_used and access.token.is_for_one:
                detail = "Another browser has opened these pages. Start the viewer again to open them in this one."
        return _problem(request, UNAUTHORIZED, detail)
    return render_page(request, "login.html", UNAUTHORIZED, problem=problem, has_form=True, can_sign_out=False)


def error_page(request: Request, error: Exception) -> Response:
    """Return the page of an error; of the server's own, nothing but that there was one."""
    if isinstance(error, HTTPException):
        return _problem(request, error.status_code, f"{error.detail}.", error.headers)
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), SERVER_ERROR)
    if not isinstance(error, errors.ThreadkeepError) or status >= SERVER_ERROR:
        logger.error("A page failed.", exc_info=error)
        is_ours = status == SERVER_ERROR
        return _problem(request, status, "The log has more." if is_ours else "The database cannot be used just now.")
    words = " ".join(part for part in (error.argument, error.message) if part)
    return _problem(request, status, words)


def _problem(request: Request, status: int, detail: str, headers: Any = None) -> Response:
    heading = _HEADINGS.get(status, "Something went wrong")
    page = render_page(request, "problem.html", status, heading=heading, detail=detail, status=status)
    page.headers.update(headers or {})
    return page


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer a request with the page of an error, where no endpoint does; with JSON if it does not ask for pages."""
    if not isinstance(error, HTTPException) or "text/html" in request.headers.get("accept", ""):
        return error_page(request, error)
    if error.status_code in (404, 405):
        detail = "No page has this path and method; the base_url of a client ends with the path of its API, as in /v1"
        error = HTTPException(error.status_code, detail, error.headers)
    return await problems.answer_problem(request, error)


class SecureHeaders:
    """Middleware that gives every answer the headers that keep what it shows harmless."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
