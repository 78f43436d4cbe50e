"""What a request costs on PostgreSQL whose connections keep plans from the time when there was hardly anything.

psycopg prepares what it often runs, and the server keeps its plan until a table is analyzed, which is a minute later at
best. A plan made for empty tables finds the rows of a tenant as cheap as those of a conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from tests.conftest import provided, upgraded
from tests.databases import Database, Databases
from tests.factories import a_message, a_picture, an_answer, noise
from threadkeep import Store, Turns

PREPARED = 12  # runs: five until psycopg prepares a statement, five more until the server keeps its plan
FEW, MANY = 2, 30  # conversations of others
ITEMS = 20  # of each conversation
TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'threadkeep%'"
READ = "SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables"

CALLS: dict[str, Callable[[Any, str], Any]] = {
    "rendered by its id": lambda store, key: store.render(key, "open_responses"),
    "opened and rendered": lambda store, key: store.get_conversation(key).request_body("open_responses"),
    "opened and listed": lambda store, key: list(store.get_conversation(key).items()),
    "rendered with a window": lambda store, key: store.render(key, "messages", window=Turns(2)),
    "gone on with": lambda store, key: store.get_conversation(key).user("And?"),
    "answered": lambda store, key: store.get_conversation(key).add_response(an_answer("Yes"), "open_responses"),
    "asked and answered": lambda store, key: store.get_conversation(key).add_turn(
        "?", an_answer("Yes"), "open_responses"
    ),
    "looked at": lambda store, key: [store.get_conversation(key).responses(), store.get_conversation(key).branches()],
    "forked": lambda store, key: store.get_conversation(key).fork(3).user("Or?"),
    "changed": lambda store, key: store.get_conversation(key).update(title="New", labels={"a": "b"}),
}


def upgraded_without_statistics(engine: Engine) -> None:
    upgraded(engine)
    with engine.begin() as connection:
        for name in connection.execute(text(TABLES)).scalars().all():
            connection.execute(text(f"ALTER TABLE {name} SET (autovacuum_enabled = false)"))


@pytest.fixture(params=["postgresql"])
def database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    yield from provided(databases, request.param, upgraded_without_statistics)


def rows_read(connection: Connection) -> Counter[str]:
    """How many rows of each table the transaction has read."""
    return Counter({name: int(count) for name, count in connection.execute(text(READ)).all()})


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_plan_for_few_conversations_does_for_many(database: Database, call: Callable[[Any, str], Any]) -> None:
    with Store(database.engine()) as store, database.engine().connect() as connection:
        own = store.create_conversation(model="m", input=[a_message(str(number)) for number in range(ITEMS)])
        own.user(["Look", a_picture(noise(9_000))])
        connection.execute(text("SET enable_seqscan = off"))  # of so few rows, it would be the best way
        inside = store.within(connection)
        for _ in range(PREPARED):
            call(inside, own.id)
        few, many = (read_among(others, store, connection, lambda: call(inside, own.id)) for others in (FEW, MANY))
    assert {name: (few[name], count) for name, count in many.items() if count > 2 * few[name] + 2} == {}


def read_among(others: int, store: Any, connection: Connection, call: Callable[[], Any]) -> Counter[str]:
    """What a call reads once there are so many more conversations."""
    for _ in range(others):
        talk = store.create_conversation(model="m", labels={"a": "b"}, input=[a_message("Hi")] * ITEMS)
        talk.user(["Look", a_picture(noise(9_000))])
        talk.add_response(an_answer("Hello"), "open_responses")
        talk.fork().user("Or?")
    before = rows_read(connection)
    call()
    return rows_read(connection) - before
