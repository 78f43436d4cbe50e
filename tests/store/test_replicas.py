"""Positions and replicas, as far as one server shows them; tests/cluster has those with two."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, event, make_url

from tests.databases import DRIVERS, Database
from tests.store.watching import engine_of, transactions_of
from threadkeep import InvalidOption, NotFound, Store
from threadkeep.db.engines import shown_url
from threadkeep.db.replication import START, Position, parse_position

SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


def reading(store: Any) -> list[str]:
    """The statements on the replica, from now on."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    event.listen(transactions_of(store).reads.replica._engine, "before_cursor_execute", note)
    return statements


def writing(store: Any) -> list[str]:
    statements: list[str] = []
    event.listen(engine_of(store), "before_cursor_execute", lambda _c, _r, statement, *_: statements.append(statement))
    return statements


@SERVERS
def test_what_shows_something_is_read_from_the_replica(database: Database, opened: Any) -> None:
    """Nothing of it is asked of the primary, not even a position."""
    with Store(database.url) as other:
        key = other.create_conversation(model="m", input="Hi", user_id=uuid4().hex).id
    store = opened(database.url, read_url=database.url)
    conversation = store.get_conversation(key)
    there, here = reading(store), writing(store)
    store.get_conversation(key)
    conversation.transcript()
    conversation.request_body("open_responses")
    store.list_conversations()
    store.usage()
    store.statistics()
    assert len(there) >= 6
    assert here == []


@POSTGRESQL
def test_a_write_adds_one_statement_to_the_next_read(database: Database, opened: Any) -> None:
    plain, store = opened(database.url), opened(database.url, read_url=database.url)
    counts = []
    for one in (plain, store):
        conversation = one.create_conversation(model="m")
        conversation.user("Hi")  # everything is prepared
        statements = writing(one)
        conversation.user("Ho")
        written = len(statements)
        conversation.transcript()
        counts.append((written, len(statements) - written))
    (written, read), with_replica = counts
    assert with_replica == (written, read + 1)
    there = reading(store)
    for _ in range(3):
        conversation.transcript()
    assert len(there) == 3 * read + 1  # once for the connection: how far the replica is


@POSTGRESQL
def test_an_engine_can_be_the_replica(database: Database) -> None:
    engine = create_engine(make_url(database.url).set(drivername=DRIVERS["postgresql"]))
    with Store(database.url, read_url=engine) as store:
        there = reading(store)
        store.list_conversations()
        assert there
    with engine.connect() as connection:  # whoever made it closes it
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


@SERVERS
def test_a_replica_that_never_answered_is_left_alone(
    database: Database, opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    what = {"postgresql": "OperationalError", "mariadb": "OperationalError 2003"}[database.kind]
    url = make_url(database.url).set(port=1).render_as_string(hide_password=False)
    store = opened(database.url, read_url=url)
    for _ in range(3):
        store.list_conversations()
        store.usage()
    assert [record.getMessage() for record in caplog.records if record.name == "threadkeep.replicas"] == [
        f"The replica {shown_url(url)} does not answer ({what}); the primary is read instead."
    ]


@POSTGRESQL
def test_a_replica_that_refuses_is_left_alone_and_told_of(
    database: Database, opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise nobody learns that a user without rights never reads from it."""
    role = f"threadkeep_test_{uuid4().hex[:8]}"
    engine = database.engine()
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
    try:
        url = make_url(database.url).set(username=role).render_as_string(hide_password=False)
        store = opened(database.url, read_url=url)
        there = reading(store)
        for _ in range(3):
            store.list_conversations()
        assert len(there) == 1
        told = "refuses what the primary does (InsufficientPrivilege); the primary is read instead."
        messages = [record.getMessage() for record in caplog.records if record.name == "threadkeep.replicas"]
        assert messages == [f"The replica {shown_url(url)} {told}"]
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP ROLE {role}")


@POSTGRESQL
def test_an_error_is_the_one_of_the_primary(database: Database, opened: Any) -> None:
    store = opened(database.url, read_url=database.url)
    here = writing(store)
    with pytest.raises(NotFound):
        store.get_conversation("conv_" + "0" * 32)
    assert here


def test_positions_are_the_same_code_everywhere(store: Any, conversation: Any) -> None:
    """Also where there is no replica: another process may have one."""
    conversation.user("Hi")
    session = store.after(store.position())
    assert len(session.get_conversation(conversation.id).transcript()) == 1
    assert session.for_user("u").list_conversations().items == []
    assert store.after(None).get_conversation(conversation.id).head == 0


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_sqlite_has_no_positions(store: Any, conversation: Any) -> None:
    conversation.user("Hi")
    assert store.position() == ""
    assert len(store.after("pg-0.17").get_conversation(conversation.id).transcript()) == 1


@pytest.mark.parametrize("token", ["pg", "pg-0", "pg-0.x", "0/16B3748", "mysql-0.1", "pg-0.1" * 99, 7, b"pg-0.1", " "])
def test_what_is_no_position_is_refused(store: Any, token: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^token is not a position: .* Pass what position\(\) has returned\.$"):
        store.after(token)


@SERVERS
def test_a_position_of_another_database_is_refused(database: Database, store: Any) -> None:
    token = {"postgresql": "gtid-0.1", "mariadb": "pg-0.1"}[database.kind]
    with pytest.raises(InvalidOption, match=r"token is one of (MariaDB|PostgreSQL); this store is on"):
        store.after(token)


@POSTGRESQL
def test_a_transaction_of_the_caller_has_no_position(database: Database) -> None:
    engine = database.engine()
    with Store(database.url) as store, engine.begin() as connection:
        inside = store.within(connection)
        inside.create_conversation(model="m")
        with pytest.raises(InvalidOption, match=r"before it is committed\. After the commit"):
            inside.position()
        assert inside.after("pg-0.1").list_conversations().items


def test_a_session_of_a_store_with_tenants_has_them(stores: Any, face: str, tenant: str) -> None:
    session = stores.get(face).after("")
    assert session.for_tenant(tenant).list_conversations().items == []
    with pytest.raises(InvalidOption, match="This store has tenants"):
        session.list_conversations()


@pytest.mark.parametrize(
    ("url", "read_url", "reason"),
    [
        ("sqlite://", "sqlite://", "names no replica of the server in `url`"),
        ("sqlite://", "postgresql://h/db", "names no replica of the server in `url`"),
        ("postgresql://h/db", "sqlite:///a.db", "names no replica of the server in `url`"),
        ("postgresql://h/db", "mariadb://h/db", "names no replica of the server in `url`"),
        ("postgresql://h/db", "h:secret", "is not a database URL"),
        ("postgresql://h/db", "postgresql+asyncpg://h/db", "has the driver of postgresql\\+asyncpg"),
    ],
)
def test_another_database_is_no_replica(url: str, read_url: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=f"^read_url {reason}") as caught:
        Store(url, read_url=read_url)
    assert "secret" not in str(caught.value)


def test_positions_grow_in_each_domain() -> None:
    one, other = Position("gtid", {0: 7, 1: 2}), Position("gtid", {0: 5, 3: 1})
    both = one.joined(other)
    assert (str(both), str(START)) == ("gtid-0.7-1.2-3.1", "")
    assert both.includes(one)
    assert both.includes(other)
    assert not one.includes(other)
    assert one.includes(START)
    assert not START.includes(one)
    assert START.joined(one) == one.joined(START) == one


@POSTGRESQL
def test_a_position_is_read_as_it_was_written(database: Database) -> None:
    with Store(database.url) as store:
        store.create_conversation(model="m")
        text = store.position()
        assert str(parse_position(text, store.handle.transactions.engine)) == text  # type: ignore[union-attr]
