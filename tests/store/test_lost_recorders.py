"""Responses whose recorder is gone: once the lease is over, whoever looks at one ends it, and loses nothing of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, update

from tests.factories import texts_of
from tests.store.test_streams import FORMAT, beginning, expire, left
from tests.store.watching import Tables, statements_of
from threadkeep import LeaseLost, NotFound, ResponseInProgress
from threadkeep.db.models import responses
from threadkeep.domain.ids import response_id
from threadkeep.store.reading import responses as response_reading
from threadkeep.store.reading.overviews import is_answering, read_thread

WORDS = "one two three four five"
CAME = "one two three "
LOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "its number": lambda _, conversation: conversation.get_response(0),
    "its id": lambda store, conversation: store.get_response(response_id(conversation.id, 0)),
    "the list": lambda _, conversation: next(iter(conversation.responses())),
    "its items": lambda _, conversation: conversation.output_items(0),
    "its input": lambda _, conversation: conversation.input_items(0),
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what is gone."""
    monkeypatch.setattr(response_reading, "PATIENCE_SECONDS", 0.01)


@pytest.fixture
def lost(conversation: Any, watching: Engine) -> Any:
    """A recorder that stored three words, and was not heard of any more until its lease was over."""
    conversation.user("Count")
    recorder = left(conversation, *beginning(WORDS))
    expire(watching)
    return recorder


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_ends_it(lost: Any, conversation: Any, elsewhere: Any, tables: Tables, look: str) -> None:
    other = elsewhere.get_conversation(conversation.id)
    found = LOOKS[look](elsewhere, other)
    assert getattr(found, "status", "incomplete") == "incomplete"
    assert [(row["status"], row["response"]) for row in tables.rows("usage_records")] == [("incomplete", 0)]
    assert tables.counts()["stream_parts"] == 0
    assert texts_of(other.output_items(0)) == [CAME]
    with pytest.raises(LeaseLost):
        lost.__exit__(None, None, None)
    assert other.user("Go on").position == 2


def test_one_that_is_recorded_is_left_alone(conversation: Any, elsewhere: Any) -> None:
    with conversation.stream_response(FORMAT) as recorder:
        recorder.feed(beginning(WORDS)[0])
        for look in LOOKS.values():
            look(elsewhere, elsewhere.get_conversation(conversation.id))
        assert elsewhere.get_response(response_id(conversation.id, 0)).status == "in_progress"


def test_a_recorder_that_lives_has_time_to_say_so(
    conversation: Any, elsewhere: Any, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the database was away for longer than its lease, and whoever reads is faster."""
    monkeypatch.setattr(response_reading, "PATIENCE_SECONDS", 2.0)
    with conversation.stream_response(FORMAT, lease=1.0) as recorder:
        recorder.feed(beginning(WORDS)[0])
        expire(watching)
        assert elsewhere.get_response(response_id(conversation.id, 0)).status == "in_progress"
        recorder.feed(beginning(WORDS)[1])
    assert recorder.response.status == "incomplete"


def test_a_list_ends_all_of_them(conversation: Any, elsewhere: Any, watching: Engine) -> None:
    """On whichever branch; what was asked to stop was cancelled."""
    conversation.user("Count")
    fork = conversation.fork()
    _recorders = left(conversation, *beginning(WORDS)), left(fork, *beginning(WORDS))
    fork.cancel_response()
    expire(watching)
    other = elsewhere.get_conversation(conversation.id)
    assert [(one.status, one.branch) for one in other.responses()] == [("incomplete", 0), ("cancelled", 1)]
    assert texts_of(other.on_branch(1).transcript()) == ["Count", CAME]


def test_what_came_whole_is_complete(conversation: Any, elsewhere: Any, watching: Engine) -> None:
    """Where nothing but the end of the recording is missing."""
    _recorder = left(conversation, *beginning(WORDS, words=7))
    expire(watching)
    assert elsewhere.get_response(response_id(conversation.id, 0)).status == "completed"


@pytest.mark.parametrize("number", [None, 0])
def test_there_is_nothing_left_to_cancel(lost: Any, conversation: Any, elsewhere: Any, number: int | None) -> None:
    other = elsewhere.get_conversation(conversation.id)
    assert not other.cancel_response(number)
    assert [row.status for row in other.responses()] == ["incomplete"]
    assert texts_of(other.transcript()) == ["Count", CAME]


def test_cancelling_leaves_those_of_other_branches(conversation: Any, elsewhere: Any, watching: Engine) -> None:
    conversation.user("Count")
    fork = conversation.fork()
    _recorder = left(conversation, *beginning(WORDS))
    expire(watching)
    with fork.stream_response(FORMAT) as living:
        living.feed(beginning(WORDS)[0])
        assert elsewhere.get_conversation(conversation.id, branch=fork.branch).cancel_response()
        assert conversation.head == 0
        assert not conversation.cancel_response()
        assert conversation.get_response(1).status == "in_progress"


def test_it_can_be_deleted(lost: Any, conversation: Any, elsewhere: Any) -> None:
    """Its items stay, as those of any response."""
    id_ = response_id(conversation.id, 0)
    elsewhere.delete_response(id_)
    with pytest.raises(NotFound):
        elsewhere.get_response(id_)
    assert texts_of(elsewhere.get_conversation(conversation.id).transcript()) == ["Count", CAME]


def test_one_that_is_recorded_cannot(conversation: Any, elsewhere: Any) -> None:
    with conversation.stream_response(FORMAT), pytest.raises(ResponseInProgress):
        elsewhere.delete_response(response_id(conversation.id, 0))


def test_what_cannot_be_ended_here_is_shown_as_incomplete(
    lost: Any, conversation: Any, elsewhere: Any, watching: Engine, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a newer release has recorded it: there, it is ended."""
    with watching.begin() as connection:
        newer = update(responses).where(responses.c.tenant_id == elsewhere.handle.scope.tenant)
        connection.execute(newer.values(format="format_of_tomorrow"))
    with caplog.at_level(logging.WARNING, "threadkeep.streams"):
        for _ in range(2):
            assert elsewhere.get_response(response_id(conversation.id, 0)).status == "incomplete"
    assert "could not be ended" in caplog.text
    assert [row["status"] for row in tables.rows("responses")] == ["in_progress"]


def test_who_looks_costs_no_more(conversation: Any, elsewhere: Any) -> None:
    other = elsewhere.get_conversation(conversation.id)
    with conversation.stream_response(FORMAT):
        with statements_of(other) as seen:
            other.get_response(0)
        assert len(seen) == 2


# In the transaction of somebody else, and on pages


@pytest.fixture
def mine(stores: Any, tenant: str) -> Any:
    """A blocking store."""
    return stores.get("sync", "elsewhere").for_tenant(tenant)


@pytest.mark.one_face
def test_the_transaction_of_the_caller_only_reads(
    lost: Any, conversation: Any, mine: Any, watching: Engine, tables: Tables
) -> None:
    with watching.connect() as connection:
        found = mine.within(connection).get_conversation(conversation.id)
        assert [row.status for row in found.responses()] == ["incomplete"]
        connection.commit()
    assert [row["status"] for row in tables.rows("responses")] == ["in_progress"]


@pytest.mark.one_face
def test_pages_do_not_follow_it(lost: Any, conversation: Any, mine: Any) -> None:
    other = mine.get_conversation(conversation.id)
    assert not is_answering(other)
    [response] = read_thread(other, other.branch, 0, 10).responses
    assert (response.status, response.is_open) == ("incomplete", False)
    assert [row.status for row in other.responses()] == ["incomplete"]


@pytest.mark.one_face
def test_pages_follow_one_that_is_recorded(conversation: Any, mine: Any) -> None:
    other = mine.get_conversation(conversation.id)
    with conversation.stream_response(FORMAT):
        assert is_answering(other)
        [response] = read_thread(other, other.branch, 0, 10).responses
        assert (response.status, response.is_open) == ("in_progress", True)
