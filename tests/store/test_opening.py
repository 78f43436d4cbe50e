"""Opening a store: when its database is looked at, and what is said where it cannot be used."""

from __future__ import annotations

import asyncio
import inspect
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, StaticPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from tests.databases import Database
from tests.store.watching import engine_of
from threadkeep import AsyncStore, DatabaseUnavailable, InvalidOption, SchemaMissing, Store, schema
from threadkeep.db.schema import VERSION_TABLE

SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)


def tables_of(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return set(engine.dialect.get_table_names(connection))


def test_a_store_on_an_engine_reads_nothing_before_it_is_used(empty_database: Database) -> None:
    """A module that makes one can be imported by the script that upgrades the schema."""
    engine = empty_database.engine()
    store = Store(engine)
    mine = store.for_user("ada")
    assert tables_of(engine) == set()
    schema.upgrade(engine)
    conversation = mine.create_conversation(model="m", input="Hi")
    assert store.get_conversation(conversation.id).head == 0


CALLS: list[Callable[[Store], Any]] = [
    lambda store: store.list_conversations(),
    lambda store: store.create_conversation(model="m"),
    lambda store: store.run_in_transaction(lambda work: work.list_conversations()),
    lambda store: store.begin().__enter__(),
    lambda store: store.__enter__(),
]


@pytest.mark.parametrize("empty_database", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("call", CALLS, ids=["read", "write", "unit", "begin", "with"])
def test_the_first_use_says_that_the_tables_are_missing(empty_database: Database, call: Callable[[Store], Any]) -> None:
    with pytest.raises(SchemaMissing, match="db upgrade"):
        call(Store(empty_database.engine()))


@pytest.mark.parametrize("empty_database", ["postgresql", "mariadb"], indirect=True)
def test_stores_of_tenants_say_so_too(empty_database: Database) -> None:
    store = Store(empty_database.engine(), tenants=True)
    for call in (lambda: store.for_tenant("a"), lambda: store.create_tenant("a"), lambda: store.keys.find("tk_1_x")):
        with pytest.raises(SchemaMissing):
            call()


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
def test_tables_that_are_made_in_a_transaction_of_the_caller_end_with_it(empty_database: Database, ending: str) -> None:
    engine = empty_database.engine()
    store = Store(engine)
    with engine.connect() as connection:
        work = store.within(connection)
        first = work.create_conversation(model="m")
        assert [one.id for one in work.list_conversations()] == [first.id]
        getattr(connection, ending)()
    assert (VERSION_TABLE in tables_of(engine)) == (ending == "commit")
    second = store.create_conversation(model="m")
    kept = {first.id, second.id} if ending == "commit" else {second.id}
    assert {one.id for one in store.list_conversations()} == kept


def test_opening_inside_a_transaction_leaves_it_alone() -> None:
    """All connections of this engine are the same one: what others begin and roll back is the caller's, too."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    schema.upgrade(engine)
    store = Store(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (number integer)"))
        connection.execute(text("INSERT INTO orders VALUES (1)"))
        store.within(connection).create_conversation(model="m")
        assert connection.execute(text("SELECT count(*) FROM orders")).scalar() == 1
    assert len(store.list_conversations()) == 1
    engine.dispose()


@SERVERS
def test_a_database_that_is_missing_is_named(opened: Any, database: Database) -> None:
    url = make_url(database.url).set(database="threadkeep_no_such_database")
    with pytest.raises(DatabaseUnavailable) as caught:
        opened(url.render_as_string(hide_password=False))
    assert "threadkeep_no_such_database cannot be opened" in caught.value.message
    assert caught.value.hint == "Create it on the server, or give a URL with another one."
    assert isinstance(caught.value.__cause__, OperationalError)


@SERVERS
def test_a_server_that_is_down_is_named_without_the_password(opened: Any, database: Database) -> None:
    url = make_url(database.url).set(host="127.0.0.1", port=1, password="hunter2")
    with pytest.raises(DatabaseUnavailable) as caught:
        opened(url.render_as_string(hide_password=False))
    assert ":***@127.0.0.1:1/" in caught.value.database
    assert caught.value.hint == "Start the server, or give a URL with its host and port."
    assert "hunter2" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, opened: Any) -> None:
    (tmp_path / "chat.db").mkdir()
    with pytest.raises(DatabaseUnavailable, match=r"chat\.db cannot be opened: unable to open database file"):
        opened(f"sqlite:///{tmp_path}/chat.db")


@contextmanager
def connections_closed() -> Iterator[None]:
    """Each connection to SQLite that is made meanwhile is closed at the end, although errors keep what made it."""
    made: list[sqlite3.Connection] = []

    class Kept(sqlite3.Connection):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            made.append(self)

    def connect(*given: Any, **options: Any) -> sqlite3.Connection:
        return connects(*given, factory=Kept, **options)

    connects = sqlite3.dbapi2.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3.dbapi2, "connect", connect)
        yield
    assert made
    for one in made:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            one.cursor()


@connections_closed()
def test_a_file_that_is_no_database_is_named(tmp_path: Path, opened: Any) -> None:
    (tmp_path / "notes.txt").write_text("Not a database. " * 100)
    for place in (url := f"sqlite:///{tmp_path}/notes.txt", make_url(url)):
        with pytest.raises(DatabaseUnavailable, match=r"notes\.txt cannot be opened: file is not a database") as caught:
            opened(place).create_conversation()
        assert caught.value.hint == "Give a URL with the file of a database; if this was one, restore a backup."


def test_stores_say_with_which_statement_they_are_opened() -> None:
    blocking: Any = Store("sqlite://")
    asynchronous: Any = AsyncStore("sqlite://")

    async def enter() -> None:
        async with blocking:
            pass

    with pytest.raises(InvalidOption, match=r"This is a Store\. Write `with`"):
        asyncio.run(enter())
    with pytest.raises(InvalidOption, match=r"This is an AsyncStore\. Write `async with`"), asynchronous:
        pass
    blocking.close()


MISSPELT: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda store, _: store.list_conversations(user="ada"), "user is not an option. Did you mean 'user_id'"),
    (lambda store, _: store.get_conversation("conv_1", brunch=1), "brunch is not an option. Did you mean 'branch'"),
    (lambda store, _: store.search("word", limits=1), "limits is not an option. Did you mean 'limit'"),
    (lambda _, conversation: conversation.add_response({}, "messages", render=1), "Did you mean 'rendered'"),
    (lambda _, conversation: conversation.pending_calls(x=1), "x is not an option."),
    (lambda store, _: store.create_conversation(inptu="Hi"), "inptu is not an option. Did you mean 'input'"),
    (lambda store, _: store.create_conversation(username="ada"), "Did you mean 'user_id' or 'user'"),
    (lambda store, _: store.import_request({}, "messages", tools=[]), "tools is not an option. Options: "),
]


def test_misspelt_keywords_are_refused_with_what_may_be_meant(store: Any, conversation: Any) -> None:
    for call, message in MISSPELT:
        with pytest.raises(InvalidOption, match=re.escape(message)):
            call(store, conversation)


def test_methods_with_options_know_their_own_keywords_too(store: Any, conversation: Any) -> None:
    unknown = []
    for face in (store, conversation):
        for name, method in inspect.getmembers(face, inspect.ismethod):
            parameters = inspect.signature(method).parameters.values()
            if any(one.kind is one.VAR_KEYWORD and "Unpack" in str(one.annotation) for one in parameters):
                required = [None for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
                for word in (one.name for one in parameters if one.kind is one.KEYWORD_ONLY and len(one.name) > 2):
                    with pytest.raises(InvalidOption) as refused:
                        method(*required, **{f"{word}_": None})
                    if repr(word) not in str(refused.value):
                        unknown.append((name, str(refused.value)))
    assert unknown == []


@pytest.mark.parametrize("kind", [Store, AsyncStore])
def test_a_misspelt_keyword_of_a_store_itself(kind: Any) -> None:
    with pytest.raises(InvalidOption, match=r"tenant is not an option\. Did you mean 'tenants'"):
        kind("sqlite://", tenant=True)


def test_what_is_right_is_passed_on(store: Any) -> None:
    assert engine_of(store) is not None
    assert store.list_conversations(user_id="ada").items == []
