# ruff: noqa: F401, F811 - fixtures
"""Branches: a handle is pinned to one, and what is appended to another is not seen on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_call, an_answer, an_output, texts_of
from tests.store.counting_texts import root, says, sent
from threadkeep import NotFound

pytestmark = pytest.mark.one_face


@pytest.mark.parametrize(("at", "shared"), [(-1, ""), (0, "0"), (2, "0 1 2"), (3, "0 1 2 3"), (None, "0 1 2 3")])
def test_a_fork_keeps_the_positions_up_to_a_place(root: Any, at: int | None, shared: str) -> None:
    fork = root.fork(at=at)
    assert (fork.branch, fork.head) == (1, 3 if at is None else at)
    assert says(fork) == shared
    fork.user("new")
    assert says(fork) == f"{shared} new".strip()
    assert sent(fork) == says(fork)
    assert says(root) == "0 1 2 3"


def test_edit_and_regenerate(store: Any) -> None:
    """The usual reasons to fork: ask differently, or let the model answer again."""
    conversation = store.create_conversation(model="m", input="Name a colour")
    conversation.add_response(an_answer("Red"), "open_responses")
    again = conversation.fork(at=0)
    again.add_response(an_answer("Blue", id="resp_2"), "open_responses", rendered=again.render("open_responses"))
    edited = conversation.fork(at=-1)
    edited.user("Name a shape")
    assert [says(handle) for handle in (conversation, again, edited)] == [
        "Name a colour Red",
        "Name a colour Blue",
        "Name a shape",
    ]
    assert [(row.number, row.branch, row.input_to) for row in conversation.responses()] == [(0, 0, 0), (1, 1, 0)]


def test_a_fork_of_a_fork(root: Any, elsewhere: Any) -> None:
    one = root.fork(at=1)
    one.user("a")
    root.user("4")
    one.user("b")
    two = one.fork(at=4)
    two.user("c")
    three = two.fork(at=0)
    three.user("d")
    expected = {0: "0 1 2 3 4", 1: "0 1 a b", 2: "0 1 a c", 3: "0 d"}
    for number, handle in enumerate((root, one, two, three)):
        assert says(handle) == sent(handle) == expected[number]
        assert sent(elsewhere.get_conversation(root.id, branch=number)) == expected[number]


def test_branches_lists_them_all(root: Any) -> None:
    fork = root.fork(at=1)
    fork.user("new")
    root.fork(at=-1)
    found = [
        (branch.number, branch.parent, branch.fork_position, branch.head_position, branch.is_active)
        for branch in root.branches()
    ]
    assert found == [(0, None, None, 3, True), (1, 0, 1, 4, False), (2, 0, -1, -1, False)]


def test_branches_come_in_pages(root: Any) -> None:
    for _ in range(4):
        root.fork()
    seen, after = [], None
    for _ in range(9):
        page = root.branches(after=after, limit=2)
        seen += [branch.number for branch in page]
        after = page.next
        if after is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_a_handle_can_change_the_branch(root: Any) -> None:
    root.fork(at=0).user("new")
    assert says(root.on_branch(1)) == "0 new"
    assert says(root.on_branch(1).on_branch(0)) == "0 1 2 3"
    for number in (2, -1, 2**40):
        with pytest.raises(NotFound):
            root.on_branch(number)


def test_the_active_branch_is_opened_by_default(store: Any, root: Any, elsewhere: Any) -> None:
    fork = root.fork(at=0)
    root.set_active_branch(fork.branch)
    assert elsewhere.get_conversation(root.id).branch == 1
    assert elsewhere.get_conversation(root.id, branch=0).branch == 0
    assert [branch.is_active for branch in root.branches()] == [False, True]
    assert (root.branch, says(root)) == (0, "0 1 2 3")
    assert [(found.branch, found.head) for found in store.list_conversations()] == [(1, 0)]
    fork.set_active_branch(0)
    assert elsewhere.get_conversation(root.id).branch == 0
    with pytest.raises(NotFound):
        root.set_active_branch(7)


@pytest.mark.parametrize("at", [4, 99, -2, 2**40])
def test_a_fork_needs_an_item(root: Any, at: int) -> None:
    root.fork().user("position 4 is on branch 1")
    with pytest.raises(NotFound, match="ends at 3"):
        root.fork(at=at)


def test_a_handle_sees_its_own_branch_only(root: Any) -> None:
    """… also when it has read the conversation before."""
    fork = root.fork(at=1)
    assert (sent(root), sent(fork)) == ("0 1 2 3", "0 1")
    for number in range(3):
        root.user(f"r{number}")
        fork.user(f"f{number}")
        assert sent(root).endswith(f"2 3 {' '.join(f'r{n}' for n in range(number + 1))}")
        assert sent(fork) == f"0 1 {' '.join(f'f{n}' for n in range(number + 1))}"


def test_an_item_of_another_branch_is_not_there(root: Any) -> None:
    fork = root.fork(at=1)
    position = fork.user("new").position
    with pytest.raises(NotFound):
        root.get_item(position)
    with pytest.raises(NotFound):
        fork.get_item(2)
    assert fork.get_item(position).branch == 1
    assert fork.get_item(0).branch == 0


def test_upto_is_inclusive(root: Any) -> None:
    assert [sent(root, upto=position) for position in (0, 2, 3)] == ["0", "0 1 2", "0 1 2 3"]
    fork = root.fork(at=1)
    fork.user("new")
    assert [sent(fork, upto=position) for position in (0, 3, 4)] == ["0", "0 1", "0 1 new"]


def test_a_call_and_its_output_live_on_their_branch(store: Any) -> None:
    """A fork in the middle of a tool loop mends it without touching the rows."""
    conversation = store.create_conversation(model="m", input="Look")
    conversation.add_items([a_call("c"), an_output("c")])
    fork = conversation.fork(at=1)
    rendered = fork.render("open_responses")
    assert [repair.code for repair in rendered.repairs]
    assert not conversation.render("open_responses").repairs
    assert len(fork.transcript()) == 2
    fork.add_item(an_output("c", "late"))
    assert not fork.render("open_responses").repairs


def test_a_copy_is_of_the_active_branch(store: Any, root: Any) -> None:
    fork = root.fork(at=0)
    fork.user("new")
    assert says(store.copy_conversation(root.id)) == "0 1 2 3"
    fork.set_active_branch(1)
    copy = store.copy_conversation(root.id, title="Copy")
    assert (says(copy), copy.branch, copy.title, copy.head) == ("0 new", 0, "Copy", 1)


# Items


def positions(page: Any) -> list[int]:
    return [stored.position for stored in page]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ({}, [0, 1, 4, 5, 6]),
        ({"order": "desc"}, [6, 5, 4, 1, 0]),
        ({"after": 1}, [4, 5, 6]),
        ({"after": 2}, [4, 5, 6]),
        ({"before": 5}, [0, 1, 4]),
        ({"before": 5, "order": "desc"}, [4, 1, 0]),
        ({"after": 0, "before": 6}, [1, 4, 5]),
        ({"limit": 3}, [0, 1, 4]),
        ({"limit": 2, "order": "desc"}, [6, 5]),
        ({"after": 6}, []),
        ({"before": 0}, []),
    ],
)
def test_items_of_a_branch(root: Any, window: dict[str, Any], expected: list[int]) -> None:
    fork = root.fork(at=1)
    fork.add_items([{"role": "user", "content": text} for text in "abc"])
    root.user("4")
    assert positions(fork.items(**window)) == expected


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_join_to_the_whole(root: Any, order: str, limit: int) -> None:
    fork = root.fork(at=2)
    for text in "abcd":
        fork.user(text)
    seen: list[int] = []
    after = None
    for _ in range(20):
        page = fork.items(after=after, limit=limit, order=order)
        seen += positions(page)
        after = page.next
        if after is None:
            break
    assert seen == (expected := positions(fork.transcript())) or seen == expected[::-1]
    assert (seen == sorted(seen)) == (order == "asc")


def test_a_stored_item_tells_its_place(store: Any) -> None:
    conversation = store.create_conversation(model="m")
    said = conversation.user("Hi", author_id="ann")
    conversation.add_response(an_answer("Hello", calls=("c",)), "open_responses")
    first, second, third = conversation.transcript()
    assert (first.id, first.position, first.turn, first.author_id) == (said.id, 0, None, "ann")
    assert first.created_at is not None
    assert (second.turn, third.turn, third.item.call_id) == (1, 1, "c")
    assert conversation.get_item(2) == third
    assert len({stored.id for stored in (first, second, third)}) == 3


def test_positions_are_counted_over_all_branches(root: Any) -> None:
    fork = root.fork(at=0)
    assert [handle.user("x").position for handle in (fork, root, fork)] == [4, 5, 6]


def test_an_edit_of_the_first_message(root: Any) -> None:
    fork = root.fork(at=-1)
    with pytest.raises(NotFound):
        fork.get_item(0)
    assert positions(fork.items()) == []
    fork.user("other")
    assert [(stored.position, stored.branch) for stored in fork.items()] == [(4, 1)]
