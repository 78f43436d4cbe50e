"""How many statements removing items takes: the same at 10 and at 100,000 items."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, update

from tests.databases import Database
from tests.factories import a_call, a_message, an_answer
from tests.store.filled import SIZES, fill
from tests.store.test_statements import extra
from tests.store.watching import statements_of
from threadkeep.db.models import branches

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

# SQLite's search index takes one of them
MOST = {"pop": 12, "pop with a key": 12, "hide": 8, "remove": 9, "redact": 13, "clear": 10}


@pytest.mark.slow
def test_removing_takes_as_many_statements_at_every_size(
    stores: Any, store: Any, face: str, database: Database
) -> None:
    counts: dict[str, list[int]] = {}
    for size in SIZES:
        made = store.create_conversation(model="m")
        with database.engine().begin() as connection:
            fill(connection, made.handle.ref, size)
        opened = store.get_conversation(made.id)
        for where, handle in (("fork", opened.fork()), ("branch 0", opened)):
            handle.user("so that the fork has an item of its own")
            for name, step in steps_of(handle).items():
                with statements_of(handle) as seen:
                    step()
                counts.setdefault(f"{name} on {where}", []).append(len(seen))
    assert {name for name, (few, many) in counts.items() if few != many} == set()
    most = {name: MOST[name.partition(" on ")[0]] + 2 * extra(database) for name in counts}
    assert {name: few for name, (few, _) in counts.items() if few > most[name]} == {}


def steps_of(handle: Any) -> dict[str, Any]:
    return {
        "pop": handle.pop,
        "pop with a key": lambda: handle.pop(idempotency_key=uuid4().hex),
        "hide": lambda: handle.remove_item(3),
        "remove": lambda: handle.remove_item(4, purge=True),
        "redact": lambda: handle.redact_item(5),
        "clear": handle.clear,
    }


def test_a_thousand_scattered_removals_are_read_at_once(store: Any) -> None:
    conversation = store.create_conversation(model="m")
    conversation.add_items([{"role": "user", "content": str(number)} for number in range(400)])
    fork = conversation.fork()
    for number in range(1, 399, 3):
        conversation.remove_item(number)
    fresh = store.get_conversation(conversation.id)
    with statements_of(store) as seen:
        assert len(fresh.request_payload("open_responses")["input"]) == 267
    assert len(seen) == 1
    with statements_of(store) as seen:
        assert len(fresh.items(limit=100)) == 100
        assert len(fresh.items(limit=1_000, order="desc")) == 267
    assert len(seen) == 4
    again = conversation.fork()
    with statements_of(store) as seen:
        assert len(again.request_payload("open_responses")["input"]) == 267
    assert len(seen) == 2
    assert len(fork.transcript()) == 400


def test_pending_calls_with_a_thousand_gaps_take_a_dozen_statements(store: Any, watching: Engine) -> None:
    """… in a conversation without responses, of which all calls are looked at, whatever other branches have."""
    calls = 1_000
    conversation = store.create_conversation(model="m")
    items: list[Any] = [
        one for n in range(calls) for one in (a_message("x"), a_call(f"c{n}"), a_message("y", "assistant"))
    ]
    conversation.add_items(items)
    conversation.fork()
    parts = [part for n in range(calls) for part in ([0, 3 * n - 1], [-1, 3 * n, 0])][1:]
    change = update(branches).where(branches.c.conversation_id == conversation.handle.ref.key)
    with watching.begin() as connection:  # as so many calls of remove_item would leave it
        connection.execute(change.values(lineage=json.dumps([*parts, [0, 3 * calls - 1]])))
    fork = store.get_conversation(conversation.id, branch=1)
    with statements_of(store) as seen:
        assert len(fork.pending_calls()) == calls
    assert len(seen) <= 3 + calls // 100 + 1
    fork.add_function_call_output(call_id="c7", output="x")
    assert len(fork.pending_calls()) == calls - 1
    fork.add_response(an_answer(calls=("last",)), "open_responses")
    with statements_of(store) as seen:
        assert [call.call_id for call in fork.pending_calls()] == ["last"]
    assert len(seen) <= 5


def test_a_removal_costs_an_append_nothing(store: Any, database: Database) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.user("x")
    conversation.remove_item(0)
    with statements_of(conversation) as seen:
        conversation.user("more")
    assert len(seen) <= 2 + extra(database)
