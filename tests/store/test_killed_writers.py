"""A writer that is killed leaves no part of a turn, and a retry with the same key gives exactly one."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from tests.conftest import is_set
from tests.databases import Database
from tests.factories import texts_of
from tests.processes import forked, pipe
from tests.store.watching import Tables
from tests.store.writers import answer_for_ever, answer_together_for_ever, turn

KILLS = 200 if is_set("THREADKEEP_LONG") else 20
LONGEST = 0.03  # seconds that a writer lives at most, once it writes


def last_started(receiver: Any) -> int:
    """The number of the turn that the killed writer was at."""
    number = -1
    try:
        while receiver.poll(0.2):
            number = receiver.recv()
    except EOFError:
        pass
    return number


def check(tables: Tables, answers: int) -> None:
    """Every turn has all of its rows, and nothing else is there."""
    items = tables.rows("items", "position")
    responses = tables.rows("responses", "number")
    ranges = [(row["from_position"], row["to_position"]) for row in responses]
    assert [position for first, last in ranges for position in range(first, last + 1)] == [
        row["position"] for row in items
    ]
    assert {last - first for first, last in ranges} <= {3}
    numbers = [row["number"] for row in responses]
    assert numbers == list(range(len(responses)))
    assert [row["number"] for row in tables.rows("response_bodies", "number")] == numbers
    assert sorted(row["response"] for row in tables.rows("usage_records", "id")) == numbers
    assert tables.counts()["appends"] == len(responses)
    [conversation] = tables.rows("conversations", "id")
    assert (conversation["next_position"], conversation["next_response"]) == (len(items), len(responses))
    assert conversation["head_position"] == len(items) - 1
    assert len(responses) == answers


def test_a_cancelled_task_leaves_no_part_of_a_turn(database: Database, stores: Any, tenant: str) -> None:
    store = stores.get("async").for_tenant(tenant)
    conversation = store.create_conversation(model="m")
    dice = random.Random(0)

    async def cancelled(number: int) -> None:
        handle = await store._wrapped.get_conversation(conversation.id)
        task = asyncio.ensure_future(turn(handle, number))
        await asyncio.sleep(dice.uniform(0, LONGEST / 3))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with database.engine().connect() as connection:
        tables = Tables(connection, store.handle.scope.tenant)
        for number in range(KILLS):
            store._runner.run(cancelled(number))
            turn(store.get_conversation(conversation.id), number)
            assert turn(store.get_conversation(conversation.id), number).replayed
            check(tables, answers=number + 1)


@pytest.mark.slow
def test_a_killed_writer_leaves_no_part_of_a_turn(database: Database, stores: Any, tenant: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(model="m")
    dice, first, in_time = random.Random(0), 0, 0
    with database.engine().connect() as connection:
        tables = Tables(connection, store.handle.scope.tenant)
        for _ in range(KILLS):
            receiver, sender = pipe()
            writer = forked(answer_for_ever, database.url, tenant, conversation.id, first, sender)
            sender.close()
            assert receiver.poll(60)
            time.sleep(dice.uniform(0, LONGEST))
            writer.kill()
            writer.join()
            number = last_started(receiver)
            receiver.close()
            retried = turn(store.get_conversation(conversation.id), number)
            in_time += retried.replayed
            assert turn(store.get_conversation(conversation.id), number).replayed
            check(tables, answers=number + 1)
            first = number + 1
    said = Counter(text.split()[0] for text in texts_of(store.get_conversation(conversation.id).transcript()))
    assert said == {str(number): 4 for number in range(first)}
    assert in_time < KILLS, "no writer was killed in the middle of a turn"


@pytest.mark.slow
def test_of_killed_threads_that_write_together_nothing_is_lost_or_doubled(
    database: Database, stores: Any, tenant: str
) -> None:
    store = stores.get("sync").for_tenant(tenant)
    ids = [store.create_conversation(model="m").id for _ in range(8)]
    dice, stored = random.Random(0), 0
    for _ in range(KILLS // 4):
        receiver, sender = pipe()
        writer = forked(answer_together_for_ever, database.url, tenant, ids, stored, sender)
        sender.close()
        assert receiver.poll(60)  # the first one is stored
        time.sleep(dice.uniform(0, LONGEST))
        writer.kill()
        writer.join()
        acknowledged: Counter[str] = Counter()
        with suppress(EOFError):
            while receiver.poll(0.2):
                acknowledged[receiver.recv()[0]] += 1
        receiver.close()
        end = stored + max(acknowledged.values()) + 1  # one more may be there whose acknowledgement did not arrive
        for key in ids:
            conversation = store.get_conversation(key)
            for number in range(stored, end):
                assert turn(conversation, number).replayed or number >= stored + acknowledged[key]
        stored = end
    for key in ids:
        said = Counter(text.split()[0] for text in texts_of(store.get_conversation(key).transcript()))
        assert said == {str(number): 4 for number in range(stored)}
    assert not store.check().findings
