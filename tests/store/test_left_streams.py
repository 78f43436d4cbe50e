"""Recorders that are killed or cancelled: what they stored is kept, once, and the conversation goes on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, delete, update

from tests.conftest import is_set
from tests.databases import Database
from tests.factories import a_stream, texts_of
from tests.processes import forked, pipe
from tests.store.test_killed_writers import last_started
from tests.store.watching import Tables
from tests.store.writers import say_when_free, stream_for_ever
from threadkeep import NotFound, ResponseInProgress
from threadkeep.db.models import responses, stream_parts
from threadkeep.formats import NAMES

FORMAT = "open_responses"
KILLS = 50 if is_set("THREADKEEP_LONG") else 2
LEASE = 4.0  # longer than a machine with much to do takes to ask after a kill
WORDS = "one two three"


@pytest.mark.slow
def test_a_killed_recorder_leaves_a_lease_that_can_be_taken(database: Database, stores: Any, tenant: str) -> None:
    """What it stored becomes one incomplete response with one ledger row, whoever of several writers is first."""
    store = stores.get("sync").for_tenant(tenant)
    dice, longest = random.Random(0), 0
    for _ in range(KILLS):
        conversation = store.create_conversation(model="m", input="Count")
        receiver, sender = pipe()
        recorder = forked(stream_for_ever, database.url, tenant, conversation.id, LEASE, sender)
        sender.close()
        assert receiver.poll(60)
        time.sleep(dice.uniform(0.05, 0.8))
        recorder.kill()
        recorder.join()
        number = last_started(receiver)
        receiver.close()
        with pytest.raises(ResponseInProgress):
            conversation.user("too early")
        others = [forked(say_when_free, database.url, tenant, conversation.id, f"now {n}") for n in range(3)]
        for other in others:
            other.join(60)
        found = store.get_conversation(conversation.id)
        texts = texts_of(found.transcript())
        words = texts.pop(1).split() if len(texts) > 4 else []  # it may have been killed before it stored any
        assert (texts[0], sorted(texts[1:])) == ("Count", ["now 0", "now 1", "now 2"])
        assert words == [str(place) for place in range(len(words))]
        assert len(words) <= number + 2
        longest = max(longest, len(words))
        assert [row.status for row in found.responses()] == ["incomplete"]
        assert found.usage().attempts == 1
        assert all(found.render(wire).body for wire in NAMES)
    assert longest
    with database.engine().connect() as connection:
        assert Tables(connection, store.handle.scope.tenant).counts()["stream_parts"] == 0


def damage_format(connection: Connection, tenant: int) -> None:
    table = responses.c
    connection.execute(update(responses).where(table.tenant_id == tenant).values(format="newer"))


def damage_notes(connection: Connection, tenant: int) -> None:
    table = stream_parts.c
    first = table.tenant_id == tenant, table.part == 0
    connection.execute(update(stream_parts).where(*first).values(content="nope", first_token_ms=-5))


def damage_parts(connection: Connection, tenant: int) -> None:
    connection.execute(delete(stream_parts).where(stream_parts.c.tenant_id == tenant))


@pytest.mark.parametrize("damage", [damage_format, damage_notes, damage_parts])
def test_one_that_cannot_be_read_keeps_nobody_from_deleting(
    store: Any, tables: Tables, damage: Callable[[Connection, int], None]
) -> None:
    """A newer release has recorded it, or its rows were damaged."""
    conversation = store.create_conversation(model="m", input="Count", user_id="ann")

    def erase_while_it_streams() -> None:
        with conversation.stream_response(FORMAT) as recorder:
            recorder.feed(a_stream(WORDS)[0])
            with tables._connection.begin():
                damage(tables._connection, tables._tenant)
            store.erase_user("ann")

    with pytest.raises(NotFound):  # at its end
        erase_while_it_streams()
    assert list(store.list_conversations()) == []
    assert tables.counts()["conversations"] == 0
    [row] = tables.rows("usage_records")
    assert (row["status"], row["user_id"]) == ("incomplete", None)


async def consume(conversation: Any, events: list[Any], pause: float = 0.0) -> Any:
    async with conversation.stream_response(FORMAT) as recorder:
        for event in events:
            await recorder.feed(event)
            await asyncio.sleep(pause)
    return recorder


def test_a_cancelled_task_stores_what_came(stores: Any, tenant: str) -> None:
    """… at whichever await it is cancelled."""
    store = stores.get("async").for_tenant(tenant)
    dice, ends = random.Random(0), set()

    async def cancelled(handle: Any, latest: float) -> None:
        task = asyncio.ensure_future(consume(handle, a_stream("word " * 50), 0.001))
        await asyncio.sleep(dice.uniform(0.0, latest))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    latest = [0.1] * KILLS * 4 + [0.2, 0.4, 0.8, 1.6] * 10  # later where it takes long to begin
    for number, seconds in enumerate(latest):
        if number >= KILLS * 4 and "cancelled" in ends:
            break
        conversation = store.create_conversation(model="m", input="Count")
        store._runner.run(cancelled(conversation._wrapped, seconds))
        rows = list(conversation.responses())
        assert {row.status for row in rows} <= {"cancelled", "completed"}
        assert conversation.usage().attempts == len(rows)
        conversation.user("goes on")
        ends |= {row.status for row in rows}
    assert "cancelled" in ends


def test_a_task_that_is_cancelled_again_and_again_stores_what_came(stores: Any, tenant: str) -> None:
    """Web frameworks do that at every await until the task has ended."""
    store = stores.get("async").for_tenant(tenant)
    conversation = store.create_conversation(model="m", input="Count")

    async def consume_one(begun: asyncio.Event) -> None:
        async with conversation._wrapped.stream_response(FORMAT) as recorder:
            await recorder.feed(a_stream(WORDS)[0])
            begun.set()
            await asyncio.sleep(60)

    async def hunted() -> None:
        begun = asyncio.Event()
        task = asyncio.ensure_future(consume_one(begun))
        await begun.wait()
        loop = asyncio.get_running_loop()

        def hunt() -> None:
            if not task.done():
                task.cancel()
                loop.call_soon(hunt)

        hunt()
        with pytest.raises(asyncio.CancelledError):
            await task

    store._runner.run(hunted())
    assert [row.status for row in conversation.responses()] == ["cancelled"]
    assert conversation.usage().attempts == 1


def test_a_generator_that_is_closed_stores_what_came(stores: Any, tenant: str) -> None:
    """That is how a web framework ends an answer whose reader is gone."""
    store = stores.get("async").for_tenant(tenant)
    conversation = store.create_conversation(model="m", input="Count")

    async def answer() -> Any:
        async with conversation._wrapped.stream_response(FORMAT) as recorder:
            for event in a_stream(WORDS):
                await recorder.feed(event)
                yield event

    async def read_a_little() -> None:
        generator = answer()
        for _ in range(4):
            await anext(generator)
        await generator.aclose()

    store._runner.run(read_a_little())
    assert texts_of(conversation.transcript()) == ["Count", "one two "]
    assert [row.status for row in conversation.responses()] == ["cancelled"]


def test_a_sync_generator_too(stores: Any, tenant: str) -> None:
    conversation = stores.get("sync").for_tenant(tenant).create_conversation(model="m", input="Count")

    def answer() -> Any:
        with conversation.stream_response(FORMAT) as recorder:
            for event in a_stream(WORDS):
                recorder.feed(event)
                yield event

    generator = answer()
    for _ in range(4):
        next(generator)
    generator.close()
    assert texts_of(conversation.transcript()) == ["Count", "one two "]
    assert [row.status for row in conversation.responses()] == ["cancelled"]


def test_another_task_can_cancel(stores: Any, tenant: str) -> None:
    store = stores.get("async").for_tenant(tenant)
    conversation = store.create_conversation(model="m", input="Count")

    async def stopped() -> Any:
        async with conversation._wrapped.stream_response(FORMAT) as recorder:
            stop: Any = None
            for place, event in enumerate(a_stream("word " * 300)):
                if place == 100:
                    stop = asyncio.ensure_future(recorder.cancel())
                await recorder.feed(event)
                await asyncio.sleep(0)
            await stop
        return recorder.response

    response = store._runner.run(stopped())
    assert response.status == "cancelled"
    assert 90 < len(response.text.split()) < 300
    assert conversation.usage().attempts == 1
