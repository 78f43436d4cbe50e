"""Rows of the ledger that an application writes itself: for stored items, and for calls without any."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.factories import a_message, an_answer
from tests.store.odd_values import BODIES
from tests.store.watching import Tables
from threadkeep import IdempotencyConflict, InvalidOption, NormalizedUsage, NotFound, Price, Response, Store, Usage
from threadkeep.formats import FormatName

pytestmark = pytest.mark.one_face

FORMAT: FormatName = "open_responses"
USAGE = {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050}


def row_of(tables: Tables) -> dict[str, Any]:
    return tables.rows("usage_records", "id")[-1]


@pytest.mark.parametrize("wire", BODIES)
def test_usage_is_read_in_the_words_of_its_format(conversation: Any, tables: Tables, wire: str) -> None:
    """As if the whole response had been stored."""
    conversation.add_response(BODIES[wire], wire)
    whole = row_of(tables)
    conversation.record_attempt(wire, usage=json.loads(whole["usage"]), model=whole["model"])
    reported = row_of(tables)
    own = {"id", "occurred_at", "response"}
    assert {name: value for name, value in reported.items() if name not in own} == {
        name: value for name, value in whole.items() if name not in own
    }


@pytest.mark.parametrize(
    "usage",
    [Usage(input_tokens=1000, output_tokens=50),
     NormalizedUsage(input_tokens=1000, output_tokens=50, total_tokens=1050),
     Response.parse(an_answer("Hi", usage=USAGE), FORMAT).usage],
    ids=["Usage", "NormalizedUsage", "parsed"],
)  # fmt: skip
def test_usage_that_was_read_already_is_taken_as_it_is(conversation: Any, usage: Any) -> None:
    conversation.record_attempt("messages", usage=usage)
    total = conversation.usage()
    assert (total.input_tokens, total.output_tokens, total.total_tokens) == (1000, 50, 1050)


def test_its_cost_is_computed(tmp_path: Any) -> None:
    with Store(f"sqlite:///{tmp_path / 'chat.db'}", prices=[Price("m", input=1, output=2)]) as store:
        conversation = store.create_conversation(model="m")
        conversation.record_attempt(FORMAT, usage=USAGE)
        conversation.record_attempt(FORMAT, usage={**USAGE, "cost": 0.5})
        conversation.record_attempt(FORMAT, usage=NormalizedUsage(input_tokens=1000, output_tokens=50))
        assert [row.cost_nano for row in store.usage(by="status")] == [500_000_000 + 2 * 1_100_000]


def test_the_status_says_whether_it_succeeded(conversation: Any, tables: Tables) -> None:
    conversation.record_attempt(FORMAT)
    conversation.record_attempt(FORMAT, usage=USAGE)
    conversation.record_attempt(FORMAT, usage=USAGE, error="cut off")
    conversation.record_attempt(FORMAT, usage=USAGE, status="cancelled")
    found = [row["status"] for row in tables.rows("usage_records", "id")]
    assert found == ["failed", "completed", "failed", "cancelled"]


def test_it_can_belong_to_a_stored_response(store: Any, tables: Tables) -> None:
    """Whose model, status and tools it has."""
    conversation = store.create_conversation(model="asked", tools=[{"type": "function", "name": "f"}])
    stored = conversation.add_response(an_answer("Hi", usage=None, model="answered"), FORMAT)
    tools = row_of(tables)["tool_set_hash"]
    conversation.clear_tools()
    own_id = conversation.get_response(0).id
    for name in (stored.stored.number, "resp_1", own_id):
        conversation.record_attempt(FORMAT, usage=USAGE, response=name)
        row = row_of(tables)
        assert (row["response"], row["model"], row["status"]) == (0, "answered", "completed")
        assert row["tool_set_hash"] == tools
    [row] = conversation.usage(by="response")
    assert (row.response, row.attempts, row.total_tokens) == (0, 4, 3 * 1050)


def test_times_are_kept(conversation: Any, tables: Tables) -> None:
    at = datetime(2025, 2, 3, 23, 59, 59, 999_999, tzinfo=UTC)
    conversation.record_attempt(FORMAT, usage=USAGE, latency_ms=900, first_token_ms=300.4, occurred_at=at)
    row = row_of(tables)
    assert (row["latency_ms"], row["first_token_ms"], row["occurred_at"], row["day"]) == (900, 300, at, at.date())
    conversation.add_response(an_answer("Hi"), FORMAT, first_token_ms=100)
    total = conversation.usage()
    assert (total.first_token_ms, total.first_tokens, total.mean_first_token_ms) == (400, 2, 200.0)


def test_a_key_writes_it_once(conversation: Any, tables: Tables) -> None:
    for _ in range(2):
        conversation.record_attempt(FORMAT, usage=USAGE, idempotency_key="once")
    assert tables.counts()["usage_records"] == 1
    with pytest.raises(IdempotencyConflict):
        conversation.record_attempt(FORMAT, usage={**USAGE, "output_tokens": 51}, idempotency_key="once")


@pytest.mark.parametrize(
    "usage", [3, "x", [], {}, [USAGE], object()], ids=["number", "text", "list", "empty", "in a list", "object"]
)
def test_other_usage_is_refused(conversation: Any, tables: Tables, usage: Any) -> None:
    with pytest.raises(InvalidOption, match="usage"):
        conversation.record_attempt(FORMAT, usage=usage)
    assert tables.counts()["usage_records"] == 0


@pytest.mark.parametrize("response", [0, 7, "resp_1", "", -1])
def test_a_response_must_be_there(store: Any, conversation: Any, tables: Tables, response: Any) -> None:
    other = store.create_conversation(input=[a_message()])
    other.add_response(an_answer("Hi"), FORMAT)
    for name in (response, other.get_response(0).id):
        with pytest.raises(NotFound):
            conversation.record_attempt(FORMAT, usage=USAGE, response=name)
    assert tables.counts()["usage_records"] == 1
