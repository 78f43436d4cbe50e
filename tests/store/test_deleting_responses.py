"""A deleted response is not found any more; its items and its costs stay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_message, a_stream, an_answer
from tests.store.watching import Tables
from threadkeep import NotFound, ResponseInProgress
from threadkeep.domain.ids import response_id

FORMAT = "open_responses"


@pytest.fixture
def answered(store: Any) -> Any:
    """A conversation with two responses."""
    conversation = store.create_conversation(model="m", input=[a_message("Hi")])
    conversation.add_response(an_answer("Hello", id="resp_1"), FORMAT)
    conversation.user("More")
    conversation.add_response(an_answer("Again", id="resp_2"), FORMAT)
    return conversation


@pytest.mark.parametrize("by", ["own id", "provider's id"])
def test_it_is_found_nowhere(store: Any, answered: Any, tables: Tables, by: str) -> None:
    own = response_id(answered.id, 0)
    store.delete_response(own if by == "own id" else "resp_1")
    for id_ in (own, "resp_1"):
        with pytest.raises(NotFound):
            store.get_response(id_)
    for wanted in (0, own, "resp_1"):
        for call in (answered.get_response, answered.input_items, answered.output_items):
            with pytest.raises(NotFound):
                call(wanted)
    with pytest.raises(NotFound):
        answered.response_body(0)
    assert [response.number for response in answered.responses()] == [1]
    assert [row["number"] for row in tables.rows("response_bodies", "number")] == [1]
    assert store.get_response("resp_2").number == 1


def test_a_second_deletion_finds_nothing(store: Any, answered: Any) -> None:
    store.delete_response("resp_1")
    for id_ in ("resp_1", response_id(answered.id, 0), "resp_unknown", "", None, 7):
        with pytest.raises(NotFound):
            store.delete_response(id_)


def test_its_items_and_its_costs_stay(store: Any, elsewhere: Any, answered: Any) -> None:
    before, spent = answered.request_body(FORMAT), store.usage()[0].total_tokens
    items = [item.id for item in answered.transcript()]
    store.delete_response("resp_1")
    reopened = elsewhere.get_conversation(answered.id)
    assert [item.id for item in reopened.transcript()] == items
    assert reopened.request_body(FORMAT) == before
    assert store.usage()[0].total_tokens == spent
    assert store.check().findings == []
    reopened.add_response(an_answer("Third", id="resp_3"), FORMAT)
    assert [response.number for response in reopened.responses()] == [1, 2]


def test_one_in_progress_is_left_alone(store: Any, answered: Any) -> None:
    with answered.stream_response(FORMAT) as recorder:
        with pytest.raises(ResponseInProgress):
            store.delete_response(response_id(answered.id, recorder.number))
        for event in a_stream("Hello"):
            recorder.feed(event)
    store.delete_response(response_id(answered.id, recorder.number))
    assert len(answered.responses()) == 2


def test_the_feed_tells_of_it(store: Any, answered: Any, tables: Tables) -> None:
    before = tables.rows("changes", "id")
    store.delete_response("resp_1")
    [row] = tables.rows("changes", "id")[len(before) :]
    assert (row["kind"], row["conversation_id"]) == ("changed", answered.handle.ref.key)


def test_an_export_carries_that_it_was_deleted(stores: Any, store: Any, face: str, tenant: str, answered: Any) -> None:
    store.delete_response("resp_1")
    other = stores.get(face, "elsewhere").create_tenant(f"copy {tenant}")
    other.import_export([*store.export()])
    copied = other.get_conversation(answered.id)
    assert [response.number for response in copied.responses()] == [1]
    assert len(copied.transcript()) == 4


def test_an_error_of_the_provider_goes_with_it(store: Any, answered: Any, tables: Tables) -> None:
    body = {**an_answer("Half", id="resp_4"), "status": "failed", "error": {"code": "x", "message": "canary"}}
    answered.add_response(body, FORMAT)
    store.delete_response("resp_4")
    assert "canary" not in str(tables.rows("responses", "number"))


def test_the_next_request_does_not_build_on_a_response_that_broke_off(store: Any) -> None:
    """Its provider may have none of it: what came is still sent along."""
    conversation = store.create_conversation(model="gpt-5.4", previous_response_id="resp_start", input="one")
    with conversation.stream_response(FORMAT) as recorder:
        for event in list(a_stream("some words that arrive", id="resp_1"))[:-2]:
            recorder.feed(event)
    conversation.user("two")
    [response] = conversation.responses()
    before = store.get_conversation(conversation.id).request_payload(FORMAT)
    assert before["previous_response_id"] == "resp_start"
    store.delete_response(response.id)
    assert store.get_conversation(conversation.id).request_payload(FORMAT) == before
