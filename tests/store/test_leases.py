"""Leases of recorders: renewed while they live, over soon after they died."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from tests.databases import Database
from tests.factories import a_stream, texts_of
from tests.processes import forked, pipe
from tests.store.test_streams import FORMAT, expire, left
from tests.store.watching import Tables, engine_of
from tests.store.writers import stream_for_ever
from tests.waiting import wait_until
from threadkeep import InvalidOption, LeaseLost, ResponseInProgress
from threadkeep.store.streaming.lifecycle import NAME
from threadkeep.store.streaming.writer import RENEWAL_SECONDS
from threadkeep.store.work.refs import LEASE_SECONDS

LEASE = 3.0  # a machine with much to do may renew it a second late
SHORT_LEASE = LEASE / 2  # where nobody waits for its end
BEAT = LEASE / 2  # after which a renewal is due
WORDS = "one two three"
TAKEOVER_SECONDS = 6
UNFINISHED = """
import sys
from threadkeep import Store
conversation = Store(sys.argv[1], tenants=True).for_tenant(sys.argv[2]).get_conversation(sys.argv[3])
recorder = conversation.stream_response("open_responses").__enter__()
"""


def inner(recorder: Any) -> Any:
    return getattr(recorder, "_wrapped", recorder)


def wait(store: Any, seconds: float) -> None:
    """Do nothing; the event loop, where there is one, goes on."""
    if hasattr(store, "_runner"):
        store._runner.run(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)


def written(tables: Tables) -> str:
    """What is stored of streams."""
    return "".join(row["content"] for row in tables.rows("stream_parts", "part"))


def wait_until_written(store: Any, tables: Tables, text: str) -> None:
    """Wait until a text that was fed is stored, without another event."""
    for _ in range(400):
        if text in written(tables):
            return
        wait(store, 0.05)
    pytest.fail(f"{text!r} is not written without another event.")


_of_others = set[threading.Thread]()  # of recorders that other tests have left behind


@pytest.fixture(autouse=True)
def nobody_elses_heartbeats() -> None:
    _of_others.clear()
    _of_others.update(heartbeats())


def heartbeats() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME and thread not in _of_others]


def refused(conversation: Any) -> float:
    """How long another writer is told to wait."""
    with pytest.raises(ResponseInProgress) as caught:
        conversation.user("Are you there?")
    seconds: float = caught.value.retry_after
    return seconds


# While it lives


@pytest.mark.slow
def test_silence_does_not_end_a_stream(store: Any, conversation: Any, elsewhere: Any) -> None:
    """A model may think for longer than any lease."""
    conversation.user("Count")
    other = elsewhere.get_conversation(conversation.id)
    with conversation.stream_response(FORMAT, lease=LEASE) as recorder:
        for number in range(2):
            wait(store, 1.2 * LEASE)
            assert 0 < refused(other) <= LEASE
            recorder.feed(a_stream(WORDS)[number])
    assert [row.status for row in conversation.responses()] == ["incomplete"]
    assert conversation.usage().attempts == 1


def test_what_was_fed_is_written_in_silence(store: Any, conversation: Any, tables: Tables) -> None:
    """… and not only with the next event."""
    with conversation.stream_response(FORMAT, lease=LEASE) as recorder:
        inner(recorder).writer._interval = 60
        for one in a_stream(WORDS)[:4]:
            recorder.feed(one)
        assert "two" not in written(tables)
        wait_until_written(store, tables, "two")


def test_leases_are_short_and_renewals_frequent() -> None:
    """One renewal may fail, and what a killed process leaves is free within six seconds."""
    assert (LEASE_SECONDS, RENEWAL_SECONDS) == (5, 2)
    assert 2 * RENEWAL_SECONDS < LEASE_SECONDS < TAKEOVER_SECONDS


def test_a_lease_that_was_lost_is_told_to_who_feeds(
    store: Any, conversation: Any, elsewhere: Any, tables: Tables
) -> None:
    recorder = conversation.stream_response(FORMAT, lease=SHORT_LEASE)
    recorder.__enter__()
    elsewhere.get_conversation(conversation.id).user("Stop", on_conflict="append")
    wait(store, SHORT_LEASE / 2)
    with pytest.raises(LeaseLost):
        recorder.feed(a_stream(WORDS)[0])
    with pytest.raises(LeaseLost):
        recorder.__exit__(None, None, None)
    assert tables.counts()["usage_records"] == 1
    assert not heartbeats()


@contextmanager
def unreachable(store: Any) -> Iterator[list[str]]:
    """Renewals fail."""
    failed: list[str] = []

    def refuse(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("UPDATE threadkeep_responses"):
            failed.append(statement)
            raise OperationalError(statement, None, Exception("The database is away."))

    event.listen(engine_of(store), "before_cursor_execute", refuse)
    try:
        yield failed
    finally:
        event.remove(engine_of(store), "before_cursor_execute", refuse)


def test_a_renewal_that_fails_is_tried_again(
    store: Any, conversation: Any, tables: Tables, watching: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """What it was about to write is not lost."""
    recorder = conversation.stream_response(FORMAT, lease=SHORT_LEASE)
    recorder.__enter__()
    inner(recorder).writer._interval = 60
    recorder.feed(a_stream(WORDS)[0])
    recorder.feed(a_stream(WORDS)[1])
    with unreachable(store) as failed, caplog.at_level(logging.WARNING, "threadkeep.streams"):
        for place in (2, 3):
            recorder.feed(a_stream(WORDS)[place])
            wait(store, SHORT_LEASE / 2)
    assert failed
    assert {record.getMessage() for record in caplog.records} == {
        "The lease of a streamed response was not renewed: Exception"
    }
    recorder.feed(a_stream(WORDS)[4])
    wait_until_written(store, tables, "three")
    inner(recorder).heartbeat._ended.set()
    expire(watching)
    conversation.user("And?")
    assert texts_of(conversation.transcript()) == [WORDS, "And?"]


# Its end


@pytest.mark.parametrize("end", ["leave", "cancel", "error"])
def test_the_heartbeat_ends_with_the_recorder(store: Any, conversation: Any, end: str) -> None:
    recorder = conversation.stream_response(FORMAT, lease=LEASE)
    recorder.__enter__()
    assert len(heartbeats()) == (0 if hasattr(store, "_runner") else 1)
    if end == "cancel":
        recorder.cancel()
        assert not heartbeats()
    error = ZeroDivisionError() if end == "error" else None
    recorder.__exit__(None if error is None else type(error), error, None)
    assert not heartbeats()
    if hasattr(store, "_runner"):
        assert inner(recorder).heartbeat.is_over


@pytest.mark.slow
def test_a_recorder_that_nobody_holds_has_no_heartbeat(store: Any, conversation: Any, elsewhere: Any) -> None:
    """It can never end its response, so others need not wait for it."""
    recorder = conversation.stream_response(FORMAT, lease=LEASE)
    recorder.__enter__()
    recorder.feed(a_stream(WORDS)[0])
    del recorder
    gc.collect()
    wait(store, LEASE + BEAT)
    assert not heartbeats()
    elsewhere.get_conversation(conversation.id).user("Hello?")
    assert [row.status for row in conversation.responses()] == ["incomplete"]


def test_a_stored_answer_needs_no_heartbeat(conversation: Any) -> None:
    for _ in range(2):
        with conversation.stream_response(FORMAT, idempotency_key="key") as recorder:
            assert (inner(recorder).heartbeat is None) == recorder.replayed
            for one in a_stream(WORDS):
                recorder.feed(one)


# Processes


@pytest.fixture
def sync_store(stores: Any, tenant: str) -> Any:
    return stores.get("sync").for_tenant(tenant)


def test_the_transaction_of_the_caller_is_left_alone(sync_store: Any, watching: Engine) -> None:
    """Nobody else sees the response before it ends, and its connection is not for two threads."""
    conversation = sync_store.create_conversation(model="m", input="Count")
    with watching.connect() as connection:
        with sync_store.within(connection).get_conversation(conversation.id).stream_response(FORMAT) as recorder:
            assert recorder.heartbeat is None
        connection.rollback()
    assert list(conversation.responses()) == []


def test_a_heartbeat_does_not_keep_a_process_alive(database: Database, sync_store: Any, tenant: str) -> None:
    conversation = sync_store.create_conversation(model="m", input="Count")
    arguments = [sys.executable, "-c", UNFINISHED, database.url, tenant, conversation.id]
    started = time.monotonic()
    done = subprocess.run(arguments, timeout=60, check=True, capture_output=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert time.monotonic() - started < 30
    assert refused(conversation) > 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.slow
def test_a_forked_process_is_no_recorder(sync_store: Any, elsewhere: Any) -> None:
    """It neither writes nor ends what its parent goes on recording, and waits for nobody's lock."""
    conversation = sync_store.create_conversation(model="m", input="Count")
    with conversation.stream_response(FORMAT, lease=LEASE) as recorder:
        recorder.feed(a_stream(WORDS)[0])
        recorder._lock.acquire()  # as if it were just beating
        child = os.fork()
        if not child:
            signal.alarm(30)
            try:
                recorder.__exit__(None, None, None)
                recorder.feed(a_stream(WORDS)[1])
            except InvalidOption as error:
                os._exit(int("forked" not in str(error)))
            os._exit(2)
        recorder._lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        time.sleep(LEASE + BEAT)
        refused(elsewhere.get_conversation(conversation.id))
        for one in a_stream(WORDS)[1:]:
            recorder.feed(one)
    assert (recorder.response.status, recorder.response.text) == ("completed", WORDS)


@pytest.mark.slow
def test_after_a_killed_process_the_same_key_takes_over(database: Database, sync_store: Any, tenant: str) -> None:
    """What it had stored stays, as incomplete; the new answer is another response, under that key."""
    conversation = sync_store.create_conversation(model="m", input="Count")
    receiver, sender = pipe()
    process = forked(stream_for_ever, database.url, tenant, conversation.id, LEASE_SECONDS, sender, "key")
    sender.close()
    assert receiver.poll(60)
    time.sleep(RENEWAL_SECONDS + LEASE_SECONDS)  # it lives for longer than its first lease
    with pytest.raises(ResponseInProgress), conversation.stream_response(FORMAT, idempotency_key="key"):
        pass
    process.kill()
    process.join()
    receiver.close()
    recorder, waited = take_over(conversation)
    assert waited < TAKEOVER_SECONDS
    rows = list(conversation.responses())
    assert [row.status for row in rows] == ["incomplete", "completed"]
    count, words, answer = texts_of(conversation.transcript())
    assert (count, answer) == ("Count", WORDS)
    assert words.split() == [str(place) for place in range(len(words.split()))]
    assert words
    with conversation.stream_response(FORMAT, idempotency_key="key") as again:
        assert (again.replayed, again.response) == (True, recorder.response.model_copy(update={"replayed": True}))
    assert conversation.usage().attempts == 2


def take_over(conversation: Any) -> tuple[Any, float]:
    """Try again until the key is free; return the recorder, and how long it was told to wait."""
    waited = 0.0
    while True:
        try:
            with conversation.stream_response(FORMAT, idempotency_key="key") as recorder:
                for one in a_stream(WORDS):
                    recorder.feed(one)
        except ResponseInProgress as error:
            waited += error.retry_after
            time.sleep(error.retry_after)
        else:
            return recorder, waited


def test_left_recorders_of_tests_have_no_heartbeat(conversation: Any) -> None:
    recorder = left(conversation)
    wait_until(lambda: not heartbeats())
    recorder.__exit__(None, None, None)
