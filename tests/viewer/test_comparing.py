"""Two conversations, or two branches of one, side by side: what is equal, what differs, and what both used."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from tests.viewer.conftest import MAX_STATEMENTS, Pages
from tests.viewer.samples import answer, ask, with_tools
from threadkeep import Conversation
from threadkeep.viewer.comparing import PAGE, ComparedPlace, change_of

MARK = re.compile(r"<mark>(.*?)</mark>")


def talk(pages: Pages, *said: str, user: str = "ann", model: str = "gpt-5.4", **options: Any) -> Conversation:
    """A conversation in which a user and a model take turns."""
    conversation = pages.store.create_conversation(model=model, user_id=user, **options)
    for number, text in enumerate(said):
        if number % 2:
            ask(conversation, {**answer(text, number=number), "model": model}, latency_ms=100 * number)
        else:
            conversation.user(text)
    return conversation


def compared(pages: Pages, *places: str, user: str = "all", status: int = 200, more: str = "") -> str:
    query = "&".join(f"c={place.replace('?', '%3F')}" for place in places)
    return pages.get(f"/compare?{query}{more}", user, status)


def facts(html: str) -> dict[str, tuple[str, ...]]:
    """The table: what stands out begins with a star."""
    rows = re.findall(r'<tr( class="differs")?><th scope="row">(.*?)</th>(.*?)</tr>', html)
    return {
        ("*" if differs else "") + name: tuple(unescape(one) for one in re.findall(r"<td.*?>(.*?)</td>", cells))
        for differs, name, cells in rows
    }


def pairs(html: str) -> list[tuple[bool, bool]]:
    """For each pair, whether A and B are there."""
    found = re.findall(r'<div class="pair">(.*?)(?=<div class="pair">|<section|<nav class="pager")', html, re.DOTALL)
    return [tuple("missing" not in one for one in re.findall(r'<div class="side(.*?)">', pair)) for pair in found]  # type: ignore[misc]


def test_what_is_equal_is_shown_once_and_what_differs_is_marked(pages: Pages) -> None:
    one = talk(pages, "When does the train go?", "The next train to Bern goes at ten.")
    other = talk(pages, "When does the train go?", "The next train to Basel goes at ten.")
    html = compared(pages, one.id, other.id)
    assert html.count("When does the train go?</p>") == 1
    assert MARK.findall(html) == ["Bern", "Basel"]
    assert pairs(html) == [(True, True)]


def test_texts_with_little_in_common_are_not_marked(pages: Pages) -> None:
    one = talk(pages, "Hello", "The **next** train goes at ten.")
    other = talk(pages, "Hello", "No idea, ask somebody else!")
    html = compared(pages, one.id, other.id)
    assert "<strong>next</strong>" in html
    assert MARK.findall(html) == []


def test_equal_items_before_are_folded(pages: Pages) -> None:
    common = ["One", "Two", "Three", "Four", "Five"]
    one, other = talk(pages, *common, "Six"), talk(pages, *common, "Seven")
    html = compared(pages, one.id, other.id)
    assert "<summary>4 items are the same</summary>" in html
    assert html.index("Five") > html.index("</details>", html.index("4 items are the same"))


def test_what_only_one_has_stands_beside_nothing(pages: Pages) -> None:
    one = with_tools(pages.store)
    other = talk(pages, "When does the next train go?", "At **10:02**.")
    html = compared(pages, one.id, other.id)
    assert pairs(html) == [(True, False), (True, False)]  # the call, and the attempt that failed
    assert "timetable" in html
    assert "The call failed." in html


def test_facts_of_both(pages: Pages) -> None:
    one = talk(pages, "Hi", "Hello", model="a", instructions="Be brief.", temperature=0.2)
    other = talk(pages, "Hi", "Hello", "More", "No", model="b", instructions="Be brief.", temperature=1)
    html = compared(pages, one.id, other.id)
    found = facts(html)
    assert found["*Model"][:2] == ("a", "b")
    assert found["Calls"] == ("1", "2", "+100 %")
    assert found["Input tokens"] == ("100 (60 from the cache)", "200 (120 from the cache)", "+100 %")
    assert found["Mean latency"] == ("100 ms", "200 ms", "+100 %")
    assert "Instructions" not in found
    assert re.search(r"<summary>The same in both: [^<]*instructions", html)


@pytest.mark.parametrize(
    ("old", "new", "shown"), [(100, 150, "+50 %"), (100, 50, "\u221250 %"), (3, 3, "same"), (0, 2, ""), (None, 1, "")]
)
def test_changes(old: float | None, new: float | None, shown: str) -> None:
    assert change_of(old, new) == shown


def branched(pages: Pages, before: int = 0) -> Conversation:
    """A conversation with two answers to its last question, on branches 0 and 1."""
    conversation = talk(pages, *(f"Part {number}" for number in range(before)), "When?")
    fork = conversation.fork(at=conversation.head)
    ask(conversation, answer("At ten."))
    fork.update(model="other")
    ask(fork, {**answer("At eleven."), "model": "other"})
    return conversation


def test_two_answers_to_a_question(pages: Pages) -> None:
    conversation = branched(pages)
    html = compared(pages, f"{conversation.id}?branch=0", f"{conversation.id}?branch=1")
    assert facts(html)["*Model"][:2] == ("gpt-5.4", "other")
    assert html.count("When?") == 3  # the headings above, and the question once
    assert pairs(html) == [(True, True)]


def test_branches_are_compared_from_the_last_item_that_they_share(pages: Pages) -> None:
    conversation = branched(pages, before=PAGE + 20)
    html = compared(pages, f"{conversation.id}?branch=0", f"{conversation.id}?branch=1")
    assert f"#{PAGE + 20}</a> on, the last item that both share" in html
    assert "At ten." in html
    assert "At eleven." in html
    assert "Part 3" not in html
    earlier = re.search(r'rel="prev" href="([^"]+)"', html)
    assert earlier
    before = pages.get("/compare" + unescape(earlier[1]))
    assert "#20</a> on. " in before
    start = re.search(r'rel="prev" href="([^"]+)"', before)
    assert start
    assert "Part 3" in pages.get("/compare" + unescape(start[1]))


def test_long_conversations_have_pages(pages: Pages) -> None:
    one, other = (talk(pages, *(f"{text} {number}" for number in range(PAGE + 3))) for text in ("Apple", "Pear"))
    first = compared(pages, one.id, other.id)
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following
    second = pages.get("/compare" + unescape(following[1]))
    assert f"Apple {PAGE + 2}" in unescape(re.sub("<.*?>", "", second))
    assert 'rel="next"' not in second
    assert 'rel="prev"' in second


def test_addresses_name_conversations_too(pages: Pages) -> None:
    name = "conv_01a2280b502777db8f7974c572180b6f"
    for text, place in {
        name: (name, None),
        f"{name}?branch=2": (name, 2),
        f"https://chats.example.com/history/c/{name}?from=5&branch=12#p7": (name, 12),
        f"/c/{name}#p7": (name, None),
        f"{name}?branch=1234567890": (name, 1234567890),
        f"{name}?branch={'9' * 5_000}": (name, 2**31 - 1),
        "something else": ("something else", None),
    }.items():
        assert ComparedPlace.of(text) == place


def test_a_branch_that_no_conversation_has_is_not_found(pages: Pages) -> None:
    """… however long its number is: the active branch is not shown in its place."""
    one = talk(pages, "Hello")
    for number in ("7", "12345678901", "9" * 5_000):
        assert "has no branch" in compared(pages, f"{one.id}?branch={number}", one.id, status=404)


def test_pages_lead_to_it(pages: Pages) -> None:
    conversation = branched(pages)
    talk(pages, "Other")
    html = pages.get("/")
    assert html.count('type="checkbox" form="compare" name="c" value="conv_') == 2
    html = pages.get(f"/c/{conversation.id}")
    for link in (unescape(one) for one in re.findall(r'href="(/compare[^"]*)"', html)):
        assert "Compare" in pages.get(link)
    assert html.count(f'name="c" value="{conversation.id}?branch=') == 2
    assert f'name="c" value="{conversation.id}"' in compared(pages, conversation.id)


def test_it_takes_two(pages: Pages) -> None:
    one = talk(pages, "Hi").id
    assert "must be there twice" in compared(pages, status=400)
    assert "must be there twice" in compared(pages, one, one, one, status=400)
    assert "Not found" in compared(pages, one, "conv_unknown", status=404)
    assert "Not found" in compared(pages, one, f"{one}?branch=9", status=404)


@pytest.mark.parametrize("turn", [1, -1])
def test_others_conversations_do_not_exist(pages: Pages, turn: int) -> None:
    own, foreign = talk(pages, "Mine", user="ben"), talk(pages, "A secret", user="ann")
    html = compared(pages, *[own.id, foreign.id][::turn], user="ben", status=404)
    assert "secret" not in html
    assert compared(pages, own.id, own.id, user="ben")


def test_texts_are_harmless(pages: Pages) -> None:
    one = talk(pages, "Hi", "Say <b>this</b> now and \u202e then")
    other = talk(pages, "Hi", "Say <i>this</i> now and \u202e then")
    html = compared(pages, one.id, other.id)
    assert "<b>" not in html.partition("<main")[2]
    assert "\u202e" not in html
    assert [unescape(one) for one in MARK.findall(html)] == ["b", "b", "i", "i"]


def test_empty_conversations(pages: Pages) -> None:
    one, other = pages.store.create_conversation(), pages.store.create_conversation()
    assert "Neither of them has said anything yet." in compared(pages, one.id, other.id)


def test_it_takes_a_few_statements(pages: Pages) -> None:
    conversation, other = branched(pages, before=10), branched(pages, before=4)
    for places in (
        (f"{conversation.id}%3Fbranch=0", f"{conversation.id}%3Fbranch=1"),
        (conversation.id, f"{other.id}%3Fbranch=1"),
    ):
        assert pages.statements(f"/compare?c={places[0]}&c={places[1]}") <= MAX_STATEMENTS
