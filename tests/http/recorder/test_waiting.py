"""What waits to be recorded is bounded, and given back whatever becomes of it."""

from __future__ import annotations

import asyncio
from functools import partial

from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http.recorder.exchanges import CallFacts
from threadkeep.http.recorder.secrets import CallSecrets
from threadkeep.http.recorder.targets import RecordedRoute
from threadkeep.http.recorder.worker import RecordingThread
from threadkeep.web.owners import Owner


def _has_given_up(recording: RecordingThread, calls: int) -> bool:
    return recording.health()["unreadable"] == calls


def test_bytes_of_a_call_that_cannot_be_recorded_are_given_back(tmp_path: object) -> None:
    """Also those that come afterwards: its answer is still under way."""
    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()
    route = RecordedRoute.of("POST", "/v1/chat/completions")
    assert route is not None

    async def run() -> list[int]:
        recording, waiting = RecordingThread(AsyncStore(url), max_bytes=1_500_000), []
        recording.start()
        for number in range(4):
            exchange = recording.begin(CallFacts(route, "provider", Owner(), {}, CallSecrets({})))
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
