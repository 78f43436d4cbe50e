"""What waits to be recorded is bounded, and given back whatever becomes of it."""

from __future__ import annotations

import asyncio
import json
import zlib
from functools import partial

import httpx2

from tests.databases import Database
from tests.server.recorder.conftest import recorder
from tests.server.recorder.provider import stream
from tests.server.recorder.test_trouble import DEFLATE, STREAM
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.server.owners import Owner
from threadkeep.server.recorder.exchanges import CallFacts, Exchange
from threadkeep.server.recorder.secrets import CallSecrets
from threadkeep.server.recorder.targets import RecordedRoute
from threadkeep.server.recorder.worker import RecordingThread


def a_call(user: str | None = None) -> CallFacts:
    route = RecordedRoute.of("POST", "/v1/chat/completions")
    assert route is not None
    return CallFacts(route, "provider", "http://127.0.0.1", Owner(user_id=user), {}, CallSecrets({}))


def _has_given_up(recording: RecordingThread, calls: int) -> bool:
    return recording.health()["unreadable"] == calls


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
