"""Databases that cannot be used, or not now: each is told by an error of threadkeep, or waited for."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import QueuePool

from tests.databases import DRIVERS, Database
from tests.store.faces import blocking_store
from tests.store.odd_values import required_of, valid
from tests.store.test_every_method import METHODS, TENANTS, world_of
from tests.store.watching import engine_of
from threadkeep import AsyncStore, DatabaseUnavailable, InvalidOption, PoolExhausted, Store, schema

SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
CLOSED = re.compile(r"^InvalidOption: .*store is closed")


Open = Callable[..., Any]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens a store of a face; the loop of an async one is closed in the end."""
    with asyncio.Runner() as runner:
        yield (
            lambda face, url, **options: (
                Store(url, **options) if face == "sync" else blocking_store(url, runner, **options)
            )
        )


class Proxy:
    """A port that leads to a server, until it is closed and after it was opened again."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener: Any = None
        self._sockets: list[socket.socket] = []
        self.port = 0
        self.refused = threading.Event()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """End all connections and refuse new ones, as a server does that restarts."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    url = make_url(database.url)
    made = Proxy((url.host or "127.0.0.1", url.port or {"postgresql": 5432}.get(database.kind, 3306)))
    made.open()
    yield made
    made.close()


@SERVERS
def test_a_restart_of_the_server_is_waited_for(
    opened: Open, database: Database, tenant: str, face: str, proxy: Proxy
) -> None:
    url = make_url(database.url).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    refusals = []
    with opened(face, url, tenants=True) as root:
        store = root.for_tenant(tenant)
        conversation = store.create_conversation(model="m")

        def count(context: Any) -> None:
            refusals.append(context)
            if len(refusals) == 3 and context.connection is None:
                proxy.open()

        event.listen(engine_of(root), "handle_error", count)
        proxy.close()
        assert conversation.user("Hi").position == 0
        assert len(refusals) >= 3
        assert len(conversation.transcript()) == 1


@SERVERS
def test_a_server_that_never_answered_is_told_at_once(
    opened: Open, database: Database, face: str, proxy: Proxy
) -> None:
    url = make_url(database.url).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    proxy.close()
    with pytest.raises(DatabaseUnavailable):
        opened(face, url)
    proxy.open()


def test_a_pool_whose_connections_are_all_in_use(opened: Open, database: Database, tenant: str, face: str) -> None:
    url = make_url(database.url)
    if face == "async" and database.kind != "sqlite":
        drivers = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+asyncmy"}
        engine: Any = create_async_engine(
            url.set(drivername=drivers[url.drivername]), pool_size=1, max_overflow=0, pool_timeout=0.2
        )
    else:
        engine = create_engine(
            url.set(drivername=DRIVERS[url.drivername]),
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_timeout=0.2,
        )
    store = opened(face, engine, tenants=True)
    conversation = store.for_tenant(tenant).create_conversation(model="m")
    held = store._runner.run(started(engine)) if hasattr(engine, "sync_engine") else engine.connect()
    for call in (conversation.transcript, lambda: conversation.user("Hi")):
        with pytest.raises(PoolExhausted, match="pool_size"):
            call()
    store._runner.run(held.close()) if hasattr(engine, "sync_engine") else held.close()
    assert conversation.user("Hi").position == 0
    store._runner.run(engine.dispose()) if hasattr(engine, "sync_engine") else engine.dispose()


async def started(engine: Any) -> Any:
    return await engine.connect()


def begin(target: Any, result: Any) -> None:
    """Enter a recorder, and ask an iterator for its values."""
    if hasattr(result, "__next__"):
        list(result)
    elif hasattr(result, "__aiter__"):

        async def values() -> list[Any]:
            return [value async for value in result]

        target._runner.run(values())
    else:
        result.__enter__()


CALLS = [(kind, name) for kind, name in METHODS if name != "within"]  # that is inside the caller's transaction


def refusal(target: Any, name: str, positional: list[Any], arguments: dict[str, Any]) -> str:
    """What a call is refused with, or what came instead."""
    try:
        begin(target, getattr(target, name)(*positional, **arguments))
    except Exception as error:  # noqa: BLE001 - the test shows which call raises what
        return f"{type(error).__name__}: {error}"
    return "nothing"


@SQLITE
def test_a_closed_store_refuses_every_call(opened: Open, database: Database, tenant: str, face: str) -> None:
    root = opened(face, database.url, tenants=True)
    store = root.for_tenant(tenant)
    world = world_of(store, None)
    given = {
        (kind, name): {one: valid(one, world, "gemini") for one in required_of(getattr(kind, name))}
        for kind, name in CALLS
    }
    given[Store, "upload_media"] = {"content": b"Hi"}
    root.close()
    refusals = {}
    for (kind, name), arguments in given.items():
        target = root if name in TENANTS else store if kind is Store else world.conversation
        positional = [arguments.pop("name")] if name == "register_tool" else []
        refusals[f"{kind.__name__}.{name}"] = refusal(target, name, positional, arguments)
    assert len(refusals) > 80
    assert {name: told for name, told in refusals.items() if not CLOSED.search(told)} == {}


@SQLITE
def test_a_url_that_leads_nowhere(opened: Open, database: Database, face: str, tmp_path: Path) -> None:
    for url, message in {
        f"sqlite:///{tmp_path}/no/chat.db": "There is no directory .*/no' for the database",
        f"sqlite:///{tmp_path}/a\0b.db": "a NUL character",
        "postgresql://u:p%00@h/d": "a NUL character",
    }.items():
        with pytest.raises(InvalidOption, match=message):
            opened(face, url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite+aiosqlite:///x.db", "On sqlite, this store uses Python's own sqlite3: write sqlite://"),
        ("postgresql+asyncpg://h/d", "On postgresql, this store uses psycopg: write postgresql://"),
    ],
)
def test_an_engine_of_another_async_driver_is_refused(url: str, told: str) -> None:
    engine = create_async_engine(url, module=MagicMock(sqlite_version_info=(3, 40, 0)))
    with pytest.raises(InvalidOption, match=told):
        AsyncStore(engine)


def test_an_engine_of_another_driver_is_refused() -> None:
    engine = create_engine("mysql+mysqldb://h/d", module=MagicMock())
    with pytest.raises(InvalidOption, match="On mysql, this store uses pymysql: write mysql://"):
        Store(engine)


@pytest.mark.parametrize("value", ["sqlite:///x.db", None, create_async_engine("postgresql+psycopg://h/d")])
@pytest.mark.parametrize("function", [schema.upgrade, schema.downgrade, schema.check, schema.current])
def test_the_schema_is_that_of_an_engine(function: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(InvalidOption, match="engine must be an Engine"):
        function(value)


READS: dict[str, Callable[[Any], Any]] = {
    "list": lambda store: store.list_conversations().items,
    "find": lambda store: store.find_conversation(external_id="e"),
    "search": lambda store: store.search("word").items,
    "usage": lambda store: store.usage()[0].attempts,
    "tool usage": lambda store: store.tool_usage(),
    "statistics": lambda store: store.statistics().active,
    "retention": lambda store: store.retain(content=1, dry_run=True).conversations,
}


@pytest.fixture
def readable(empty_database: Database) -> Iterator[tuple[Database, Any]]:
    """A database of which somebody may only read, and the URL for them."""
    schema.upgrade(empty_database.engine())
    url, name = make_url(empty_database.url), f"reader_{uuid4().hex[:12]}"
    if empty_database.kind == "sqlite":
        yield empty_database, f"sqlite:///file:{url.database}?mode=ro&uri=true"
        return
    made, dropped = {
        "postgresql": (
            [f"CREATE ROLE {name} LOGIN PASSWORD 'p'", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"],
            [f"DROP OWNED BY {name}", f"DROP ROLE {name}"],
        ),
        "mariadb": (
            [f"CREATE USER {name}@'%' IDENTIFIED BY 'p'", f"GRANT SELECT, SHOW VIEW ON {url.database}.* TO {name}@'%'"],
            [f"DROP USER {name}@'%'"],
        ),
    }[empty_database.kind]
    run(empty_database, made)
    yield empty_database, url.set(username=name, password="p").render_as_string(hide_password=False)
    run(empty_database, dropped)


def run(database: Database, statements: list[str]) -> None:
    with database.engine().begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def test_reads_write_nothing(opened: Open, readable: tuple[Database, Any], face: str) -> None:
    """Also where nothing was stored yet, and no tenant is there."""
    database, url = readable
    with opened(face, url) as reader:
        assert not any(read(reader) for read in READS.values())
        with pytest.raises(DBAPIError):
            reader.create_conversation(model="m")
        with Store(database.url) as store:
            made = store.create_conversation(model="m", input="word", external_id="e")
            store.reindex()
        found = reader.find_conversation(external_id="e")
        assert (found.id, len(found.transcript())) == (made.id, 1)
        assert found.request_payload("open_responses")["model"] == "m"
        assert {name for name, read in READS.items() if read(reader)} == {"list", "find", "search", "statistics"}


def test_two_stores_that_store_the_first(opened: Open, empty_database: Database, face: str) -> None:
    """Whoever reads first, and whoever writes first: both see the same tenant."""
    schema.upgrade(empty_database.engine())
    with opened(face, empty_database.url) as one, opened(face, empty_database.url) as other:
        assert list(one.list_conversations()) == list(other.list_conversations()) == []
        made = [store.create_conversation(model="m").id for store in (one, other)]
        assert sorted(found.id for found in other.list_conversations()) == sorted(made)
