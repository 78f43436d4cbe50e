"""The order in which the calls of an owner are stored, and what a call costs while others wait."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.server.recorder.provider import whole
from tests.server.recorder.test_waiting import a_call
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.server.recorder.backlog import CallQueue, QueuePlace
from threadkeep.server.recorder.spool import Spool
from threadkeep.server.recorder.worker import RecordingThread


def test_a_call_waits_for_the_answers_that_its_client_had() -> None:
    """It does not wait for calls that were being answered at the same time."""

    async def run() -> list[str]:
        line, stored = CallQueue(), []
        first, second = line.place(), line.place()
        first.end()
        third = line.place()  # whose client has the first answer

        async def store(name: str, place: QueuePlace) -> None:
            await place.turn()
            stored.append(name)

        waiting = asyncio.create_task(store("third", third))
        await store("second", second)
        second.end()
        second.leave()
        stored.append("first")
        first.leave()
        await waiting
        return stored

    assert asyncio.run(run()) == ["second", "first", "third"]


def test_calls_that_wait_are_woken_one_by_one() -> None:
    """However many wait, each is woken once: by the last of those that it waits for."""

    async def run() -> list[int]:
        line, stored = CallQueue(), []
        places = []
        for _ in range(1000):
            place = line.place()
            place.end()
            places.append(place)

        async def store(number: int, place: QueuePlace) -> None:
            await place.turn()
            stored.append(number)
            place.leave()

        await asyncio.gather(*(store(number, place) for number, place in enumerate(places)))
        assert not line.waiting
        assert not line.ended
        return stored

    assert asyncio.run(run()) == list(range(1000))


def test_a_call_that_has_left_before_its_answer_ended_keeps_nobody_waiting() -> None:
    async def run() -> None:
        line = CallQueue()
        first = line.place()
        first.leave()
        first.end()
        await asyncio.wait_for(line.place().turn(), 10)

    asyncio.run(run())


def test_of_calls_that_wait_the_one_that_began_first_goes_on_first() -> None:
    """Also where a later one has ended before it, and waits for its turn already."""

    async def run() -> list[bool]:
        line = CallQueue()
        first, second = line.place(), line.place()
        first.end()
        third = line.place()  # after the first
        second.end()
        fourth = line.place()  # after both
        waiting = [asyncio.create_task(place.turn()) for place in (fourth, third)]
        await asyncio.sleep(0)
        first.leave()
        await waiting[1]
        found = [task.done() for task in waiting]
        second.leave()
        await waiting[0]
        return found

    assert asyncio.run(run()) == [False, True]


@pytest.mark.parametrize("has_spool", [False, True], ids=["memory", "spool"])
def test_a_call_that_is_over_is_stored_in_one_transaction(tmp_path: Path, has_spool: bool) -> None:
    """Its conversation, what was asked and the answer."""
    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()
    reply = whole("chat_completion", "Fine.")

    async def run() -> list[int]:
        store, commits, counts = AsyncStore(url), list[Any](), []
        transactions: Any = store.sync.handle.transactions
        event.listen(transactions.engine, "commit", commits.append)
        recording = RecordingThread(store, spool=Spool(tmp_path) if has_spool else None)
        recording.start()
        for number in range(3):
            exchange = recording.begin(a_call())
            assert exchange is not None
            question = {"model": "m", "messages": [{"role": "user", "content": f"How are {number}?"}]}
            exchange.note_request(json.dumps(question).encode())
            exchange.note_request_end()
            exchange.note_answer(200, [(b"content-type", b"application/json")])
            for chunk in reply.chunks:
                exchange.note_chunk(chunk)
            exchange.end("answered")
            is_stored = partial(_has_stored, recording, number + 1)
            await asyncio.to_thread(wait_until, is_stored, partial(recording.health))
            counts.append(len(commits))
        await recording.stop()
        return [after - before for before, after in pairwise(counts)]

    assert asyncio.run(run()) == [1, 1]  # the first one has the database opened
    with Store(url) as store:
        asked = [[getattr(one.item, "text", None) for one in each.transcript()] for each in store.list_conversations()]
        assert sorted(asked) == [[f"How are {number}?", "Fine."] for number in range(3)]


def _has_stored(recording: RecordingThread, calls: int) -> bool:
    health = recording.health()
    return health["recorded"] == calls and not health["open"]
