"""Pages about all tenants: for administrators alone, with the figures of reports by tenant."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from markupsafe import escape

from tests.viewer.conftest import MAX_STATEMENTS, Pages
from tests.viewer.samples import with_tools
from threadkeep import AsyncStore, Store
from threadkeep.viewer import Owner
from threadkeep.viewer.texts import count, money, short_count

ADMINISTRATOR: Final[Any] = frozenset({"usage", "tenants"})
EVERYTHING: Final[Any] = frozenset({"read", "write", "usage", "tenants"})


@pytest.fixture
def everything(shared: tuple[AsyncStore, Store, asyncio.Runner]) -> Store:
    """The store of all tenants."""
    return shared[1]


@pytest.fixture
def named(everything: Store) -> str:
    """The name of another tenant, which has used something."""
    name = f"acme <b>&/../{uuid4().hex}"
    with_tools(everything.create_tenant(name))
    return name


def client(pages: Pages, owner: Owner, **options: Any) -> Any:
    return pages.client("", auth=lambda _: owner, **options)


def paths(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    yield "/tenants", {}
    yield "/tenant", {"name": name}


@pytest.mark.parametrize(
    ("owner", "headers", "status"),
    [
        (Owner(scopes=frozenset({"usage"})), {}, 403),
        (Owner(scopes=frozenset({"read", "write", "usage"})), {}, 403),
        (Owner(scopes=frozenset({"tenants"})), {}, 403),
        (Owner(scopes=frozenset({"read", "tenants"})), {}, 403),
        (Owner(tenant="own", scopes=EVERYTHING), {}, 404),
        (Owner(tenant="own", user_id="ann", scopes=EVERYTHING), {}, 404),
        (Owner(tenant="own", scopes=EVERYTHING), {"x-threadkeep-user": "ann"}, 404),
        (Owner(user_id="ann", scopes=EVERYTHING), {}, 400),
        (Owner(scopes=EVERYTHING), {"x-threadkeep-user": "ann"}, 400),
    ],
)
def test_nobody_else_sees_other_tenants(
    pages: Pages, named: str, owner: Owner, headers: dict[str, str], status: int
) -> None:
    if owner.tenant is not None:
        owner = Owner(owner.user_id, pages.tenant, owner.scopes)
    for path, query in paths(named):
        response = client(pages, owner).get(path, params=query, headers=headers)
        assert response.status_code == status, response.text
        assert named not in html.unescape(response.text)


def test_a_database_without_tenants_has_no_such_pages(pages: Pages, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    with Store(url) as store:
        with_tools(store)
    own = AsyncStore(url)
    try:
        for path, query in paths("default"):
            alone = Pages(own, pages.store, pages.runner, pages.tenant)
            response = client(alone, Owner(scopes=EVERYTHING)).get(path, params=query)
            assert response.status_code == 404
            assert "Tenants" not in client(alone, Owner(scopes=EVERYTHING)).get("/").text
    finally:
        pages.runner.run(own.close())


def row_of(page: str, name: str) -> list[str]:
    """The cells of a tenant in the list."""
    [row] = [row for row in page.split("<tr data-row>") if f">{escape(name)}</a>" in row]
    return re.findall(r'<td class="n(?: more)?">([^<]*)', row)


def test_an_administrator_sees_what_each_tenant_used(pages: Pages, named: str) -> None:
    administrator = client(pages, Owner(scopes=ADMINISTRATOR))
    page = administrator.get("/tenants").text
    assert row_of(page, named)[1:] == ["240", "3", "33.3 %", "1.2 s"]
    links = [html.unescape(link) for link in re.findall(r'class="title" href="([^"]+)"', page)]
    [link] = [link for link in links if named.rpartition("/")[2] in link]
    tenant = administrator.get(link)
    assert tenant.status_code == 200
    for text in (f">{escape(named)}</h1>", "gpt-5.4", ">ann<", "Conversations and users by day", "33.3 %"):
        assert text in tenant.text, text


def test_figures_are_those_of_reports(pages: Pages, everything: Store) -> None:
    """Also of days that are rolled up, and where some days between these are not."""
    now, name = datetime.now(UTC), uuid4().hex
    store = everything.create_tenant(name)
    conversation = store.create_conversation()
    tokens = {"prompt_tokens": 1_000_000, "completion_tokens": 10, "total_tokens": 1_000_010}

    def record(days: int) -> None:
        call: Any = {"model": "gpt-5.4", "provider": "openai", "occurred_at": now - timedelta(days)}
        conversation.record_attempt("chat_completion", usage=tokens, latency_ms=100, **call)
        conversation.record_attempt("chat_completion", error={"message": "Overloaded"}, **call)

    def check() -> None:
        for days in (1, 4, 30):
            since = now.date() - timedelta(days - 1)
            [row] = [row for row in everything.usage(by="tenant", since=since) if row.tenant == name]
            cells = row_of(client(pages, Owner(scopes=ADMINISTRATOR)).get(f"/tenants?days={days}").text, name)
            assert cells == [
                money(row.cost_nano), short_count(row.total_tokens), count(row.attempts), "50.0 %", "100 ms",
            ]  # fmt: skip

    for days in (0, 1, 2, 3, 5, 8):
        record(days)
    check()
    store.fill_usage_days()
    check()
    record(3)
    check()  # that day is not rolled up any more


def test_nothing_that_was_said_is_shown(pages: Pages, named: str) -> None:
    for path, query in paths(named):
        page = client(pages, Owner(scopes=EVERYTHING)).get(path, params=query).text
        assert "Trains" not in page
        assert 'href="/c/' not in page
        assert "Conversations</a>" not in page


def test_the_pages_of_one_tenant_have_filters(pages: Pages, named: str) -> None:
    administrator = client(pages, Owner(scopes=ADMINISTRATOR))
    for query, shown in {"user": "ann", "model": "gpt-5.4"}.items():
        page = administrator.get("/tenant", params={"name": named, query: shown}).text
        assert "Tokens by day" in page
        assert f'name="name" value="{escape(named)}"' in page
        assert "No calls in these days" in administrator.get("/tenant", params={"name": named, query: "no"}).text
    assert administrator.get("/tenant", params={"name": "unknown"}).status_code == 404
    assert administrator.get("/tenant").status_code == 400
    assert "No tenant called a model" in administrator.get("/tenants?until=2020-01-01").text


def test_pages_take_a_few_statements_for_any_number_of_tenants(pages: Pages, everything: Store, named: str) -> None:
    for number in range(12):
        with_tools(everything.create_tenant(f"{uuid4().hex} {number}"))
    pages.authenticate = lambda _: Owner(scopes=ADMINISTRATOR)  # type: ignore[assignment, method-assign]
    assert pages.statements("/tenants") <= MAX_STATEMENTS
    for zone in ("UTC", "Asia/Tokyo"):
        assert pages.statements(f"/tenant?{urlencode({'name': named, 'tz': zone})}") <= MAX_STATEMENTS
