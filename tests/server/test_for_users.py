"""For whom a request is made: the same on all faces and routes, whatever key it comes with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import pytest
from starlette.routing import Mount, Route, compile_path

from tests.server.conftest import Bridge, Served
from tests.server.test_rest_owners import known  # noqa: F401 - a fixture
from threadkeep import viewer
from threadkeep.http import RecordedUpstream, app, recorder_app, rest_app

HEADER = "x-threadkeep-user"
LIVE = {"/c/{id}/tail"}  # never ends by itself; the pages that start it are tried
PAGE_PATHS = {"/static/{name}", "/sign-in", "/sign-out", "/api/openapi.json"}  # the same for all callers
NONCES = re.compile(r"nonce-[\w+/=-]+|nonce=\"[^\"]*\"|(?<=\.js\?)\w+")


class Tried(NamedTuple):
    """A request that a face has a route for."""

    face: str
    method: str
    path: str

    def filled(self, values: dict[str, str]) -> str:
        return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: values.get(match[1], "0"), self.path)


def routes_of(face: str, routes: Any, prefix: str = "") -> Iterator[Tried]:
    for route in routes:
        if isinstance(route, Mount):
            yield from routes_of(face, route.routes, prefix + route.path)
        elif isinstance(route, Route) and prefix + route.path not in PAGE_PATHS | LIVE:
            for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
                yield Tried(face, method, prefix + route.path)


class Faces:
    """All faces of a server for one test, and what ann has there: a value for each parameter of paths."""

    def __init__(self, served: Served, values: dict[str, str]) -> None:
        shared: Any = {"auth": served.authenticate}
        self.applications: dict[str, Any] = {
            "openai": app(served._store, **shared),
            "rest": rest_app(served._store, **shared),
            "pages": viewer.app(served._store, **shared),
        }
        self.clients = {
            face: httpx2.Client(transport=Bridge(served.runner, made), base_url="http://localhost")
            for face, made in self.applications.items()
        }
        self.values = values | {"number": "0", "kind": "json", "id": values["conversation_id"]}
        self.routes = [one for face, made in self.applications.items() for one in routes_of(face, made.routes)]

    def ask(self, one: Tried, key: str, *users: bytes) -> httpx2.Response:
        headers = [(b"authorization", b"Bearer " + key.encode()), *((HEADER.encode(), user) for user in users)]
        body: Any = {} if one.method in ("POST", "PUT", "PATCH") else None
        return self.clients[one.face].request(one.method, one.filled(self.values), headers=headers, json=body)


def seen(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, NONCES.sub("", answer.text)


@pytest.fixture
def faces(served: Served, known: dict[str, str]) -> Faces:  # noqa: F811 - the value of that fixture
    found = Faces(served, known)
    assert {one.face for one in found.routes} == {"openai", "rest", "pages"}
    assert len(found.routes) > 50
    return found


def test_a_key_for_all_users_sees_what_the_named_user_sees(faces: Faces) -> None:
    differences = []
    for one in faces.routes:
        if one.method != "GET":
            continue
        for user in ("ann", "ben"):
            own, named = seen(faces.ask(one, user)), seen(faces.ask(one, "", user.encode()))
            if named != own or (user == "ben" and "{" in one.path and named[0] != 404):
                differences.append((one, user, named, own))
    assert differences == []


REFUSED = {
    "empty": ("", [b""], 400),
    "too long": ("", [b"u" * 256], 400),
    "twice": ("", [b"ann", b"ben"], 400),
    "twice the same": ("", [b"ann", b"ann"], 400),
    "another user than the key's": ("ann", [b"ben"], 403),
    "an empty one for the key of a user": ("ann", [b""], 400),
    "twice for the key of a user": ("ann", [b"ann", b"ann"], 400),
}


def test_a_user_who_cannot_be_is_refused_by_every_route(faces: Faces) -> None:
    wrong = []
    for case, (key, users, status) in REFUSED.items():
        for one in faces.routes:
            answer = faces.ask(one, key, *users)
            if answer.status_code != status:
                wrong.append((case, one, answer.status_code))
    assert wrong == []
    own = faces.ask(Tried("openai", "GET", "/v1/conversations"), "ann").json()
    assert [conversation["id"] for conversation in own["data"]] == [faces.values["conversation_id"]]


@pytest.mark.parametrize(
    ("name", "faces_with_it"),
    [
        ("Authorization", {"openai", "rest", "pages"}),
        ("x-threadkeep-key", {"openai", "rest", "pages"}),
        ("Idempotency-Key", {"openai", "rest"}),
        ("If-Match", {"openai", "rest"}),
    ],
)
def test_a_header_that_is_there_twice_is_refused_by_every_route(
    faces: Faces, name: str, faces_with_it: set[str]
) -> None:
    """Also where both say the same: a proxy may have added one of them."""
    wrong, twice = [], [(name, "Bearer ann")] * 2
    headers = twice if name == "Authorization" else [("Authorization", "Bearer ann"), *twice]
    for one in faces.routes:
        if one.face in faces_with_it:
            answer = faces.clients[one.face].request(one.method, one.filled(faces.values), headers=headers)
            if answer.status_code != 400 or f"{name} must be there once, not 2 times" not in answer.text:
                wrong.append((one, answer.status_code))
    assert wrong == []


def test_what_is_not_served_is_answered_to_keys_alone(faces: Faces) -> None:
    """Also a path with a slash at its end: a redirection would come before the key is asked for."""
    wrong = []
    for one in faces.routes:
        if one.face == "pages" or one.path.startswith("/v1/models"):  # names of models may end with a slash
            continue
        path = one._replace(path=f"{one.path}/")
        answers = [faces.ask(asked, key) for asked in (path, one._replace(method="TRACE")) for key in ("ann", "nobody")]
        codes = [(answer.status_code, answer.json()["error"]["code"]) for answer in answers]
        no_key = (401, "invalid_api_key")
        if codes != [(404, "not_found"), no_key, (405, "method_not_allowed"), no_key]:
            wrong.append((one, codes))
    assert wrong == []


def test_all_methods_of_a_path_are_allowed(faces: Faces) -> None:
    wrong = []
    for one in faces.routes:
        if one.face != "pages":
            allowed = faces.ask(one._replace(method="TRACE"), "ann").headers["allow"].split(", ")
            of_face = (other for other in faces.routes if other.face == one.face)
            of_path = {other.method for other in of_face if compile_path(other.path)[0].match(one.path)}
            if set(allowed) - {"HEAD"} != of_path or allowed != sorted(allowed):
                wrong.append((one, allowed))
    assert wrong == []


def test_the_key_of_a_user_may_name_that_user(faces: Faces) -> None:
    for one in faces.routes:
        if one.method == "GET":
            assert seen(faces.ask(one, "ann", b"ann")) == seen(faces.ask(one, "ann")), one


def test_the_recorder_passes_no_call_for_a_user_who_cannot_be(served: Served) -> None:
    provider = RecordedUpstream("provider", "messages", "http://127.0.0.1:9")  # where nothing answers
    application = recorder_app(served._store, [provider], auth=served.authenticate)
    with httpx2.Client(transport=Bridge(served.runner, application), base_url="http://localhost") as client:
        for case, (key, users, status) in REFUSED.items():
            headers = [(b"x-threadkeep-key", key.encode()), *((HEADER.encode(), user) for user in users)]
            answer = client.post("/v1/messages", headers=headers, json={})
            assert answer.status_code == status, (case, answer.text)
        answer = client.post("/v1/messages", headers=[("x-threadkeep-key", "ann")] * 2, json={})
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "x-threadkeep-key must be there once, not 2 times."
