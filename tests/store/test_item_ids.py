"""Ids of items, what they find, and pages that begin at one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.factories import a_call, a_message, an_answer, an_output
from threadkeep import InvalidOption, NotFound

pytestmark = pytest.mark.one_face

OURS = "conv_"


def named(text: str, id: str) -> dict[str, Any]:
    return a_message(text) | {"id": id}


def texts(items: Any) -> list[str]:
    return [stored.item.text for stored in items]


def digits(conversation: Any) -> str:
    return str(conversation.id).removeprefix(OURS)


def test_an_item_without_an_id_gets_one_with_the_prefix_of_its_type(store: Any, conversation: Any) -> None:
    added = [conversation.user("Hi"), *conversation.add_items([a_call(), an_output(), {"type": "odd"}], known=False)]
    prefixes = ["msg", "fc", "fco", "item"]
    expected = [f"{prefix}_{digits(conversation)}{position}" for position, prefix in enumerate(prefixes)]
    assert [stored.id for stored in added] == expected
    read = store.get_conversation(conversation.id).transcript()
    assert [stored.id for stored in read] == expected
    assert {stored.conversation_id for stored in [*added, *read]} == {conversation.id}
    assert [conversation.get_item(item_id).position for item_id in expected] == [0, 1, 2, 3]


def test_an_id_of_its_own_is_kept(store: Any, conversation: Any) -> None:
    conversation.add_response(an_answer("Hello", calls=("c",)), "open_responses")
    message, call = conversation.transcript()
    assert (message.id, call.id) == ("msg_resp_1_0", "fc_c")
    assert conversation.add_item(named("Hi", "msg_mine")).id == "msg_mine"
    for find in (conversation.get_item, store.get_item, store.get_conversation(conversation.id).get_item):
        assert find("msg_resp_1_0") == message
        assert find("fc_c").position == 1
        assert find("msg_mine").position == 2
        assert find(f"msg_{digits(conversation)}0") == message, "the derived id finds it, too"


def test_ids_of_any_length_and_text_are_found(conversation: Any) -> None:
    for item_id in ("x" * 5_000, "a\\b\x00c", "ümlaut ", "\ud800"):
        assert conversation.get_item(conversation.add_item(named("Hi", item_id)).id).id == item_id


def test_a_repetition_returns_the_same_ids(conversation: Any) -> None:
    for add in (
        lambda: conversation.add_items([a_message(), named("Hi", "msg_a")], idempotency_key="a"),
        lambda: conversation.add_input([a_message(), named("Hi", "msg_b")], "open_responses", idempotency_key="b"),
        lambda: [conversation.compact(summary="All", idempotency_key="c")],
    ):
        first = add()
        assert [(one.id, one.conversation_id) for one in add()] == [(one.id, conversation.id) for one in first]


@pytest.mark.parametrize("item_id", ["", "x", "1_0", "msg_1", "msg_" + "0" * 33, "\x00", "conv_1", "9" * 5_000])
def test_an_unknown_id_is_not_found(store: Any, conversation: Any, item_id: str) -> None:
    conversation.user("Hi")
    for find in (
        conversation.get_item,
        store.get_item,
        lambda item_id: conversation.items(after=item_id),
        lambda item_id: conversation.items(before=item_id),
    ):
        with pytest.raises(NotFound):
            find(item_id)


def test_digits_are_a_position_in_a_cursor_only(conversation: Any) -> None:
    conversation.add_items([named("a", "1"), a_message("b"), a_message("c")])
    assert conversation.get_item("1").item.text == "a"
    assert texts(conversation.items(after="1")) == ["c"]
    with pytest.raises(NotFound):
        conversation.get_item("0")


@pytest.mark.parametrize("item_id", [None, 0, True, b"x", ["x"]], ids=repr)
def test_what_is_no_id_is_refused(store: Any, item_id: Any) -> None:
    with pytest.raises(NotFound, match="no item with the id"):
        store.get_item(item_id)


def test_an_id_with_another_prefix_or_position_is_not_found(store: Any, conversation: Any) -> None:
    conversation.user("Hi")
    for item_id in (f"fc_{digits(conversation)}0", f"msg_{digits(conversation)}1", f"msg_{digits(conversation)}00"):
        for find in (conversation.get_item, store.get_item):
            with pytest.raises(NotFound):
                find(item_id)


def test_a_reference_does_not_have_the_id_it_names(conversation: Any) -> None:
    conversation.add_items([named("Hi", "msg_a"), {"type": "item_reference", "id": "msg_a"}])
    assert conversation.get_item("msg_a").position == 0
    assert conversation.transcript()[1].id == f"ref_{digits(conversation)}1"


# The same id twice


def test_the_newest_of_several_items_with_an_id_is_found(store: Any, conversation: Any) -> None:
    conversation.add_items([named(text, "msg_a") for text in "abc"])
    assert conversation.get_item("msg_a").item.text == "c"
    assert store.get_item("msg_a").item.text == "c"
    fork = conversation.fork(at=1)
    assert fork.get_item("msg_a").item.text == "b"


def test_an_item_that_was_sent_back_with_its_derived_id(store: Any, conversation: Any) -> None:
    first = conversation.user("a")
    other = store.create_conversation(model="m")
    copy = other.add_item(named("copy", first.id))
    assert copy.id == first.id
    assert store.get_item(first.id) == conversation.get_item(first.id), "where the id was made comes first"
    assert other.get_item(first.id).item.text == "copy"
    conversation.add_item(named("again", first.id))
    assert conversation.get_item(first.id).item.text == "again"


def test_the_newest_conversation_comes_first(store: Any) -> None:
    for text in "ab":
        store.create_conversation(model="m").add_item(named(text, "msg_a"))
    assert store.get_item("msg_a").item.text == "b"


# Branches


def test_only_items_of_the_branch_are_found(store: Any, conversation: Any) -> None:
    conversation.add_items([named("a", "msg_a"), named("b", "msg_b")])
    fork = conversation.fork(at=0)
    added = fork.add_item(named("c", "msg_c"))
    assert fork.get_item("msg_a").item.text == "a"
    for branch, item_id in (
        (fork, "msg_b"),
        (conversation, "msg_c"),
        (conversation, f"msg_{digits(fork)}{added.position}"),
    ):
        with pytest.raises(NotFound):
            branch.get_item(item_id)
        with pytest.raises(NotFound):
            branch.items(after=item_id)
    assert store.get_item("msg_c").branch == 1, "the store finds items on all branches"


def test_the_active_branch_comes_first(store: Any, conversation: Any) -> None:
    conversation.add_item(named("root", "msg_a"))
    conversation.fork(at=-1).add_item(named("fork", "msg_a"))
    assert store.get_item("msg_a").item.text == "root"
    conversation.set_active_branch(1)
    assert store.get_item("msg_a").item.text == "fork"


# Who may


def test_ids_of_others_are_not_found(store: Any, stores: Any, face: str, tenant: str) -> None:
    anns = store.create_conversation(model="m", user_id="ann")
    ids = [anns.add_item(named("secret", "msg_secret")).id, f"msg_{digits(anns)}0"]
    bens = store.for_user("ben").create_conversation(model="m")
    bens.user("Hi")
    elsewhere = stores.get(face).create_tenant(f"elsewhere {tenant}")
    for item_id in ids:
        assert store.for_user("ann").get_item(item_id).conversation_id == anns.id
        for find in (
            store.for_user("ben").get_item,
            elsewhere.get_item,
            bens.get_item,
            lambda item_id: bens.items(after=item_id),
            lambda item_id: bens.items(before=item_id, order="desc"),
        ):
            with pytest.raises(NotFound) as refusal:
                find(item_id)
            assert "ann" not in str(refusal.value)


def test_a_newer_item_of_another_user_does_not_hide_ones_own(store: Any) -> None:
    for user in ("ann", "ben"):
        store.for_user(user).create_conversation(model="m").add_item(named(user, "msg_a"))
    assert store.for_user("ann").get_item("msg_a").item.text == "ann"


def test_items_of_deleted_conversations_are_not_found(store: Any, conversation: Any) -> None:
    ids = [conversation.user("a").id, conversation.add_item(named("b", "msg_b")).id]
    store.delete_conversation(conversation.id)
    for item_id in ids:
        with pytest.raises(NotFound):
            store.get_item(item_id)


# Pages


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_an_id_is_a_cursor(conversation: Any, order: str) -> None:
    conversation.add_items(
        [a_message(text) if number % 2 else named(text, f"msg_{text}") for number, text in enumerate("abcdefg")]
    )
    fork = conversation.fork(at=4)
    fork.user("z")
    expected = "abcdez" if order == "asc" else "zedcba"
    seen, cursor = [], None
    while page := fork.items(after=cursor, limit=2, order=order).items:
        seen += texts(page)
        cursor = page[-1].id
    assert "".join(seen) == expected


def test_items_before_an_id(conversation: Any) -> None:
    ids = [stored.id for stored in conversation.add_items([named(text, f"msg_{text}") for text in "abcd"])]
    assert texts(conversation.items(before=ids[2])) == ["a", "b"]
    assert texts(conversation.items(after=ids[0], before=ids[3])) == ["b", "c"]
    assert texts(conversation.items(before=ids[3], order="desc", limit=2)) == ["c", "b"]


def test_the_next_of_a_page_is_a_position(conversation: Any) -> None:
    conversation.add_items([named(text, "msg_same") for text in "abc"])
    page = conversation.items(limit=1)
    assert page.next == "0"
    assert texts(conversation.items(after=page.next)) == ["b", "c"]
    with pytest.raises(InvalidOption):
        conversation.items(after=1.5)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["msg_a", "msg_b", None]), min_size=1, max_size=8), st.integers(1, 3))
def test_pages_never_loop(store: Any, ids: list[str | None], limit: int) -> None:
    """Whichever ids repeat: an id as a cursor may pass over items that share it, and shows none twice."""
    conversation = store.create_conversation(model="m")
    conversation.add_items([a_message() if item_id is None else named("x", item_id) for item_id in ids])
    for order in ("asc", "desc"):
        for argument in ("after", "before") if order == "asc" else ("after",):
            seen: list[int] = []
            cursor = None
            while page := conversation.items(**{argument: cursor}, limit=limit, order=order).items:
                assert not set(seen) & {stored.position for stored in page} or argument == "before"
                seen += [stored.position for stored in page]
                assert len(seen) <= 100
                cursor = page[-1 if argument == "after" else 0].id


def test_more_items_with_one_id_than_one_statement_reads(store: Any, conversation: Any) -> None:
    conversation.add_item(named("first", "msg_a"))
    fork = conversation.fork()
    conversation.add_items([named("later", "msg_a") for _ in range(250)])
    assert fork.get_item("msg_a").item.text == "first"
    assert [item.position for item in conversation.items(after="msg_a")] == []
    assert store.get_item("msg_a").position == 250
