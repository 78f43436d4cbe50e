"""Labels and feedback of items: written beside them, read when asked for, and a way to find items."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.factories import a_picture, an_answer, noise
from tests.store.watching import Tables
from threadkeep import IdempotencyConflict, InvalidOption, NotFound, TooLarge

pytestmark = pytest.mark.one_face

FORMAT = "open_responses"


def answered(store: Any, *answers: str, **info: Any) -> Any:
    conversation = store.create_conversation(model="m", **info)
    for number, answer in enumerate(answers):
        conversation.user(f"question {number}")
        conversation.add_response(an_answer(answer, id=f"resp_{number}"), FORMAT)
    return conversation


@pytest.fixture
def chat(store: Any) -> Any:
    """Two turns: items 0 to 3."""
    return answered(store, "Paris.", "Rome.", user_id="ann")


def places(page: Any) -> list[tuple[str, int]]:
    return [(item.conversation_id, item.position) for item in page]


def walk(store: Any, limit: int, **wanted: Any) -> list[tuple[str, int]]:
    found, after = [], None
    while True:
        page = store.list_items(limit=limit, after=after, **wanted)
        found += places(page)
        if (after := page.next) is None:
            return found


def opinions(item: Any) -> list[tuple[Any, ...]]:
    return [(one.user_id, one.rating, one.comment) for one in item.feedback]


# Labels


def test_labels_are_read_when_asked_for(chat: Any, elsewhere: Any) -> None:
    chat.label_item(1, {"quality": "good", "checked": ""})
    other = elsewhere.get_conversation(chat.id)
    assert other.get_item(1, annotations=True).labels == {"quality": "good", "checked": ""}
    assert [item.labels for item in other.items(annotations=True)] == [
        {}, {"quality": "good", "checked": ""}, {}, {}
    ]  # fmt: skip
    assert [(item.labels, item.feedback) for item in (other.get_item(1), *other.items())] == [(None, None)] * 5


def test_an_item_found_by_its_id_has_both(store: Any, chat: Any) -> None:
    other = answered(store, "Oslo.")
    other.label_item(0, {"topic": "fjords"})
    chat.label_item(0, {"topic": "food"})
    chat.set_feedback(0, rating=1, user_id="ann")
    found = store.get_item(chat.get_item(0).id, annotations=True)
    assert (found.labels, opinions(found)) == ({"topic": "food"}, [("ann", 1, None)])
    assert (store.get_item(found.id).labels, store.get_item(found.id).feedback) == (None, None)


def test_labels_of_an_item_are_replaced_as_a_whole(chat: Any) -> None:
    chat.label_item(1, {"a": "1", "b": "2"})
    chat.label_item(1, {"b": "3"})
    assert chat.get_item(1, annotations=True).labels == {"b": "3"}
    chat.label_item(1, None)
    assert chat.get_item(1, annotations=True).labels == {}


def test_an_item_is_named_by_its_id_too(chat: Any) -> None:
    item_id = chat.get_item(3).id
    chat.label_item(item_id, {"a": "b"})
    chat.set_feedback(item_id, rating=1)
    found = chat.get_item(3, annotations=True)
    assert (found.labels, [one.position for one in chat.feedback(item_id)]) == ({"a": "b"}, [3])


# Feedback


def test_feedback_is_of_one_user_on_one_item(chat: Any, elsewhere: Any) -> None:
    before = datetime.now(UTC)
    first = chat.set_feedback(1, rating=1, comment="Right!", user_id="ann")
    assert (first.position, first.user_id, first.rating, first.comment) == (1, "ann", 1, "Right!")
    assert before <= first.updated_at <= datetime.now(UTC)
    chat.set_feedback(1, rating=-1, user_id="bob")
    chat.set_feedback(1, comment="automatic")
    chat.set_feedback(3, rating=0, user_id="ann")
    other = elsewhere.get_conversation(chat.id)
    assert opinions(other.get_item(1, annotations=True)) == [
        (None, None, "automatic"), ("ann", 1, "Right!"), ("bob", -1, None)
    ]  # fmt: skip
    assert other.feedback(1)[1] == first
    assert [(one.position, one.user_id) for one in other.feedback()] == [(1, None), (1, "ann"), (1, "bob"), (3, "ann")]


def test_feedback_is_replaced_and_removed(chat: Any) -> None:
    chat.set_feedback(1, rating=1, comment="Right!", user_id="ann")
    chat.set_feedback(1, rating=-1, user_id="ann")
    assert opinions(chat.get_item(1, annotations=True)) == [("ann", -1, None)]
    assert chat.set_feedback(1, user_id="ann") is None
    assert chat.set_feedback(1, user_id="ann") is None
    assert chat.feedback() == []


def test_a_branch_shows_what_belongs_to_its_items(chat: Any) -> None:
    fork = chat.fork(at=1)
    on_fork = fork.user("edited").position
    for place, conversation in ((1, chat), (3, chat), (on_fork, fork)):
        conversation.set_feedback(place, rating=place)
        conversation.label_item(place, {"at": str(place)})
    assert [one.position for one in chat.feedback()] == [1, 3]
    assert [one.position for one in fork.feedback()] == [1, on_fork]
    assert [item.labels for item in fork.items(annotations=True)] == [{}, {"at": "1"}, {"at": str(on_fork)}]
    for call in (fork.get_item, fork.feedback, lambda place: fork.label_item(place, {})):
        with pytest.raises(NotFound):
            call(3)


def test_a_key_writes_once(chat: Any) -> None:
    first = chat.set_feedback(1, rating=1, idempotency_key="k")
    chat.label_item(1, {"a": "b"}, idempotency_key="l")
    chat.set_feedback(1, rating=2)
    chat.label_item(1, {"c": "d"})
    assert chat.set_feedback(1, rating=1, idempotency_key="k") == first
    chat.label_item(1, {"a": "b"}, idempotency_key="l")
    found = chat.get_item(1, annotations=True)
    assert (found.labels, opinions(found)) == ({"c": "d"}, [(None, 2, None)])
    with pytest.raises(IdempotencyConflict):
        chat.set_feedback(1, rating=3, idempotency_key="k")


def test_neither_is_an_activity_or_another_revision_or_sent(chat: Any, tables: Tables) -> None:
    [before], body = tables.rows("conversations"), chat.request_body(FORMAT)
    chat.label_item(1, {"canary": "canary"})
    chat.set_feedback(1, rating=1, comment="canary")
    assert (tables.rows("conversations"), chat.request_body(FORMAT)) == ([before], body)


WRONG: dict[str, Callable[[Any], Any]] = {
    "no such item": lambda c: c.set_feedback(4, rating=1),
    "no such id": lambda c: c.label_item("msg_nothing", {"a": "b"}),
    "a rating that is a text": lambda c: c.set_feedback(1, rating="good"),
    "a rating that is a truth": lambda c: c.set_feedback(1, rating=True),
    "a rating beyond its column": lambda c: c.set_feedback(1, rating=2**31),
    "a comment that is no text": lambda c: c.set_feedback(1, comment=1),
    "a comment that cannot be stored": lambda c: c.set_feedback(1, comment="\ud800"),
    "a comment that is too long": lambda c: c.set_feedback(1, comment="x" * 16_385),
    "nobody": lambda c: c.set_feedback(1, rating=1, user_id=""),
    "a label that is no text": lambda c: c.label_item(1, {"a": 1}),
    "labels that are no dict": lambda c: c.label_item(1, ["a"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_used_is_refused(chat: Any, tables: Tables, name: str) -> None:
    written = tables.written()
    with pytest.raises((InvalidOption, NotFound, TooLarge)):
        WRONG[name](chat)
    assert written() == {}


# Finding


def test_items_are_found_by_labels_and_rating(store: Any, chat: Any) -> None:
    other = answered(store, "Madrid.", "Bern.", user_id="bob")
    for conversation, place, labels, rating in (
        (chat, 1, {"topic": "france", "set": "eval"}, 1),
        (chat, 3, {"topic": "italy", "set": "eval"}, -1),
        (other, 1, {"topic": "spain", "set": "eval"}, 1),
        (other, 3, {"topic": "swiss"}, 1),
    ):
        conversation.label_item(place, labels)
        conversation.set_feedback(place, rating=rating, user_id="critic")
    found = store.list_items(labels={"set": "eval"})
    assert places(found) == [(other.id, 1), (chat.id, 3), (chat.id, 1)]
    assert [(item.item.text, item.labels["topic"], opinions(item)) for item in found] == [
        ("Madrid.", "spain", [("critic", 1, None)]),
        ("Rome.", "italy", [("critic", -1, None)]),
        ("Paris.", "france", [("critic", 1, None)]),
    ]
    assert places(store.list_items(labels={"set": "eval", "topic": "france"})) == [(chat.id, 1)]
    assert places(store.list_items(labels={"set": "eval"}, rating=-1)) == [(chat.id, 3)]
    assert places(store.list_items(rating=1)) == [(other.id, 3), (other.id, 1), (chat.id, 1)]
    assert places(store.list_items(rating=1, user_id="ann")) == [(chat.id, 1)]
    assert places(store.list_items(rating=7)) == places(store.list_items(labels={"set": "x"})) == []
    with pytest.raises(InvalidOption, match="labels= or rating="):
        store.list_items()


def test_pages_show_every_item_once(store: Any) -> None:
    for _ in range(3):
        conversation = answered(store, "a", "b", "c")
        for place in (1, 3, 5):
            conversation.label_item(place, {"set": "eval"})
            for user in ("ann", "bob", None):
                conversation.set_feedback(place, rating=1, user_id=user)
    everything = places(store.list_items(labels={"set": "eval"}, rating=1))
    assert len(set(everything)) == 9
    for limit in (1, 2, 9):
        for wanted in ({"labels": {"set": "eval"}}, {"rating": 1}, {"labels": {"set": "eval"}, "rating": 1}):
            assert walk(store, limit, **wanted) == everything
    with pytest.raises(InvalidOption, match="is not the `next` of a page"):
        store.list_items(rating=1, after="7.7")


def test_found_items_have_their_media(store: Any) -> None:
    conversation = store.create_conversation(model="m")
    picture = conversation.user([a_picture(noise(20_000))])
    conversation.label_item(0, {"set": "eval"})
    [found] = store.list_items(labels={"set": "eval"})
    assert found.item == picture.item
    assert found.item.to_dict() == conversation.get_item(0).item.to_dict()
    [found] = store.list_items(labels={"set": "eval"}, media="reference")
    assert found.item.to_dict() == conversation.get_item(0, media="reference").item.to_dict()


# Scope


def test_a_store_for_one_user_has_that_users_feedback(store: Any, chat: Any) -> None:
    """Of others it neither sees nor changes any, though it is on the user's own conversation."""
    chat.set_feedback(1, rating=-1, comment="internal", user_id="reviewer")
    chat.label_item(1, {"set": "eval"})
    mine = store.for_user("ann").get_conversation(chat.id)
    assert mine.set_feedback(1, rating=5).user_id == "ann"
    assert opinions(mine.get_item(1, annotations=True)) == [("ann", 5, None)]
    assert [one.user_id for one in mine.feedback()] == [one.user_id for one in mine.feedback(1)] == ["ann"]
    with pytest.raises(InvalidOption, match="must be 'ann'"):
        mine.set_feedback(1, user_id="reviewer")
    assert places(store.for_user("ann").list_items(rating=5)) == [(chat.id, 1)]
    assert places(store.for_user("ann").list_items(rating=-1)) == []
    assert places(store.for_user("ann").list_items(labels={"set": "eval"}, rating=-1)) == []
    assert len(chat.feedback(1)) == 2


def test_items_of_others_are_not_found(store: Any, stores: Any, face: str, chat: Any) -> None:
    chat.label_item(1, {"set": "eval"})
    chat.set_feedback(1, rating=1, user_id="bob")
    stores.get("sync").create_tenant(f"other {chat.id}")
    outside = stores.get(face).for_tenant(f"other {chat.id}")
    cursor = store.list_items(labels={"set": "eval"}, limit=1).next
    for scope in (store.for_user("bob"), outside):
        assert (
            places(scope.list_items(labels={"set": "eval"}, after=cursor)) == places(scope.list_items(rating=1)) == []
        )
    assert places(store.for_user("bob").list_items(rating=1, user_id="ann")) == []
    mine = store.for_user("ann").get_conversation(chat.id)
    chat.update(user_id="carl")
    for call in (lambda: mine.label_item(1, {}), lambda: mine.set_feedback(1, rating=1), mine.feedback):
        with pytest.raises(NotFound):
            call()


def test_erasing_a_user_removes_the_users_feedback_everywhere(store: Any, chat: Any, tables: Tables) -> None:
    other = answered(store, "Bern.", user_id="bob")
    for user in ("ann", "bob", None):
        other.set_feedback(1, rating=1, user_id=user)
        chat.set_feedback(1, rating=1, user_id=user)
    chat.label_item(1, {"a": "b"})
    store.erase_user("ann")
    assert [one.user_id for one in other.feedback()] == [None, "bob"]
    assert (len(tables.rows("item_feedback")), tables.rows("item_labels")) == (2, [])


def test_both_go_with_the_conversation(store: Any, chat: Any, tables: Tables) -> None:
    chat.label_item(1, {"a": "b"})
    chat.set_feedback(1, rating=1)
    store.delete_conversation(chat.id)
    counts = tables.counts()
    assert (counts["item_labels"], counts["item_feedback"]) == (0, 0)
    assert places(store.list_items(rating=1)) == []


names = st.text(min_size=1, max_size=20)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(labels=st.dictionaries(names, st.text(max_size=20), max_size=4))
def test_any_labels_come_back_and_find_their_item(store: Any, chat: Any, labels: dict[str, str]) -> None:
    chat.label_item(1, labels)
    assert chat.get_item(1, annotations=True).labels == labels
    if labels:
        assert places(store.list_items(labels=labels)) == [(chat.id, 1)]
