"""Who may call, and that nobody finds what belongs to others."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.routing import Route

from threadkeep import AsyncStore, InvalidOption, Store, viewer
from threadkeep.http import Owner, app, rest_app
from threadkeep.server.site import site

BODY = {"id": "resp_of_ann", "model": "m", "status": "completed", "output": [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
]}  # fmt: skip


def of_ann(served: Any) -> dict[str, str]:
    """What ann has: a value for each parameter of paths."""
    store = served.store.for_user("ann")
    conversation = served.call(store.create_conversation, model="m", input="Hi", external_id="of ann")
    served.call(conversation.add_response, BODY, "open_responses")
    [item, _] = served.call(conversation.transcript)
    return {"conversation_id": conversation.id, "item_id": item.id, "response_id": "resp_of_ann"}


def routes(served: Any) -> list[tuple[str, str]]:
    """Method and path of every route that names something."""
    found = [route for route in served.application(prefix="").routes if isinstance(route, Route)]
    return [
        (method, route.path)
        for route in found
        for method in (route.methods or set()) - {"HEAD"}
        if "{" in route.path and "{model" not in route.path
    ]


BODIES: dict[str, Any] = {"metadata": {}, "items": [{"role": "user", "content": "Mine now"}]}


def test_every_route_hides_what_belongs_to_others(served: Any) -> None:
    known = of_ann(served)
    before = served.http("ann").get(f"/conversations/{known['conversation_id']}/items").json()
    asked = routes(served)
    assert len(asked) > 8
    for method, path in asked:
        for place in (known, {**known, "conversation_id": "of ann"}):
            answer = served.http("ben").request(method, path.format(**place), json=BODIES)
            assert answer.status_code == 404, (method, path, answer.text)
    assert served.http("ann").get(f"/conversations/{known['conversation_id']}/items").json() == before
    mine = served.call(served.store.for_user("ben").create_conversation, input="Mine")
    for method, path in asked:  # their items in a conversation of one's own, and as cursors
        if "item_id" in path:
            answer = served.http("ben").request(method, path.format(**{**known, "conversation_id": mine.id}))
            assert answer.status_code == 404, (method, path, answer.text)
    cursor = {"after": known["item_id"]}
    assert served.http("ben").get(f"/conversations/{mine.id}/items", params=cursor).status_code == 404


def test_other_tenants_have_nothing(served: Any) -> None:
    known = of_ann(served)
    served.tenant = f"{served.tenant} too"
    served.call(served._store.create_tenant, served.tenant)
    for method, path in routes(served):
        answer = served.http("ann").request(method, path.format(**known), json=BODIES)
        assert answer.status_code == 404, (method, path, answer.text)


def test_lists_show_ones_own(served: Any) -> None:
    known = of_ann(served)
    assert [one["id"] for one in served.http("ann").get("/conversations").json()["data"]] == [known["conversation_id"]]
    assert served.http("ben").get("/conversations").json()["data"] == []
    assert served.http("ben").get("/conversations", params={"user_id": "ann"}).json()["data"] == []


def test_a_key_is_needed_everywhere(served: Any) -> None:
    known = of_ann(served)
    for method, path in routes(served):
        answer = served.http("nobody").request(method, path.format(**known))
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(("scope", "allowed"), [("read", {"GET"}), ("write", {"POST", "DELETE"})])
def test_scopes_allow_what_they_name(served: Any, scope: Any, allowed: set[str]) -> None:
    known = of_ann(served)
    owner = Owner(user_id="ann", tenant=served.tenant, scopes=frozenset({scope}))
    http = served.http(auth=lambda _: owner)
    for method, path in routes(served):
        answer = http.request(method, path.format(**dict.fromkeys(known, "unknown")), json=BODIES)
        assert answer.status_code == (404 if method in allowed else 403), (method, path)


def test_an_unknown_tenant_is_nobody(served: Any) -> None:
    http = served.http(auth=lambda _: Owner(tenant="unknown"))
    assert http.get("/conversations").status_code == 401


def test_authentication_can_be_a_coroutine(served: Any) -> None:
    async def authenticate(_: object) -> Owner:
        return Owner(user_id="ann", tenant=served.tenant)

    of_ann(served)
    assert len(served.http(auth=authenticate).get("/conversations").json()["data"]) == 1


@pytest.mark.parametrize("text", ["The budget of this month is used up", "The budget of this month is used up."])
def test_authentication_can_refuse_a_request_with_a_reason(served: Any, text: str) -> None:
    def authenticate(request: Any) -> Owner:
        if request.method == "POST":
            raise HTTPException(402, text, {"Retry-After": "60"})
        return Owner(user_id="ann", tenant=served.tenant)

    http = served.http(auth=authenticate)
    refused = http.post("/conversations", json={})
    assert (refused.status_code, refused.headers["retry-after"]) == (402, "60")
    assert refused.json()["error"]["message"] == "The budget of this month is used up."
    assert http.get("/conversations").status_code == 200


@pytest.mark.parametrize("made", [app, rest_app, viewer.app], ids=["openai", "rest", "viewer"])
def test_authentication_returns_an_owner_or_none(caplog: pytest.LogCaptureFixture, made: Any) -> None:
    application = site({"": made(AsyncStore("sqlite://"), auth=lambda _: "sk-secret")})

    async def asked() -> int:
        transport = httpx2.ASGITransport(app=application, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return (await http.get("/" if made is viewer.app else "/unknown")).status_code

    assert asyncio.run(asked()) == 500
    [error] = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert error == "auth must return an Owner or None, not a value of the type str"  # which may be the key


@pytest.mark.parametrize(
    ("host", "address", "status"),
    [
        ("localhost:4010", "127.0.0.1", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("[::1]:4010", "::1", 200),
        ("evil.example", "127.0.0.1", 401),
        ("localhost.evil.example", "127.0.0.1", 401),
        ("localhost", "192.0.2.1", 401),
        ("[", "127.0.0.1", 401),
        ("evil.example@localhost", "127.0.0.1", 401),
        ("localhost/evil.example", "127.0.0.1", 401),
        ("localhost\\evil.example", "127.0.0.1", 401),
    ],
)
def test_without_keys_only_this_machine_is_answered(served: Any, host: str, address: str, status: int) -> None:
    application = app(served.store, auth=None)
    transport = httpx2.ASGITransport(app=application, client=(address, 123))

    async def asked() -> int:
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return (await http.get("/v1/conversations", headers={"Host": host})).status_code

    assert served.runner.run(asked()) == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:4010", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://LOCALHOST:4010"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://evil.example"}, 401),
        ({"Origin": "http://localhost:3000"}, 401),
        ({"Origin": "http://127.0.0.1:4010"}, 401),
        ({"Origin": "null"}, 401),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Sec-Fetch-Site": "cross-site"}, 401),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_keys_pages_of_other_sites_are_nobody(
    served: Any, headers: dict[str, str], status: int, method: str
) -> None:
    assert served.runner.run(asked_from_here(headers, method)) == status


@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-For", "X-Real-IP"])
def test_without_keys_callers_behind_a_proxy_are_nobody(served: Any, name: str) -> None:
    """Many proxies call the server by its loopback address, whatever name their callers have used."""
    assert served.runner.run(asked_from_here({name: "for=203.0.113.7", "Host": "127.0.0.1:4010"})) == 401


async def asked_from_here(headers: dict[str, str], method: str = "GET") -> int:
    """What a program of this machine is answered by a server without keys."""
    async with AsyncStore("sqlite://") as store:
        transport = httpx2.ASGITransport(app=app(store, auth=None), client=("127.0.0.1", 123))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:4010") as http:
            return (await http.request(method, "/v1/conversations", headers=headers, content=b"")).status_code


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"masked": ["everything"]}, "masked"), ({"prefix": "v1"}, "prefix"), ({"prefix": "/v1/"}, "prefix")],
)
def test_settings_are_checked(served: Any, options: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        app(served.store, **options)
    assert refusal.value.argument == argument


def test_the_store_must_be_for_asyncio() -> None:
    with Store("sqlite://") as store, pytest.raises(InvalidOption, match="AsyncStore"):
        app(store)  # type: ignore[arg-type]


def test_scopes_are_checked() -> None:
    with pytest.raises(InvalidOption, match="everything"):
        Owner(scopes=frozenset({"everything"}))  # type: ignore[arg-type]
