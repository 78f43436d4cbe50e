"""`expected_head` and `on_conflict`: what happens when somebody else appended first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import an_answer, an_error, texts_of
from tests.store.watching import Tables, statements_of
from threadkeep import HeadConflict, InvalidOption, NotFound, ProviderError

# What an answer leaves beside the row of its message, wherever it is put.
ANSWERED = {"items": 1, "responses": 1, "response_bodies": 1, "usage_records": 1}


@pytest.fixture(params=["branch 0", "fork"])
def handle(request: pytest.FixtureRequest, store: Any) -> Any:
    """A branch with three items that ends at 2 (branch 0) or 3 (the fork)."""
    conversation = store.create_conversation(model="m", input="0")
    for text in "12":
        conversation.user(text)
    if request.param == "branch 0":
        return conversation
    fork = conversation.fork(at=1)
    fork.user("2'")
    return fork


def say(handle: Any, text: str, **how: Any) -> Any:
    """Append by one of the two ways; gives the branch."""
    return handle.user(text, **how).branch


def answer(handle: Any, text: str, **how: Any) -> Any:
    handle.add_response(an_answer(text), "open_responses", **how)
    return list(handle.responses())[-1].branch


APPENDS = {"items": say, "response": answer}


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_the_expected_head_is_met(handle: Any, append: Any) -> None:
    for _ in range(2):
        assert append(handle, "more", expected_head=handle.head) == handle.branch
    assert texts_of(handle.transcript())[-2:] == ["more", "more"]


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_the_first_item_is_expected_at_minus_one(store: Any, append: Any) -> None:
    empty = store.create_conversation(model="m")
    assert append(empty, "first", expected_head=-1) == 0
    with pytest.raises(HeadConflict) as caught:
        append(empty, "first", expected_head=-1)
    assert (caught.value.expected, caught.value.head) == (-1, 0)


@pytest.mark.parametrize("expected", [-1, 0, 1, 99])
def test_items_are_refused_elsewhere(handle: Any, tables: Tables, expected: int) -> None:
    written, rows = tables.written(), tables.rows("conversations", "id")
    with pytest.raises(HeadConflict) as caught:
        handle.user("late", expected_head=expected)
    assert (caught.value.expected, caught.value.head) == (expected, handle.head)
    assert written() == {}
    assert tables.rows("conversations", "id") == rows


def test_a_refused_answer_leaves_its_ledger_row(handle: Any, tables: Tables) -> None:
    written, head = tables.written(), handle.head
    with pytest.raises(HeadConflict) as caught:
        handle.add_response(an_answer("late"), "open_responses", expected_head=0)
    assert caught.value.head == head
    assert written() == {"usage_records": 1}
    [row] = tables.rows("usage_records", "id")
    assert (row["response"], row["input_tokens"], row["status"]) == (None, 10, "completed")
    assert handle.user("next").position == 3 + (handle.branch > 0)


def test_what_failed_counts_for_the_tools_that_the_model_saw(store: Any) -> None:
    """… not for those that the conversation has by then."""
    conversation = store.create_conversation(model="m", input="hi", tools=[{"name": "old"}])
    rendered = conversation.render("open_responses")
    conversation.add_response(an_answer("first"), "open_responses", rendered=rendered)
    [seen] = store.usage(by="tool_set")
    rendered = conversation.render("open_responses")
    conversation.register_tool("new")
    conversation.user("more")
    with pytest.raises(HeadConflict):
        conversation.add_response(
            an_answer("late", id="late"), "open_responses", rendered=rendered, expected_head=rendered.head
        )
    with pytest.raises(ProviderError):
        conversation.add_response(an_error(), "open_responses", rendered=rendered)
    assert [(row.tool_set, row.attempts) for row in store.usage(by="tool_set")] == [(seen.tool_set, 3)]


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_append_puts_it_at_the_end(handle: Any, tables: Tables, append: Any) -> None:
    written = tables.written()
    assert append(handle, "late", expected_head=0, on_conflict="append") == handle.branch
    assert texts_of(handle.transcript())[-2:] == [handle.branch * "2'" or "2", "late"]
    assert written() == ({"items": 1} if append is say else ANSWERED)


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
@pytest.mark.parametrize(("expected", "shared"), [(-1, []), (0, ["0"]), (1, ["0", "1"])])
def test_branch_puts_it_on_a_new_branch(
    handle: Any, tables: Tables, append: Any, expected: int, shared: list[str]
) -> None:
    """… that ends where the caller expected; the caller's branch stays as it is."""
    written, before = tables.written(), texts_of(handle.transcript())
    branch = append(handle, "late", expected_head=expected, on_conflict="branch")
    assert branch == handle.branch + 1
    new = handle.on_branch(branch)
    assert texts_of(new.transcript()) == [*shared, "late"]
    assert texts_of(handle.transcript()) == before
    assert written() == ({"items": 1} if append is say else ANSWERED) | {"branches": 1}
    new.user("on", expected_head=new.head)
    assert texts_of(new.transcript()) == [*shared, "late", "on"]


def test_a_branch_cannot_begin_where_nothing_is(handle: Any, tables: Tables) -> None:
    written = tables.written()
    with pytest.raises(NotFound):
        handle.user("late", expected_head=99, on_conflict="branch")
    assert written() == {}


@pytest.mark.parametrize("conflict", ["raise", "append", "branch"])
def test_an_answer_without_items_can_be_late_too(handle: Any, tables: Tables, conflict: str) -> None:
    written = tables.written()
    call = {"expected_head": 0, "on_conflict": conflict}
    if conflict == "raise":
        with pytest.raises(HeadConflict):
            handle.add_response(an_answer(), "open_responses", **call)
    else:
        handle.add_response(an_answer(), "open_responses", **call)
    assert written()["usage_records"] == 1
    assert "items" not in written()


def test_a_conflict_is_about_the_own_branch(store: Any) -> None:
    """What is appended to another branch is nobody's conflict."""
    root = store.create_conversation(model="m", input="0")
    fork = root.fork()
    for number in range(3):
        root.user(f"root {number}", expected_head=root.head)
        fork.user(f"fork {number}", expected_head=fork.head)
    assert texts_of(root.transcript()) == ["0", "root 0", "root 1", "root 2"]
    assert texts_of(fork.transcript()) == ["0", "fork 0", "fork 1", "fork 2"]


@pytest.mark.parametrize(
    "how",
    [{"on_conflict": "merge"}, {"expected_head": "3"}, {"expected_head": True}, {"expected_head": 1.5}, {"expect": 3}],
)
def test_other_options_are_refused(conversation: Any, tables: Tables, how: dict[str, Any]) -> None:
    written = tables.written()
    with pytest.raises(InvalidOption):
        conversation.user("Hi", **how)
    assert written() == {}


def test_a_refusal_stands_until_the_caller_says_otherwise(conversation: Any) -> None:
    """The same key raises again, even where the head is right now; with on_conflict the answer is stored after all."""
    conversation.user("Hello")
    answer = an_answer("Hi")
    for head in (7, 0):
        with pytest.raises(HeadConflict):
            conversation.add_response(answer, "open_responses", idempotency_key="k", expected_head=head)
    conversation.add_response(answer, "open_responses", idempotency_key="k", expected_head=7, on_conflict="append")
    assert (len(conversation.transcript()), conversation.usage().attempts) == (2, 1)


def test_a_listener_to_statements_does_not_change_what_is_refused(handle: Any, tables: Tables) -> None:
    """SQLAlchemy executes them itself then, and begins transactions of its own."""
    written = tables.written()
    with statements_of(handle) as seen, pytest.raises(HeadConflict):
        handle.user("Hi", expected_head=0)
    assert seen
    assert written() == {}
