"""The filters that all pages share: what they narrow, what stays from page to page, and how each is taken away."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import escape, unescape
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.viewer.conftest import MAX_STATEMENTS, Pages
from tests.viewer.samples import answer, ask, with_tools
from threadkeep import InvalidOption
from threadkeep.viewer import Owner, app

PAGES = ("/", "/search?q=hello", "/usage", "/usage/tools")
CHIP = re.compile(r'<a class="chip taken" href="([^"]*)" title="([^"]*)">')


def said(pages: Pages, user: str, team: str, model: str) -> None:
    """A conversation of a user that names itself, and called a function of its own."""
    conversation = pages.store.create_conversation(
        model=model, user_id=user, title=f"of {user}", labels={"team": team, "plan": "pro"}
    )
    conversation.user(f"hello from {user}")
    ask(conversation, {**answer(None, call={"name": f"tool_{user}", "arguments": "{}"}), "model": model})


@pytest.fixture
def both(pages: Pages) -> Pages:
    said(pages, "ann", "travel", "model-a")
    said(pages, "ben", "sales", "model-b")
    return pages


def address(page: str, query: str) -> str:
    return f"{page}{'&' if '?' in page else '?'}{query}"


def users_on(html: str) -> set[str]:
    """Whose conversations or functions a page shows."""
    return set(re.findall(r"(?:of |tool_)(ann|ben)</a>", html))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", {"ann", "ben"}),
        ("user=ann", {"ann"}),
        ("label=team%3Dsales", {"ben"}),
        ("label=team%3Dsales&label=plan%3Dpro", {"ben"}),
        ("label=team%3Dsales&label=plan%3Dfree", set()),
        ("model=model-a", {"ann"}),
        ("model=model-a&label=team%3Dsales", set()),
        ("days=7", {"ann", "ben"}),
        ("since=2020-01-01&until=2020-02-01", set()),
        ("tz=Asia/Tokyo&days=2", {"ann", "ben"}),
    ],
)
def test_every_page_has_the_same_filters(both: Pages, page: str, query: str, shown: set[str]) -> None:
    assert users_on(both.get(address(page, query))) == shown


@pytest.mark.parametrize("page", PAGES)
def test_filters_never_show_what_others_have(both: Pages, page: str) -> None:
    for query in ("user=ann", "label=team%3Dtravel", "model=model-a", "label=plan%3Dpro"):
        assert users_on(both.get(address(page, query), user="ben")) <= {"ben"}


@pytest.mark.parametrize("page", PAGES)
def test_filters_stay_from_page_to_page(both: Pages, page: str) -> None:
    query = "user=ann&label=team%3Dtravel&label=plan%3Dpro&model=model-a&days=7&tz=Asia%2FTokyo"
    html = unescape(both.get(address(page, query) + "&after=&status=any"))
    for path in ("/", "/usage"):
        assert f'href="{path}?{query}"' in html
    kept = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', html[: html.index("</header>")])
    assert kept == [("user", "ann"), ("label", "team=travel"), ("label", "plan=pro"), ("model", "model-a"),
                    ("days", "7"), ("tz", "Asia/Tokyo")]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_each_filter_can_be_taken_away(both: Pages, page: str) -> None:
    query = "user=ann&label=team%3Dtravel&label=plan%3Dpro&since=2026-01-01&tz=Asia%2FTokyo&after=x"
    html = both.get(address(page, query.replace("&after=x", "").replace("2026-01-01", f"{datetime.now(UTC).date()}")))
    chips = {unescape(text): unescape(href) for href, text in CHIP.findall(html)}
    assert set(chips) == {"user ann", "team=travel", "plan=pro", f"from {datetime.now(UTC).date()}",
                          "days of Asia/Tokyo"}  # fmt: skip
    path = page.partition("?")[0]
    for text, href in chips.items():
        left = {unescape(one) for _, one in CHIP.findall(both.get(path + href))}
        assert left == set(chips) - {text}
        assert ("q=hello" in href) == ("q=hello" in page)


def test_the_form_keeps_what_it_has_no_field_for(pages: Pages) -> None:
    form = re.search(
        r'<form class="filters".*?</form>', pages.get("/?label=a%3Db&on=2026-01-01&tz=Asia/Tokyo"), re.DOTALL
    )
    assert form is not None
    hidden = set(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form[0]))
    assert hidden == {("label", "a=b"), ("on", "2026-01-01"), ("tz", "Asia/Tokyo")}


def test_of_two_values_of_a_label_the_last_one_counts(both: Pages) -> None:
    html = both.get("/?label=team%3Dsales&label=team%3Dtravel")
    assert users_on(html) == {"ann"}
    assert [text for _, text in CHIP.findall(html)] == ["team=travel"]


def test_a_range_of_days_moves_with_time(pages: Pages) -> None:
    html = unescape(pages.get("/?days=7&user=ann"))
    assert '<a class="chip" href="?user=ann&days=30">' in html
    assert '<a class="chip" href="?user=ann" aria-current="true">' in html
    today = datetime.now(UTC).date()
    assert f"{today - timedelta(6)} to {today}" in pages.get("/usage?days=7")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("query", ["days=x", "days=0", "tz=Nowhere", "since=x", "label=team"])
def test_what_cannot_be_used_is_refused_and_not_kept(pages: Pages, page: str, query: str) -> None:
    html = pages.get(address(page, f"{query}&user=ann"), status=400)
    assert '<a href="/">All conversations</a>' in html


@pytest.mark.parametrize("page", ["/", "/search?q=hello"])
@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_days_at_the_ends_of_the_calendar(pages: Pages, page: str, day: str) -> None:
    for name in ("since", "until"):
        pages.get(address(page, f"{name}={day}&days=400&tz=Pacific/Kiritimati"))


def test_filtered_pages_take_a_few_statements(pages: Pages) -> None:
    for number in range(15):
        with_tools(pages.store, user=f"user {number}")
    for page in ("/", "/search?q=train", "/usage", "/usage/tools"):
        query = "label=team%3Dtravel&model=gpt-5.4&days=7&tz=Asia/Tokyo"
        assert pages.statements(address(page, query)) <= MAX_STATEMENTS, page


def test_csv_has_the_filters_of_the_page(both: Pages) -> None:
    html = unescape(both.get("/usage?label=team%3Dsales&days=7"))
    link = re.search(r'href="(/usage\.csv[^"]*)"', html)
    assert link is not None
    assert [line.split(",")[1] for line in both.client().get(link[1]).text.splitlines()[1:]] == ["model-b"]


# Filters with a name


@pytest.mark.parametrize("page", PAGES)
def test_a_name_in_the_address_names_the_page(both: Pages, page: str) -> None:
    html = both.get(address(page, "user=ann&days=7&view=Ann%20%3Cb%3Ethis%20week"))
    assert '<h2 class="view-name">Ann &lt;b&gt;this week</h2>' in html
    assert re.search(r"<title>[^<]*Ann &lt;b&gt;this week · ", html)
    assert users_on(html) == {"ann"}


@pytest.mark.parametrize("page", PAGES)
def test_the_form_for_a_name_sends_all_filters(both: Pages, page: str) -> None:
    html = both.get(address(page, "user=ann&label=team%3Dtravel&days=7&tz=Asia%2FTokyo"))
    form = html[html.index('<details class="save">') :].partition("</form>")[0]
    sent = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
    query = [("user", "ann"), ("label", "team=travel"), ("days", "7"), ("tz", "Asia/Tokyo")]
    assert sent == ([("q", "hello")] if "q=hello" in page else []) + query
    assert '<details class="save">' not in both.get(page)


def test_other_filters_have_no_name(pages: Pages) -> None:
    html = unescape(pages.get("/?user=ann&days=7&view=Mine"))
    assert 'href="/usage?user=ann&days=7"' in html
    for _, href in ((text, href) for href, text in CHIP.findall(html)):
        assert "view=" not in href


VIEWS = {"Failures": "/?errors=1&days=7", "Travel": "/usage?label=team%3Dtravel", "<i>": "/search?q=hello&view=x"}


def saved_on(client: Any, path: str) -> list[tuple[str, str]]:
    """Names and addresses of the saved views on a page."""
    _, found, nav = client.get(path).text.partition('<nav class="current" aria-label="Saved views">')
    links = re.findall(
        r'<a class="chip" href="([^"]*)"(?: aria-current="true")?>([^<]*)</a>', nav.partition("</nav>")[0]
    )
    return [(unescape(name), unescape(link)) for link, name in links] if found else []


@pytest.mark.parametrize("page", PAGES)
def test_saved_views_of_a_server_are_links_on_every_page(both: Pages, page: str) -> None:
    client = both.client(saved_views=lambda _: VIEWS)
    links = saved_on(client, page)
    assert [name for name, _ in links] == list(VIEWS)
    assert links[0][1] == "/?errors=1&days=7&view=Failures"
    for name, link in links:
        assert escape(name) in client.get(link).text
    assert saved_on(both.client(), page) == []


def test_saved_views_may_say_whom_there_is_and_are_not_for_users_and_tenants(pages: Pages) -> None:
    for owner, shown in (
        (Owner(), list(VIEWS)),
        (Owner(tenant=pages.tenant), []),
        (Owner(tenant=pages.tenant, user_id="ann"), []),
    ):
        found = app(pages.shared, saved_views=VIEWS).state.viewer.saved(owner)
        assert [one.name for one in found] == shown
    client = pages.client(saved_views=lambda owner: {owner.tenant: "/?days=7"})
    assert saved_on(client, "/") == [(pages.tenant, f"/?days=7&view={pages.tenant}")]


def test_saved_views_need_the_scope_of_their_page(pages: Pages) -> None:
    owner = Owner(tenant=pages.tenant, scopes=frozenset({"usage"}))
    client = pages.client(auth=lambda _: owner, saved_views=lambda _: VIEWS)
    assert [name for name, _ in saved_on(client, "/usage")] == ["Travel"]


def test_saved_views_know_where_they_are_mounted(pages: Pages) -> None:
    client = pages.client()
    mounted = Mount("/history", pages.application(saved_views=lambda _: VIEWS))
    client._transport._transport.app = Starlette(routes=[mounted])  # type: ignore[attr-defined]
    assert saved_on(client, "/history/")[0][1] == "/history/?errors=1&days=7&view=Failures"


@pytest.mark.parametrize("link", ["https://example.com/", "//example.com/?days=7", "/c/conv_1", "javascript:x", ""])
def test_saved_views_are_pages_with_filters(pages: Pages, link: str) -> None:
    with pytest.raises(InvalidOption, match="begins with one of"):
        app(pages.shared, saved_views={"Name": link})
