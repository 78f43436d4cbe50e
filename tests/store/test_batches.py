"""What comes in an event loop while a thread is busy goes to it together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from threadkeep.store.aio import CallBatches
from threadkeep.store.work import groups


class Handed:
    """What was handed over to be run, and the futures of it."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.futures: list[asyncio.Future[list[groups.Outcome]]] = []

    def take(self, elements: Sequence[str]) -> asyncio.Future[list[groups.Outcome]]:
        self.batches.append([*elements])
        if "no threads" in elements:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


def test_a_batch_is_what_came_while_the_last_one_ran() -> None:
    """Each element has its own outcome; where a batch is cancelled or cannot be started, the next one runs."""

    async def run() -> None:
        handed = Handed()
        batches = CallBatches(handed.take)
        one, *two = [batches.submit(element) for element in ("a", "b", "c")]
        assert handed.batches == [["a"]]
        handed.futures[0].set_result([("A", None)])
        assert await one == "A"
        assert handed.batches[1:] == [["b", "c"]]

        three = batches.submit("d")
        two[0].cancel()  # nobody waits for it
        handed.futures[1].set_result([("B", None), (None, KeyError("c"))])
        with pytest.raises(KeyError, match="c"):
            await two[1]

        unstarted = [batches.submit(element) for element in ("e", "no threads")]
        handed.futures[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await three
        for future in unstarted:
            with pytest.raises(RuntimeError, match="after shutdown"):
                await future

        last = batches.submit("f")
        handed.futures[-1].set_result([("F", None)])
        assert await last == "F"

    asyncio.run(run())
