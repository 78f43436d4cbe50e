"""The list of conversations: what a row shows, filters, pages, and what belongs to others."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.viewer.conftest import MAX_STATEMENTS, Pages
from tests.viewer.samples import with_decisions, with_tools

TITLE = re.compile(r'class="title" href="/c/(conv_\w+)">([^<]*)<')


def titles(html: str) -> list[str]:
    return [found[2] for found in TITLE.finditer(html)]


def test_a_row_says_what_a_conversation_is_and_what_it_cost(pages: Pages) -> None:
    with_tools(pages.store)
    html = pages.get("/")
    for text in ("Trains", ">ann<", "team=travel", "gpt-5.4", "At 10:02.", "1 failed", ">240<"):
        assert text in html


def test_a_row_says_what_people_decided_and_think(pages: Pages) -> None:
    with_decisions(pages.store)
    with_tools(pages.store)
    mark = re.compile(r'class="chip \w*" title="[^"]*">(?:<svg.*?</svg>)?\s*([^<]+)')
    shown = [mark.findall(row) for row in pages.get("/").split("<tr data-row>")[1:]]
    assert shown == [[], ["1 waiting", "1 denied", "1 approved", "1", "1"]]


def test_an_empty_database_says_so(pages: Pages) -> None:
    assert "Nothing is stored yet" in pages.get("/")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("user=ann", ["Trains"]),
        ("user=ben", ["Other"]),
        ("label=team%3Dtravel", ["Trains"]),
        ("label=team%3Dsales", []),
        ("model=gpt-5.4", ["Trains"]),
        ("model=other", []),
        ("errors=1", ["Trains"]),
        ("errors=1&user=ben", []),
        ("status=archived", ["Old"]),
        ("status=any", ["Old", "Other", "Trains"]),
        ("since=2020-01-01", ["Other", "Trains"]),
        ("until=2020-01-01", []),
    ],
)
def test_filters(pages: Pages, query: str, shown: list[str]) -> None:
    with_tools(pages.store)
    pages.store.create_conversation(title="Other", user_id="ben").user("Hello")
    pages.store.create_conversation(title="Old", user_id="ben").archive()
    assert titles(pages.get(f"/?{query}")) == shown


def test_conversations_with_calls_on_a_day(pages: Pages) -> None:
    with_tools(pages.store)
    today = datetime.now(UTC).date()
    assert titles(pages.get(f"/?on={today}")) == ["Trains"]
    earlier = today - timedelta(days=3)
    assert titles(pages.get(f"/?on={earlier}")) == []
    assert titles(pages.get(f"/?on={earlier}&through={today}&provider=openai&model=gpt-5.4")) == ["Trains"]
    assert titles(pages.get(f"/?on={earlier}&through={today - timedelta(days=1)}")) == []
    assert titles(pages.get(f"/?on={today}&provider=other")) == []
    html = pages.get(f"/?on={earlier}&through={today}&provider=openai")
    for name, value in (("on", earlier), ("through", today), ("provider", "openai")):
        assert f'name="{name}" value="{value}"' in html


@pytest.mark.parametrize("query", ["since=yesterday", "label=team", "status=gone", "after=nothing"])
def test_a_filter_that_cannot_be_used_is_refused(pages: Pages, query: str) -> None:
    assert "This cannot be shown" in pages.get(f"/?{query}", status=400)


def test_pages_follow_each_other(pages: Pages) -> None:
    made = [pages.store.create_conversation(title=f"number {number}").title for number in range(55)]
    first = pages.get("/")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following
    second = pages.get("/" + following[1].replace("&amp;", "&"))
    assert titles(first) + titles(second) == made[::-1]
    assert 'rel="next"' not in second


def test_others_have_their_own(pages: Pages) -> None:
    with_tools(pages.store)
    assert titles(pages.get("/", user="ann")) == ["Trains"]
    assert titles(pages.get("/", user="ben")) == []
    assert titles(pages.get("/?user=ann&errors=1", user="ben")) == []


def test_a_list_takes_a_few_statements(pages: Pages) -> None:
    for _ in range(30):
        with_tools(pages.store)
        with_decisions(pages.store)
    assert pages.statements("/") <= MAX_STATEMENTS
    assert pages.statements("/?user=ann&label=team%3Dtravel&model=gpt-5.4&errors=1") <= MAX_STATEMENTS


@pytest.mark.parametrize("path", ["/", "/?user=ann", "/c/{id}"])
def test_a_page_is_renewed_if_the_reader_asks_for_it(pages: Pages, path: str) -> None:
    path = path.format(id=with_decisions(pages.store).id)
    still = pages.client().get(path)
    assert "refresh" not in still.headers
    [link] = re.findall(r'href="([^"]*live=10)" title="Renew', still.text)
    assert link == ("?user=ann&amp;live=10" if "user" in path else "?live=10")
    address = path.partition("?")[0] + html.unescape(link)
    live = pages.client().get(address)
    assert live.headers["refresh"] == "10"
    assert re.search(r"Renewed at <time [^>]*>\d\d:\d\d:\d\d</time> UTC, and again every 10 seconds", live.text)
    assert "<input" in still.text
    assert "<input" not in live.text  # what is written there would be lost
    [stop] = re.findall(r'href="([^"]*)">Stop', live.text)
    assert "refresh" not in pages.client().get(path.partition("?")[0] + html.unescape(stop)).headers
    assert pages.statements(address) == pages.statements(path)


@pytest.mark.parametrize("seconds", ["0", "4", "3601", "x", "-10", "5;url=//evil.example"])
def test_a_page_is_renewed_neither_often_nor_elsewhere(pages: Pages, seconds: str) -> None:
    response = pages.client().get("/", params={"live": seconds})
    assert (response.status_code, "refresh" in response.headers) == (400, False)


def test_many_labels_and_long_names_leave_room(pages: Pages) -> None:
    labels = {f"label-{number}": "value" for number in range(5)}
    pages.store.create_conversation(title="T", labels=labels, user_id="u" * 100).user("Hello")
    html = pages.get("/")
    assert [f"label-{number}=value</a>" in html for number in range(5)] == [True, True, True, False, False]
    assert "2 more" in html
    assert 'title="' + "u" * 100 in html


@pytest.mark.parametrize("path", ["/", "/usage", "/search?q=hello", "/c/{id}"])
def test_the_words_of_an_untitled_conversation_stand_for_its_title(pages: Pages, path: str) -> None:
    conversation = pages.store.create_conversation(model="gpt-5.4")
    conversation.user("Hello **there**")
    conversation.record_attempt("chat_completion", error={"message": "Overloaded"})
    html = pages.get(path.format(id=conversation.id))
    assert "Hello there</a>" in html or "Hello there</h1>" in html
    assert "Untitled" not in html
