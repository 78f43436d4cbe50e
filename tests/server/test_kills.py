"""Whoever is killed in mid-stream: what had come is stored and marked, the next request works, and each has a bill."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from tests.cluster.conftest import set_up
from tests.cluster.servers import POSTGRES_BIN, Postgres, folder_for
from tests.conftest import is_set
from tests.databases import Database
from tests.ports import free_ports
from tests.server.killing import COUNT, DONE, Probe, World, received
from tests.server.recorder.conftest import said
from threadkeep import Store

KILLS = 50 if is_set("THREADKEEP_LONG") else 2
UNKNOWN_THREAD = 1094  # MariaDB's error
FLUSH_SECONDS = 1.0  # what came before that is stored, where writing takes no time
ENDED = {"client": {"cancelled"}, "server": {"incomplete"}, "upstream": {"incomplete"}}

pytestmark = [pytest.mark.slow, pytest.mark.one_face, pytest.mark.timeout(3600 if is_set("THREADKEEP_LONG") else 300)]


@contextmanager
def world_of(url: str) -> Iterator[tuple[World, Store]]:
    tenant = uuid4().hex
    with Store(url, tenants=True) as root:
        store, world = root.create_tenant(tenant), World(url, tenant, free_ports(2))
        world.start("upstream")
        world.start("server")
        try:
            yield world, store
        finally:
            world.close()


def stored_until(store: Store, seconds: float) -> float:
    """Let a client read for so long; return from when, at the latest, all that it got must be stored after a kill now.

    A batch begins later where the machine has other things to do, and is stored later where that takes time.
    """
    probe = Probe(store)
    time.sleep(seconds)
    delay = probe.end()
    return time.monotonic() - FLUSH_SECONDS - 2 * delay


def check(world: World, store: Store, id_: str, words: list[tuple[float, str]], until: float) -> str:
    """Check what is stored after a kill, and after the next request; return how the answer is marked."""
    world.ask(id_, f"next {id_}")
    conversation = store.get_conversation(id_)
    lines = said(conversation)
    first, *partial, asked, answered = lines
    assert (first, asked, answered) == (f"user: {COUNT}", "user: Next", f"assistant: {DONE}"), lines
    stored = partial[0].removeprefix("assistant: ").split() if partial else []
    assert stored == [str(number + 1) for number in range(len(stored))]
    flushed = "".join(word for at, word in words if at < until).split()
    assert len(stored) >= len(flushed), (len(stored), len(flushed), len(words))
    broken, whole = conversation.responses()
    assert whole.status == "completed"
    assert {row.response: row.attempts for row in conversation.usage(by="response")} == {0: 1, 1: 1}
    return str(broken.status)


@pytest.mark.parametrize("has_socket", [False, True])
@pytest.mark.parametrize("who", ENDED)
def test_what_came_before_a_kill_is_stored(database: Database, who: str, *, has_socket: bool) -> None:
    dice = random.Random(who)
    with world_of(database.url) as (world, store):
        for _ in range(KILLS):
            id_ = store.create_conversation().id
            client, receiver = world.client(id_, has_socket=has_socket)
            until = stored_until(store, dice.uniform(0.0, 2.0))
            if who == "client":
                client.kill()
            else:
                world.kill(who)
            client.join(60)
            if who != "client":
                world.start(who)
            assert check(world, store, id_, received(receiver), until) in ENDED[who]


def kill_connections(database: Database, engine: Engine) -> None:
    with engine.connect() as connection:
        if database.kind == "postgresql":
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            connection.execute(text(kill + "AND pid <> pg_backend_pid()"))
            return
        ids = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        for number in connection.execute(text(ids)).scalars():
            try:
                connection.execute(text(f"KILL {number}"))
            except OperationalError as error:  # it may have ended by itself
                if error.orig is None or error.orig.args[0] != UNKNOWN_THREAD:
                    raise


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_what_came_before_all_connections_were_killed_is_stored(database: Database) -> None:
    """Most of the time, the answer goes on over new connections."""
    dice, engine = random.Random(1), database.engine()
    with world_of(database.url) as (world, store):
        for _ in range(KILLS):
            id_ = store.create_conversation().id
            client, receiver = world.client(id_)
            until = stored_until(store, dice.uniform(0.0, 2.0))
            kill_connections(database, engine)
            time.sleep(dice.uniform(0.0, 1.5))
            client.kill()
            client.join(60)
            status = check(world, store, id_, received(receiver), until)
            assert status in ("cancelled", "incomplete")


@pytest.fixture
def postgres() -> Iterator[Any]:
    if not (POSTGRES_BIN / "initdb").exists():
        pytest.skip("PostgreSQL's programs are not installed")
    with ExitStack() as stack:
        server = Postgres(stack.enter_context(folder_for("postgres")), free_ports(1)[0])
        server.create()
        server.start()
        stack.callback(server.stop)
        yield server


def test_what_came_before_the_database_was_killed_is_stored(postgres: Postgres) -> None:
    dice = random.Random(2)
    set_up(postgres.url())
    with world_of(postgres.url()) as (world, store):
        for _ in range(KILLS):
            id_ = store.create_conversation().id
            client, receiver = world.client(id_)
            until = stored_until(store, dice.uniform(0.0, 2.0))
            postgres.kill()
            time.sleep(dice.uniform(0.0, 1.0))
            postgres.start()
            client.kill()
            client.join(60)
            status = check(world, store, id_, received(receiver), until)
            assert status in ("cancelled", "incomplete")
