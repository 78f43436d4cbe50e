# ruff: noqa: F401, F811 - fixtures
"""Requests with a window read the end of a long history: as few statements as of a short one, and the same request."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from tests.conftest import MATRIX, is_set
from tests.factories import a_call, a_message, an_answer, an_output
from tests.store.filled import database, filled, size
from tests.store.test_statements import count, handle
from threadkeep import CannotRender, InvalidOption, NotFound, Store, Turns
from threadkeep.db.queries.histories import marks_of
from threadkeep.domain.rendering import RenderOptions
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.store.reading.tails import read_tail

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

WINDOWS = [Turns(1), Turns(2), Turns(5), Turns(2, step=2), Turns(3, step=4)]
SEEDS = 400 if is_set("THREADKEEP_LONG") else 12 if MATRIX == "quick" else 25
PAGE, MARKS = 1, 1
CALL_IDS = ["a", "b", "c"]
KINDS = [*["user", "call", "output"] * 2, "user", "assistant", "system", "answer", "event", "remove"]


def grown(store: Store, chance: random.Random, length: int) -> list[Any]:
    """A conversation in which everything may happen; returns its branches."""
    imported = [a_message("imported"), an_output("b"), a_call("a"), a_message("go on")]
    conversation = (
        store.import_request({"model": "gpt-5.4", "input": imported}, "open_responses")
        if chance.random() < 0.3
        else store.create_conversation(model="gpt-5.4")
    )
    branches = [conversation]
    for number in range(length):
        branch = chance.choice(branches)
        kind = chance.choice(KINDS)
        if kind in {"user", "assistant", "system"}:
            branch.add_item(a_message(f"{kind} {number}", kind))
        elif kind == "call":
            branch.add_item(a_call(chance.choice(CALL_IDS)))
        elif kind == "output":
            branch.add_item(an_output(chance.choice(CALL_IDS), f"found {number}"), known=False)
        elif kind == "answer":
            branch.user(f"question {number}")
            calls = tuple(chance.sample(CALL_IDS, chance.randint(0, 2)))
            rendered = branch.render("open_responses") if chance.random() < 0.5 else None
            body = an_answer(f"answer {number}", id=f"resp_{number}", calls=calls)
            branch.add_response(body, "open_responses", rendered=rendered)
        elif kind == "remove" and branch.head > 2:
            branch.pop()
        elif kind == "event" and (made := happen(branch, chance)) is not None:
            branches.append(made)
    return branches


def happen(branch: Any, chance: random.Random) -> Any:
    """A fork, a compaction of either kind, or one that is taken back."""
    what = chance.choice(["fork", "compact", "provider", "undo"])
    if what == "fork" and branch.head > 1:
        positions = [item.position for item in branch.items(order="desc", limit=6)]
        return branch.fork(at=chance.choice(positions))
    if what == "provider":
        branch.add_item({"type": "compaction", "encrypted_content": "packed"})
    with suppress(InvalidOption, NotFound):  # nothing to compact, or to take back
        if what == "compact":
            branch.compact(summary="They talked.")
        elif what == "undo":
            branch.undo_compaction()
    return None


def outcome(format: FormatName, snapshot: Any, window: Turns) -> Any:
    """A request and everything that is said about it; or why there is none."""
    try:
        found = get_format(format).render(snapshot, RenderOptions(window=window))
    except CannotRender as error:
        return str(error)
    return found.body, found.losses, found.repairs, found.stable, found.head, found.view


@pytest.fixture
def tenant(stores: Any) -> Any:
    return stores.get("sync").create_tenant(f"tails {random.random()}")


def read_end(handle: Any, window: Turns, format: str, page: int) -> Any:
    """The end of a branch, read as a new handle does."""
    configs, ref, state = handle.resources.configs, handle.ref, handle.conversation
    return handle.transactions.read(
        lambda connection: read_tail(connection, ref, configs, state, window, format, "inline", page=page)
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_end_gives_the_same_request_as_the_whole(tenant: Any, seed: int) -> None:
    chance = random.Random(seed)
    for branch in grown(tenant, chance, 40):
        found = tenant.get_conversation(branch.id, branch=branch.branch).handle
        whole = found.on(found.conversation).read_snapshot()
        for window in WINDOWS:
            name = chance.choice(NAMES)
            tail = read_end(found, window, name, chance.choice([1, 3, 8]))
            if tail is not None:
                assert outcome(name, tail.snapshot(), window) == outcome(name, whole, window)
                assert tail.head == (whole.entries[-1].position if whole.entries else -1)


def talked(handle: Any, turns: int = 8) -> None:
    for number in range(turns):
        handle.add_items([a_message(f"question {number}"), a_message(f"answer {number}", "assistant")])


def fresh(stores: Any, face: str, handle: Any, filled: Any, size: int) -> Any:
    """The conversation opened by a store that knows nothing of it."""
    found: Any = stores.get(face).for_tenant(filled[size][0]).get_conversation(handle.id, branch=handle.branch)
    found.handle.resources.histories.clear()
    return found


@pytest.mark.parametrize("format", NAMES)
def test_a_window_takes_two_statements_however_long_the_history_is(
    stores: Any, face: str, size: int, filled: Any, handle: Any, format: str
) -> None:
    talked(handle)
    opened = fresh(stores, face, handle, filled, size)
    assert count(opened, lambda: opened.request_payload(format, window=Turns(5))) <= PAGE + MARKS
    payload = str(opened.request_payload(format, window=Turns(5)))
    assert ("question 3" in payload, "question 2" in payload) == (True, False)


def test_only_the_end_is_read(stores: Any, size: int, filled: Any, handle: Any, face: str) -> None:
    talked(handle)
    found = fresh(stores, "sync", handle, filled, size)
    tail = read_end(found.handle, Turns(5), "messages", 64)
    said = [entry.position for entry in tail.entries if entry.role != "system"]
    assert said == list(range(tail.head - 9, tail.head + 1))


def test_what_lies_before_a_window_is_found(stores: Any, face: str, size: int, filled: Any, handle: Any) -> None:
    """A system message, and the call of an output: two statements more for what is read along with it."""
    handle.add_items([a_message("Be kind.", "system"), a_message("Look it up."), a_call("far")])
    talked(handle, 100)
    handle.add_items([a_message("And now?"), an_output("far")], known=False)
    opened = fresh(stores, face, handle, filled, size)
    assert count(opened, lambda: opened.request_body("chat_completion", window=Turns(2))) <= PAGE + MARKS + 1 + 2
    messages = opened.request_payload("chat_completion", window=Turns(2))["messages"]
    rules = [message["role"] for message in messages].index("user")
    assert all("Be kind." in str(message) for message in messages[:rules])
    assert "Look it up." in str(messages[rules])
    assert messages[-1]["role"] == "user"  # the output came late
    assert len(messages) - rules > 200


def test_what_was_read_before_is_used(stores: Any, face: str, size: int, filled: Any, handle: Any) -> None:
    talked(handle)
    opened = fresh(stores, face, handle, filled, size)
    opened.request_body("messages")
    assert count(opened, lambda: opened.request_body("messages", window=Turns(5))) == 1


def test_the_last_items_are_read_from_the_end(stores: Any, face: str, size: int, filled: Any, handle: Any) -> None:
    talked(handle)
    handle.remove_item(handle.head - 1)
    opened = fresh(stores, face, handle, filled, size)
    lineage = 1 if handle.branch else 0
    assert count(opened, lambda: opened.transcript(last=3)) <= 2 + lineage + 1  # two spans, for the gap
    assert [item.item.text for item in opened.transcript(last=3)] == ["question 6", "answer 6", "answer 7"]
    assert opened.transcript(last=0) == []
    with pytest.raises(InvalidOption, match="must be 0 or more"):
        opened.transcript(last=-1)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_marks_are_found_by_their_index(database: Any, handle: Any) -> None:
    """The other databases choose it by their statistics."""
    with database.engine().connect() as connection:
        compiled = marks_of(scoped=False).compiled(connection.dialect)
        parameters = compiled.bind(handle.handle.ref.parameters())
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled.text}", parameters).all()
    [of_items] = [step[3] for step in plan if "threadkeep_items" in step[3]]
    assert "threadkeep_items_marks_idx (tenant_id=? AND conversation_id=? AND type=?)" in of_items
