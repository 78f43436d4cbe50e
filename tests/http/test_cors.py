"""Pages of other sites that call the server from a browser: none, unless their origins are named."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.http.conftest import Bridge
from tests.http.scripts import Scripted
from threadkeep.errors import InvalidOption
from threadkeep.http import Owner, app, rest_app

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


def test_without_keys_a_named_site_is_still_another_site(served: Any) -> None:
    """Who needs no key is known by the machine alone, and a page that a browser there shows is not its user."""
    http = client(served, "/v1", cors=[SITE], auth=None)
    assert http.get("/conversations", headers={"origin": SITE}).status_code in (401, 403)


@pytest.mark.parametrize("prefix", FACES)
@pytest.mark.parametrize("origin", ["chat.example", "https://chat.example/", "https://*.example", "null", ""])
def test_what_is_no_origin_is_refused(served: Any, prefix: str, origin: str) -> None:
    with pytest.raises(InvalidOption, match="cors"):
        client(served, prefix, cors=[origin])
