"""Asking a response in progress to stop: any process asks, and the recorder sees it in its own rhythm."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from tests.factories import a_stream, texts_of
from tests.store.test_leases import inner, wait
from tests.store.test_streams import FORMAT, beginning, expire, left, streamed
from tests.store.watching import Tables, statements_of
from tests.waiting import wait_until
from threadkeep import LeaseLost, NotFound

WORDS = "one two three four five"


def unhurried(recorder: Any) -> Any:
    """Each event is a batch of its own."""
    inner(recorder).writer._interval = 0
    return recorder


def test_a_loop_stops_and_what_came_is_kept(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    conversation.user("Count")
    other = elsewhere.get_conversation(conversation.id)
    with conversation.stream_response(FORMAT) as recorder:
        unhurried(recorder)
        for number, event in enumerate(a_stream(WORDS)):
            recorder.feed(event)
            if number == 3:
                assert not recorder.cancel_requested
                assert other.cancel_response()
            if recorder.cancel_requested:
                break
    assert (recorder.response.status, recorder.response.text) == ("cancelled", "one two three ")
    assert [row.status for row in other.responses()] == ["cancelled"]
    assert texts_of(other.transcript()) == ["Count", "one two three "]
    assert [row["status"] for row in tables.rows("usage_records")] == ["cancelled"]
    assert not other.cancel_response(), "it has ended"
    assert other.user("Thanks").position == 2


def test_a_silent_model_is_no_obstacle(store: Any, conversation: Any, elsewhere: Any) -> None:
    """The heartbeat sees it, in less than half of a short lease."""
    with conversation.stream_response(FORMAT, lease=0.5) as recorder:
        recorder.feed(a_stream(WORDS)[0])
        elsewhere.get_conversation(conversation.id).cancel_response()

        def is_seen() -> bool:
            wait(store, 0.02)
            return bool(recorder.cancel_requested)

        wait_until(is_seen)
    assert recorder.response.status == "cancelled"


def test_whoever_does_not_look_stores_the_whole_response(conversation: Any) -> None:
    with conversation.stream_response(FORMAT) as recorder:
        unhurried(recorder)
        assert conversation.cancel_response(recorder.number)
        assert conversation.cancel_response(0)
        for event in a_stream(WORDS):
            recorder.feed(event)
        assert recorder.cancel_requested
    assert (recorder.response.status, recorder.response.text) == ("completed", WORDS)


def test_an_error_on_the_way_out_is_no_failure(conversation: Any) -> None:
    """Whoever stops a request may get an error from the connection that it closes."""
    recorder = unhurried(conversation.stream_response(FORMAT)).__enter__()
    conversation.cancel_response()
    for event in beginning(WORDS):
        recorder.feed(event)
    recorder.__exit__(ConnectionError, ConnectionError("closed"), None)
    assert (recorder.response.status, recorder.response.text) == ("cancelled", "one two three ")


def test_it_costs_a_recorder_no_statement(conversation: Any) -> None:
    """One more when it is asked, none before and none after."""
    recorder = unhurried(conversation.stream_response(FORMAT)).__enter__()
    events = iter(a_stream(WORDS))
    counts = []
    for number in range(4):
        if number == 2:
            conversation.cancel_response()
        with statements_of(conversation) as seen:
            recorder.feed(next(events))
        counts.append(len(seen))
    assert counts == [2, 2, 3, 2]
    recorder.__exit__(None, None, None)


def test_asking_takes_two_statements(conversation: Any) -> None:
    with conversation.stream_response(FORMAT), statements_of(conversation) as seen:
        conversation.cancel_response()
    assert len(seen) == 2


def test_a_recorder_that_is_gone_is_ended_by_the_next_writer(
    conversation: Any, elsewhere: Any, watching: Engine
) -> None:
    recorder = left(conversation, *beginning(WORDS))
    other = elsewhere.get_conversation(conversation.id)
    assert other.cancel_response()
    expire(watching)
    other.user("Go on")
    assert [row.status for row in other.responses()] == ["cancelled"]
    assert texts_of(other.transcript()) == ["one two three ", "Go on"]
    with pytest.raises(LeaseLost):
        recorder.__exit__(None, None, None)


def test_only_the_response_of_the_branch_is_asked(conversation: Any) -> None:
    conversation.user("Count")
    fork = conversation.fork()
    with conversation.stream_response(FORMAT) as first, fork.stream_response(FORMAT) as second:
        unhurried(first)
        unhurried(second)
        assert fork.cancel_response()
        for recorder in (first, second):
            recorder.feed(a_stream(WORDS)[0])
        assert (first.cancel_requested, second.cancel_requested) == (False, True)
        assert fork.cancel_response(first.number)
        first.feed(a_stream(WORDS)[1])
        assert first.cancel_requested


def test_there_has_to_be_a_response_of_that_number(store: Any, conversation: Any) -> None:
    assert not conversation.cancel_response()
    streamed(conversation, *a_stream(WORDS))
    assert not conversation.cancel_response(0)
    for number in (1, -1, 2**70):
        with pytest.raises(NotFound):
            conversation.cancel_response(number)


def test_nobody_stops_the_responses_of_others(store: Any) -> None:
    conversation = store.create_conversation(model="m", user_id="ann")
    seen_by_ann = store.for_user("ann").get_conversation(conversation.id)
    with conversation.stream_response(FORMAT) as recorder:
        unhurried(recorder)
        conversation.update(user_id="bob")
        with pytest.raises(NotFound):
            seen_by_ann.cancel_response()
        recorder.feed(a_stream(WORDS)[0])
        assert not recorder.cancel_requested
