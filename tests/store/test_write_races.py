"""Writers of a conversation that meet in the middle of what they do: none changes what another one goes by."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from tests.store.test_removal_races import once_before, watched
from tests.store.watching import Tables, engine_of
from threadkeep import LeaseLost, NotFound

pytestmark = [
    pytest.mark.parametrize("face", ["sync"], indirect=True),
    pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True),
]
RESERVATION = "UPDATE threadkeep_conversations SET search_from=coalesce"
MOMENT = 0.5  # seconds, after which somebody waits for a lock


def event(text: str) -> dict[str, Any]:
    delta = {"role": "assistant", "content": text}
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta}]}


def test_what_a_recorder_has_stored_is_among_the_items(store: Any, elsewhere: Any, conversation: Any) -> None:
    """Another writer ends the response: it waits for the recorder, or the recorder is refused."""
    conversation.user("Hi")
    recorder = conversation.stream_response("chat_completion").__enter__()
    recorder.writer.take(event("one"))
    recorder.writer.flush()
    flushed: list[Future[None]] = []

    def flush() -> None:
        recorder.writer.take(event(" two"))
        flushed.append(pool.submit(recorder.writer.flush))
        wait(flushed, MOMENT)

    before_its_end = once_before("UPDATE threadkeep_responses", flush)
    with ThreadPoolExecutor(1) as pool, watched(engine_of(elsewhere), before_its_end):
        elsewhere.get_conversation(conversation.id).user("Next", on_conflict="append")
    error = flushed[0].exception(10)
    assert error is None or isinstance(error, LeaseLost)
    stored = [entry.item.text for entry in elsewhere.get_conversation(conversation.id).items()]
    assert stored == ["Hi", "one" if error else "one two", "Next"]


def test_a_response_that_is_ended_twice_at_the_same_time_is_ended_once(
    store: Any, elsewhere: Any, conversation: Any, tables: Tables
) -> None:
    """Its recorder waits for the other writer, finds out then that it came too late, and writes nothing."""
    recorder = conversation.stream_response("chat_completion").__enter__()
    recorder.writer.take(event("one"))
    recorder.writer.flush()
    written, ended = tables.written(), list[Future[None]]()

    def end() -> None:
        ended.append(pool.submit(recorder.writer.finish))
        wait(ended, MOMENT)

    before_its_end = once_before("UPDATE threadkeep_responses", end)
    with ThreadPoolExecutor(1) as pool, watched(engine_of(elsewhere), before_its_end):
        elsewhere.get_conversation(conversation.id).user("Next", on_conflict="append")
    assert isinstance(ended[0].exception(10), LeaseLost)
    assert [entry.item.text for entry in elsewhere.get_conversation(conversation.id).items()] == ["one", "Next"]
    assert [response.status for response in conversation.responses()] == ["cancelled"]
    assert written()["usage_records"] == 1
    assert store.check().findings == []


FORKS: dict[str, Callable[[Any], Any]] = {
    "fork": lambda conversation: conversation.fork(),
    "fork at a position": lambda conversation: conversation.fork(at=3),
    "fork at an id": lambda conversation: conversation.fork(at=conversation.get_item(3).id),
    "fork before": lambda conversation: conversation.fork(before=3),
    "edit": lambda conversation: conversation.edit(3, "new"),
}
REMOVALS: dict[str, Callable[[Any], Any]] = {
    "clear": lambda conversation: conversation.clear(purge=True),
    "remove_item": lambda conversation: conversation.remove_item(3, purge=True),
}


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize("remove", REMOVALS)
def test_a_fork_is_from_before_a_removal_or_from_after_it(
    store: Any, elsewhere: Any, conversation: Any, fork: str, remove: str
) -> None:
    for number in range(6):
        conversation.user(str(number))
    opened, removed = store.get_conversation(conversation.id), list[Future[Any]]()

    def begin_removal() -> None:
        removed.append(pool.submit(REMOVALS[remove], elsewhere.get_conversation(conversation.id)))
        wait(removed, MOMENT)

    before_it_is_made = once_before(RESERVATION, begin_removal)
    with ThreadPoolExecutor(1) as pool, watched(engine_of(store), before_it_is_made):
        try:
            made = FORKS[fork](opened)
        except NotFound:  # after a deadlock on MariaDB, it is tried again behind the removal
            made = None
    removed[0].result(10)
    if made is None:
        assert 3 not in {entry.position for entry in elsewhere.get_conversation(conversation.id).items()}
        return
    found = elsewhere.get_conversation(conversation.id, branch=made.branch)
    assert found.head == max((entry.position for entry in found.items()), default=-1)
    assert found.user("goes on", expected_head=found.head)
    assert elsewhere.check().findings == []
