"""Two planners of context caches at once: what one may use is not deleted by the other, and no claim gets lost.

One of them plans in a transaction of the application, which ends while the other is waiting for a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.databases import Database
from tests.factories import a_gemini_answer
from threadkeep import CachePlan

# SQLite has one writer at a time
SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
LARGE, SMALL = 30_000, 100


@pytest.fixture
def store(stores: Any, tenant: str) -> Any:
    return stores.get("sync").for_tenant(tenant)


def talk(store: Any, prompt: int = LARGE) -> Any:
    conversation = store.create_conversation(model="gemini-2.5-flash", instructions="RULES")
    for question in ("q1", "q2"):
        conversation.user(question)
        conversation.add_response(a_gemini_answer(f"to {question}", prompt), "gemini")
    conversation.user("q3")
    return conversation


def go_on(conversation: Any) -> CachePlan:
    """A turn that makes the cache in use too short; the plan of a longer one."""
    conversation.add_response(a_gemini_answer("to q3", 55_000, LARGE), "gemini")
    conversation.user("q4")
    plan: CachePlan = conversation.plan_context_cache("gemini")
    assert (plan.action, plan.delete) == ("replace", ["caches/1"])
    return plan


@contextmanager
def host(database: Database, store: Any) -> Iterator[tuple[Any, Any]]:
    """A transaction of the application, and the store inside it."""
    with database.engine().connect().execution_options(isolation_level="READ COMMITTED") as connection:
        yield connection, store.within(connection)


@contextmanager
def waiting(action: Callable[[], CachePlan]) -> Iterator[Future[CachePlan]]:
    """Something that another transaction keeps waiting."""
    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(action)
        time.sleep(0.3)
        assert not task.done()
        yield task


@SERVERS
def test_a_cache_that_somebody_is_told_to_use_is_not_deleted(database: Database, store: Any) -> None:
    first, second = talk(store), talk(store)
    first.record_context_cache(first.plan_context_cache("gemini"), name="caches/1")
    longer = go_on(first)
    with host(database, store) as (connection, within):
        assert within.get_conversation(second.id).plan_context_cache("gemini").name == "caches/1"
        with waiting(lambda: first.record_context_cache(longer, name="caches/2")) as task:
            connection.commit()
            assert task.result().delete == []
    assert second.request_payload("gemini", cache="auto")["cachedContent"] == "caches/1"


@SERVERS
def test_nobody_is_told_to_use_a_cache_that_is_being_deleted(database: Database, store: Any) -> None:
    first, second = talk(store), talk(store)
    first.record_context_cache(first.plan_context_cache("gemini"), name="caches/1")
    longer = go_on(first)
    with host(database, store) as (connection, within):
        recorded = within.get_conversation(first.id).record_context_cache(longer, name="caches/2")
        assert recorded.delete == ["caches/1"]
        with waiting(lambda: second.plan_context_cache("gemini")) as task:
            connection.commit()
            assert (task.result().action, task.result().name) == ("create", None)


@SERVERS
def test_what_expired_is_listed_once_and_its_place_can_be_taken(database: Database, store: Any) -> None:
    """Its maker tidies up while somebody else makes it anew."""
    first, second = talk(store), talk(store)
    past = datetime.now(UTC) - timedelta(seconds=1)
    first.record_context_cache(first.plan_context_cache("gemini"), name="caches/1", expires_at=past)
    first.add_response(a_gemini_answer("to q3", SMALL), "gemini")
    with host(database, store) as (connection, within):
        plan = within.get_conversation(second.id).plan_context_cache("gemini")
        assert (plan.action, plan.delete) == ("create", ["caches/1"])
        with waiting(lambda: first.plan_context_cache("gemini")) as task:
            connection.commit()
            assert (task.result().action, task.result().delete) == ("none", [])
    assert second.record_context_cache(plan, name="caches/2").name == "caches/2"
