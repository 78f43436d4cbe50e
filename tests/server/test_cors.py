"""Pages of other sites that call the server from a browser: none, unless their origins are named."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx2
import pytest

from tests.server.conftest import Bridge
from tests.server.scripts import Scripted
from threadkeep import viewer
from threadkeep.errors import InvalidOption
from threadkeep.http import Limits, Owner, Upstream, app, rest_app, site
from threadkeep.server.limits import MAX_HEADERS, rated
from threadkeep.server.quotas import Rates

pytestmark = pytest.mark.one_database

SITE, OTHER = "https://chat.example", "https://other.example"
FACES: Any = {"/v1": app, "/api": rest_app}


def client(served: Any, prefix: str, **options: Any) -> httpx2.Client:
    application = FACES[prefix](served.store, **{"auth": lambda _: Owner(), **options})
    return httpx2.Client(transport=Bridge(served.runner, application), base_url=f"http://localhost{prefix}")


def preflight(http: httpx2.Client, origin: str) -> httpx2.Response:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}
    return http.options("/conversations", headers={"origin": origin, **asked})


@pytest.mark.parametrize("prefix", FACES)
def test_a_page_of_a_named_site_may_call_and_read_headers(served: Any, prefix: str) -> None:
    http = client(served, prefix, cors=[SITE])
    asked = preflight(http, SITE)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == SITE
    assert "x-stainless-os" in asked.headers["access-control-allow-headers"]
    answer = http.get("/conversations", headers={"origin": SITE})
    assert answer.headers["access-control-allow-origin"] == SITE
    assert "x-threadkeep-losses" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers  # keys are headers, and cookies none


@pytest.mark.parametrize("prefix", FACES)
@pytest.mark.parametrize("cors", [[], [SITE]])
def test_a_page_of_another_site_is_told_nothing(served: Any, prefix: str, cors: list[str]) -> None:
    http = client(served, prefix, cors=cors)
    assert "access-control-allow-origin" not in preflight(http, OTHER).headers
    assert "access-control-allow-origin" not in http.get("/conversations", headers={"origin": OTHER}).headers


def test_errors_and_streams_can_be_read_as_well(served: Any) -> None:
    scripted = Scripted("messages")
    scripted.will_say("Hello.")
    http = client(served, "/v1", cors=["*"], upstreams={"*": scripted.upstream})
    body = {"model": "any", "input": "Hi", "stream": True}
    for answer in (
        http.get("/conversations/none", headers={"origin": SITE}),
        http.post("/responses", json=body, headers={"origin": SITE}),
    ):
        assert answer.headers["access-control-allow-origin"] == "*"


# Refusals


async def silent(_payload: Any, _model: str) -> AsyncGenerator[Any]:
    yield await asyncio.Event().wait()


def visited(served: Any, prefix: str, limits: Limits | None = None, **options: Any) -> Any:
    """A site of one face, which a page of another site calls; its owner has the key in the header."""

    def who(request: Any) -> Owner | None:
        return Owner(scopes=frozenset([request.headers["authorization"]]))

    upstreams = {"silent": Upstream("silent", "messages", silent)}
    made = {"auth": who, "upstreams": upstreams, "cors": [SITE], "prefix": "", **options}
    return site({prefix: FACES[prefix](served.store, **made), "": rest_app(served.store, prefix="")}, limits=limits)


def asking(prefix: str, id: str) -> tuple[str, dict[str, str]]:
    """The path and the body of a request to the model that never answers."""
    if prefix == "/v1":
        return "/v1/responses", {"model": "silent", "input": "Hi", "conversation": id}
    return f"/api/conversations/{id}/messages", {"model": "silent", "content": "Hi"}


async def answers(application: Any, *requests: dict[str, Any], origin: str = SITE) -> list[httpx2.Response]:
    """What a page gets for requests that it sends at once."""
    transport = httpx2.ASGITransport(app=application, raise_app_exceptions=False)
    headers = {"origin": origin, "authorization": "write"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        return await asyncio.gather(*(http.request(**request) for request in requests))


def check_readable(answer: httpx2.Response, status: int) -> None:
    """Check that a page can read a refusal, and its headers."""
    assert answer.status_code == status, answer.text
    assert answer.headers["access-control-allow-origin"] == SITE
    assert answer.headers["vary"] == "Origin"
    assert "retry-after" in answer.headers["access-control-expose-headers"]


def in_pieces() -> Iterator[bytes]:
    yield from [b" " * 600] * 2


REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "scope": (403, {"method": "GET", "url": "/conversations"}),
    "id": (404, {"method": "DELETE", "url": "/conversations/conv_0"}),
    "path": (404, {"method": "GET", "url": "/nothing"}),
    "method": (405, {"method": "PUT", "url": "/conversations"}),
    "body": (413, {"method": "POST", "url": "/conversations", "content": b" " * 1_001}),
    "headers": (431, {"method": "GET", "url": "/conversations", "headers": [("x", "1")] * MAX_HEADERS}),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("prefix", FACES)
def test_a_page_can_read_refusals(served: Any, prefix: str, kind: str) -> None:
    status, request = REFUSED[kind]
    application = visited(served, prefix, Limits(max_body_bytes=1_000))
    request = {**request, "url": prefix + request["url"]}
    [answer] = served.runner.run(answers(application, request))
    check_readable(answer, status)
    [other] = served.runner.run(answers(application, request, origin=OTHER))
    assert (other.status_code, "access-control-allow-origin" in other.headers) == (status, False)


@pytest.mark.parametrize("prefix", FACES)
def test_a_page_can_read_that_its_key_is_none_or_asks_too_often(served: Any, prefix: str) -> None:
    auth = rated(lambda request: Owner() if request.headers["authorization"] == "write" else None, Rates(1))
    application, request = visited(served, prefix, auth=auth), {"method": "GET", "url": f"{prefix}/conversations"}
    for status, key in (401, "none"), (200, "write"), (429, "write"):
        [answer] = served.runner.run(answers(application, {**request, "headers": {"authorization": key}}))
        check_readable(answer, status)


@pytest.mark.parametrize(("most", "statuses"), [(1, [503, 504]), (4, [429, 504, 504, 504])])
@pytest.mark.parametrize("prefix", FACES)
def test_a_page_can_read_that_there_is_too_much_or_too_late(
    served: Any, prefix: str, most: int, statuses: list[int]
) -> None:
    """Of four requests at once, an owner may have three."""
    application = visited(served, prefix, Limits(max_requests=most, max_seconds=1))
    ids = [served.call(served.store.create_conversation, model="silent").id for _ in statuses]
    requests = [{"method": "POST", "url": url, "json": body} for url, body in (asking(prefix, one) for one in ids)]
    found = served.runner.run(answers(application, *requests))
    for answer, status in zip(sorted(found, key=lambda one: one.status_code), statuses, strict=True):
        check_readable(answer, status)
        assert ("retry-after" in answer.headers) == (status != 504)


@pytest.mark.parametrize("prefix", FACES)
def test_a_page_can_read_that_the_server_stops_or_fails(
    served: Any, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = visited(served, prefix)
    url, body = asking(prefix, served.call(served.store.create_conversation, model="silent").id)
    served.runner.run(application.state.stop())
    [stopping] = served.runner.run(answers(application, {"method": "POST", "url": url, "json": body}))
    check_readable(stopping, 503)

    def fail(_request: Any) -> Owner:
        raise ZeroDivisionError

    [failed] = served.runner.run(
        answers(visited(served, prefix, auth=fail), {"method": "GET", "url": f"{prefix}/conversations"})
    )
    check_readable(failed, 500)


def test_without_keys_a_named_site_is_still_another_site(served: Any) -> None:
    """Who needs no key is known by the machine alone, and a page that a browser there shows is not its user."""
    http = client(served, "/v1", cors=[SITE], auth=None)
    assert http.get("/conversations", headers={"origin": SITE}).status_code in (401, 403)


@pytest.mark.parametrize("prefix", FACES)
@pytest.mark.parametrize("origin", ["chat.example", "https://chat.example/", "https://*.example", "null", ""])
def test_what_is_no_origin_is_refused(served: Any, prefix: str, origin: str) -> None:
    with pytest.raises(InvalidOption, match="cors"):
        client(served, prefix, cors=[origin])


# What pages of other sites have a browser do with the cookies of its user


def routes_of(application: Any) -> list[tuple[str, str]]:
    """Each method and path that changes something."""
    found = [(method, route) for route in application.routes for method in getattr(route, "methods", None) or ()]
    paths = [(method, re.sub(r"\{[^}]*\}", "x", route.path)) for method, route in found]
    return sorted((method, path) for method, path in paths if method not in ("GET", "HEAD"))


COOKIE = {"cookie": "session=1"}
FOREIGN: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site", "origin": OTHER, **COOKIE},
    {"sec-fetch-site": "cross-site", **COOKIE},
    {"sec-fetch-site": "same-site", "origin": "http://other.localhost", **COOKIE},
    {"origin": OTHER, **COOKIE},
    {"origin": "null", **COOKIE},
    {"origin": "http://localhost:5173", **COOKIE},
    {"origin": OTHER, "x-forwarded-host": "other.example", **COOKIE},
    {"origin": OTHER, "authorization": "Basic YTpi"},
]
OWN: list[dict[str, str]] = [
    {"sec-fetch-site": "same-origin", "origin": OTHER, **COOKIE},  # behind a proxy that gives another Host
    {"sec-fetch-site": "none", **COOKIE},
    {"origin": "http://localhost", **COOKIE},
    COOKIE,
    {"sec-fetch-site": "cross-site", "origin": OTHER, "authorization": "Bearer key"},
    {"sec-fetch-site": "cross-site", "origin": OTHER},
    {"sec-fetch-site": "cross-site", "origin": SITE, **COOKIE},  # which is named
]


@pytest.mark.parametrize("face", ["/v1", "/api", "viewer"])
def test_pages_of_other_sites_change_nothing_with_the_cookies_of_a_user(served: Any, face: str) -> None:
    """On no path: whether the body is of a type that forms send, or there is none."""
    asked = []

    def who(request: Any) -> Owner | None:
        asked.append(request.url.path)
        return Owner()

    made: Any = viewer.app(served.store, auth=who, sign_in=True)
    if face != "viewer":
        made = FACES[face](served.store, auth=who, cors=[SITE, "*"])
    http = httpx2.Client(transport=Bridge(served.runner, made), base_url="http://localhost")
    routes = routes_of(made)
    assert len(routes) >= (2 if face == "viewer" else 10)
    for method, path in routes:
        for number, headers in enumerate(FOREIGN):
            content, type_ = (b"{}", {"content-type": "text/plain"}) if number % 2 else (b"", {})
            answer = http.request(method, path, content=content, headers={**type_, **headers})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site"), (method, path)
            assert "x-request-id" in answer.headers or face == "viewer"
    assert asked == []
    for headers in OWN if face != "viewer" else ():
        for method, path in routes:
            assert "cross_site" not in http.request(method, path, content=b"{}", headers=headers).text
        assert asked
    for headers in FOREIGN:
        assert http.get({"viewer": "/", "/v1": "/v1/models"}.get(face, "/api/usage"), headers=headers).is_success


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
def test_pages_of_other_sites_open_no_websocket_with_the_cookies_of_a_user(
    served: Any, headers: dict[str, str], extensions: Any
) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]
    scope = {
        "type": "websocket", "path": "/v1/responses", "query_string": b"", "headers": given, "extensions": extensions,
        "client": ("127.0.0.1", 1), "scheme": "ws",
    }  # fmt: skip
    served.runner.run(app(served.store, auth=lambda _: Owner())(scope, receive, send))
    if extensions:
        assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 403)
    else:
        assert [message["type"] for message in sent] == ["websocket.close"]
