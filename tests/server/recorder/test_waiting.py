"""What waits to be recorded is bounded, and given back whatever becomes of it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial, partialmethod
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.recorder.conftest import recorder
from tests.server.recorder.provider import Reply, stream, whole
from tests.server.recorder.test_trouble import DEFLATE, STREAM
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.server.owners import Owner
from threadkeep.server.recorder import worker
from threadkeep.server.recorder.exchanges import CallFacts, Exchange
from threadkeep.server.recorder.secrets import CallSecrets
from threadkeep.server.recorder.targets import RecordedRoute
from threadkeep.server.recorder.worker import RecordingThread


def a_call(user: str | None = None) -> CallFacts:
    route = RecordedRoute.of("POST", "/v1/chat/completions")
    assert route is not None
    return CallFacts(route, "provider", "http://127.0.0.1", Owner(user_id=user), {}, CallSecrets({}))


def _has_given_up(recording: RecordingThread, calls: int) -> bool:
    health = recording.health()
    return health["unreadable"] == calls and not health["open"]


def test_bytes_of_a_call_that_cannot_be_recorded_are_given_back(tmp_path: object) -> None:
    """Also those that come afterwards: its answer is still under way."""
    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()

    async def run() -> list[int]:
        recording, waiting = RecordingThread(AsyncStore(url), max_bytes=1_500_000), []
        recording.start()
        for number in range(4):
            exchange = recording.begin(a_call())
            assert exchange is not None
            exchange.note_request(b"not JSON")
            exchange.note_request_end()
            await asyncio.to_thread(wait_until, partial(_has_given_up, recording, number + 1), lambda: "it goes on")
            exchange.note_answer(200, ())
            exchange.note_chunk(b"x" * 1_000_000)
            exchange.end("answered")
            waiting.append(recording.health()["waiting_bytes"])
        await recording.stop()
        return waiting

    assert asyncio.run(run()) == [0, 0, 0, 0]


def test_each_owner_has_a_share_of_what_waits(tmp_path: object) -> None:
    """What one of them sends, however much, keeps no call of others from being recorded."""
    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()

    async def run() -> list[bool]:
        recording = RecordingThread(AsyncStore(url), max_bytes=1_000_000, max_exchanges=8, stop_seconds=0.1)
        recording.start()

        def begin(user: str) -> Exchange | None:
            return recording.begin(a_call(user))

        calls = [begin("ann") for _ in range(4)]
        assert all(calls)
        waiting = [begin("ann") is None]
        calls[0].note_request(b"x" * 900_000)  # type: ignore[union-attr]  # just checked
        calls[1].note_request(b"x" * 900_000)  # type: ignore[union-attr]  # just checked
        waiting.append(recording.health()["waiting_bytes"] == 900_000)
        other = begin("ben")
        assert other is not None
        other.note_request(b"x" * 900_000)
        waiting.append(recording.health()["waiting_bytes"] == 1_800_000)
        await recording.stop()
        return waiting

    assert asyncio.run(run()) == [True, True, True]


def test_calls_that_come_faster_than_they_are_stored_are_slowed_down_and_not_left_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingThread, "__init__", partialmethod(RecordingThread.__init__, max_exchanges=48))
    calls, clients = 120, 8
    with recorder(database) as recorded:
        recorded.provider.says(*[whole("messages", "Fine.") for _ in range(calls)])

        def ask(number: int) -> bool:
            body = {**STREAM, "stream": False, "messages": [{"role": "user", "content": str(number)}]}
            return httpx2.post(f"{recorded.url}/v1/messages", json=body, timeout=60).is_success

        with ThreadPoolExecutor(clients) as pool:
            assert all(pool.map(ask, range(calls)))
        recorded.wait_for(calls)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_no_call_waits_for_others_of_which_none_is_stored(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the database cannot be used: calls pass, and those for which there is room are stored afterwards."""
    monkeypatch.setattr(RecordingThread, "__init__", partialmethod(RecordingThread.__init__, max_exchanges=8))
    monkeypatch.setattr(worker, "WAIT_SECONDS", 0.05)
    with recorder(database) as recorded:
        recorded.provider.says(*[whole("messages", "Fine.") for _ in range(8)])
        with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for number in range(8):
                body = {**STREAM, "stream": False, "messages": [{"role": "user", "content": str(number)}]}
                assert httpx2.post(f"{recorded.url}/v1/messages", json=body, timeout=60).is_success
            other.execute("ROLLBACK")
        recorded.wait_for(4, dropped=4)


def test_a_request_waits_no_more_once_it_is_stored(database: Database) -> None:
    """However long the answer takes, and however large it was when it was decompressed."""
    with recorder(database) as recorded:
        recorded.provider.says(stream("messages", ["One, ", "two."], hold_after=3))
        body = {**STREAM, "messages": [{"role": "user", "content": "x" * 300_000}]}
        content = zlib.compress(json.dumps(body).encode())
        with httpx2.stream("POST", f"{recorded.url}/v1/messages", content=content, headers=DEFLATE) as answer:
            chunks = answer.iter_raw()
            next(chunks)
            wait_until(lambda: recorded.conversations() and recorded.conversations()[0].responses())
            health = recorded.application.state.health
            wait_until(lambda: health()["waiting_bytes"] < 5_000, lambda: str(health()))
            recorded.provider.release.set()
            assert b"message_stop" in b"".join(chunks)
        recorded.wait_for(1)
        recorded.wait_until_idle()


def an_event_in_progress(**more: Any) -> Reply:
    """A stream with an event of 80 kB, whose line has no end yet when the provider pauses."""
    reply = stream("messages", ["x" * 80_000], **more)
    reply.chunks = [part for chunk in reply.chunks for part in (chunk[:-1], chunk[-1:])]
    return reply


@pytest.mark.parametrize(
    "made",
    [lambda: stream("messages", ["x" * 1000] * 80, hold_after=82), lambda: an_event_in_progress(hold_after=5)],
    ids=["events", "an event"],
)
def test_what_is_put_together_of_streams_in_progress_is_limited(database: Database, made: Any) -> None:
    """All clients get all of theirs; what has no room any more is stored as far as it came, and counted."""
    with recorder(database, max_answer_bytes=120_000) as recorded:
        replies = [made() for _ in range(6)]
        recorded.provider.says(*replies)
        health = recorded.application.state.health

        def ask(number: int) -> bytes:
            body = {**STREAM, "messages": [{"role": "user", "content": str(number)}]}
            return httpx2.post(f"{recorded.url}/v1/messages", json=body, timeout=60).content

        with ThreadPoolExecutor(6) as clients:
            asked = [clients.submit(ask, number) for number in range(6)]
            wait_until(lambda: health()["dropped"] >= 3, lambda: str(health()))
            assert health()["answer_bytes"] <= 240_000
            figures = {one.name: one.samples[0].value for one in recorded.application.state.collector.collect()}
            assert figures["threadkeep_recorder_answer_bytes"] <= 240_000
            recorded.provider.release.set()
            assert [one.result() for one in asked] == [b"".join(replies[0].chunks)] * 6
        wait_until(lambda: sum(recorded.counts.values()) == 6, lambda: str(recorded.counts))
        statuses = [one.status for talk in recorded.conversations() for one in talk.responses()]
        assert (statuses.count("completed"), statuses.count("incomplete")) == (
            recorded.counts["recorded"], recorded.counts["dropped"],
        )  # fmt: skip
        assert recorded.counts["recorded"] >= 1
        assert health()["answer_bytes"] == 0
