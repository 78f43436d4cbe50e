"""A store whose tables have partitions: a share of its behaviour, and that a conversation is in one of each.

All of it: ``THREADKEEP_TEST_PARTITIONS=4 make test-all ARGS='-k postgresql'``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.conftest import provided
from tests.databases import Database, Databases
from tests.factories import an_answer
from tests.store.test_branches import *  # noqa: F403 - the tests of that module, and its fixtures
from tests.store.test_idempotency import *  # noqa: F403
from tests.store.test_streams import *  # noqa: F403
from tests.store.watching import engine_of
from threadkeep import schema
from threadkeep.db.partitions import PARTITIONED

COUNT = 4
PARTITION = re.compile(rf"({'|'.join(PARTITIONED)})_p\d+")


def with_partitions(engine: Engine) -> None:
    schema.upgrade(engine, partitions=COUNT)


@pytest.fixture(scope="module", params=["postgresql"])
def database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """A database with partitions, in place of one without."""
    yield from provided(databases, request.param, with_partitions)


@pytest.fixture(params=["sync"])
def face(request: pytest.FixtureRequest) -> str:
    """The modules themselves go through both; partitions are the same for them."""
    return str(request.param)


def partitions_read(plan: Any) -> Iterator[tuple[str, str]]:
    """The partitions that a plan reads: table and partition."""
    if (match := PARTITION.fullmatch(plan.get("Relation Name", ""))) is not None and plan["Node Type"] != "ModifyTable":
        yield match[1], match[0]
    for part in plan.get("Plans", ()):
        yield from partitions_read(part)


def plans_of(store: Any, call: Callable[[], Any]) -> list[tuple[str, Any]]:
    """The statements that a call runs on tables with partitions, with their plans."""
    seen: list[tuple[str, Any]] = []

    def watch(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE", "WITH")) and any(
            name in statement for name in PARTITIONED
        ):
            seen.append((statement, parameters))

    engine = engine_of(store)
    event.listen(engine, "before_cursor_execute", watch)
    try:
        call()
    finally:
        event.remove(engine, "before_cursor_execute", watch)
    return seen


READS: dict[str, Callable[[Any], Any]] = {
    "render": lambda it: it.render("open_responses"),
    "transcript": lambda it: it.transcript(),
    "items": lambda it: it.items(limit=2),
    "an item": lambda it: it.get_item(0),
    "the responses": lambda it: it.responses(),
    "a raw body": lambda it: it.response_body(0),
    "an earlier request": lambda it: it.request_body("open_responses", upto=0),
    "pending calls": lambda it: it.pending_calls(),
    "a message": lambda it: it.user("Hi"),
    "a message with a key": lambda it: it.user("Hi", idempotency_key="once"),
    "an answer": lambda it: it.add_response(an_answer("Hi"), "open_responses"),
    "a fork": lambda it: it.fork(at=1).user("Hi"),
    "a removal": lambda it: it.remove_item(1),
}


@pytest.mark.parametrize("face", ["sync"])
@pytest.mark.parametrize("name", READS)
def test_a_conversation_is_in_one_partition_of_each_table(database: Database, store: Any, name: str) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.add_response(an_answer("Hello"), "open_responses", idempotency_key="first")
    conversation = store.get_conversation(conversation.id)
    statements = plans_of(store, lambda: READS[name](conversation))
    assert statements
    with database.engine().connect() as connection:
        for statement, parameters in statements:
            (plan,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar_one()
            read = set(partitions_read(plan["Plan"]))
            assert len(read) == len({table for table, _ in read}), (statement, json.dumps(plan, indent=1))
        connection.rollback()
