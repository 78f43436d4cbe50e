"""Branches as people see them: "2 of 3", editing a message, and asking for another answer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.factories import a_call, a_message, an_answer, an_output, texts_of
from tests.store.test_streams import FORMAT, left
from tests.store.watching import Tables
from threadkeep import IdempotencyConflict, InvalidItem, InvalidOption, NotFound


def answer(conversation: Any, text: str) -> Any:
    body = an_answer(text, id=f"resp_{text}")
    body["output"].insert(0, {"type": "reasoning", "id": f"rs_{text}", "summary": [], "encrypted_content": "x"})
    return conversation.add_response(body, FORMAT)


@pytest.fixture
def asked(store: Any) -> Any:
    """A conversation: 0 colour?, 1-2 red, 3 shape?, 4-5 round."""
    conversation = store.create_conversation(model="m", input="colour?")
    answer(conversation, "red")
    conversation.user("shape?")
    answer(conversation, "round")
    return conversation


def says(handle: Any) -> str:
    return " ".join(texts_of(handle.transcript()))


def places(handle: Any, position: int | str) -> tuple[int, list[tuple[int, int]]]:
    found = handle.siblings(position)
    return found.index, [(one.branch, one.position) for one in found]


# Siblings


def test_an_item_alone_is_one_of_one(asked: Any) -> None:
    for position, start in ((0, 0), (1, 1), (2, 1), (3, 3), (5, 4)):
        assert places(asked, position) == (0, [(0, start)])
    found = asked.siblings(0)
    assert (found.count, found.previous, found.next) == (1, None, None)


def test_answers_to_one_question_are_siblings(asked: Any) -> None:
    second = asked.regenerate()
    answer(second, "square")
    third = second.regenerate()
    answer(third, "oval")
    expected = [(0, 4), (1, 6), (2, 8)]
    for index, handle in enumerate((asked, second, third)):
        assert places(handle, handle.head) == (index, expected)
        assert places(handle, 0) == (0, [(0, 0)])
    found = second.siblings(7)
    assert (found.previous.branch, found.next.position) == (0, 8)
    assert second.on_branch(found.next.branch).siblings(8).next is None
    with pytest.raises(NotFound):
        second.siblings(4)


def test_edited_messages_are_siblings(asked: Any) -> None:
    """Also the very first, before which there is nothing."""
    first = asked.edit(0, "animal?")
    answer(first, "cat")
    again = first.edit(6, "plant?")
    assert places(asked, 0) == (0, [(0, 0), (1, 6), (2, 9)])
    assert places(first, 6)[0] == 1
    assert places(again, 9)[0] == 2
    assert (says(first), says(again)) == ("animal? cat", "plant?")


def test_what_continues_a_fork_has_siblings_of_its_own(asked: Any) -> None:
    fork = asked.fork(at=3)
    fork.user("Or what size?")
    fork.user("Or what?")
    other = fork.fork(before=fork.head)
    other.user("Well?")
    assert places(asked, 4) == (0, [(0, 4), (1, 6)])
    assert places(fork, 6) == (1, [(0, 4), (1, 6)])
    assert places(fork, 7) == (0, [(1, 7), (2, 8)])
    assert places(other, 8) == (1, [(1, 7), (2, 8)])
    assert places(other, 6) == places(fork, 6)


def test_a_branch_without_items_is_no_variant(asked: Any) -> None:
    empty = asked.regenerate()
    assert places(asked, 4) == (0, [(0, 4)])
    assert says(empty) == "colour? red shape?"
    end = asked.fork()
    end.user("more")
    assert places(end, 6) == (0, [(2, 6)]), "the branch that it continues ends there"
    asked.user("less")
    assert places(end, 6) == (0, [(2, 6), (0, 7)])
    assert places(asked, 7) == (1, [(2, 6), (0, 7)])


@pytest.mark.parametrize("position", [6, -1, 2**70, "msg_nothing"])
def test_there_has_to_be_such_an_item(asked: Any, tables: Tables, position: Any) -> None:
    written = tables.written()
    for look in (asked.siblings, asked.regenerate, lambda it: asked.edit(it, "x"), lambda it: asked.fork(before=it)):
        with pytest.raises(NotFound):
            look(position)
    assert written() == {}


def test_a_variant_leads_to_the_newest_branch_that_has_it(asked: Any) -> None:
    first, edited = asked.siblings(0), asked.edit(0, "animal?")
    assert [one.newest for one in first] == [0]
    answer(edited, "cat")
    answer(asked.regenerate(5), "square")
    assert [(one.branch, one.newest) for one in edited.siblings(6)] == [(0, 2), (1, 1)]
    asked.user("And?")
    assert [(one.branch, one.newest) for one in asked.siblings(0)] == [(0, 0), (1, 1)]
    again = asked.fork(at=3).edit(3, "size?")
    answer(again, "large")
    assert again.siblings(3 if again.head < 3 else 0).variants[0].newest == again.branch


def pages(handle: Any, **options: Any) -> list[Any]:
    """All items of a branch, in pages."""
    found, after = [], None
    while True:
        page = handle.items(after=after, variants=True, **options)
        found += page
        after = page.next
        if after is None:
            return found


@pytest.mark.share(3)
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("removes", [False, True])
def test_items_come_with_the_variants_at_their_places(asked: Any, limit: int, order: str, removes: bool) -> None:
    answer(asked.regenerate(), "square")
    edited = asked.edit(3, "size?")
    answer(edited, "large")
    answer(edited.regenerate(), "small")
    asked.edit(0, "animal?")
    if removes:
        edited.remove_item(1)
        asked.remove_item(0, purge=True)
    for branch in asked.branches():
        handle = asked.on_branch(branch.number)
        items = pages(handle, limit=limit, order=order)
        assert [item.position for item in items] == [item.position for item in handle.items(order=order)]
        for item in items:
            assert item.siblings == handle.siblings(item.position), (branch, item.position)
    assert asked.items().items[0].siblings is None


def test_items_can_be_given_by_id(asked: Any) -> None:
    items = asked.transcript()
    assert asked.siblings(items[5].id) == asked.siblings(5)
    assert says(asked.fork(at=items[1].id)) == says(asked.fork(at=1))
    assert says(asked.fork(before=items[3].id)) == "colour? red"
    assert says(asked.edit(items[3].id, "size?")) == "colour? red size?"
    assert says(asked.regenerate(items[2].id)) == "colour?"


@pytest.mark.one_face
def test_siblings_follow_the_same_item(store: Any) -> None:
    """However branches were made and shortened: exactly those that have the same one before them, on any branch."""

    @settings(max_examples=20)
    @given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["say", "fork", "remove"])), min_size=1, max_size=12))
    def run(steps: list[tuple[int, str]]) -> None:
        conversation = store.create_conversation(model="m", input="0")
        handles = [conversation]
        for number, step in steps:
            handle = handles[number % len(handles)]
            if step == "remove":
                place = [stored.position for stored in handle.transcript()]
                if place:
                    handle.remove_item(place[number % len(place)], purge=bool(number % 2))
                continue
            if step == "fork":
                place = [stored.position for stored in handle.transcript()]
                handle = handle.fork(before=place[number % len(place)]) if place else handle.fork()
                handles.append(handle)
            handle.user(str(number))
        followers: dict[int, set[int]] = {}
        for handle in handles:
            line = [-1, *(stored.position for stored in handle.transcript())]
            for before, position in pairwise(line):
                followers.setdefault(before, set()).add(position)
        for handle in handles:
            line = [-1, *(stored.position for stored in handle.transcript())]
            for before, position in pairwise(line):
                found = handle.siblings(position)
                assert [one.position for one in found] == sorted(followers[before])
                assert found.variants[found.index].position == position
                assert all(handle.on_branch(one.branch).get_item(one.position) for one in found)

    run()


def test_siblings_after_a_removal(asked: Any) -> None:
    """What was removed from one branch is not in front of its items any more."""
    fork = asked.edit(3, "size?")
    assert places(asked, 3) == (0, [(0, 3), (1, 6)])
    asked.remove_item(1)
    asked.remove_item(2)
    assert places(asked, 3) == (1, [(1, 1), (0, 3)])
    assert places(fork, 1) == (0, [(1, 1), (0, 3)])
    assert places(fork, 6) == (0, [(1, 6)])


# Editing


def test_an_edited_message_stands_on_a_branch_of_its_own(asked: Any, store: Any, tables: Tables) -> None:
    written = tables.written()
    edited = asked.edit(3, [{"type": "input_text", "text": "size?"}], author_id="ann", idempotency_key="edit")
    assert written() == {"branches": 1, "items": 1, "appends": 1}
    assert (edited.branch, edited.head, edited.replayed) == (1, 6, False)
    assert edited.get_item(6).author_id == "ann"
    assert says(asked) == "colour? red shape? round"
    assert store.get_conversation(asked.id).branch == 1
    assert edited.next_step() == "model"
    answer(edited, "large")
    assert says(store.get_conversation(asked.id)) == "colour? red size? large"
    again = asked.edit(3, [{"type": "input_text", "text": "size?"}], author_id="ann", idempotency_key="edit")
    assert (again.branch, again.head, again.replayed) == (1, 6, True)
    with pytest.raises(IdempotencyConflict):
        asked.edit(3, "height?", idempotency_key="edit")


def test_only_messages_of_the_user_are_edited(asked: Any, tables: Tables) -> None:
    written = tables.written()
    for position in (1, 2):
        with pytest.raises(InvalidOption, match="must be a user message's: item"):
            asked.edit(position, "red!")
    with pytest.raises(InvalidItem):
        asked.edit(0, None)
    assert written() == {}
    assert asked.on_branch(0).branch == 0


def test_a_branch_in_use_can_be_left(asked: Any) -> None:
    """The response in progress goes on where it is."""
    left(asked)
    assert says(asked.edit(3, "size?")) == "colour? red size?"
    assert says(asked.regenerate()) == "colour? red shape?"


# Generating again


def test_another_answer_is_made_on_a_branch_of_its_own(asked: Any, store: Any, tables: Tables) -> None:
    written = tables.written()
    again = asked.regenerate(idempotency_key="again")
    assert written() == {"branches": 1, "appends": 1}
    assert says(again) == "colour? red shape?"
    assert store.get_conversation(asked.id).branch == again.branch
    rendered = again.render(FORMAT)
    assert rendered.payload["input"][-1]["content"][0]["text"] == "shape?"
    again.add_response(an_answer("square", id="resp_2"), FORMAT, rendered=rendered)
    assert asked.regenerate(idempotency_key="again").replayed
    assert asked.regenerate(0).head == asked.regenerate(1).head == asked.regenerate(2).head == 0
    assert asked.regenerate(3).head == 3


def test_an_answer_is_all_that_follows_a_question(store: Any) -> None:
    """Calls and their outputs, too; what the application said before is kept."""
    conversation = store.create_conversation(model="m", input=[a_message("Where is it warm?")])
    conversation.developer("Be brief.")
    conversation.add_response(an_answer("Let me see.", calls=("c",)), FORMAT)
    conversation.add_item(an_output("c", "Hull"))
    conversation.add_response(an_answer("In Hull.", id="resp_2"), FORMAT)
    conversation.compact(summary="Hull is warm.")
    assert says(conversation.regenerate()) == "Where is it warm? Be brief."
    assert says(conversation.regenerate(4)) == "Where is it warm? Be brief."


def test_a_question_without_an_answer_is_answered_where_it_is(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation(model="m")
    with pytest.raises(InvalidOption, match="no answer"):
        conversation.regenerate()
    written = tables.written()
    for say, text in ((conversation.user, "Hi"), (conversation.system, "Be brief.")):
        say(text)
        assert conversation.regenerate().branch == conversation.branch
    assert written() == {"items": 2}
    conversation.add_item(a_call("c"))
    assert says(conversation.regenerate()) == "Hi Be brief."


def test_nobody_branches_the_conversations_of_others(store: Any, asked: Any) -> None:
    asked.update(user_id="ann")
    seen_by_ann = store.for_user("ann").get_conversation(asked.id)
    seen_by_ann.edit(0, "mine", idempotency_key="key")
    asked.update(user_id="bob")
    for call in (
        lambda: seen_by_ann.siblings(0),
        lambda: seen_by_ann.edit(0, "mine"),
        lambda: seen_by_ann.edit(0, "mine", idempotency_key="key"),
        seen_by_ann.regenerate,
    ):
        with pytest.raises(NotFound):
            call()
