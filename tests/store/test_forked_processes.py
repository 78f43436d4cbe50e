"""A store that was opened before its process was forked: each process has connections of its own, and sees its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from tests.databases import Database
from tests.factories import a_stream, texts_of
from tests.processes import forked, pipe
from tests.store.faces import blocking_store
from tests.store.writers import opened
from threadkeep import InvalidOption

CHILDREN = 3
ROUNDS = 25
EVENTS = a_stream("Hello", "world")


def opened_before(url: str, tenant: str, face: str) -> Any:
    """A store that has used its connections, as a server has that loads the application before it forks."""
    store = opened(url, tenant, face)
    list(store.list_conversations())
    return store


INHERITED: list[asyncio.Runner] = []


def anew(store: Any) -> Any:
    """The inherited store in the child: an event loop cannot be inherited, so there is a new one."""
    if hasattr(store, "_runner"):
        INHERITED.append(store._runner)  # if it were collected, it would stop watching for its parent, too
        store._runner = asyncio.Runner()
    return store


def in_child(work: Callable[[], Any]) -> int:
    """Run work in a forked child; returns its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the parent is told
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return child


def succeeded(children: list[int]) -> bool:
    ended = [os.waitpid(child, 0)[1] for child in children]
    return not any(ended)


def work_of(store: Any, name: str, rounds: int = ROUNDS) -> None:
    """Write and read what belongs to one user."""
    mine = store.for_user(name)
    conversation = mine.create_conversation(model="m", external_id=name)
    for number in range(rounds):
        conversation.user(f"{name} {number}")
        fresh = mine.get_conversation(conversation.id)
        assert texts_of(fresh.transcript()) == [f"{name} {one}" for one in range(number + 1)]
        assert fresh.user_id == name
        assert [found.user_id for found in mine.list_conversations()] == [name]


def fork_readers(url: str, tenant: str, face: str, told: Connection) -> None:
    """Several children of one store read and write at once, and so does their parent."""
    store = opened_before(url, tenant, face)
    children = [in_child(lambda name=name: work_of(anew(store), name)) for name in map(str, range(CHILDREN))]  # type: ignore[misc]
    work_of(store, "parent")
    told.send(succeeded(children) and len(list(store.list_conversations())) == CHILDREN + 1)
    os._exit(0)


def fork_a_recorder(url: str, tenant: str, face: str, told: Connection) -> None:
    """A child is forked while a stream is recorded, and by a handle that has read; both are its parent's."""
    store = opened_before(url, tenant, face)
    conversation = store.for_user("parent").create_conversation(model="m", input="Count")
    conversation.render("open_responses")

    def child(recorder: Any) -> None:
        work_of(anew(store), "child", rounds=2)
        writer = getattr(recorder, "_wrapped", recorder).writer
        with pytest.raises(InvalidOption, match="forked"):
            writer.take(EVENTS[1]) if face == "async" else recorder.feed(EVENTS[1])
        assert writer.renew() is None

    with conversation.stream_response("open_responses", lease=60) as recorder:
        recorder.feed(EVENTS[0])
        children = [in_child(lambda: child(recorder))]
        for event in EVENTS[1:]:
            recorder.feed(event)
        went_well = succeeded(children)
    texts = texts_of(store.get_conversation(conversation.id).transcript())
    told.send(went_well and texts == ["Count", "Hello", "world"])
    os._exit(0)


def leave_by_the_door(url: str, tenant: str, face: str, told: Connection) -> None:
    """A child that ends as a program does, with its destructors, takes nothing from its parent."""
    store = opened_before(url, tenant, face)
    receiver, sender = os.pipe()
    if os.fork() == 0:
        work_of(anew(store), "child", rounds=1)
        store.close()
        os.write(sender, b"done")
        raise SystemExit
    assert os.read(receiver, 4) == b"done"
    os.wait()
    work_of(store, "parent")
    told.send(len(list(store.list_conversations())))
    os._exit(0)


def fork_in_memory(told: Connection) -> None:
    """A database in memory is copied with the process."""
    store = blocking_store("sqlite://", asyncio.Runner())
    store.create_conversation(external_id="before")
    child = in_child(lambda: work_of(anew(store), "child", rounds=1))
    told.send(succeeded([child]) and len(list(store.list_conversations())) == 1)
    os._exit(0)


def told_by(target: Callable[..., None], *arguments: Any) -> Any:
    receiver, sender = pipe()
    process = forked(target, *arguments, sender)
    sender.close()
    assert receiver.poll(120)
    try:
        return receiver.recv()
    finally:
        process.join()


@pytest.mark.one_face
def test_children_see_only_their_own(database: Database, tenant: str, face: str) -> None:
    assert told_by(fork_readers, database.url, tenant, face)


@pytest.mark.one_face
def test_a_child_of_a_recorder_leaves_it_alone(database: Database, tenant: str, face: str) -> None:
    assert told_by(fork_a_recorder, database.url, tenant, face)


@pytest.mark.one_face
def test_a_child_that_ends_takes_nothing_from_its_parent(database: Database, tenant: str, face: str) -> None:
    assert told_by(leave_by_the_door, database.url, tenant, face) == 2


def test_a_database_in_memory_is_copied() -> None:
    assert told_by(fork_in_memory)
