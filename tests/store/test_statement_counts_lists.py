# ruff: noqa: F401, F811 - fixtures
"""How many statements lists, marks and responses by id take: the same at 10 and at 100,000 items."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.factories import a_call, an_answer
from tests.store.filled import database, filled, size
from tests.store.test_statements import count, extra, handle
from threadkeep import Session

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

CONVERSATION, RESPONSE, LINEAGE, ITEMS, LABELS = 1, 1, 1, 1, 1


@pytest.fixture
def tenant_store(stores: Any, face: str, size: int, filled: Any) -> Any:
    return stores.get(face).for_tenant(filled[size][0])


@pytest.fixture
def answered(handle: Any) -> tuple[Any, str]:
    """A branch, and the id of its newest response."""
    name = f"resp_{uuid4().hex}x"
    handle.add_response(an_answer("Hi", id=name), "open_responses")
    return handle, name


@pytest.mark.parametrize("order_by", ["activity", "created", "title"])
def test_a_page_of_summaries(tenant_store: Any, handle: Any, order_by: str) -> None:
    """How many have the label, the page, the forks among the active branches, and the newest messages."""
    label = {"page": uuid4().hex}
    conversation = tenant_store.get_conversation(handle.id)
    conversation.set_active_branch(handle.branch)
    conversation.update(labels=label)
    expected = LABELS + 2 + (1 if handle.branch else 0)
    options = {"labels": label, "order_by": order_by, "limit": 100}
    assert count(tenant_store, lambda: tenant_store.list_summaries(**options)) == expected
    tenant_store.save_many([Session() for _ in range(40)], labels=label)
    assert count(tenant_store, lambda: tenant_store.list_summaries(**options)) == expected
    assert count(tenant_store, lambda: tenant_store.list_summaries(unread_by="ann", **options)) == expected


def test_texts_that_are_not_near_the_end_take_one_more(tenant_store: Any) -> None:
    label = {"page": uuid4().hex}
    conversation = tenant_store.create_conversation(input="Hi", labels=label)
    conversation.add_items([a_call(str(number)) for number in range(100)])
    assert count(tenant_store, lambda: tenant_store.list_summaries(labels=label)) == LABELS + 3
    conversation.set_active_branch(conversation.fork().branch)
    assert count(tenant_store, lambda: tenant_store.list_summaries(labels=label)) == LABELS + 4


def test_a_mark(handle: Any) -> None:
    assert count(handle, lambda: handle.mark_seen("ann")) == 3
    assert count(handle, lambda: handle.seen("ann")) == 1


def test_a_response_by_its_id(tenant_store: Any, answered: tuple[Any, str]) -> None:
    conversation, name = answered
    own_id = conversation.get_response(name).id
    assert count(tenant_store, lambda: tenant_store.get_response(name)) == RESPONSE
    assert count(tenant_store, lambda: tenant_store.get_response(own_id)) == CONVERSATION + RESPONSE
    assert count(conversation, lambda: conversation.get_response(name)) == CONVERSATION + RESPONSE
    assert count(conversation, lambda: conversation.get_response(0)) == CONVERSATION + RESPONSE


def test_its_items(answered: tuple[Any, str]) -> None:
    conversation, name = answered
    parts = 2 if conversation.branch else 1  # a page that reaches beyond the fork
    expected = 2 * CONVERSATION + RESPONSE + (LINEAGE if conversation.branch else 0) + ITEMS
    assert count(conversation, lambda: conversation.output_items(name)) == expected
    assert count(conversation, lambda: conversation.input_items(name, limit=5)) == expected
    assert count(conversation, lambda: conversation.input_items(name, limit=5, order="desc")) <= expected + parts - 1


def test_a_reported_call(handle: Any, answered: tuple[Any, str]) -> None:
    usage = {"input_tokens": 1, "output_tokens": 1}
    assert count(handle, lambda: handle.record_attempt("open_responses", usage=usage)) == 2
    assert count(handle, lambda: handle.record_attempt("open_responses", usage=usage, response=0)) == 4


def test_an_append_with_a_time(handle: Any, database: Any) -> None:
    at = handle.get_item(0).created_at
    plain = count(handle, lambda: handle.user("Hi"))
    assert count(handle, lambda: handle.user("Hi", created_at=at)) == plain <= 3 + extra(database)
