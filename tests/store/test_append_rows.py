"""Appends in one statement of PostgreSQL: the same rows as in a transaction, in one round trip each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, event, make_url

from tests.databases import DRIVERS, Database
from tests.factories import a_completion, a_message, an_answer, an_output, texts_of
from tests.store.watching import Tables, engine_of, statements_of
from threadkeep import Store

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
FORMAT: Final = "open_responses"
NUMBERS = count()

# What differs between two copies of a conversation: whose it is, and when it was written
OWN = {
    "tenant_id", "conversation_id", "id", "public_id", "created_at", "occurred_at", "last_activity_at",
    "transaction_id",
}  # fmt: skip
TABLES = {
    "conversations": ("id",),
    "items": ("position",),
    "responses": ("number",),
    "response_bodies": ("number",),
    "usage_records": ("id",),
    "changes": ("id",),
    "appends": ("key",),
}


def rendered_answer(conversation: Any, **options: Any) -> None:
    rendered = conversation.render("chat_completion")
    conversation.add_response(a_completion(), "chat_completion", rendered=rendered, **options)


def answer_to_earlier_options(conversation: Any) -> None:
    rendered = conversation.render(FORMAT)
    conversation.update(temperature=(conversation.temperature or 0) + 0.1)
    conversation.add_response(an_answer("late"), FORMAT, rendered=rendered)


# What an application appends
STEPS: dict[str, Callable[[Any, int], Any]] = {
    "user": lambda it, number: it.user(f"question {number}"),
    "keyed": lambda it, number: it.user("again", idempotency_key=f"key {number}"),
    "author": lambda it, _: it.user("Hi", author_id="ann"),
    "expected": lambda it, _: it.user("Hi", expected_head=it.head),
    "items": lambda it, number: it.add_items([a_message(f"{number}.{part}") for part in range(number % 4 + 1)]),
    "no items": lambda it, _: it.add_items([]),
    "many": lambda it, number: it.add_items([a_message(f"{number}.{part}") for part in range(12)]),
    "output": lambda it, _: it.add_items([an_output()], known=False),
    "answer": lambda it, _: it.add_response(an_answer("one", "two"), FORMAT),
    "calls": lambda it, _: it.add_response(an_answer("look", calls=("a", "b")), FORMAT, latency_ms=5),
    "keyed answer": lambda it, number: it.add_response(an_answer("Hi"), FORMAT, idempotency_key=f"key {number}"),
    "without items": lambda it, _: it.add_response(an_answer(), FORMAT),
    "rendered": lambda it, _: rendered_answer(it),
    "rendered, keyed": lambda it, number: rendered_answer(it, idempotency_key=f"key {number}"),
    "earlier options": lambda it, _: answer_to_earlier_options(it),
    "turn": lambda it, number: it.add_turn(f"question {number}", an_answer("Yes"), FORMAT),
    "keyed turn": lambda it, number: it.add_turn("Sure?", an_answer("Yes"), FORMAT, idempotency_key=f"key {number}"),
    "wire turn": lambda it, _: it.add_turn([{"role": "user", "content": "Hi"}], a_completion(), "chat_completion"),
}  # fmt: skip


@pytest.fixture(scope="module")
def store(database: Database) -> Iterator[Any]:
    with Store(database.url, tenants=True) as opened:
        yield opened


def written(store: Any, steps: list[str], *, in_transaction: bool) -> dict[str, Any]:
    """The rows of a conversation in a tenant of its own after these steps, without what is its own."""
    name = f"tenant {next(NUMBERS)}"
    store.create_tenant(name)
    tenant = store.for_tenant(name)
    conversation = tenant.create_conversation(model="m", instructions="Be brief.", user_id="u", input="Hello")
    engine = engine_of(store)
    for number, step in enumerate(steps):
        if not in_transaction:
            STEPS[step](conversation, number)
            continue
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as host, host.begin():
            STEPS[step](tenant.within(host).get_conversation(conversation.id), number)
    with engine.connect() as connection:
        tables = Tables(connection, tenant.handle.scope.tenant)
        return {
            table: [{key: row[key] for key in row if key not in OWN} for row in tables.rows(table, *order)]
            for table, order in TABLES.items()
        }


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))
def test_both_ways_write_the_same_rows(store: Any, steps: list[str]) -> None:
    assert written(store, steps, in_transaction=False) == written(store, steps, in_transaction=True)


@pytest.mark.parametrize("step", STEPS)
def test_each_append_writes_the_same_rows(store: Any, step: str) -> None:
    steps = ["user", step, step]
    assert written(store, steps, in_transaction=False) == written(store, steps, in_transaction=True)


def after_a_response(store: Any) -> Any:
    """A conversation with a response: the first one of a tenant each day looks whether there are days to roll up."""
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.add_response(an_answer("Hello"), FORMAT)
    return conversation


def test_a_turn_takes_three_round_trips(stores: Any, face: str, tenant: str) -> None:
    """One to find the conversation, one for each write: none of them begins a transaction or commits one."""
    store = stores.get(face).for_tenant(tenant)
    public_id = after_a_response(store).id
    seen: list[str] = []
    engine = engine_of(store)

    def watch(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", watch)
    try:
        conversation = store.get_conversation(public_id)
        conversation.user("Hi", idempotency_key="question")
        conversation.add_response(an_answer("Hello"), FORMAT, idempotency_key="answer")
    finally:
        event.remove(engine, "before_cursor_execute", watch)
    assert [statement.split()[0] for statement in seen] == ["SELECT", "WITH", "WITH"]


def test_a_whole_turn_is_one_statement(stores: Any, face: str, tenant: str) -> None:
    conversation = after_a_response(stores.get(face).for_tenant(tenant))
    with statements_of(conversation) as seen:
        conversation.add_turn("Hi", an_answer("Hello"), FORMAT)
    assert len(seen) == 1


def test_a_repeated_call_finds_the_first_one(store: Any) -> None:
    store.create_tenant("repeated")
    conversation = store.for_tenant("repeated").create_conversation(model="m")
    asked = [conversation.user("Hi", idempotency_key="question") for _ in range(2)]
    answers = [conversation.add_response(an_answer("Yes"), FORMAT, idempotency_key="answer") for _ in range(2)]
    assert [item.replayed for item in asked] == [answer.replayed for answer in answers] == [False, True]
    assert asked[0].position == asked[1].position
    assert texts_of(conversation.transcript()) == ["Hi", "Yes"]


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_many_writers_leave_no_gaps(database: Database, level: str) -> None:
    """Whatever the database's own isolation level is: a statement that it refuses is run again."""
    writers, turns = 6, 5
    setting = level.replace(" ", r"\ ")
    url = make_url(database.url).update_query_dict({"options": f"-c default_transaction_isolation={setting}"})
    with Store(url) as store, ThreadPoolExecutor(writers) as pool:
        public_id = store.create_conversation(model="m").id

        def write(number: int) -> None:
            conversation = store.get_conversation(public_id)
            for turn in range(turns):
                conversation.user(f"{number}.{turn}")
                conversation.add_response(an_answer(f"{number}.{turn}!"), FORMAT)

        list(pool.map(write, range(writers)))
        items = store.get_conversation(public_id).items(limit=200)
        assert [item.position for item in items] == list(range(2 * writers * turns))
        said = texts_of(items)
        for number in range(writers):
            own = [text for text in said if text.startswith(f"{number}.")]
            assert own == [f"{number}.{turn}{end}" for turn in range(turns) for end in ("", "!")]


def test_an_engine_of_the_application_is_used_as_it_is(database: Database) -> None:
    """It may have an isolation level of its own, so that its transactions are begun and committed."""
    engine = create_engine(make_url(database.url).set(drivername=DRIVERS["postgresql"]))
    with Store(engine) as store:
        conversation = store.create_conversation(model="m")
        conversation.user("Hi")
        conversation.add_response(an_answer("Hello"), FORMAT)
        assert texts_of(conversation.transcript()) == ["Hi", "Hello"]
    engine.dispose()
