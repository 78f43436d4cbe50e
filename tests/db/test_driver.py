"""Statements go straight to the driver's cursor, unless somebody wants to see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, bindparam, create_engine, event, make_url, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import DRIVERS, Database
from threadkeep.db.driver import Statement, executor_for
from threadkeep.db.driver.inserting import COPY_ROWS, insert_rows
from threadkeep.db.models import tenants, usage_records

DIRECT, THROUGH_CORE = ("_CursorExecutor", "PsycopgExecutor"), "CoreExecutor"
IDS = Statement(select(tenants.c.id).where(tenants.c.id > bindparam("after")).order_by(tenants.c.id))
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [{"id": number, "name": f"t{number}", "created_at": CREATED} for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def database(database: Database) -> Database:
    """A database with three tenants."""
    with database.engine().begin() as connection:
        insert_rows(connection, [(tenants, ROWS)])
    return database


def engine_of(database: Database, **options: Any) -> Engine:
    url = make_url(database.url)
    return create_engine(url.set(drivername=DRIVERS[url.drivername]), **options)


def executor_of(engine: Engine) -> str:
    """The kind of executor on a connection of the engine; what it returns is the same with each kind."""
    with engine.connect() as connection:
        assert list(IDS.fetch_all(connection, {"after": 1})) == [(2,), (3,)]
        name = type(executor_for(connection)).__name__
    engine.dispose()
    return name


def test_the_driver_executes_them(database: Database) -> None:
    """Also on an engine with an isolation level of its own, which listens to itself."""
    assert executor_of(engine_of(database)) in DIRECT
    level = "SERIALIZABLE" if database.kind == "sqlite" else "READ COMMITTED"
    assert executor_of(engine_of(database, isolation_level=level)) in DIRECT


@pytest.mark.parametrize("name", ["before_cursor_execute", "after_cursor_execute", "before_execute", "after_execute"])
def test_core_executes_them_where_somebody_listens(database: Database, name: str) -> None:
    engine, heard = engine_of(database), []

    def hear(*arguments: Any) -> None:
        heard.append(arguments)

    event.listen(engine, name, hear)
    assert executor_of(engine) == THROUGH_CORE
    if "cursor" in name:
        assert any("threadkeep_tenants" in str(arguments) for arguments in heard)


def test_core_executes_them_where_they_are_logged(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    assert executor_of(engine_of(database, echo=True)) == THROUGH_CORE
    assert "threadkeep_tenants" in caplog.text


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_core_executes_them_where_an_application_has_cursors_of_its_own(database: Database) -> None:
    class Traced(psycopg.ClientCursor[Any]):
        """What a library for tracing puts in the place of psycopg's cursors."""

    assert executor_of(engine_of(database, connect_args={"cursor_factory": Traced})) == THROUGH_CORE


@pytest.mark.parametrize(
    ("database", "driver", "expected"),
    [("postgresql", "postgresql+psycopg", "AsyncPsycopgExecutor"), ("mariadb", "mariadb+asyncmy", "_CursorExecutor")],
    indirect=["database"],
)
def test_the_driver_executes_them_under_asyncio(database: Database, driver: str, expected: str) -> None:
    async def run(look: Callable[[Connection], Any]) -> Any:
        engine = create_async_engine(make_url(database.url).set(drivername=driver))
        async with engine.connect() as connection:
            found = await connection.run_sync(look)
        await engine.dispose()
        return found

    assert asyncio.run(run(lambda connection: type(executor_for(connection)).__name__)) == expected
    assert list(asyncio.run(run(lambda connection: IDS.fetch_all(connection, {"after": 1})))) == [(2,), (3,)]


ODD = "tab\t line\n return\r backslash\\ \\N \\. quotes '\" é 🎉 \x01"


def many(prefix: int) -> list[dict[str, Any]]:
    """So many rows that PostgreSQL gets them by COPY."""
    return [
        {"id": prefix + number, "name": f"{ODD} {prefix + number}", "created_at": CREATED}
        for number in range(COPY_ROWS)
    ]


STORED = select(tenants.c.id, tenants.c.name, tenants.c.created_at).where(tenants.c.id >= bindparam("prefix"))


def insert_and_read(connection: Connection, prefix: int) -> list[dict[str, Any]]:
    insert_rows(connection, [(tenants, many(prefix))])
    return [dict(row) for row in connection.execute(STORED.order_by(tenants.c.id), {"prefix": prefix}).mappings()]


def test_many_rows_are_stored_as_they_are(database: Database) -> None:
    engine = engine_of(database)
    with engine.connect() as connection:
        assert insert_and_read(connection, 1_000) == many(1_000)
        if database.kind == "postgresql":  # COPY is one command
            commands = connection.execute(
                text("SELECT count(DISTINCT cmin::text) FROM threadkeep_tenants WHERE id >= 1000")
            )
            assert commands.scalar() == 1
    engine.dispose()


@pytest.mark.parametrize("is_listening", [False, True])
def test_many_rows_are_inserted_without_the_columns_in_which_none_has_a_value(
    database: Database, *, is_listening: bool
) -> None:
    """To bind them takes most drivers longer than the database takes to write them."""
    engine, texts = engine_of(database), list[str]()
    if is_listening:
        event.listen(engine, "before_cursor_execute", lambda _one, _other, statement, *_: texts.append(statement))
    columns = dict.fromkeys(column.name for column in usage_records.columns)
    columns |= {"day": CREATED.date(), "occurred_at": CREATED, "conversation_id": 1, "format": "messages"}
    rows = [
        {**columns, "tenant_id": 1, "id": number, "status": "completed" if number == 1 else None}
        for number in range(COPY_ROWS)
    ]
    with engine.connect() as connection:
        insert_rows(connection, [(usage_records, rows)])
        stored = connection.execute(select(usage_records).order_by(usage_records.c.id)).mappings()
        assert [dict(row) for row in stored] == rows
    engine.dispose()
    if is_listening:
        assert ("status" in texts[0], "latency_ms" in texts[0]) == (True, False)


@pytest.mark.parametrize(
    ("database", "driver"),
    [("postgresql", "postgresql+psycopg"), ("mariadb", "mariadb+asyncmy")],
    indirect=["database"],
)
def test_many_rows_are_stored_as_they_are_under_asyncio(database: Database, driver: str) -> None:
    async def run() -> list[dict[str, Any]]:
        engine = create_async_engine(make_url(database.url).set(drivername=driver))
        async with engine.connect() as connection:
            found = await connection.run_sync(insert_and_read, 2_000)
        await engine.dispose()
        return found

    assert asyncio.run(run()) == many(2_000)


def test_rows_that_exist_are_refused_whatever_their_number(database: Database) -> None:
    engine = engine_of(database)
    with engine.connect() as connection, pytest.raises(IntegrityError) as caught:
        insert_rows(connection, [(tenants, [*many(3_000), *many(3_000)])])
    assert not caught.value.connection_invalidated
    engine.dispose()


def test_what_is_read_of_sqlalchemy_is_there(database: Database) -> None:
    """Attributes that its documentation does not name; where one is missing, each statement would go through Core."""
    engine = engine_of(database)
    with engine.connect() as connection:
        attributes: list[Any] = [connection._echo, connection._has_events, engine._has_events]
        assert attributes == [False] * 3
        compiled: Any = text("SELECT :value").compile(dialect=engine.dialect)
        assert compiled.positional == (compiled.positiontup is not None)
        assert (list(compiled.binds), list(compiled.bind_names.values())) == (["value"], ["value"])
        assert compiled.binds["value"].required
        assert compiled.construct_params(_check=False) == {"value": None}
    engine.dispose()
