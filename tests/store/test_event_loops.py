"""An AsyncStore that outlives its event loop, as scripts that call `asyncio.run` twice have it."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from tests.databases import Database
from threadkeep import AsyncStore

# the sockets of a loop that was closed are closed with what held them
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


async def talk(store: AsyncStore, count: int = 3) -> None:
    """Several transactions at once, each on a connection of its own."""
    made = await asyncio.gather(*(store.create_conversation(model="m", input="Hi") for _ in range(count)))
    assert [len(await one.transcript()) for one in made] == [1] * count


def test_each_loop_has_its_own_connections(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged either: those of a loop that is gone are left without a word."""
    store = AsyncStore(database.url)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            asyncio.run(talk(store))
        asyncio.run(talk(store, 1))
        asyncio.run(store.close())
        del store
        gc.collect()
    assert caplog.records == []
