"""Lost connections and busy databases: a use case is repeated where it cannot happen twice."""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

from tests.databases import Database
from tests.factories import a_stream, an_answer, texts_of
from tests.store.watching import Tables, engine_of
from threadkeep import IdempotencyConflict, Store
from threadkeep.store.usage import ledger
from threadkeep.store.writing import responses

SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda _, c: c.transcript(),
    "get": lambda store, c: store.get_conversation(c.id),
    "write": lambda _, c: c.user("Hi"),
    "keyed": lambda _, c: c.user("Hi", idempotency_key="key"),
    "answer": lambda _, c: c.add_response(an_answer("Hi"), "open_responses"),
    "change": lambda _, c: c.update(title="T"),
    "create": lambda store, _: store.create_conversation(model="m"),
}


def kill_all(database: Database) -> None:
    """End all connections to the test's database, as a restart of the server does."""
    with database.engine().connect() as connection:
        if database.kind == "postgresql":
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        else:
            found = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> connection_id()"
            for (number,) in connection.execute(text(found)).all():
                connection.exec_driver_sql(f"KILL {number}")
    time.sleep(0.02)  # until the other side hears of it


@contextmanager
def killed_at(store: Any, database: Database, part: str) -> Iterator[list[str]]:
    """End the connections just before the first statement that has this in it."""
    done: list[str] = []

    def kill(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if part in statement and not done:
            done.append(statement)
            kill_all(database)

    event.listen(engine_of(store), "before_cursor_execute", kill)
    try:
        yield done
    finally:
        event.remove(engine_of(store), "before_cursor_execute", kill)


@SERVERS
@pytest.mark.parametrize("name", CALLS)
def test_connections_that_were_lost_are_made_anew(database: Database, store: Any, conversation: Any, name: str) -> None:
    kill_all(database)
    CALLS[name](store, conversation)
    kill_all(database)
    assert len(conversation.transcript()) == (1 if name in {"write", "keyed", "answer"} else 0)


# step -> what is done on PostgreSQL instead
AT_ONCE = {"reserve": "write_at_once", "write_rows": "write_at_once"}


@contextmanager
def killed_in(database: Database, step: str) -> Iterator[list[str]]:
    """End the connections just before a step of storing an answer. Nobody listens to the engine's events here."""
    done: list[str] = []
    name = step if database.kind != "postgresql" else AT_ONCE.get(step, step)
    module = next(module for module in (responses, vars(responses)["appending"], ledger) if hasattr(module, name))
    function = getattr(module, name)

    def kill(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(name)
            kill_all(database)
        return function(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, kill)
        yield done


@SERVERS
@pytest.mark.parametrize(
    "moment",
    [
        "UPDATE threadkeep_conversations",
        "INSERT INTO threadkeep_items",
        "INSERT INTO threadkeep_usage_records",
        "reserve",
        "write_rows",
        "attempt_columns",
    ],
)
def test_a_connection_lost_in_the_middle_is_no_matter(
    database: Database, store: Any, conversation: Any, moment: str
) -> None:
    """The server has taken the transaction back, so it can be repeated without a key."""
    conversation.user("before")
    with killed_at(store, database, moment) if " " in moment else killed_in(database, moment) as done:
        conversation.add_response(an_answer("Hi"), "open_responses")
    assert done
    assert texts_of(store.get_conversation(conversation.id).transcript()) == ["before", "Hi"]
    with database.engine().connect() as connection:
        counts = Tables(connection, store.handle.scope.tenant).counts()
    assert (counts["items"], counts["responses"], counts["usage_records"]) == (2, 1, 1)


@SERVERS
@pytest.mark.parametrize(
    "moment", ["SELECT threadkeep_conversations.id", "INSERT INTO threadkeep_search_documents", "SELECT best.score"]
)
def test_a_connection_lost_while_searching_is_no_matter(database: Database, store: Any, moment: str) -> None:
    conversation = store.create_conversation(input="needle")
    with killed_at(store, database, moment) as done:
        assert [found.conversation_id for found in store.search("needle")] == [conversation.id]
    assert done


def is_outside(connection: Any) -> bool:
    """Whether a connection to PostgreSQL is in no transaction."""
    status: int = connection.connection.driver_connection.info.transaction_status
    return status == psycopg.pq.TransactionStatus.IDLE


@contextmanager
def commits(store: Any, *, happen: bool, after: int = 0) -> Iterator[list[int]]:
    """The next commit, or one `after` some more, loses the connection: before the server hears of it, or later.

    On PostgreSQL, a statement that writes outside of a transaction commits itself.
    """
    dialect: Any = engine_of(store).dialect
    commit, execute, is_disconnect = dialect.do_commit, dialect.do_execute, dialect.is_disconnect
    error, coming, done = dialect.loaded_dbapi.OperationalError, iter(range(after)), list[int]()
    is_postgresql = dialect.name == "postgresql"

    def lose(connection: Any, write: Callable[[], object]) -> None:
        if done or next(coming, None) is not None:
            write()
            return
        done.append(after)
        if happen:
            write()
        connection.rollback()
        raise error(2013, "Lost connection to server during query")

    def run(cursor: Any, statement: str, parameters: Any, context: Any) -> None:
        connection, write = context.root_connection, partial(execute, cursor, statement, parameters, context)
        if is_postgresql and "INSERT" in statement and is_outside(connection):
            lose(connection.connection, write)
        else:
            write()

    dialect.do_commit = lambda connection: lose(connection, partial(commit, connection))
    dialect.do_execute = run
    dialect.is_disconnect = lambda e, *_: isinstance(e, error)
    watching = engine_of(store), "before_cursor_execute", lambda *_: None  # so that statements go through the dialect
    event.listen(*watching)
    try:
        yield done
    finally:
        event.remove(*watching)
        dialect.do_commit, dialect.do_execute, dialect.is_disconnect = commit, execute, is_disconnect


@pytest.mark.parametrize("happen", [True, False])
def test_a_connection_lost_at_commit_is_asked_again_with_a_key(
    store: Any, conversation: Any, tables: Tables, happen: bool
) -> None:
    """Nobody knows whether it was committed; the key tells."""
    with commits(store, happen=happen):
        said = conversation.user("Hi", idempotency_key="one")
    with commits(store, happen=happen):
        response = conversation.add_response(an_answer("Ho"), "open_responses", idempotency_key="two")
    assert (said.position, response.text) == (0, "Ho")
    assert texts_of(conversation.transcript()) == ["Hi", "Ho"]
    counts = tables.counts()
    assert (counts["items"], counts["responses"], counts["usage_records"], counts["appends"]) == (2, 1, 1, 2)
    assert conversation.render("open_responses").head == 1


@pytest.mark.parametrize("happen", [True, False])
def test_a_connection_lost_at_commit_is_told_without_a_key(store: Any, conversation: Any, happen: bool) -> None:
    """Repeating could say it twice. On a fork, each append is a transaction."""
    fork = conversation.fork()
    with commits(store, happen=happen), pytest.raises(DBAPIError):
        fork.user("Hi")
    assert len(fork.transcript()) == int(happen)
    assert fork.user("more").position == int(happen)


@contextmanager
def cut_off(store: Any) -> Iterator[list[str]]:
    """Lose the connection just before an append in one statement, without a word from the server."""
    done: list[str] = []

    def cut(connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("WITH taken") and not done:
            done.append(statement)
            with socket.socket(fileno=os.dup(connection.connection.driver_connection.fileno())) as other_end:
                other_end.shutdown(socket.SHUT_RDWR)

    event.listen(engine_of(store), "before_cursor_execute", cut)
    try:
        yield done
    finally:
        event.remove(engine_of(store), "before_cursor_execute", cut)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_an_append_that_may_have_arrived_is_repeated_with_a_key_alone(store: Any, conversation: Any) -> None:
    with cut_off(store) as done, pytest.raises(DBAPIError):
        conversation.user("Hi")
    assert done
    with cut_off(store) as done:
        conversation.user("Ho", idempotency_key="one")
    assert done
    assert texts_of(conversation.transcript()) == ["Ho"]


@pytest.mark.parametrize("happen", [True, False])
@pytest.mark.parametrize("options", [{}, {"idempotency_key": "key"}], ids=["plain", "keyed"])
@pytest.mark.parametrize(
    "on_conflict",
    ["raise", pytest.param("append", marks=pytest.mark.slow), pytest.param("branch", marks=pytest.mark.slow)],
)
def test_a_stream_goes_on_whichever_commit_was_lost(
    store: Any, tables: Tables, happen: bool, options: dict[str, str], on_conflict: str
) -> None:
    """The recorder knows its own row by the token in it: there is one response, one attempt, and nobody is in the way.

    Each COMMIT is lost in turn: that of the start, those of the batches, and that of the end.
    """
    for number in count():
        conversation, written = store.create_conversation(model="m", input="Count"), tables.written()
        with commits(store, happen=happen, after=number) as lost:
            recorder = conversation.stream_response("open_responses", on_conflict=on_conflict, **options)
            getattr(recorder, "_wrapped", recorder).writer._interval = 0
            with recorder:
                for event in a_stream("one two"):
                    recorder.feed(event)
        found = written()
        assert (found["responses"], found["usage_records"], found["items"]) == (1, 1, 1)
        assert "stream_parts" not in found
        assert (recorder.response.status, recorder.response.stored) == ("completed", (0, 0))
        assert texts_of(store.get_conversation(conversation.id).transcript()) == ["Count", "one two"]
        assert conversation.user("And?").position == 2
        if not lost:
            break
    assert number == 2 + len(a_stream("one two"))


@pytest.mark.parametrize("happen", [True, False])
def test_a_stream_on_a_new_branch_finds_it_again(store: Any, conversation: Any, tables: Tables, happen: bool) -> None:
    """… and does not make another one, while the response in its way goes on."""
    conversation.user("Count")
    with conversation.stream_response("open_responses") as first:
        with commits(store, happen=happen) as lost:
            second = conversation.stream_response("open_responses", on_conflict="branch", idempotency_key="key")
            second.__enter__()
        assert lost
        for recorder in (second, first):
            for event in a_stream("one two"):
                recorder.feed(event)
        second.__exit__(None, None, None)
    assert (first.response.stored, second.response.stored) == ((0, 0), (1, 1))
    assert tables.counts()["usage_records"] == 2


@contextmanager
def locked(database: Database, seconds: float) -> Iterator[threading.Event]:
    """Somebody else writes to the SQLite file for so long, or until the event is set."""
    path = make_url(database.url).database
    begun, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(str(path), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            begun.set()
            enough.wait(seconds)
            other.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(10)
    try:
        yield enough
    finally:
        thread.join()


@SQLITE
def test_a_busy_file_is_waited_for(database: Database, conversation: Any) -> None:
    with locked(database, 0.3):
        assert conversation.user("Hi").position == 0
        assert len(conversation.transcript()) == 1


@SQLITE
def test_readers_do_not_wait_for_a_writer(database: Database, conversation: Any) -> None:
    conversation.user("Hi")
    with locked(database, 60) as enough:  # a reader that waited would be refused after a minute
        assert len(conversation.transcript()) == 1
        enough.set()


@SQLITE
def test_a_busy_error_repeats_the_use_case(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """… where SQLite itself does not wait."""
    monkeypatch.setattr("threadkeep.db.backends.BUSY_SECONDS", 0)
    with Store(database.url) as store:
        conversation = store.create_conversation(model="m")
        with locked(database, 0.3):
            assert conversation.user("Hi").position == 0
        monkeypatch.setattr("threadkeep.store.work.connections.REPEAT_SECONDS", 0.05)
        with locked(database, 60) as enough:
            with pytest.raises(OperationalError, match="locked") as refusal:
                conversation.user("Ho")
            enough.set()
        assert "In a transaction of your own, use store.within(connection)" in refusal.value.__notes__[0]
        assert conversation.user("Hu").position == 1


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_a_lock_that_takes_too_long_repeats_the_use_case(database: Database, store: Any, conversation: Any) -> None:
    def impatient(connection: Any, _record: Any, _proxy: Any) -> None:
        connection.cursor().execute("SET SESSION innodb_lock_wait_timeout = 1")

    event.listen(engine_of(store), "checkout", impatient)
    try:
        with database.engine().connect() as other:
            other.execute(
                text("UPDATE threadkeep_conversations SET revision = revision WHERE id = :id"),
                {"id": conversation.handle.ref.key},
            )
            release = threading.Timer(1.5, other.rollback)
            release.start()
            assert conversation.user("Hi").position == 0
            release.join()
    finally:
        event.remove(engine_of(store), "checkout", impatient)


def test_a_write_is_whole_or_nothing_on_an_engine_that_commits_by_itself(database: Database) -> None:
    """An application's own engine in autocommit mode: a refused append takes no position."""
    engine = create_engine(database.engine().url, isolation_level="AUTOCOMMIT")
    with Store(engine) as store:
        conversation = store.create_conversation(model="m")
        conversation.user("Hi", idempotency_key="key")
        with pytest.raises(IdempotencyConflict):
            conversation.user("Bye", idempotency_key="key")
        assert conversation.user("Well").position == 1
        store.delete_conversation(conversation.id)
    engine.dispose()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_cursors_of_the_application_see_all_statements(database: Database) -> None:
    """Tracing may hang on them."""
    seen: list[str] = []

    class Traced(psycopg.Cursor[Any]):
        def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
            seen.append(str(query))
            return super().execute(query, *arguments, **options)

    engine = create_engine(database.engine().url, connect_args={"cursor_factory": Traced})
    with Store(engine) as store:
        conversation = store.create_conversation(model="m", input="Hi")
        conversation.add_response(an_answer("Hi"), "open_responses")
        assert texts_of(conversation.transcript()) == ["Hi", "Hi"]
        store.delete_conversation(conversation.id)
    engine.dispose()
    assert any(statement.startswith("UPDATE threadkeep_conversations") for statement in seen)
    assert any("INSERT INTO threadkeep_usage_records" in statement for statement in seen)


@SERVERS
@pytest.mark.parametrize("name", CALLS)
def test_a_connection_of_a_hosts_engine_that_is_lost_while_it_is_idle(database: Database, name: str) -> None:
    """Its isolation level is set before the first statement, which may be what notices the loss."""
    engine = create_engine(database.engine().url)
    with Store(engine, tenants=True) as root:
        store = root.create_tenant(f"idle {name}")
        conversation = store.create_conversation(model="m", input="Hello")
        pool = engine.pool
        kill_all(database)
        CALLS[name](store, conversation)
        assert store.get_conversation(conversation.id).id == conversation.id
        assert engine.pool is pool  # with its limit, and the connections that are in use
    engine.dispose()
