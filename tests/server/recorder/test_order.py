"""The order in which the calls of an owner are stored, and what a call costs while others wait."""

from __future__ import annotations

import asyncio

from threadkeep.server.recorder.order import CallQueue, QueuePlace


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
