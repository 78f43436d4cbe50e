"""PostgreSQL behind PgBouncer, which gives each transaction another of few server connections."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import URL, Connection, create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import DRIVERS, Database
from tests.factories import an_answer
from tests.ports import free_ports
from tests.store.faces import blocking_store
from tests.waiting import listens, wait_until
from threadkeep import AsyncStore, InvalidOption, Store, schema

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
WRITERS, TURNS = 8, 8  # more than the pooler has connections; more than psycopg runs before it prepares


@pytest.fixture(scope="module")
def pooled(database: Database) -> Iterator[str]:
    """The URL of the database behind a pooler of our own."""
    if PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed")
    with TemporaryDirectory() as folder:
        yield from served(make_url(database.url), PGBOUNCER, Path(folder))


def served(url: URL, program: str, folder: Path) -> Iterator[str]:
    [port] = free_ports(1)
    settings, log = folder / "pgbouncer.ini", folder / "log"
    password = f" password={url.password}" if url.password else ""
    settings.write_text(
        f"[databases]\n* = host={url.host} port={url.port or 5432} user={url.username}{password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n"
    )
    user = {}
    if os.getuid() == 0:  # it refuses to run as root
        user = {"user": "nobody"}
        folder.chmod(0o755)
        settings.chmod(0o644)
    with log.open("wb") as output:
        process = subprocess.Popen([program, str(settings)], stdout=output, stderr=output, **user)  # type: ignore[call-overload]
        try:
            wait_until(lambda: process.poll() is not None or listens(port), log.read_text)
            assert process.poll() is None, log.read_text()
            yield url.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait()


@contextmanager
def opened(kind: str, url: str) -> Iterator[Any]:
    """A store of either face, on a URL or on an engine of the host whose connections are open already."""
    made = make_url(url).set(drivername=DRIVERS["postgresql"])
    with asyncio.Runner() as runner:
        if kind == "async":
            with blocking_store(url, runner) as store:
                yield store
        elif kind == "async engine":
            engine = create_async_engine(made)
            yield blocking_store(engine, runner)
            runner.run(engine.dispose())
        else:
            host = create_engine(made)
            host.connect().close()
            yield Store(host)
            host.dispose()


def a_life(conversation: Any, number: int) -> int:
    """Turns of a conversation, each with a write that reads, and a render."""
    for turn in range(TURNS):
        conversation.user(f"question {turn} of {number}", idempotency_key=f"q{turn}")
        conversation.add_response(an_answer(f"answer {turn} of {number}"), "open_responses")
        conversation.request_body("messages")
    return len(conversation.transcript())


def lived(store: Any, run: Callable[..., Any]) -> list[int]:
    conversations = [store.create_conversation(model="m") for _ in range(WRITERS)]
    return list(run(a_life, conversations, range(WRITERS)))


@pytest.mark.parametrize("threshold", ["", "?prepare_threshold=none", "?prepare_threshold=1"])
def test_many_writers_share_few_connections(pooled: str, threshold: str) -> None:
    """It is told by the URL, or noticed; and where the URL is wrong, it is found out without losing a write."""
    with Store(pooled + threshold) as store, ThreadPoolExecutor(WRITERS) as pool:
        assert lived(store, pool.map) == [2 * TURNS] * WRITERS


@pytest.mark.parametrize("kind", ["engine", "async", "async engine"])
def test_every_way_to_open_a_store_works(pooled: str, kind: str) -> None:
    with opened(kind, pooled) as store:
        assert lived(store, map) == [2 * TURNS] * WRITERS
        with store.create_conversation(model="m").stream_response("open_responses") as recorder:
            recorder.feed({"type": "response.completed", "response": an_answer("Hi")})
        assert recorder.response.output_text == "Hi"


def test_coroutines_share_few_connections(pooled: str) -> None:
    async def life(store: AsyncStore) -> int:
        conversation = await store.create_conversation(model="m")
        for turn in range(TURNS):
            await conversation.user(f"question {turn}")
            await conversation.add_response(an_answer(f"answer {turn}"), "open_responses")
        return len(await conversation.transcript())

    async def lives() -> list[int]:
        async with AsyncStore(pooled) as store:
            return list(await asyncio.gather(*(life(store) for _ in range(WRITERS))))

    assert asyncio.run(lives()) == [2 * TURNS] * WRITERS


def test_the_schema_is_set_up_through_it(pooled: str, databases: Any) -> None:
    empty = databases.empty("postgresql")
    target = make_url(pooled).set(database=make_url(empty.url).database, drivername=DRIVERS["postgresql"])
    engine = create_engine(target)
    schema.upgrade(engine)
    with Store(engine) as store:
        assert store.create_conversation(model="m").id
    engine.dispose()
    databases.drop(empty)


def prepared_after(url: str) -> int:
    """How many statements a connection has prepared on the server after many that were alike."""
    with Store(url) as store:
        conversation = store.create_conversation(model="m")
        for turn in range(2 * TURNS):
            conversation.user(f"question {turn}")
        return store.handle.transactions.read(prepared_on)


def prepared_on(connection: Connection) -> int:
    count: int = connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar_one()
    return count


def test_a_direct_connection_prepares_statements(database: Database) -> None:
    assert prepared_after(database.url) > 0
    assert prepared_after(database.url + "?prepare_threshold=none") == 0


@pytest.mark.parametrize("threshold", ["-1", "often", "1.5", "9999999999"])
def test_a_threshold_is_a_number_or_none(database: Database, threshold: str) -> None:
    with pytest.raises(InvalidOption, match="prepare_threshold"):
        Store(f"{database.url}?prepare_threshold={threshold}")
