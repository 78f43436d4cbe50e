# ruff: noqa: F401, F811 - fixtures
"""How many statements a use case runs, and how many rows it writes: the same at 10 and at 100,000 items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import Database
from tests.factories import an_answer
from tests.store.filled import database, filled, size
from tests.store.watching import Tables, statements_of

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

USER, RESPONSE, KEY, FORK = 3, 6, 2, 3


@pytest.fixture(params=["branch 0", "fork"])
def handle(request: pytest.FixtureRequest, stores: Any, face: str, size: int, filled: Any) -> Any:
    tenant, public_id = filled[size]
    conversation = stores.get(face).for_tenant(tenant).get_conversation(public_id)
    return conversation.fork() if request.param == "fork" else conversation


def extra(database: Database) -> int:
    """The row of the change feed, except on PostgreSQL; and MySQL and MariaDB have no UPDATE … RETURNING."""
    return {"sqlite": 1, "postgresql": 0, "mariadb": 2}[database.kind]


def count(store: Any, call: Callable[[], Any]) -> int:
    call()  # options and tools that are seen for the first time are not counted
    with statements_of(store) as seen:
        call()
    return len(seen)


def test_a_message_takes_three_statements(handle: Any, database: Database) -> None:
    assert count(handle, lambda: handle.user("Hi")) <= USER + extra(database)


def test_an_answer_takes_six_statements(handle: Any, database: Database) -> None:
    found = count(handle, lambda: handle.add_response(an_answer("Hi", calls=("c",)), "open_responses"))
    if database.kind == "postgresql":  # all its rows are written by one statement
        assert found <= 2 + (handle.branch > 0)
    assert found <= RESPONSE + extra(database)


def test_a_key_adds_two_statements(handle: Any, database: Database) -> None:
    keys = iter(f"{handle.branch} {uuid4()}" for _ in range(4))
    said = count(handle, lambda: handle.user("Hi", idempotency_key=next(keys)))
    answered = count(handle, lambda: handle.add_response(an_answer("Hi"), "open_responses", idempotency_key=next(keys)))
    assert said <= USER + KEY + extra(database)
    assert answered <= RESPONSE + KEY + extra(database)


def test_an_expected_head_adds_none(handle: Any, database: Database) -> None:
    found = count(handle, lambda: handle.user("Hi", expected_head=handle.head))
    assert found <= USER + extra(database)


@pytest.mark.parametrize("key", [None, "once"])
def test_a_fork_writes_two_rows_and_a_change(database: Database, handle: Any, key: str | None) -> None:
    """The counter of the conversation and the branch; with a key also the key."""
    name = None if key is None else f"{key} {uuid4()}"
    with database.engine().connect() as connection:
        written = Tables(connection, handle.handle.ref.scope.tenant).written()
        with statements_of(handle) as seen:
            handle.fork(at=5, idempotency_key=name)
        assert written() == {"branches": 1} | ({"appends": 1} if key else {})
    writes = [statement for statement in seen if statement.startswith(("INSERT", "UPDATE", "DELETE"))]
    assert len(writes) == FORK + (1 if key else 0)


def test_an_unforked_conversation_is_read_by_one_statement(stores: Any, face: str, size: int, filled: Any) -> None:
    tenant, public_id = filled[size]
    handle = stores.get(face).for_tenant(tenant).get_conversation(public_id)
    with statements_of(handle) as seen:
        handle.render("open_responses")
    assert len(seen) == 1
    assert "items" in seen[0]


def test_the_next_request_of_an_id_is_one_statement(
    database: Database, stores: Any, face: str, size: int, filled: Any
) -> None:
    """MariaDB, which packs no columns, opens the conversation first."""
    tenant, public_id = filled[size]
    store = stores.get(face).for_tenant(tenant)
    store.get_conversation(public_id)  # options and tools that are seen for the first time are not counted
    for _ in range(2):
        with statements_of(store) as seen:
            store.render(public_id, "open_responses")
        assert len(seen) == (2 if database.kind == "mariadb" else 1)


def test_a_handle_reads_only_what_is_new(stores: Any, face: str, filled: Any) -> None:
    tenant, public_id = filled[10]
    store = stores.get(face).for_tenant(tenant)
    handle, other = store.get_conversation(public_id), store.get_conversation(public_id)
    handle.render("open_responses")
    position = other.user("New").position
    with statements_of(handle) as seen:
        assert handle.render("open_responses").head == position
    assert len(seen) == 1
    with statements_of(handle) as seen:
        handle.render("open_responses")
    assert len(seen) == 1
