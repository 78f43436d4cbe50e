"""The views for people who write SQL: on every database the same names, columns and texts, and never in the way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, inspect, text

from tests.databases import Database
from tests.factories import a_call, a_message, a_picture, an_answer, an_output, noise
from tests.store.ledger import attempt_at
from threadkeep import Store
from threadkeep.db.schema import VIEWS
from threadkeep.store.removing.purging import hide_conversation

FIGURES = [
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms", "first_token_ms",
]  # fmt: skip
COLUMNS = {
    "threadkeep_usage_by_day": [
        "tenant", "day", "provider", "model", "format", "status", "attempts", *FIGURES,
        "cache_known_tokens", "costs", "latencies", "first_tokens", "cost_usd",
    ],
    "threadkeep_usage_attempts": [
        "tenant", "id", "day", "occurred_at", "conversation", "response", "user_id", "provider", "model", "format",
        "status", "tool_set", *FIGURES, "cost_usd", "price", "terms", "provider_usage", "error",
    ],
    "threadkeep_messages_text": [
        "tenant", "conversation", "user_id", "branch", "position", "part", "created_at", "role", "author_id", "text",
    ],
    "threadkeep_tool_calls": [
        "tenant", "conversation", "user_id", "branch", "position", "created_at", "name", "status", "call_id",
        "output_position", "output_status", "output_created_at", "day", "latency_ms",
    ],
    "threadkeep_conversation_facts": [
        "tenant", "conversation", "external_id", "user_id", "title", "status", "created_at", "created_day",
        "last_activity_at", "active_day", "labels", "active_branch", "branches", "items", "responses",
    ],
    "threadkeep_labels": ["tenant", "conversation", "user_id", "label", "value"],
    "threadkeep_properties": ["tenant", "conversation", "user_id", "property", "value"],
    "threadkeep_tags": ["tenant", "conversation", "user_id", "response", "kind", "tag", "value"],
    "threadkeep_turns": [
        "tenant", "conversation", "user_id", "branch", "position", "created_at", "day", "week", "author_id",
        "is_active",
    ],
    "threadkeep_call_approvals": [
        "tenant", "conversation", "user_id", "branch", "position", "name", "call_id", "decision", "reason",
        "decided_by", "asked_at", "decided_at", "day",
    ],
    "threadkeep_feedback": [
        "tenant", "conversation", "user_id", "branch", "position", "type", "role", "model", "given_by", "rating",
        "comment", "updated_at", "day",
    ],
}  # fmt: skip
HOSTILE = ["\x00", "a\\u0000b \x00 c", "\ud800 lone \\\\ud800", 'quote " \\ back', "\U0001f600 \u00e9 \u4e2d", "", " "]


@pytest.fixture
def store(empty_database: Database, engine: Engine) -> Iterator[Store]:
    with Store(empty_database.url) as opened:
        yield opened


@pytest.fixture
def connection(engine: Engine, store: Store) -> Iterator[Connection]:
    with engine.connect() as opened:
        yield opened


def rows(connection: Connection, statement: str, **values: Any) -> list[tuple[Any, ...]]:
    connection.rollback()
    return [tuple(row) for row in connection.execute(text(statement), values)]


def test_the_views_have_these_columns(engine: Engine, store: Store) -> None:
    assert set(VIEWS) == set(COLUMNS) == set(inspect(engine).get_view_names())
    for name, columns in COLUMNS.items():
        assert [column["name"] for column in inspect(engine).get_columns(name)] == columns


def test_the_page_names_them() -> None:
    page = Path(__file__).parents[2].joinpath("docs/analytics.md").read_text()
    told = re.findall(r"^\| `(\w+)` \| an? .*? \| (.*) \|$", page, re.MULTILINE)
    assert {name: re.findall(r"`(\w+)`", columns) for name, columns in told} == COLUMNS


def test_texts_of_messages(store: Store, connection: Connection) -> None:
    conversation = store.create_conversation(model="m", user_id="ann", instructions="Be kind")
    conversation.user(["Hello", a_picture(noise(9_000)), "you"], author_id="bob")
    conversation.add_response(an_answer("Good day"), "open_responses")
    conversation.fork(at=0).user("Other")
    gone = store.create_conversation(input="Gone")
    scope = store.handle.scope
    store.handle.transactions.write(lambda connection: hide_conversation(connection, scope, gone.id, None))
    found = rows(
        connection,
        "SELECT conversation, role, author_id, branch, position, text FROM threadkeep_messages_text ORDER BY 5, part",
    )
    assert found == [
        (conversation.id, "user", "bob", 0, 0, "Hello"),
        (conversation.id, "user", "bob", 0, 0, "you"),
        (conversation.id, "assistant", None, 0, 1, "Good day"),
        (conversation.id, "user", None, 1, 2, "Other"),
    ]
    assert rows(connection, "SELECT DISTINCT tenant, user_id FROM threadkeep_messages_text") == [("default", "ann")]


def test_no_text_makes_a_view_fail(store: Store, connection: Connection, empty_database: Database) -> None:
    conversation = store.create_conversation(model="m")
    for one in HOSTILE:
        conversation.add_item(a_message(one), known=False)
    conversation.add_item({**a_message("plain"), "nan": float("nan"), "big": 2**70}, known=False)
    conversation.add_item({"type": "message", "role": "user", "content": []}, known=False)
    found = dict(rows(connection, "SELECT position, text FROM threadkeep_messages_text"))
    assert [found[position] for position in (3, 4, 5, 6)] == HOSTILE[3:]
    strange = [found.get(position) for position in (0, 1, 2)]
    assert (
        strange
        == {
            "sqlite": ["\ufffd", "a\\u0000b \ufffd c", "\\ud800 lone \\\\ud800"],
            "postgresql": ["\ufffd", "a\\u0000b \ufffd c", "\ufffd lone \\\\ud800"],
            "mariadb": ["\x00", "a\\u0000b \x00 c", None],
        }[empty_database.kind]
    )


def test_no_property_makes_a_view_fail(store: Store, connection: Connection, empty_database: Database) -> None:
    for number, one in enumerate(HOSTILE):
        store.create_conversation(model="m", properties={f"p{number}": one, "plain": "yes"})
    store.create_conversation(model="m", properties={'odd " \\ \ud800 name': "x", "plain": "yes"})
    store.create_conversation(model="m")
    found = dict(rows(connection, "SELECT property, value FROM threadkeep_properties WHERE property LIKE 'p_'"))
    assert [found[f"p{number}"] for number in (3, 4, 5, 6)] == HOSTILE[3:]
    known = rows(connection, "SELECT count(*) FROM threadkeep_properties WHERE property = 'plain' AND value = 'yes'")
    assert known == [(6 if empty_database.kind == "mariadb" else 8,)]


def test_usage_by_properties_and_tags_is_that_of_reports(store: Store, connection: Connection) -> None:
    plan = 'pl\u00e4n "x"'
    for value, responses in {"free": 0, "paid": 2}.items():
        talk = store.create_conversation(model="m", input="Hi", properties={plan: value, "n": "1"})
        for number in range(responses):
            talk.update(metadata={"variant": f"v{number}", "round": "0"})
            talk.add_response(an_answer("Hello", model="m", id=f"r{number}"), "open_responses")
            talk.label_item(1 + number, {"kind": "b"})
        talk.record_attempt("open_responses", usage={"input_tokens": 7, "output_tokens": 0}, model="m")
    of_property = (
        "SELECT p.value, count(*), sum(a.total_tokens) FROM threadkeep_usage_attempts a "
        "LEFT JOIN threadkeep_properties p ON p.conversation = a.conversation AND p.property = :name GROUP BY 1"
    )
    of_tag = (
        "SELECT t.value, count(*), sum(a.total_tokens) FROM threadkeep_usage_attempts a "
        "LEFT JOIN threadkeep_tags t ON t.conversation = a.conversation AND t.response = a.response "
        "AND t.kind = :kind AND t.tag = :name GROUP BY 1"
    )
    for key, expected in {
        f"property:{plan}": {("free", 1, 7), ("paid", 3, 37)},
        "metadata:variant": {("v0", 1, 15), ("v1", 1, 15), (None, 2, 14)},
        "metadata:round": {("0", 2, 30), (None, 2, 14)},
        "item_label:kind": {("b", 2, 30), (None, 2, 14)},
    }.items():
        kind, name = key.split(":")
        statement, asked = (of_property, {}) if kind == "property" else (of_tag, {"kind": kind})
        assert set(rows(connection, statement, name=name, **asked)) == expected, key
        assert {(row.keys[key], row.attempts, row.total_tokens) for row in store.usage(by=key)} == expected, key
    store.delete_response(talk.responses().items[-1].id)
    assert rows(connection, "SELECT DISTINCT response FROM threadkeep_tags") == [(0,)]


def test_usage_by_day_is_the_same_with_filled_days(store: Store, connection: Connection) -> None:
    conversation = store.create_conversation(model="m", user_id="ann")
    for day in (1, 1, 2):
        attempt_at(
            conversation, datetime(2026, 1, day, tzinfo=UTC),
            figures={"input_tokens": 10**11 + day, "cached_tokens": 5 if day == 1 else 10**12},
            cost=1_500_000_000, model="m", provider="p",
        )  # fmt: skip
    conversation.add_response(an_answer("Hi", model="m", usage=None), "open_responses")
    statement = (
        "SELECT tenant, day, provider, model, format, status, attempts, input_tokens, output_tokens, cost_nano, "
        "cost_usd, cached_tokens, cache_known_tokens, costs, latencies, first_tokens "
        "FROM threadkeep_usage_by_day ORDER BY day"
    )
    before = rows(connection, statement)
    plain = [[str(cell) if isinstance(cell, str) else cell for cell in row[2:]] for row in before]
    assert plain[:2] == [
        ["p", "m", "open_responses", "completed", 2, 2 * 10**11 + 2, None, 3 * 10**9, 3, 10, 2 * 10**11 + 2, 2, 0, 0],
        [
            "p",
            "m",
            "open_responses",
            "completed",
            1,
            10**11 + 2,
            None,
            15 * 10**8,
            pytest.approx(Decimal("1.5")),
            None,
            None,
            1,
            0,
            0,
        ],
    ]
    assert [str(row[1]) for row in before][:2] == ["2026-01-01", "2026-01-02"]
    assert plain[2][4:] == [1, None, None, None, None, None, None, 0, 0, 0]
    assert store.fill_usage_days() >= 2
    assert rows(connection, statement) == before
    attempt_at(conversation, datetime(2026, 1, 2, tzinfo=UTC))
    assert [row[6] for row in rows(connection, statement)] == [2, 1, 1, 1]


def test_attempts_by_name(store: Store, connection: Connection) -> None:
    conversation = store.create_conversation(model="m", user_id="ann", tools=[{"type": "function", "name": "f"}])
    conversation.add_response(an_answer("Hi", model="m"), "open_responses", provider="p", latency_ms=7)
    gone = store.create_conversation(model="m")
    gone.record_attempt("open_responses", error="no")
    store.delete_conversation(gone.id)
    found = rows(
        connection,
        "SELECT conversation, response, user_id, provider, status, tool_set, latency_ms, provider_usage, error "
        "FROM threadkeep_usage_attempts ORDER BY id",
    )
    [row] = store.usage(by="tool_set", user_id="ann")
    raw = '{"input_tokens":10,"output_tokens":5,"total_tokens":15}'
    assert found == [
        (conversation.id, 0, "ann", "p", "completed", row.tool_set, 7, raw, None),
        (None, None, None, None, "failed", None, None, None, '{"message":"no"}'),
    ]  # fmt: skip


def test_calls_and_their_outputs(store: Store, connection: Connection) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.add_items(
        [a_call("x", "first"), a_call("x", "second"), an_output("x") | {"status": "failed"}, a_call("y", "third")]
    )
    found = rows(
        connection,
        "SELECT name, position, call_id, output_position, output_status FROM threadkeep_tool_calls ORDER BY 2",
    )
    assert found == [("first", 1, "x", None, None), ("second", 2, "x", 3, "failed"), ("third", 4, "y", None, None)]


def test_calls_of_a_response_with_the_same_id(store: Store, connection: Connection) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    for turn in range(2):
        conversation.add_response(an_answer(output=[a_call("x", f"{turn}")] * 2, id=f"r{turn}"), "open_responses")
        conversation.add_items([an_output("x") | {"status": "failed"}, an_output("x")])
    found = rows(connection, "SELECT position, output_position, output_status FROM threadkeep_tool_calls ORDER BY 1")
    assert found == [(1, 3, "failed"), (2, 4, None), (5, 7, "failed"), (6, 8, None)]


def test_turns_of_the_active_branch_are_those_of_the_transcript(store: Store, connection: Connection) -> None:
    conversation = store.create_conversation(model="m", user_id="ann", labels={"team": "a"})
    active = "SELECT position FROM threadkeep_turns WHERE conversation = :id AND is_active = 1 ORDER BY position"

    def check() -> None:
        transcript = store.get_conversation(conversation.id).transcript()
        said = [one.position for one in transcript if getattr(one.item, "role", None) == "user"]
        assert [position for (position,) in rows(connection, active, id=conversation.id)] == said

    for number in range(4):
        conversation.user(f"Question {number}")
        conversation.add_response(an_answer(f"Answer {number}", id=f"r{number}"), "open_responses")
        check()
    edited = conversation.edit(4, "Another question 2")
    check()
    edited.user("More")
    edited.edit(2, "Another question 1").user("Even more")
    check()
    store.get_conversation(conversation.id).remove_item(0)
    check()
    everywhere = "SELECT count(*) FROM threadkeep_turns WHERE conversation = :id"
    assert rows(connection, everywhere, id=conversation.id) == [(8,)]
    assert rows(connection, "SELECT conversation, user_id, label, value FROM threadkeep_labels") == [
        (conversation.id, "ann", "team", "a")
    ]


def test_what_a_user_says_in_one_message_is_one_turn(store: Store, connection: Connection) -> None:
    conversation = store.create_conversation(model="m")
    conversation.add_input([{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}], "chat_completion")
    blocks = [{"type": "text", "text": "Three"}, {"type": "text", "text": "Four"}]
    conversation.add_input([{"role": "user", "content": blocks}], "messages")
    assert rows(connection, "SELECT position FROM threadkeep_turns ORDER BY position") == [(0,), (1,), (2,)]


def test_calls_that_were_decided_and_items_that_were_rated(store: Store, connection: Connection) -> None:
    conversation = store.create_conversation(model="m", user_id="ann", input="Hi")
    conversation.add_items([a_call("x", "pay"), a_call("y", "pay"), a_call("z", "pay")])
    conversation.approve("x", decided_by="bob")
    conversation.deny("y", reason="No")
    conversation.set_feedback(0, rating=-1, comment="So so")
    conversation.set_feedback(0, rating=1, user_id="bob")
    decided = "SELECT user_id, position, name, call_id, decision, reason, decided_by FROM threadkeep_call_approvals"
    assert rows(connection, f"{decided} ORDER BY position") == [
        ("ann", 1, "pay", "x", "approved", None, "bob"), ("ann", 2, "pay", "y", "denied", "No", None),
    ]  # fmt: skip
    rated = "SELECT user_id, position, role, given_by, rating, comment FROM threadkeep_feedback ORDER BY rating"
    assert rows(connection, rated) == [
        ("ann", 0, "user", None, -1, "So so"), ("ann", 0, "user", "bob", 1, None),
    ]  # fmt: skip
    store.delete_conversation(conversation.id)
    for view in ("call_approvals", "feedback", "turns", "labels", "conversation_facts", "properties", "tags"):
        assert rows(connection, f"SELECT * FROM threadkeep_{view}") == [], view
