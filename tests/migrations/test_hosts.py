"""threadkeep shares a database with an application: neither touches what is the other's."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, func, make_url, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.databases import DRIVERS, Database
from tests.factories import an_answer
from tests.migrations.hosts import Conversation, Host, Item, Tenant, ToolCall, User, definitions, install, tables
from threadkeep import AsyncStore, NotFound, SchemaError, SchemaMissing, Store, schema

ASYNC_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+asyncmy"}
LOOKALIKE = (
    "CREATE TABLE threadkeep_tenants (id bigint NOT NULL, name varchar(255) NOT NULL, created_at timestamp NOT NULL)"
)
FOREIGN_KEY = (
    "CREATE TABLE order_lines (number integer, "
    "CONSTRAINT threadkeep_items_conversations_fkey FOREIGN KEY (number) REFERENCES orders (number))"
)
VIEW = "CREATE VIEW threadkeep_tool_calls AS SELECT 1 AS one"
INDEX = "CREATE INDEX threadkeep_items_call_idx ON orders (number)"
ANY, SQLITE, POSTGRESQL, MARIADB = ("sqlite", "postgresql", "mariadb"), ("sqlite",), ("postgresql",), ("mariadb",)
# databases, statements, and what the error names
TAKEN: list[tuple[tuple[str, ...], list[str], str]] = [
    (ANY, ["CREATE TABLE threadkeep_items (id integer)"], "table threadkeep_items"),
    (ANY, [LOOKALIKE], "table threadkeep_tenants"),
    (ANY, [VIEW], "view threadkeep_tool_calls"),
    (ANY, ["CREATE VIEW threadkeep_items AS SELECT 1 AS one"], "view threadkeep_items"),
    (ANY, ["CREATE TABLE threadkeep_tool_calls (id integer)"], "table threadkeep_tool_calls"),
    (ANY, ["CREATE VIEW threadkeep_version AS SELECT 'v0_1_0_a' AS version_num"], "view threadkeep_version"),
    (ANY, [LOOKALIKE, VIEW], "table threadkeep_tenants, view threadkeep_tool_calls"),
    ((*SQLITE, *POSTGRESQL), [INDEX], "index threadkeep_items_call_idx"),
    (SQLITE, ["CREATE TABLE Threadkeep_Items (id integer)"], "table Threadkeep_Items"),
    (SQLITE, ["CREATE TABLE threadkeep_search_index (words text)"], "table threadkeep_search_index"),
    (
        POSTGRESQL, ["CREATE MATERIALIZED VIEW threadkeep_items AS SELECT 1 AS one"],
        "materialized view threadkeep_items",
    ),
    (POSTGRESQL, ["CREATE SEQUENCE threadkeep_items_pkey"], "sequence threadkeep_items_pkey"),
    (POSTGRESQL, ["CREATE TYPE threadkeep_blobs AS ENUM ('a')"], "type threadkeep_blobs"),
    (
        POSTGRESQL,
        ["CREATE FUNCTION threadkeep_parts(payload text) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb'"],
        "function threadkeep_parts",
    ),
    (
        POSTGRESQL, ["CREATE AGGREGATE threadkeep_sum(bigint) (sfunc = int8mul, stype = bigint)"],
        "function threadkeep_sum",
    ),
    (MARIADB, ["CREATE SEQUENCE threadkeep_blobs"], "sequence threadkeep_blobs"),
    (MARIADB, [FOREIGN_KEY], "foreign key threadkeep_items_conversations_fkey"),
]  # fmt: skip
CASES = [
    pytest.param(kind, statements, named, id=f"{kind}-{named}") for kinds, statements, named in TAKEN for kind in kinds
]


@pytest.fixture
def engine(empty_database: Database) -> Engine:
    return empty_database.engine()


@pytest.mark.parametrize(("empty_database", "statements", "named"), CASES, indirect=["empty_database"])
def test_names_that_are_taken_are_refused(
    empty_database: Database, engine: Engine, statements: list[str], named: str
) -> None:
    """All of them are named, and not a byte of the schema is changed."""
    with engine.begin() as connection:
        for statement in ("CREATE TABLE orders (number integer PRIMARY KEY)", *statements):
            connection.exec_driver_sql(statement)
        connection.execute(text("INSERT INTO orders VALUES (7)"))
    before = definitions(engine)
    with pytest.raises(SchemaError, match=f"under names that threadkeep needs: {named}\\. Rename them"):
        schema.upgrade(engine)
    assert definitions(engine) == before
    if "threadkeep_version" not in named:
        with pytest.raises(SchemaMissing):
            Store(empty_database.url)
    schema.downgrade(engine)
    assert definitions(engine) == before
    with engine.connect() as connection:
        assert connection.execute(text("SELECT number FROM orders")).scalars().all() == [7]


def test_both_live_side_by_side(empty_database: Database, engine: Engine) -> None:
    """… also where the application has tables and views of the same names without the prefix."""
    install(engine)
    theirs = definitions(engine)
    schema.upgrade(engine)
    together = definitions(engine)
    assert {name: together[name] for name in theirs} == theirs
    with Store(empty_database.url) as store:
        conversation = store.create_conversation(model="m", input="Hi")
        conversation.add_response(an_answer("Hello"), "open_responses")
        assert [row.attempts for row in store.usage()] == [1]
        store.delete_conversation(conversation.id)
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(Tenant)).scalar() == 1
        assert connection.execute(select(func.count()).select_from(Item)).scalar() == 0
    schema.downgrade(engine)
    assert definitions(engine) == theirs


def test_everything_of_ours_has_the_prefix(engine: Engine) -> None:
    schema.upgrade(engine)
    names = [name.removeprefix("table ").removeprefix("index ").removeprefix("view ") for name in definitions(engine)]
    of_the_database = ("sqlite_autoindex_threadkeep_", "_threadkeep_")  # indexes of keys, types of arrays
    assert [name for name in names if not name.startswith(("threadkeep_", *of_the_database))] == []


def include_name(name: str | None, kind: str, _parents: Any) -> bool:
    return kind != "table" or name not in schema.TABLES


def test_the_autogenerate_of_an_application_sees_no_difference(engine: Engine) -> None:
    """`schema.TABLES` names all that its Alembic must not drop, and nothing else."""
    install(engine)
    theirs = tables(engine)
    schema.upgrade(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": include_name})
        assert compare_metadata(context, Host.metadata) == []
        unfiltered = compare_metadata(MigrationContext.configure(connection), Host.metadata)
        assert {change[0] for change in unfiltered} >= {"remove_table"}
    ours = tables(engine) - theirs
    whole = {
        name for name in schema.TABLES if not re.search(r"_(p\d+|y\d+m\d+|default)$", name)
    }  # without the names of partitions
    if engine.dialect.name == "sqlite":
        assert ours == whole
    else:
        assert {name for name in whole if "search_index" not in name} == ours


# One transaction


def rows_of_the_host(thread: str) -> list[Host]:
    """A row for each of the application's tables."""
    return [
        User(id=1, tenant_id=1),
        Conversation(id=1, user_id=1, thread=thread),
        Item(id=1, conversation_id=1, name="f"),
        ToolCall(id=1, item_id=1),
    ]


def check_outcome(database: Database, thread: str, *, is_committed: bool) -> None:
    """The rows of both are there, or none."""
    with Session(database.engine()) as session:
        counts = [session.scalar(select(func.count()).select_from(row)) for row in (User, Conversation, Item, ToolCall)]
    assert counts == [int(is_committed)] * 4
    with Store(database.url) as store:
        if is_committed:
            assert [item.position for item in store.get_conversation(thread).items()] == [0, 1]
        else:
            with pytest.raises(NotFound):
                store.get_conversation(thread)
        assert [row.attempts for row in store.usage()] == [int(is_committed)]


@pytest.fixture
def shared(empty_database: Database, engine: Engine) -> Database:
    """A database with the tables of both, and our default tenant."""
    install(engine)
    schema.upgrade(engine)
    Store(empty_database.url).close()
    return empty_database


@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "rollback"])
def test_one_transaction_writes_rows_of_both(shared: Database, *, is_committed: bool) -> None:
    url = make_url(shared.url)
    engine = create_engine(url.set(drivername=DRIVERS[url.drivername]))
    with Store(shared.url) as store, Session(engine) as session:
        inside = store.within(session).create_conversation(model="m", input="Hi")
        for row in rows_of_the_host(inside.id):
            session.add(row)
            session.flush()
        inside.add_response(an_answer("Hello"), "open_responses")
        session.commit() if is_committed else session.rollback()
    engine.dispose()
    check_outcome(shared, inside.id, is_committed=is_committed)


# SQLite under asyncio needs a driver of the application's own choice.
@pytest.mark.parametrize("empty_database", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "rollback"])
def test_one_transaction_writes_rows_of_both_under_asyncio(shared: Database, *, is_committed: bool) -> None:
    async def write() -> str:
        url = make_url(shared.url)
        engine = create_async_engine(url.set(drivername=ASYNC_DRIVERS[url.drivername]))
        async with AsyncStore(shared.url) as store, AsyncSession(engine) as session:
            inside = await store.within(session).create_conversation(model="m", input="Hi")
            for row in rows_of_the_host(inside.id):
                session.add(row)
                await session.flush()
            await inside.add_response(an_answer("Hello"), "open_responses")
            await (session.commit() if is_committed else session.rollback())
        await engine.dispose()
        return inside.id

    check_outcome(shared, asyncio.run(write()), is_committed=is_committed)


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
def test_what_a_host_does_about_its_own_keys_is_the_hosts(empty_database: Database) -> None:
    """SQLite looks at foreign keys only where it is told to: rows may refer to none, keys to what is no key."""
    engine = create_engine(empty_database.engine().url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE authors (id INTEGER PRIMARY KEY, name TEXT)")
        connection.exec_driver_sql(
            "CREATE TABLE books (id INTEGER PRIMARY KEY, author INTEGER REFERENCES authors (id))"
        )
        connection.exec_driver_sql(
            "CREATE TABLE covers (id INTEGER PRIMARY KEY, author TEXT REFERENCES authors (name))"
        )
        connection.exec_driver_sql("INSERT INTO books VALUES (1, 99)")
        connection.exec_driver_sql("INSERT INTO covers VALUES (1, 'Nobody')")
    for _ in range(2):
        schema.upgrade(engine)
        with engine.begin() as connection:
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 0
            connection.exec_driver_sql("INSERT INTO books (author) VALUES (98)")
    schema.downgrade(engine)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT author FROM books ORDER BY id").scalars().all() == [99, 98, 98]
        assert connection.exec_driver_sql("SELECT author FROM covers").scalars().all() == ["Nobody"]
    engine.dispose()
