"""Answers of all faces: JSON, refusals before a face is asked, pictures, and pages of other sites (CORS, CSRF)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from threadkeep.domain.jsontext import dumps_finite
from threadkeep.errors import InvalidOption
from threadkeep.server.quotas import QuotaExceeded

HEADER: Final = "x-request-id"
# Images that a browser may show as they are: it runs nothing in them, unlike in SVG
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
EXPOSED: Final = ("etag", "location", "retry-after", "x-threadkeep-losses", HEADER)  # headers that pages can read
_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
_SECONDS: Final = 600  # for which a browser need not ask again
_ORIGIN: Final = re.compile(r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::[0-9]{1,5})?")
ANY: Final = "*"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})  # methods that change nothing
_OWN: Final = ("same-origin", "none")  # `Sec-Fetch-Site` of a site's own pages, and of what users type
_BY_BROWSERS: Final = ("basic", "digest", "negotiate", "ntlm")  # schemes of `Authorization`


class JsonAnswer(Response):
    """A response with a JSON body: a value, or its text."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the JSON text."""
        return content if isinstance(content, bytes) else dumps_finite(content)


def refusal(status: int, message: str, code: str, *, retry_after: int | None = None) -> Response:
    """Return an error as clients of OpenAI read it; `retry_after`: seconds after which a client may try again."""
    kind = "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004 - of the client, or the server
    error = {"message": message, "type": kind, "param": None, "code": code}
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return Response(dumps_finite({"error": error}), status, headers, "application/json")


def quota_refusal(error: QuotaExceeded) -> Response:
    """Return the answer to a request that a quota refuses while its answer is sent, where no handler of errors is."""
    return refusal(error.status_code, f"{error.detail}.", error.code or "", retry_after=error.wait)


def allow_origins(application: Starlette, origins: Collection[str]) -> None:
    """Let pages of these origins call an application; raise InvalidOption for what is no origin."""
    for origin in origins:
        if origin != ANY and not _ORIGIN.fullmatch(origin):
            hint = "An origin is as browsers send it, such as https://chat.example or http://localhost:5173; * is any."
            raise InvalidOption(f"has {origin!r}, which is no origin.", argument="cors", hint=hint)
    if origins:
        application.state.cors = {
            "allow_origins": [*origins], "allow_methods": _METHODS, "allow_headers": ["*"], "expose_headers": EXPOSED,
            "max_age": _SECONDS,
        }  # fmt: skip
        application.add_middleware(Origins, **application.state.cors)


class Origins(CORSMiddleware):
    """CORS headers for the answers of an application, unless its site has set them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or "has_cors" in scope.setdefault("state", {}):
            await self.app(scope, receive, send)
        else:
            scope["state"]["has_cors"] = True
            await super().__call__(scope, receive, send)


class OriginsOfFaces:
    """Middleware of a site: its own refusals carry the CORS headers of the face they are about."""

    def __init__(self, app: ASGIApp, faces: Mapping[str, Starlette]) -> None:
        """`faces` are in the order in which the site asks them."""
        self._app = app
        self._faces: dict[str, ASGIApp] = {
            f"{path}/": Origins(app, **face.state.cors) if hasattr(face.state, "cors") else app
            for path, face in faces.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope["path"] if scope["type"] == "http" else ""
        found = next((face for beginning, face in self._faces.items() if path.startswith(beginning)), self._app)
        await found(scope, receive, send)


class OwnPages:
    """Middleware that refuses what pages of other sites have a browser do in the name of its user (CSRF).

    That are requests which change something, and WebSockets, with what browsers add by themselves: cookies, or a
    password. Requests without an origin are not from pages. Browsers say whose page it is in `Sec-Fetch-Site`; without
    that, `Origin` must name the host that was asked.

    Source: Fetch Metadata; Go, `http.CrossOriginProtection`.
    """

    def __init__(self, app: ASGIApp, trusted: Collection[str] = ()) -> None:
        """`trusted` are other origins whose pages may do so; "*" is none, as for cookies in CORS."""
        self._app, self._trusted = app, frozenset(trusted) - {ANY}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] not in ("http", "websocket") or self._may_pass(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
            text = "Pages of another site cannot do this with the cookies of a user: name their origin in `cors`."
            await refusal(403, text, "cross_site")(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": ""})  # RFC 6455: a policy

    def _may_pass(self, scope: Scope) -> bool:
        if scope["type"] == "http" and scope["method"] in _SAFE:
            return True
        headers = Headers(scope=scope)
        scheme = headers.get("authorization", "").partition(" ")[0].lower()
        if "cookie" not in headers and scheme not in _BY_BROWSERS:
            return True
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin in self._trusted or site in _OWN:
            return True
        host = headers.get("host", "").lower()
        return site is None and (origin is None or origin.partition("://")[2].lower() == host)
