"""Sessions of connections, and databases, with settings in which texts would change or not be understood."""

from __future__ import annotations

import asyncio
import sqlite3
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import String, create_engine, literal, make_url, select
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import Database
from threadkeep import AsyncStore, InvalidOption, SchemaError, Store, StoredItem, schema
from threadkeep.db.engines import parsed_url

TEXT = "café “😀” \\ ' \" \x00 \ud800"
TITLE = "café “😀” \\ ' \" %"
NUMBERS = count(1)
ODD_MODES = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,PAD_CHAR_TO_FULL_LENGTH"

postgresql = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
mariadb = pytest.mark.parametrize("database", ["mariadb"], indirect=True)


def content_of(stored: StoredItem) -> Any:
    return stored.item.to_object()["content"][0]["text"]


def keeps(url: Any, user: str) -> None:
    """A store keeps texts, moments and users as they are given."""
    with Store(url, tenants=True) as root:
        store = root.create_tenant(f"t{next(NUMBERS)}")
        made = store.create_conversation(model="m", user_id=user, title=TITLE, input=TEXT)
        found = store.get_conversation(made.id)
        assert content_of(found.transcript()[0]) == TEXT
        assert (found.title, found.user_id) == (TITLE, user)
        assert abs((found.created_at - made.created_at).total_seconds()) < 1
        assert [one.id for one in store.list_conversations(user_id=user).items][:1] == [made.id]


async def keeps_too(url: Any, user: str) -> None:
    async with AsyncStore(url, tenants=True) as root:
        store = await root.create_tenant(f"t{next(NUMBERS)}")
        made = await store.create_conversation(model="m", user_id=user, title=TITLE, input=TEXT)
        found = await store.get_conversation(made.id)
        assert [content_of(item) for item in await found.transcript()] == [TEXT]
        assert [one.id for one in (await store.list_conversations(user_id=user)).items][:1] == [made.id]
        evil = store.for_user("' or 1=1 -- ")
        assert (await evil.list_conversations()).items == []


@postgresql
@pytest.mark.parametrize(
    "settings", ["DateStyle=SQL\\,DMY", "DateStyle=German", "standard_conforming_strings=off", "TimeZone=Asia/Tokyo"]
)
def test_a_store_sets_what_a_role_has_otherwise(database: Database, settings: str) -> None:
    keeps(make_url(database.url).update_query_dict({"options": f"-c {settings}"}), "ann")


@postgresql
def test_the_clients_encoding_is_that_of_the_store(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    keeps(database.url, "bob")
    keeps(make_url(database.url).update_query_dict({"client_encoding": "latin1"}), "bea")


@postgresql
@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"client_encoding": "latin1"}, "client_encoding"), ({"options": "-c DateStyle=German"}, "DateStyle")],
)
def test_connections_of_a_host_that_change_values_are_refused(
    database: Database, arguments: dict[str, str], name: str
) -> None:
    url = make_url(database.url).set(drivername="postgresql+psycopg")
    engine = create_engine(url, connect_args=arguments)
    for _ in range(2):
        with pytest.raises(InvalidOption, match=name):
            Store(engine).list_conversations()
    with engine.connect() as connection:  # which the application goes on with
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
        with Store(database.url, tenants=True) as root, pytest.raises(InvalidOption, match=name):
            root.create_tenant(f"t{next(NUMBERS)}").within(connection).create_conversation(model="m")
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


@mariadb
def test_the_mode_of_a_server_is_not_that_of_a_store(database: Database) -> None:
    url = make_url(database.url)
    keeps(url.update_query_dict({"sql_mode": ODD_MODES}), 'o"x')
    asyncio.run(keeps_too(url.update_query_dict({"sql_mode": "NO_BACKSLASH_ESCAPES"}), 'p"y\\'))


@mariadb
def test_what_a_url_says_first_to_a_server_is_said(database: Database) -> None:
    url = make_url(database.url).update_query_dict({"init_command": "SET SESSION wait_timeout = 77"})
    with Store(url, tenants=True) as store, store.handle.transactions.engine.connect() as connection:  # type: ignore[union-attr]
        found = connection.exec_driver_sql("SELECT @@wait_timeout, @@sql_mode").one()
    assert found == (77, "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION")


@mariadb
@pytest.mark.parametrize("mode", ["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"])
def test_a_mode_that_a_url_sets_is_not_that_of_a_store(database: Database, mode: str) -> None:
    url = make_url(database.url).update_query_dict({"init_command": f"SET SESSION sql_mode = '{mode}'"})
    keeps(url, 'o"x')
    asyncio.run(keeps_too(url, 'p"y\\'))
    with Store(url, tenants=True) as store, store.handle.transactions.engine.connect() as connection:  # type: ignore[union-attr]
        written = select(literal("\\", String(), literal_execute=True))  # in the text of the statement
        assert connection.execute(written).scalar_one() == "\\"


@mariadb
def test_stores_on_servers_that_quote_in_two_ways(database: Database) -> None:
    url = make_url(database.url).set(drivername="mariadb+pymysql")
    for mode in ("ANSI_QUOTES,STRICT_ALL_TABLES", "STRICT_ALL_TABLES", "ANSI_QUOTES,STRICT_ALL_TABLES"):
        engine = create_engine(url.update_query_dict({"charset": "utf8mb4", "sql_mode": mode}))
        keeps(engine, "cy")
        engine.dispose()


@mariadb
@pytest.mark.parametrize("charset", ["utf8", "latin1"])
def test_other_charsets_are_refused(database: Database, charset: str) -> None:
    url = make_url(database.url).update_query_dict({"charset": charset})
    with pytest.raises(InvalidOption, match="utf8mb4"):
        Store(url)
    with pytest.raises(InvalidOption, match="utf8mb4"):
        AsyncStore(url)
    with pytest.raises(InvalidOption, match="utf8mb4"):
        Store(create_engine(url.set(drivername="mariadb+pymysql"))).list_conversations()


@mariadb
def test_asyncio_connections_of_a_host_whose_mode_the_driver_does_not_heed(database: Database) -> None:
    async def tries() -> None:
        url = make_url(database.url).set(drivername="mariadb+asyncmy")
        engine = create_async_engine(url.update_query_dict({"sql_mode": "NO_BACKSLASH_ESCAPES"}))
        with pytest.raises(InvalidOption, match="NO_BACKSLASH_ESCAPES"):
            async with AsyncStore(engine) as store:
                await store.create_conversation()
        await engine.dispose()

    asyncio.run(tries())


@pytest.mark.parametrize("url", ["mariadb://root@127.0.0.1", "mysql://root@127.0.0.1/"])
def test_a_url_without_a_database_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match="names no database"):
        Store(url)


@pytest.mark.parametrize("url", ["postgresql://app:p@ss/w0rd?x@host/db", "mariadb://app:p@ss/w@rd"])
def test_a_password_that_is_not_quoted_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidOption, match="two @") as refusal:
        Store(url)
    assert "ss" not in str(refusal.value).replace("password", "")


@pytest.mark.parametrize("url", ["postgresql://u:p?x@h/d", "mariadb://u:p?x=1@h/d"])
def test_a_password_may_have_a_question_mark(url: str) -> None:
    assert parsed_url(url).host == "h"


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_file_in_another_encoding_is_left_alone(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "host.db"
    with sqlite3.connect(file) as host:
        host.execute(f"PRAGMA encoding='{encoding}'")
        host.execute("CREATE TABLE ours (a TEXT)")
    host.close()
    engine = create_engine(f"sqlite:///{file}")
    for attempt in (lambda: schema.upgrade(engine), lambda: Store(f"sqlite:///{file}")):
        with pytest.raises(SchemaError, match=encoding):
            attempt()
    assert schema.current(engine) is None
    engine.dispose()


@postgresql
def test_a_database_that_has_not_all_characters_is_left_alone(database: Database) -> None:
    name, given = "threadkeep_test_latin1", make_url(database.url).set(drivername="postgresql+psycopg")
    server = create_engine(given, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name}")
        connection.exec_driver_sql(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    engine = create_engine(given.set(database=name))
    try:
        for attempt in (lambda: schema.upgrade(engine), lambda: Store(make_url(database.url).set(database=name))):
            with pytest.raises(SchemaError, match="LATIN1"):
                attempt()
        assert schema.current(engine) is None
    finally:
        engine.dispose()
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}")
        server.dispose()
