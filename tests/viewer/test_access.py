"""Who may see pages: tokens, keys, owners and scopes; and the headers that every answer has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.server.callers import http_scope
from tests.viewer.conftest import Pages
from tests.viewer.samples import with_tools
from threadkeep import InvalidOption
from threadkeep.viewer import Owner, access, app

ORIGIN = {"Origin": "http://localhost"}


def local(pages: Pages, **options: Any) -> Any:
    return pages.client("", auth=None, owner=Owner(tenant=pages.tenant), **options)


def test_without_authentication_only_this_machine_is_answered(pages: Pages) -> None:
    client = local(pages)
    assert client.get("/").status_code == 200
    for host in ("example.com", "localhost.example.com", "127.0.0.1.nip.io", "[::1", ""):
        assert client.get("/", headers={"Host": host}).status_code == 401


def test_a_token_becomes_a_cookie_and_leaves_the_address(pages: Pages) -> None:
    client = local(pages, token="secret")
    assert client.get("/").status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    assert client.get("/?token=secret", headers={"Host": "evil.example"}).status_code == 401
    response = client.get("/?user=ann&token=secret")
    assert (response.status_code, response.headers["location"]) == (303, "/?user=ann")
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get("/").status_code == 200


def test_the_cookie_has_another_secret_than_the_address(pages: Pages) -> None:
    client = local(pages, token="secret")
    client.get("/?token=secret")
    [(name, value)] = client.cookies.items()
    assert value != "secret"
    assert client.get("/", headers={"Cookie": f"{name}={value}"}).status_code == 200
    client.cookies.clear()
    assert client.get("/", headers={"Cookie": f"{name}=secret"}).status_code == 401
    assert client.get("/?token=secret").status_code == 303  # from any browser of this machine


def test_a_token_can_be_for_the_first_browser_only(pages: Pages) -> None:
    first = local(pages, token="secret", token_once=True)
    second = httpx2.Client(transport=first._transport, base_url="http://localhost")
    for wrong in ("/", "/?token=wrong"):
        assert "ends with a token" in second.get(wrong).text
    assert second.head("/?token=secret").status_code == 401  # nobody has seen the page
    assert first.get("/?token=secret").status_code == 303
    response = second.get("/?token=secret")
    assert response.status_code == 401
    assert "Another browser has opened these pages" in response.text
    assert "set-cookie" not in response.headers
    for address in ("/", "/", "/?user=ann"):
        assert first.get(address).status_code == 200
    again = first.get("/?user=ann&token=secret")  # in another tab
    assert (again.status_code, again.headers["location"]) == (303, "/?user=ann")
    assert first.get("/").status_code == 200


def test_a_key_is_kept_in_a_cookie(pages: Pages) -> None:
    with_tools(pages.store)
    client = pages.client("", sign_in=True)
    form = client.get("/")
    assert form.status_code == 401
    secret = re.search(r'name="form" value="([^"]+)"', form.text)
    assert secret
    fields = {"form": secret[1], "key": "ann"}
    for headers in ({}, {"Origin": "https://evil.example"}):
        assert client.post("/sign-in", data=fields, headers=headers).status_code == 403
    assert client.post("/sign-in", data={**fields, "form": "other"}, headers=ORIGIN).status_code == 403
    assert client.post("/sign-in", data={**fields, "more": "x" * 20_000}, headers=ORIGIN).status_code == 413
    assert client.get("/").status_code == 401
    response = client.post("/sign-in", data=fields, headers=ORIGIN)
    assert (response.status_code, response.headers["location"]) == (303, "/")
    assert all(word in response.headers["set-cookie"] for word in ("HttpOnly", "SameSite=strict"))
    assert "Trains" in client.get("/").text


def signed_in(pages: Pages, key: str = "ann", **options: Any) -> Any:
    client = pages.client("", sign_in=True, **options)
    response = client.post("/sign-in", data={"form": secret_of(client.get("/").text), "key": key}, headers=ORIGIN)
    assert response.status_code == 303
    return client


def secret_of(html: str) -> str:
    found = re.search(r'name="form" value="([^"]+)"', html)
    assert found
    return found[1]


def test_whoever_is_signed_in_can_sign_out(pages: Pages) -> None:
    client = signed_in(pages)
    conversation = with_tools(pages.store)
    for path in ("/", f"/c/{conversation.id}", f"/c/{conversation.id}/responses/0", "/search", "/usage"):
        html = client.get(path).text
        assert html.count('<form class="sign-out" method="post" action="/sign-out">') == 1
    fields = {"form": secret_of(html)}
    assert client.post("/sign-out", data=fields).status_code == 403
    assert client.post("/sign-out", data={"form": "other"}, headers=ORIGIN).status_code == 403
    assert client.post("/sign-out", headers=ORIGIN).status_code == 403
    assert client.get("/").status_code == 200
    assert client.post("/sign-out", data=fields, headers=ORIGIN).status_code == 303
    assert client.get("/").status_code == 401


def test_whoever_may_not_see_a_page_can_sign_out(pages: Pages) -> None:
    def only_usage(request: Any) -> Owner | None:
        owner = pages.authenticate(request)
        return None if owner is None else Owner(tenant=pages.tenant, scopes=frozenset({"usage"}))

    client = signed_in(pages, auth=only_usage)
    response = client.get("/")
    assert response.status_code == 403
    assert client.post("/sign-out", data={"form": secret_of(response.text)}, headers=ORIGIN).status_code == 303
    assert client.get("/usage").status_code == 401


def test_reports_show_titles_only_to_those_who_read(pages: Pages) -> None:
    for status, owner in {
        403: Owner(tenant=pages.tenant, scopes=frozenset({"usage"})),
        200: Owner(tenant=pages.tenant, scopes=frozenset({"usage", "read"})),
    }.items():
        client = pages.client(auth=lambda _, owner=owner: owner)
        for by in ("title", "property:plan,day"):
            assert client.get(f"/usage.csv?by={by}").status_code == status
        assert client.get("/usage.csv?by=label:team,feedback,metadata:variant").status_code == 200


def test_a_secret_of_forms_that_the_browser_has_lost_is_given_again(pages: Pages) -> None:
    client = signed_in(pages)
    client.cookies.delete("threadkeep_form")
    fields = {"form": secret_of(client.get("/").text)}
    assert client.post("/sign-out", data=fields, headers=ORIGIN).status_code == 303


def test_programs_and_those_without_keys_have_nothing_to_sign_out_of(pages: Pages) -> None:
    for client in (pages.client("ann", sign_in=True), pages.client("ann"), local(pages)):
        assert "sign-out" not in client.get("/").text
        assert "threadkeep_form" not in client.cookies


@pytest.mark.parametrize("key", ["nobody", "", " "])
def test_a_key_that_is_not_known_is_not_kept(pages: Pages, key: str) -> None:
    client = pages.client("", sign_in=True)
    fields = {"form": secret_of(client.get("/").text), "key": key}
    response = client.post("/sign-in", data=fields, headers=ORIGIN)
    assert response.status_code == 401
    assert '<p role="alert">This key is unknown, or not valid any more.</p>' in response.text
    assert "threadkeep_key" not in client.cookies
    assert client.post("/sign-in", data={**fields, "key": "ann"}, headers=ORIGIN).status_code == 303


def test_a_key_of_no_tenant_is_not_known(pages: Pages) -> None:
    client = pages.client("", auth=lambda _: Owner(tenant="gone"), sign_in=True)
    fields = {"form": secret_of(client.get("/").text), "key": "ann"}
    assert "This key is unknown" in client.post("/sign-in", data=fields, headers=ORIGIN).text


def test_a_key_that_cannot_be_looked_for_is_not_kept(pages: Pages, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Any) -> Owner | None:
        if "authorization" in request.headers:
            raise RuntimeError("secret detail")
        return None

    client = pages.client("", auth=fail, sign_in=True)
    fields = {"form": secret_of(client.get("/").text), "key": "ann"}
    response = client.post("/sign-in", data=fields, headers=ORIGIN)
    assert response.status_code == 500
    assert "secret detail" not in response.text
    assert "secret detail" in caplog.text
    assert "threadkeep_key" not in client.cookies


def sent_slowly(pages: Pages, **headers: str) -> tuple[int, int]:
    """The status of a form whose body does not come, and how often it was asked for."""

    async def call() -> tuple[int, int]:
        asked, statuses = 0, []

        async def receive() -> Any:
            nonlocal asked
            asked += 1
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            statuses.append(message.get("status"))

        scope = http_scope("/sign-in", "POST", headers)
        await asyncio.wait_for(pages.application(sign_in=True)(scope, receive, send), 20)
        return statuses[0], asked

    return pages.runner.run(call())


def test_a_form_that_does_not_arrive_is_not_waited_for(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "FORM_SECONDS", 0.05)
    origin = "http://localhost"
    assert sent_slowly(pages) == (403, 0)
    assert sent_slowly(pages, origin=origin) == (403, 0)
    assert sent_slowly(pages, origin=origin, cookie="threadkeep_form=x") == (408, 1)


def test_few_forms_are_waited_for_at_once(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one ends the wait for the oldest, so that nobody is kept from signing in."""
    monkeypatch.setattr(access, "FORM_SECONDS", 60)
    application = pages.application(sign_in=True)
    headers = {**ORIGIN, "Cookie": "threadkeep_form=x"}
    url = "http://localhost/sign-in"

    async def run() -> list[int]:
        arriving: list[int] = []
        all_arrive = asyncio.Event()

        async def nothing() -> AsyncIterator[bytes]:
            arriving.append(1)
            if len(arriving) == access.MAX_FORMS:
                all_arrive.set()
            await asyncio.Event().wait()
            yield b""

        transport = httpx2.ASGITransport(app=application)
        async with httpx2.AsyncClient(transport=transport, headers=headers) as browser:
            stalled = [asyncio.create_task(browser.post(url, content=nothing())) for _ in range(access.MAX_FORMS)]
            await asyncio.wait_for(all_arrive.wait(), 20)
            signed_in = await browser.post(url, data={"form": "x", "key": "ann"})
            ended, waiting = await asyncio.wait(stalled, return_when=asyncio.FIRST_COMPLETED)
            for one in waiting:
                one.cancel()
            return [signed_in.status_code, *[one.result().status_code for one in ended], len(waiting)]

    assert pages.runner.run(run()) == [303, 408, access.MAX_FORMS - 1]


@pytest.mark.parametrize("key", ["\N{SNOWMAN}", "ann\u00e9", "a\nb"])
def test_a_key_that_no_header_could_have_is_asked_for_again(pages: Pages, key: str) -> None:
    client = pages.client("", sign_in=True)
    secret = re.search(r'name="form" value="([^"]+)"', client.get("/").text)
    assert secret
    response = client.post("/sign-in", data={"form": secret[1], "key": key}, headers=ORIGIN)
    assert response.status_code == 401
    assert "A key has only" in response.text
    assert "threadkeep_key" not in str(response.headers)


def test_a_scope_is_needed(pages: Pages) -> None:
    def only(*scopes: Any) -> Any:
        owner = Owner(tenant=pages.tenant, scopes=frozenset(scopes))
        return pages.client("", auth=lambda _: owner)

    assert only("usage").get("/").status_code == 403
    assert ">Usage<" not in only("read").get("/").text


def test_an_owner_of_no_tenant_is_nobody(pages: Pages) -> None:
    assert pages.client("", auth=lambda _: Owner(tenant="gone")).get("/").status_code == 401


def test_only_reading_is_possible(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for path in ("/", f"/c/{conversation.id}"):
            assert pages.client().request(method, path).status_code == 405


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/viewer.css", "/static/other", "/media/x", "/c/x"])
def test_every_answer_has_the_headers(pages: Pages, path: str) -> None:
    headers = pages.client().get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


def test_an_error_of_the_server_shows_no_details(pages: Pages, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> Owner:
        raise RuntimeError("secret detail")

    response = pages.client("", auth=fail).get("/")
    assert response.status_code == 500
    assert "secret detail" not in response.text
    assert "content-security-policy" in response.headers
    assert "secret detail" in caplog.text


def test_it_can_be_mounted_under_a_path(pages: Pages) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415 - only here
    from starlette.routing import Mount  # noqa: PLC0415

    conversation = with_tools(pages.store)
    client = pages.client()
    client._transport._transport.app = Starlette(routes=[Mount("/history", pages.application())])  # type: ignore[attr-defined]
    html = client.get("/history/").text
    assert f'href="/history/c/{conversation.id}"' in html
    assert client.get(f"/history/c/{conversation.id}").status_code == 200
    style = re.search(r'rel="stylesheet" href="([^"]+)"', html)
    assert style
    assert client.get(style[1]).status_code == 200


def test_arguments_that_contradict_each_other_are_refused(pages: Pages) -> None:
    with pytest.raises(InvalidOption, match="auth cannot be combined"):
        app(pages.shared, auth=pages.authenticate, token="secret")
    with pytest.raises(InvalidOption, match="sign_in needs `auth`"):
        app(pages.shared, sign_in=True)
    with pytest.raises(InvalidOption, match="token_once needs `token`"):
        app(pages.shared, token_once=True)
