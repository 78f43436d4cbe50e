"""Many processes write at once: no item is lost, doubled or out of order, and no writer is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.conftest import is_set
from tests.databases import Database
from tests.factories import a_call, a_message, a_picture, an_answer, an_output, noise, texts_of
from tests.processes import forked
from tests.store.watching import engine_of
from tests.store.writers import append_turns, open_and_say
from threadkeep import HeadConflict, Store

ROOT = Path(__file__).parents[2]
WRITERS = 16
TURNS = 50 if is_set("THREADKEEP_LONG") else 4
FACES = ("sync", "async")


def turns_in(conversation: Any) -> dict[str, list[int]]:
    """The numbers of the turns of each writer, in order; checks on the way that every turn is whole and contiguous."""
    transcript = conversation.transcript()
    assert [stored.position for stored in transcript] == list(range(len(transcript)))
    found = defaultdict(list)
    for start in range(0, len(transcript), 3):
        words = [text.split() for text in texts_of(transcript[start : start + 3])]
        assert {tuple(line[:3]) for line in words} == {tuple(words[0][:3])}, words
        assert [line[3] for line in words] == ["0", "1", "2"]
        found[f"{words[0][0]} {words[0][2]}"].append(int(words[0][1]))
    return found


@pytest.mark.slow
def test_sixteen_processes_write_to_one_conversation_and_to_their_own(
    database: Database, stores: Any, tenant: str
) -> None:
    store = stores.get("sync").for_tenant(tenant)
    shared = store.create_conversation(model="m")
    names = [f"writer{number}" for number in range(WRITERS)]
    writers = [
        forked(append_turns, database.url, tenant, FACES[number % 2], shared.id, name, TURNS)
        for number, name in enumerate(names)
    ]
    for writer in writers:
        writer.join(240)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    expected = list(range(TURNS))
    assert turns_in(store.get_conversation(shared.id)) == {
        f"{name} {kind}": expected for name in names for kind in ("said", "heard")
    }
    for name in names:
        own = store.find_conversation(external_id=name)
        assert turns_in(own) == {f"{name} said": expected, f"{name} heard": expected}
    seen, after = [], None
    while True:
        page = shared.responses(limit=100, after=after)
        seen += [(row.number, row.to_position - row.from_position) for row in page]
        after = page.next
        if after is None:
            break
    assert seen == [(number, 2) for number in range(WRITERS * TURNS)]
    assert store.usage()[0].attempts == 2 * WRITERS * TURNS


def test_threads_write_to_branches_of_one_conversation(stores: Any, tenant: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    root = store.create_conversation(model="m", input="root")

    def write(number: int) -> None:
        branch = store.get_conversation(root.id).fork(at=0)
        for turn in range(6):
            branch.user(f"{number} {turn}", expected_head=branch.head)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    for number in range(1, 9):
        first, *said = texts_of(store.get_conversation(root.id, branch=number).transcript())
        assert first == "root"
        assert [text.split()[1] for text in said] == ["0", "1", "2", "3", "4", "5"]
        assert len({text.split()[0] for text in said}) == 1
    assert len(root.branches()) == 9


def test_one_of_many_expects_the_right_head(stores: Any, tenant: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(model="m", input="0")
    handles = [store.get_conversation(conversation.id) for _ in range(8)]

    def answer(handle: Any) -> int:
        try:
            handle.add_response(an_answer("mine"), "open_responses", expected_head=0)
        except HeadConflict as conflict:
            return conflict.head
        return 0

    with ThreadPoolExecutor(8) as pool:
        heads = list(pool.map(answer, handles))
    assert sorted(heads) == [0, *[1] * 7]
    assert len(conversation.transcript()) == 2
    assert store.usage()[0].attempts == 8


def test_changes_of_many_threads_build_on_each_other(stores: Any, tenant: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(model="m")

    def change(number: int) -> None:
        store.get_conversation(conversation.id).register_tool(f"tool{number}", parameters={"n": number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(16)))
    tools = store.get_conversation(conversation.id).tools
    assert sorted(tool["name"] for tool in tools) == sorted(f"tool{number}" for number in range(16))


def test_a_reader_sees_whole_turns_only(stores: Any, tenant: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(model="m")

    def write() -> None:
        for number in range(30):
            conversation.add_items([a_message(f"w {number} said {part}") for part in range(3)])

    reader = store.get_conversation(conversation.id)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            items = reader.request_payload("open_responses").get("input", []) if reader.head >= 0 else []
            assert len(items) % 3 == 0
            assert len(turns_in(store.get_conversation(conversation.id)).get("w said", [])) >= len(items) // 3
            reader = reader if items else store.get_conversation(conversation.id)
        writing.result()
    assert len(reader.transcript()) == 90


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_many_processes_open_a_new_file(database: Database, tmp_path: Path) -> None:
    """An empty SQLite database is set up by whoever comes first; the others wait."""
    url = f"sqlite:///{tmp_path}/new.db"
    processes = [forked(open_and_say, url, f"{number}") for number in range(8)]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    with Store(url) as store:
        assert sorted(texts_of(one.transcript())[0] for one in store.list_conversations()) == list("01234567")


@pytest.mark.parametrize("place", ["usage.ledger.ids", "writing.conversations"])
def test_a_number_that_another_process_drew_as_well(
    stores: Any, tenant: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Processes make numbers without asking each other; two of the same are a reason to draw again."""
    store = stores.get("sync").for_tenant(tenant)
    drawn = iter([7, 7, 8])
    monkeypatch.setattr(f"threadkeep.store.{place}.new_key", lambda: next(drawn))
    for _ in range(2):
        store.create_conversation(model="m").record_attempt("open_responses")
    monkeypatch.undo()
    assert (store.usage()[0].attempts, len(store.list_conversations())) == (2, 2)


def a_varied_conversation(store: Any) -> Any:
    """Everything that rendering has rules for."""
    conversation = store.create_conversation(
        model="m", instructions="Be brief", temperature=0.3, metadata={"b": "1", "a": "2"}, extra={"seed": 2**64},
        tools=[{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("b", "a")],
    )  # fmt: skip
    conversation.user(["Look \x00 \ud800 é", a_picture(noise(20_000))])
    conversation.add_response(an_answer("Hm", calls=("c 1", "c:2", "c 1")), "open_responses")
    items = [an_output("c:2"), an_output("orphan"), a_call("open", "no such name!", "{not json")]
    conversation.add_items(items, known=False)
    conversation.add_item({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"})
    conversation.user("And?")
    fork = conversation.fork(at=2)
    fork.developer("Later instructions")
    fork.user([a_picture(noise(9_000, seed=1), "image/jpeg")])
    return conversation


@pytest.mark.slow
def test_two_processes_render_the_same_bytes(database: Database, stores: Any, tenant: str) -> None:
    """… with another seed of hashes, and as a detached session renders them, on every database."""
    store = stores.get("sync").for_tenant(tenant)
    conversation = a_varied_conversation(store)
    handles = [store.get_conversation(conversation.id, branch=branch) for branch in (0, 1)]
    formats = ("open_responses", "chat_completion")
    bodies = [handle.request_body(wire) for handle in handles for wire in formats]
    others = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.writers", database.url, tenant, conversation.id],
            stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]  # fmt: skip
    for other in others:
        assert other.communicate(timeout=60)[0].splitlines() == bodies
    assert [body for branch in (0, 1) for body in detached(handles[branch], formats)] == bodies


def detached(handle: Any, formats: tuple[str, ...]) -> list[bytes]:
    session = handle.session()
    return [session.request_body(wire) for wire in formats]


@pytest.mark.one_face
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_threads_wait_for_each_other_rather_than_poll(stores: Any, tenant: str, conversation: Any) -> None:
    """SQLite's own waiting sleeps ever longer, also while the file is free: no statement of a thread has to wait."""
    store = stores.get("sync").for_tenant(tenant)
    begun: list[str] = []
    inside = 0

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        nonlocal inside
        if statement.startswith("BEGIN"):
            begun.append(statement)
            assert inside == 0
            inside += 1

    def leave(_connection: Any) -> None:
        nonlocal inside
        inside = 0

    engine = engine_of(store)
    for name, listener in (("before_cursor_execute", note), ("commit", leave)):
        event.listen(engine, name, listener)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: store.get_conversation(conversation.id).user(str(number)), range(40)))
    finally:
        for name, listener in (("before_cursor_execute", note), ("commit", leave)):
            event.remove(engine, name, listener)
    assert len(begun) <= 40  # those that wait at the same time share a transaction
    assert len(conversation.transcript()) == 40
