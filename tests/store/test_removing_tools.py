"""Tools that no tool set names go, without a lock while sets are read; those that are used again meanwhile stay."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine, func, make_url, select, text, update

from tests.databases import Database
from tests.store.test_damaged_rows import forget
from tests.store.watching import Tables, statements_of
from threadkeep import Store, schema
from threadkeep.db.models import tool_definitions
from threadkeep.store.removing.batches import Batches

pytestmark = pytest.mark.one_face

BeforeEach = Callable[[Callable[[str], object]], None]


def a_tool(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}}


def names(tables: Tables) -> set[str]:
    return {row["name"] for row in tables.rows("tool_definitions")}


@pytest.fixture
def before_each(monkeypatch: pytest.MonkeyPatch) -> BeforeEach:
    """Has a function called before each transaction of removals, with what that is: "find" or "write"."""

    def patch(call: Callable[[str], object]) -> None:
        for kind in ("find", "write"):
            original = getattr(Batches, kind)

            def run(batches: Any, *arguments: Any, kind: str = kind, original: Any = original, **which: Any) -> Any:
                call(kind)
                return original(batches, *arguments, **which)

            monkeypatch.setattr(Batches, kind, run)

    return patch


def test_tools_go_that_no_set_names(store: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page, however many there are."""
    monkeypatch.setattr("threadkeep.store.removing.batches.FOUND", 2)
    kept = [store.create_conversation(tools=[a_tool("shared"), a_tool(f"kept {number}")]) for number in range(5)]
    for number in range(5):
        store.create_conversation(tools=[a_tool("shared"), a_tool(f"gone {number}")], user_id="ann")
    told: list[Any] = []
    store.erase_user("ann", progress=lambda *so_far: told.append(so_far))
    assert names(tables) == {"shared", *(f"kept {number}" for number in range(5))}
    assert {row["unused_at"] for row in tables.rows("tool_definitions")} == {None}
    assert told[-1] == ("options and tools", 5)
    forget(store)
    assert [len(store.get_conversation(one.id).tool_definitions) for one in kept] == [2] * 5


def test_nothing_is_locked_while_sets_are_read(store: Any, before_each: BeforeEach, tables: Tables) -> None:
    store.create_conversation(tools=[a_tool("kept")])
    store.create_conversation(tools=[a_tool("gone")], user_id="ann")
    kind, readers = "", set()
    with statements_of(store) as statements:
        before_each(statements.append)
        store.erase_user("ann")
    for statement in statements:
        kind = statement if statement in {"find", "write"} else kind
        if "threadkeep_tool_sets.definitions" in statement:
            readers.add(kind)
    assert (names(tables), readers) == ({"kept"}, {"find"})


class Meanwhile:
    """Lets another process use a tool again, before one of the transactions of a removal."""

    def __init__(self, store: Any, watching: Engine, *, is_slow: bool) -> None:
        self.before = -1  # which transaction, counted down
        self._store, self._watching, self._is_slow = store, watching, is_slow
        self._pool, self._used = ThreadPoolExecutor(1), Future[str]()

    def __call__(self, _kind: str) -> None:
        if self.before == 0:
            begun = Event()
            self._used = self._pool.submit(self._use, begun)
            begun.wait(10)
        self.before -= 1

    def _use(self, begun: Event) -> str:
        """Use it; slowly: the removal goes on before it is committed."""
        with self._watching.begin() as connection:
            made = self._store.within(connection).create_conversation(model="m", tools=[a_tool("look_up")])
            if self._is_slow:
                begun.set()
                time.sleep(0.1)
        begun.set()
        public_id: str = made.id
        return public_id

    def used(self) -> str:
        """The conversation that uses it."""
        return self._used.result(10)


@pytest.fixture(params=["at once", pytest.param("slowly", marks=pytest.mark.slow)])
def meanwhile(
    request: pytest.FixtureRequest, elsewhere: Any, watching: Engine, before_each: BeforeEach
) -> Iterator[Meanwhile]:
    made = Meanwhile(elsewhere, watching, is_slow=request.param == "slowly")
    before_each(made)
    yield made
    made._pool.shutdown()


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_tools_that_are_used_again_are_kept(store: Any, tables: Tables, meanwhile: Meanwhile) -> None:
    """Whichever transaction of the removal that is before."""
    for number in count():
        store.create_conversation(model="m", tools=[a_tool("look_up")], user_id="ann")
        meanwhile.before = number
        store.erase_user("ann")
        if meanwhile.before >= 0:
            break
        again = meanwhile.used()
        forget(store)
        assert [tool.name for tool in store.get_conversation(again).tool_definitions] == ["look_up"]
        assert [row["unused_at"] for row in tables.rows("tool_definitions")] == [None], number
        store.delete_conversation(again)
    assert number > 5
    assert not names(tables)


def test_a_mark_is_not_exported(store: Any, elsewhere: Any, watching: Engine, tables: Tables) -> None:
    """An export may be made while a removal has marked a tool, and be imported into the same database."""
    made = store.create_conversation(model="m", tools=[a_tool("look_up")])
    is_ours = tool_definitions.c.tenant_id == store.handle.scope.tenant
    with watching.begin() as connection:
        connection.execute(update(tool_definitions).where(is_ours).values(unused_at=datetime.now(UTC)))
    lines = list(store.export())
    store.delete_conversation(made.id)
    elsewhere.import_export(lines)
    assert [row["unused_at"] for row in tables.rows("tool_definitions")] == [None]


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_tools_that_are_used_again_between_two_removals_are_kept(
    stores: Any, store: Any, elsewhere: Any, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one marks them just before the faster one would remove what it has marked."""
    looked, may_mark, marked, slower = Event(), Event(), Event(), Event()
    users: list[Any] = []
    original = Batches.write

    def write(batches: Any, batch: Any, what: str, **which: Any) -> Any:
        is_slower = threading.current_thread() in slowly
        if is_slower and what == "marks":
            looked.set()
            may_mark.wait(10)
        if not is_slower and getattr(batch, "keywords", {}).get("mark") is not None:
            users.append(stores.get("sync", "third").for_tenant(tenant).create_conversation(tools=[a_tool("look_up")]))
            may_mark.set()
            marked.wait(10)
        result = original(batches, batch, what, **which)
        if is_slower and what == "marks":
            marked.set()
            slower.wait(10)
        return result

    store.create_conversation(tools=[a_tool("look_up")], user_id="ann")
    monkeypatch.setattr(Batches, "write", write)
    slowly = [threading.Thread(target=elsewhere.erase_user, args=["ann"])]
    slowly[0].start()
    looked.wait(10)
    store.erase_user("ann")
    slower.set()
    slowly[0].join(10)
    forget(store)
    assert [tool.name for tool in store.get_conversation(users[0].id).tool_definitions] == ["look_up"]


@pytest.mark.parametrize("empty_database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_tools_go_whatever_isolation_transactions_have(empty_database: Database, level: str) -> None:
    """With connections of the store, and with those of an application."""
    engine, name = empty_database.engine(), make_url(empty_database.url).database
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'"))
    for database in (empty_database.url, engine):
        with Store(database) as store:
            store.create_conversation(tools=[a_tool("gone")], user_id="ann")
            store.erase_user("ann")
        with engine.connect() as connection:
            assert connection.execute(text("SHOW default_transaction_isolation")).scalar_one() == level
            assert connection.execute(select(func.count()).select_from(tool_definitions)).scalar_one() == 0
