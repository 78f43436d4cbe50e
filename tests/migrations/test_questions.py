"""The questions of a business on the page about them, with its statements as they stand, against known numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text, update

from tests.databases import Database
from tests.factories import a_call, an_answer, an_output
from tests.store.ledger import attempt_at
from threadkeep import Conversation, Store
from threadkeep.db.models import conversations, item_feedback, items

PAGE = Path(__file__).parents[2] / "docs/questions.md"
_QUESTION = re.compile(r"^### ([^\n]+)\n\n(?:[^`\n][^\n]*\n\n)?```sql\n(.*?)```", re.MULTILINE | re.DOTALL)
QUESTIONS = dict(_QUESTION.findall(PAGE.read_text()))
DOLLAR = 10**9


def at(month: int, day: int) -> datetime:
    return datetime(2026, month, day, 12, tzinfo=UTC)


def begun(store: Store, title: str, user: str, team: str | None, when: datetime) -> Conversation:
    labels = {} if team is None else {"team": team}
    return store.create_conversation(
        model="m", title=title, user_id=user, labels=labels, created_at=when,
        properties={"plan": "pro" if user == "ann" else "free"}, metadata={"variant": user},
    )  # fmt: skip


def fill(store: Store) -> None:
    """Five conversations of three users in two months, one of which is deleted."""
    trip = begun(store, "Trip", "ann", "a", at(1, 10))
    trip.user("What is Rome like?")
    trip.add_response(an_answer("Lovely.", model="big", id="r1", usage=None), "open_responses", provider="one")
    trip.edit(0, "What is Oslo like?").user("And then?")
    trip.set_feedback(1, rating=1, user_id="ann")
    tax = begun(store, "Tax", "ben", "b", at(1, 20))
    tax.user("Help")
    tax.add_items(
        [a_call("x", "look_up"), an_output("x") | {"status": "failed"}, a_call("y", "pay"), a_call("z", "pay")]
    )
    tax.approve("y", decided_by="ben")
    tax.deny("z", decided_by="ben", reason="Too much.")
    food = begun(store, "Food", "ann", "a", at(2, 5))
    food.user("Pasta?")
    food.archive()
    code = begun(store, "Code", "cat", "a", at(2, 6))
    code.user("Fix this")
    code.add_response(an_answer("Done", model="small", id="r2", usage=None), "open_responses", provider="two")
    code.set_feedback(1, rating=-1, user_id="cat", comment="It was not.")
    gone = begun(store, "Gone", "ben", None, at(2, 7))
    bill(trip, at(1, 10), cost=3 * DOLLAR, model="big", provider="one", latency_ms=900, first_token_ms=300, response=0)
    bill(trip, at(2, 1), cost=2 * DOLLAR, model="big", provider="one", latency_ms=1_100, first_token_ms=500)
    bill(tax, at(1, 20), cost=DOLLAR, model="small", provider="two", latency_ms=100, first_token_ms=50)
    bill(tax, at(1, 20), model="small", provider="two", status="failed", figures={}, error={"message": "Overloaded"})
    bill(code, at(2, 6), cost=4 * DOLLAR, model="small", provider="two", latency_ms=300, first_token_ms=150, response=0)
    bill(food, at(2, 5), model="small", provider="two", status="failed", figures={}, error={"message": "Overloaded"})
    bill(code, at(2, 6), model="small", provider="two", status="incomplete", figures={})
    bill(gone, at(2, 7), cost=DOLLAR // 2, model="small", provider="two")
    store.delete_conversation(gone.id)


def bill(conversation: Conversation, when: datetime, **about: Any) -> None:
    figures = about.pop("figures", {"input_tokens": 100, "cached_tokens": 40, "output_tokens": 10})
    attempt_at(conversation, when, figures=figures, **about)


ANSWERS: dict[str, list[tuple[Any, ...]]] = {
    "How many conversations begin each month?": [("2026-01", 2), ("2026-02", 2)],
    "How many users are active each month?": [("2026-01", 2), ("2026-02", 2)],
    "How many users are new each month?": [("2026-01", 2), ("2026-02", 1)],
    "Of the users who were new in a month, how many are active in which month?": [
        ("2026-01", "2026-01", 2), ("2026-01", "2026-02", 1), ("2026-02", "2026-02", 1),
    ],
    "Of the users who were new in a week, how many are active in which week?": [
        ("2026-01-05", "2026-01-05", 1), ("2026-01-05", "2026-02-02", 1), ("2026-01-19", "2026-01-19", 1),
        ("2026-02-02", "2026-02-02", 1),
    ],
    "How many of a month's users have not come back after it?": [("2026-01", 2, 1), ("2026-02", 2, 2)],
    "Which users have not come back since a day?": [("ben", "2026-01-20")],
    "How many turns does a conversation have?": [
        ("Trip", "Trip", 2), ("Code", "Code", 1), ("Food", "Food", 1), ("Tax", "Tax", 1),
    ],
    "How many turns does one have on average?": [(1.25,)],
    "In how many conversations was something edited or asked again?": [(1, 4)],
    "How many conversations are archived?": [("active", 3), ("archived", 1)],
    "What are conversations about that have no title?": [
        ("Trip", "What is Rome like?"), ("Tax", "Help"), ("Food", "Pasta?"), ("Code", "Fix this"),
    ],
    "Who speaks of a word?": [("ann", "Trip")],
    "Which conversations cost most?": [
        ("Trip", "Trip", "ann", 5 * DOLLAR), ("Code", "Code", "cat", 4 * DOLLAR), ("Tax", "Tax", "ben", DOLLAR),
    ],
    "What does each user cost a month?": [
        ("2026-01", "ann", 3 * DOLLAR), ("2026-01", "ben", DOLLAR), ("2026-02", "ann", 2 * DOLLAR),
        ("2026-02", "ben", DOLLAR // 2), ("2026-02", "cat", 4 * DOLLAR),
    ],
    "What does each team cost?": [("a", 5, 9 * DOLLAR), ("b", 2, DOLLAR)],
    "What does each plan cost, if conversations have it as a property?": [
        ("free", 4, 5 * DOLLAR), ("pro", 3, 5 * DOLLAR),
    ],
    "Which variant of a prompt takes how many tokens?": [("ann", 1, 10), ("cat", 1, 10)],
    "What did deleted conversations cost?": [(1, DOLLAR // 2)],
    "Of which calls is the cost unknown?": [("small", "failed", 2), ("small", "incomplete", 1)],
    "How much of the input came from the prompt cache?": [("big", 80, 200), ("small", 120, 300)],
    "How often does a provider fail?": [("one", 0, 2), ("two", 2, 6)],
    "How often is an answer cut off or stopped?": [("big", 0, 2), ("small", 1, 6)],
    "Why do calls fail?": [("two", '{"message":"Overloaded"}', 2)],
    "How long do users wait for a model?": [("big", 1_000, 1_100, 400), ("small", 200, 300, 100)],
    "How long do the slowest of a hundred calls take?": [("big", 900, 1_100), ("small", 100, 300)],
    "How long do tools take, day by day?": [("2026-01-20", "look_up", 1, 1, 0), ("2026-01-20", "pay", 2, 0, 0)],
    "Which tools are called, and which fail?": [("look_up", 1, 0, 1), ("pay", 2, 1, 0)],
    "Which calls do people deny?": [("pay", 1, 2)],
    "Which answers do users like?": [("big", 1, 1), ("small", 1, 0)],
    "What do they say about the others?": [("Code", "cat", "It was not.")],
}  # fmt: skip


@pytest.fixture
def asked(empty_database: Database, engine: Engine) -> Iterator[tuple[Connection, dict[str, str]]]:
    """A connection to the filled database, and the titles of its conversations by id."""
    with Store(empty_database.url) as store:
        fill(store)
        store.fill_usage_days()
        titles = {one.id: str(one.title) for one in store.list_conversations(status=None)}
    with engine.begin() as connection:  # items are as old as their conversations, which they are made to be
        begins = connection.execute(conversations.select()).all()
        for row in begins:
            for table, column in ((items, "created_at"), (item_feedback, "updated_at")):
                change = update(table).where(table.c.conversation_id == row.id)
                connection.execute(change.values({column: row.created_at}))
        connection.exec_driver_sql(
            "DELETE FROM threadkeep_usage_records WHERE cost_nano IS NULL AND status = 'completed'"
        )
        connection.exec_driver_sql("UPDATE threadkeep_usage_days SET filled_at = NULL")
        yield connection, titles


def plain(value: Any, titles: dict[str, str]) -> Any:
    """A value as all databases give it: whole numbers where they are, days as texts, titles in place of ids."""
    if isinstance(value, Decimal | float):
        return int(value) if value == int(value) else float(value)
    return titles.get(str(value), value if isinstance(value, int) or value is None else str(value))


def test_the_page_asks_what_is_answered_here() -> None:
    assert set(QUESTIONS) == set(ANSWERS)
    assert len(ANSWERS) > 20
    assert PAGE.read_text().count("### ") == len(ANSWERS)


def test_every_question_has_its_answer(asked: tuple[Connection, dict[str, str]]) -> None:
    connection, titles = asked
    found = {
        question: [tuple(plain(value, titles) for value in row) for row in connection.execute(text(statement))]
        for question, statement in QUESTIONS.items()
    }
    assert found == ANSWERS
