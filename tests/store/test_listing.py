"""Finding conversations: by id, by the application's own id, and in pages, newest activity first."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.factories import a_message
from threadkeep import InvalidOption, NotFound, Session
from threadkeep.db.queries.annotations import annotated_items
from threadkeep.db.queries.appends import append_at_once, end_at_once, placed_rows
from threadkeep.db.queries.histories import tail_of
from threadkeep.db.queries.items import turns_in
from threadkeep.db.queries.lists import conversation_page, label_counts


def ids(page: Any) -> list[str]:
    return [conversation.id for conversation in page]


def all_pages(store: Any, **options: Any) -> list[list[str]]:
    pages: list[list[str]] = []
    after = None
    for _ in range(50):
        page = store.list_conversations(after=after, **options)
        pages.append(ids(page))
        after = page.next
        if after is None:
            return pages
    raise AssertionError(pages)


def test_the_newest_activity_comes_first(store: Any) -> None:
    one, two, three = (store.create_conversation(title=title) for title in ("1", "2", "3"))
    assert [found.title for found in store.list_conversations()] == ["3", "2", "1"]
    one.user("Hi")
    assert [found.title for found in store.list_conversations()] == ["1", "3", "2"]
    two.update(title="two")
    assert [found.title for found in store.list_conversations()] == ["1", "3", "two"]
    assert [found.head for found in store.list_conversations()] == [0, -1, -1]
    assert one.last_activity_at <= store.get_conversation(one.id).last_activity_at
    assert three.created_at.tzinfo is not None


@pytest.mark.parametrize("limit", [1, 3, 4, 12])
def test_pages_join_to_the_whole(store: Any, limit: int) -> None:
    """Also where many conversations have the same time: the key of a page is time and id."""
    made = [store.create_conversation().id for _ in range(5)] + store.save_many([Session() for _ in range(7)])
    pages = all_pages(store, limit=limit)
    assert [len(page) for page in pages] == [limit] * (12 // limit)  # the last one has nothing behind it
    listed = [public_id for page in pages for public_id in page]
    assert sorted(listed) == sorted(made)
    assert listed == ids(store.list_conversations())
    assert listed[7:] == made[4::-1]


def test_a_page_is_not_moved_by_what_happens_meanwhile(store: Any) -> None:
    made = [store.create_conversation() for _ in range(6)]
    page = store.list_conversations(limit=3)
    made[5].user("Hi")
    store.create_conversation()
    assert ids(store.list_conversations(after=page.next, limit=3)) == [conversation.id for conversation in made[2::-1]]


def test_filters_are_joined(store: Any) -> None:
    for number in range(12):
        store.create_conversation(
            user_id=f"u{number % 2}", labels={"kind": "abc"[number % 3], "all": "yes"}, title=str(number)
        )
    store.list_conversations(user_id="u0", labels={"kind": "a"}, limit=1).items[0].archive()

    def titles(**filters: Any) -> list[str]:
        return [conversation.title for conversation in store.list_conversations(**filters)]

    assert titles(user_id="u1", labels={"kind": "a"}) == ["9", "3"]
    assert titles(user_id="u0", labels={"kind": "a"}) == ["0"]
    assert titles(user_id="u0", labels={"kind": "a"}, status=None) == ["6", "0"]
    assert titles(status="archived") == ["6"]
    assert titles(labels={"kind": "b", "all": "yes"}) == ["10", "7", "4", "1"]
    assert titles(labels={"kind": "b", "all": "no"}) == titles(user_id="u2") == []
    assert all_pages(store, labels={"all": "yes"}, user_id="u0", status=None, limit=2)[0] == ids(
        store.list_conversations(labels={"all": "yes"}, user_id="u0", status=None, limit=2)
    )
    assert sum(len(page) for page in all_pages(store, user_id="u0", status=None, limit=2)) == 6


def test_labels_differ_by_every_byte(store: Any) -> None:
    values = ["a", "A", "a ", "é", "e\u0301", "a\\", "a\x00", "\ud800", ""]
    made = {value: store.create_conversation(labels={"kind": value, f"kind {value}": "x"}).id for value in values}
    for value, public_id in made.items():
        assert ids(store.list_conversations(labels={"kind": value})) == [public_id]
        assert ids(store.list_conversations(labels={f"kind {value}": "x"})) == [public_id]
        assert store.get_conversation(public_id).labels == {"kind": value, f"kind {value}": "x"}


def test_a_conversation_is_found_by_the_application_s_id(store: Any) -> None:
    values = ["order 7", "Order 7", "order 7 ", "é", "e\u0301", "o\x00", "o\ud800", "o\\u0000"]
    made = {value: store.create_conversation(external_id=value).id for value in values}
    for value, public_id in made.items():
        found = store.find_conversation(external_id=value)
        assert (found.id, found.external_id) == (public_id, value)
    assert store.find_conversation(external_id="order") is None


@pytest.mark.parametrize(
    "public_id",
    ["", "conv_", "conv_zz", "conv_" + "0" * 31, "conv_" + "0" * 33, "conv_" + "0" * 32, "0" * 32, None, 7, b"conv_",
     "conv_" + "{" + "0" * 30 + "}", "CONV_" + "0" * 32, "conv_" + "\u0660" * 32, "conv_" + "\ud800" * 32],
    ids=ascii,
)  # fmt: skip
def test_an_unknown_id_is_not_found(store: Any, public_id: Any) -> None:
    with pytest.raises(NotFound):
        store.get_conversation(public_id)
    with pytest.raises(NotFound):
        store.delete_conversation(public_id)
    with pytest.raises(NotFound):
        store.copy_conversation(public_id)


def test_an_id_has_one_spelling(store: Any, conversation: Any) -> None:
    """Upper case would be the same number, but an application that compares ids would see two."""
    shouted = "conv_" + conversation.id.removeprefix("conv_").upper()
    if shouted != conversation.id:
        with pytest.raises(NotFound):
            store.get_conversation(shouted)


def page_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": 1_001},
        {"limit": "5"},
        {"limit": True},
        {"status": "deleted"},
        {"status": "gone"},
        {"labels": {"a": 1}},
        {"labels": "a"},
        {"user_id": ""},
        {"user_id": "u" * 3000},
        {"after": "x"},
        {"after": "é"},
        {"after": 7},
        {"after": page_of("2026-01-01T00:00:00 1")},
        {"after": page_of("2026-01-01T00:00:00+00:00 99999999999999999999")},
        {"after": page_of("yesterday 1")},
        {"after": page_of("2026-01-01T00:00:00+00:00")},
    ],
    ids=str,
)
def test_other_filters_are_refused(store: Any, conversation: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        store.list_conversations(**options)


@pytest.mark.parametrize(
    "method", ["list_conversations", "list_summaries", "list_items", "search", "search_conversations"]
)
def test_few_labels_are_looked_for_at_once(store: Any, method: str) -> None:
    labels = {f"k{number}": "v" for number in range(17)}
    look = partial(getattr(store, method), *(["word"] if "search" in method else []))
    with pytest.raises(InvalidOption, match="labels has 17 pairs, at most 16 can be looked for at once"):
        look(labels=labels)
    labels.popitem()
    assert look(labels=labels).items == []
    assert store.create_conversation(labels={**labels, "k16": "v"}).labels.keys() > labels.keys()


@pytest.mark.parametrize(
    "cached",
    [conversation_page, label_counts, annotated_items, tail_of, turns_in, placed_rows, append_at_once, end_at_once],
    ids=lambda cached: cached.__name__,
)
def test_statements_that_depend_on_what_is_given_are_kept_in_limited_numbers(cached: Any) -> None:
    assert cached.cache_parameters()["maxsize"] is not None


@pytest.mark.parametrize("limit", [0, -1, 1_001, 2**70, None, "5"], ids=repr)
def test_pages_have_a_size(conversation: Any, limit: Any) -> None:
    for listing in (conversation.items, conversation.branches, conversation.responses):
        with pytest.raises(InvalidOption):
            listing(limit=limit)


@pytest.mark.parametrize("after", ["x", 1.5, float("inf"), float("nan"), [1], b"1x"], ids=repr)
def test_pages_begin_at_a_position(conversation: Any, after: Any) -> None:
    for listing in ("items", "branches", "responses"):
        is_id = listing == "items" and isinstance(after, str)
        with pytest.raises(NotFound if is_id else InvalidOption):
            getattr(conversation, listing)(after=after)


@pytest.mark.parametrize("number", [2**31, 2**63, 2**70, -(2**31) - 1, -(2**70)])
def test_numbers_beyond_all_columns_are_found_nowhere(store: Any, conversation: Any, number: int) -> None:
    conversation.user("Hi")
    looks: list[Callable[[], Any]] = [
        lambda: conversation.get_item(number),
        lambda: conversation.on_branch(number),
        lambda: conversation.fork(at=number),
        lambda: conversation.response_body(number),
        lambda: conversation.set_active_branch(number),
        lambda: store.get_conversation(conversation.id, branch=number),
    ]
    for look in looks:
        with pytest.raises(NotFound):
            look()
    expected = 1 if number < 0 else 0
    assert len(conversation.items(after=number)) == expected
    assert len(conversation.branches(after=str(number))) == expected
    assert len(conversation.items(before=number)) == 1 - expected
    assert not list(conversation.responses(after=number, limit=1)) or number < 0


@pytest.mark.parametrize("number", ["0", 0.0, None, True, b"0"], ids=repr)
def test_numbers_are_numbers(conversation: Any, number: Any) -> None:
    conversation.add_item(a_message())
    for look in ("get_item", "on_branch", "response_body", "set_active_branch"):
        is_id = look == "get_item" and isinstance(number, str)
        with pytest.raises(NotFound if is_id else InvalidOption):
            getattr(conversation, look)(number)
