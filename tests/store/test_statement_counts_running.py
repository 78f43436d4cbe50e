# ruff: noqa: F401, F811 - fixtures
"""What running a conversation costs: as many statements at 10 items as at 100,000, and few rows read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.databases import Database
from tests.factories import an_answer
from tests.store.filled import database, filled, size
from tests.store.test_statements import extra
from tests.store.watching import Tables, statements_of

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

__all__ = ["filled", "size"]  # fixtures
FORMAT = "open_responses"


@pytest.fixture
def asked(stores: Any, face: str, size: int, filled: Any) -> Any:
    """A conversation whose model has called two functions."""
    tenant, public_id = filled[size]
    conversation = stores.get(face).for_tenant(tenant).get_conversation(public_id, branch=0)
    conversation.handle.resources.index_trigger.writes.clear()  # no test is the one in which the index catches up
    conversation.add_response(an_answer(calls=("a", "b")), FORMAT)
    return conversation


def count(handle: Any, call: Callable[[], Any]) -> int:
    with statements_of(handle) as seen:
        call()
    return len(seen)


def test_pending_calls_take_two_statements(asked: Any) -> None:
    """The conversation and the tail; and the decisions, where there are calls. A fork is one more range."""
    assert count(asked, asked.pending_calls) == 3
    fork = asked.fork()
    assert count(fork, fork.pending_calls) == 4
    for call_id in "ab":
        asked.add_function_call_output(call_id=call_id, output="found")
    assert count(asked, asked.pending_calls) == 2


def test_the_next_step_takes_four_statements(asked: Any) -> None:
    assert (asked.next_step(), count(asked, asked.next_step)) == ("tools", 2)
    for call_id in "ab":
        asked.add_function_call_output(call_id=call_id, output="found")
    assert (asked.next_step(), count(asked, asked.next_step)) == ("model", 4)
    asked.add_response(an_answer("Done", id="resp_2"), FORMAT)
    assert (asked.next_step(), count(asked, asked.next_step)) == ("user", 3)


def test_only_the_tail_is_read(asked: Any) -> None:
    """What the newest response was shown is settled, whatever was left open before it."""
    for number in range(3):
        asked.add_response(an_answer(id=f"resp_{number}", calls=("a", "b")), FORMAT)
    asked.add_items([{"type": "function_call_output", "call_id": "a", "output": ""}])
    assert [call.call_id for call in asked.pending_calls()] == ["b"]


def test_decisions_take_as_many_statements_as_an_append_and_what_they_look_at(asked: Any, database: Database) -> None:
    """The lock, the conversation, the calls with that id, earlier decisions, what waits, and what is written."""
    assert count(asked, lambda: asked.approve("a")) == 7 + extra(database)
    assert count(asked, lambda: asked.deny("b")) == 7 + extra(database)


def test_siblings_take_a_handful_of_statements(asked: Any, database: Database) -> None:
    """However many there are, and however many other branches."""
    last = asked.head
    forks = [asked.fork(before=last) for _ in range(3)]
    for fork in forks:
        fork.user("Hi")
    assert count(asked, lambda: asked.siblings(last)) == 4
    assert asked.siblings(last).count == 1
    with database.engine().connect() as connection:
        assert Tables(connection, asked.handle.ref.scope.tenant).counts()["branches"] >= 3
    first = asked.siblings(asked.head).variants[0].position
    assert count(forks[0], lambda: forks[0].siblings(forks[0].head)) == 6
    assert asked.siblings(first).index == 0


@pytest.mark.parametrize("variants", [1, 40])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_page_with_variants_takes_four_statements(asked: Any, variants: int, order: str) -> None:
    """The conversation, its branches, the items, and where the page begins."""
    handle = asked
    for number in range(variants):
        handle = handle.edit(handle.user(f"{number}?").position, f"{number}!")
        handle.assistant("Well.")
    assert count(handle, lambda: handle.items(variants=True, limit=10, order=order)) <= 4
    assert count(handle, lambda: handle.items(variants=True, limit=50, order=order)) <= 4
    assert handle.items(order="desc", variants=True).items[1].siblings.count == 2


def test_another_variant_takes_as_many_statements_at_any_size(asked: Any, database: Database) -> None:
    question = asked.user("Why?").position
    asked.assistant("Because.")
    edited = count(asked, lambda: asked.edit(question, "How?"))
    again = count(asked, asked.regenerate)
    if database.kind == "postgresql":  # a message and what the change feed tells of it are one statement
        assert (edited, again) == (11, 12)
    else:
        assert (edited, again) == (10 + 2 * extra(database), 10 + 2 * extra(database))


def test_a_turn_takes_as_many_statements_as_a_response(asked: Any) -> None:
    answered = count(asked, lambda: asked.add_response(an_answer("Yes"), FORMAT))
    assert count(asked, lambda: asked.add_turn("Sure?", an_answer("Yes"), FORMAT)) == answered
