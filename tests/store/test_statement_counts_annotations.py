# ruff: noqa: F401, F811 - fixtures
"""How many statements states, labels and feedback take: the same at 10 and at 100,000 items."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import Database
from tests.factories import an_answer
from tests.store.filled import SIZES, database, filled
from tests.store.test_statements import RESPONSE, USER, count, extra

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

KEY, STATES = 2, 2


@pytest.fixture(params=SIZES)
def handle(request: pytest.FixtureRequest, stores: Any, face: str, filled: Any) -> Any:
    tenant, public_id = filled[request.param]
    return stores.get(face).for_tenant(tenant).get_conversation(public_id)


def test_a_state_takes_four_statements(handle: Any) -> None:
    """The lock, the versions, the value, the change."""
    assert count(handle, lambda: handle.set_state("run", {"step": 1})) == 4
    version = handle.state("run").version
    assert count(handle, lambda: handle.set_state(uuid4().hex, version, expected_version=0)) == 4
    assert count(handle, lambda: handle.set_state("run", 1, idempotency_key=uuid4().hex)) == 4 + KEY
    for state in handle.states():
        handle.delete_state(state.name)
    assert count(handle, lambda: handle.delete_state("run")) == 2


def test_states_are_read_by_one_statement(handle: Any) -> None:
    handle.set_state("run", {"step": 1})
    assert count(handle, lambda: handle.state("run")) == count(handle, handle.states) == 1


def test_states_add_two_statements_to_an_append(handle: Any, database: Database) -> None:
    """However many they are; without any, none."""
    for number in (1, 3):
        states = {f"{name}": {"step": name} for name in range(number)}
        said = count(handle, partial(handle.user, "Hi", states=states))
        answered = count(handle, partial(handle.add_response, an_answer("Hi"), "open_responses", states=states))
        assert said <= USER + STATES + extra(database)
        assert answered <= RESPONSE + STATES + extra(database)
    assert count(handle, lambda: handle.user("Hi", states={})) <= USER + extra(database)


def test_labels_and_feedback_are_written_by_a_few_statements(handle: Any) -> None:
    """The lock, the row, the item; then what is removed and written, and the change."""
    assert count(handle, lambda: handle.label_item(5, {"a": "b", "c": "d"})) == 6
    assert count(handle, lambda: handle.set_feedback(5, rating=1)) == 5
    assert count(handle, lambda: handle.set_feedback(5, rating=1, idempotency_key=uuid4().hex)) == 5 + KEY


def test_reading_them_adds_two_statements(handle: Any) -> None:
    handle.label_item(5, {"a": "b"})
    for read in (partial(handle.items, limit=8), partial(handle.get_item, 5)):
        assert count(handle, partial(read, annotations=True)) == count(handle, read) + 2
    assert count(handle, lambda: handle.feedback(5)) == 3
    assert count(handle, handle.feedback) == 2


def test_a_page_of_found_items_takes_three_statements(stores: Any, face: str, filled: Any) -> None:
    for tenant, public_id in filled.values():
        store = stores.get(face).for_tenant(tenant)
        conversation = store.get_conversation(public_id)
        for place in range(8):
            conversation.label_item(place, {"set": "eval"})
            conversation.set_feedback(place, rating=1)
        for limit in (1, 8):
            wanted = {"labels": {"set": "eval"}, "rating": 1, "limit": limit}
            assert count(store, partial(store.list_items, **wanted)) == 3
