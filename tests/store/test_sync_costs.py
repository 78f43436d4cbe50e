"""What following a client's history takes: it grows with that history, and others hardly wait for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from tests.factories import a_call, a_message, an_output, texts_of
from tests.store.test_syncing import said, sync
from tests.store.watching import engine_of, statements_of
from threadkeep import SyncResult
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.store.history_sync.alignment import align, utterances_of
from threadkeep.store.history_sync.sync import CUT_HISTORIES
from threadkeep.store.writing.importing import TRIES

pytestmark = pytest.mark.one_face


@contextmanager
def counted(*functions: Callable[..., Any]) -> Iterator[list[int]]:
    """How many functions are called in the meantime, or how often these."""
    codes, count = {function.__code__ for function in functions}, [0]

    def note(frame: Any, kind: str, _: Any) -> None:
        count[0] += not codes or (kind == "call" and frame.f_code in codes)

    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(None)


# Two histories


def messages(*texts: str) -> list[dict[str, Any]]:
    return [a_message(text, ("user", "assistant")[number % 2]) for number, text in enumerate(texts)]


A_THOUGHT = {"type": "reasoning", "summary": []}
HISTORIES: dict[str, Callable[[int], tuple[list[Any], list[Any]]]] = {
    "equal texts": lambda n: (messages(*["on"] * n, "x"), messages(*["on"] * n, "y")),
    "the end of equal texts": lambda n: (messages(*["on"] * n, "x"), messages(*["on"] * (n // 2), "y")),
    "equal texts with thoughts": lambda n: (
        [item for text in messages(*["on"] * n, "x") for item in (text, A_THOUGHT)],
        messages(*["on"] * n, "y"),
    ),
    "equal texts of one speaker": lambda n: ([a_message("a")] * n, [a_message("a" * n + "b")]),
    "texts that go on": lambda n: ([a_message("a" * n)] * n, [a_message("a")] * n),
    "calls in another order": lambda n: (
        [a_call(f"c{i}", f"f{i}") for i in range(n)],
        [a_call(f"d{i}", f"f{i}") for i in reversed(range(n))],
    ),
    "equal calls before another": lambda n: (
        [*[a_call("c", "f")] * n, a_call("c", "g")],
        [a_call("c", "g"), *[a_call("c", "f")] * n],
    ),
    "outputs that differ": lambda n: (
        [an_output("c", "1")] * n,
        [*[an_output("c", "1")] * (n - 1), an_output("c", "2")],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_twice_as_long_takes_twice_as_much(name: str) -> None:
    work = []
    for length in (200, 400):
        stored, client = (utterances_of(items) for items in HISTORIES[name](length))
        with counted() as calls:
            align(stored, client)
        work.append(calls[0])
    assert work[1] < 2.2 * work[0]


# Branches


@pytest.fixture
def edited(store: Any) -> Any:
    """A conversation whose first turn was edited again and again; what follows it is the same."""
    conversation = store.create_conversation(model="m")
    for number in range(30):
        sync(conversation, *turns(number))
    return conversation


def turns(number: int) -> list[dict[str, Any]]:
    return said(f"Edit {number}.", *(f"turn {n}" for n in range(1, 20)))


def test_only_branches_that_can_match_are_read(edited: Any, elsewhere: Any) -> None:
    handle = elsewhere.get_conversation(edited.id)
    assert len(list(handle.branches(limit=100))) == 30
    with counted(ItemEntry.item) as read:
        assert sync(handle, *turns(99)) == SyncResult(0, 20, -1)
    own, ends = 20, 2 * 30
    assert read[0] <= own + ends + CUT_HISTORIES * 20
    with counted(ItemEntry.item) as read:
        assert sync(handle, *turns(3), *said("More")) == SyncResult(20, 1)
    assert read[0] <= own + ends + (CUT_HISTORIES + 1) * 20
    with counted(ItemEntry.item) as read:
        assert sync(handle, *said("Something else")) == SyncResult(0, 1, -1)
    assert read[0] <= own + ends + 2


def test_the_number_of_statements_does_not_grow_with_the_branches(edited: Any, elsewhere: Any) -> None:
    handle = elsewhere.get_conversation(edited.id)
    counts = []
    for number in (50, 51, 52):
        with statements_of(elsewhere) as statements:
            sync(handle, *turns(number))
        counts.append(len(statements))
    assert counts[1] == counts[2] <= 18 + CUT_HISTORIES


def test_the_end_of_a_newer_branch_is_found(edited: Any, elsewhere: Any) -> None:
    """… by a client that has dropped the beginning."""
    handle = elsewhere.get_conversation(edited.id)
    branch = sync(handle, *turns(7)[:5], *said("new", "answer", "newer", "last", first="assistant")).branch
    result = sync(handle, *said("newer", "last", "more", first="assistant"))
    assert (result.appended, result.branched_at, result.branch) == (1, None, branch)


# While the conversation is locked


def test_nothing_is_read_while_the_conversation_is_locked(edited: Any, elsewhere: Any) -> None:
    handle = elsewhere.get_conversation(edited.id)
    for history in (turns(0), turns(5), turns(60), [*turns(60), *said("More")]):
        with statements_of(elsewhere) as statements:
            sync(handle, *history)
        locked = next(n for n, statement in enumerate(statements) if statement.startswith("UPDATE"))
        read = [statement for statement in statements[locked:] if statement.startswith("SELECT")]
        assert [statement for statement in read if "payload" in statement and "substr" not in statement] == []


@contextmanager
def appended_meanwhile(
    store: Any, append: Callable[[], object], times: int, before: str = "to_position"
) -> Iterator[list[int]]:
    """Something else is appended, so many times, each time before a statement that reads with this word."""
    engine, count = engine_of(store), [0]

    def watch(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if before in statement and statement.startswith("SELECT"):
            count[0] += 1
            if count[0] <= times:
                append()

    event.listen(engine, "before_cursor_execute", watch)
    try:
        yield count
    finally:
        event.remove(engine, "before_cursor_execute", watch)


@pytest.mark.parametrize("times", [1, TRIES])
def test_what_others_append_meanwhile_is_not_appended_twice(stores: Any, tenant: str, times: int) -> None:
    store, other = (stores.get("sync", name).for_tenant(tenant) for name in ("first", "elsewhere"))
    conversation = store.create_conversation(model="m")
    sync(conversation, *said("one", "1"))
    news = iter(("two", "2", "three"))
    handle = other.get_conversation(conversation.id)

    def append() -> None:
        text = next(news)
        handle.add_items([a_message(text, "assistant" if text == "2" else "user")])

    with appended_meanwhile(store, append, times) as tries:
        result = sync(conversation, *said("one", "1", "two", "2", "three", "3"))
    assert (tries[0], result) == (times + 1, SyncResult(2 + times, 4 - times))
    assert texts_of(conversation.transcript()) == ["one", "1", "two", "2", "three", "3"]


@pytest.mark.parametrize("change", ["title", "branch"])
def test_other_changes_are_noticed_too(stores: Any, tenant: str, change: str) -> None:
    """A branch that was made meanwhile is found, where there would have been a second one."""
    store, other = (stores.get("sync", name).for_tenant(tenant) for name in ("first", "elsewhere"))
    conversation = store.create_conversation(model="m")
    sync(conversation, *said("one", "1", "two", "2"))
    handle = other.get_conversation(conversation.id)
    changes = {
        "title": lambda: handle.update(title="Numbers"),
        "branch": lambda: sync(handle, *said("one", "1", "two")),
    }
    with appended_meanwhile(store, changes[change], 1, "min(") as tries:
        result = sync(conversation, *said("one", "1", "two"))
    assert (tries[0] > 1, result.appended, result.branch) == (True, 0, 1)
    assert len(list(conversation.branches())) == 2


def test_a_key_that_was_used_gives_its_result_whatever_has_changed(store: Any, elsewhere: Any) -> None:
    conversation = store.create_conversation(model="m")
    first = sync(conversation, *said("one", "1"), idempotency_key="key")
    elsewhere.get_conversation(conversation.id).user("two")
    again = sync(conversation, *said("one", "1"), idempotency_key="key")
    assert (again, again.replayed) == (first, True)
