"""The test databases themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from tests.conftest import not_at_hand
from tests.databases import (
    DATABASES,
    DAY_SECONDS,
    SERVERS,
    Database,
    Databases,
    NotAtHand,
    Server,
    connect,
    drop_leftovers,
    fast_folder,
)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    try:
        made = connect(request.param, tmp_path)
    except NotAtHand as refusal:
        not_at_hand(refusal)
    yield made
    made.close()


def test_files_are_in_memory_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """… which a killed run leaves to a later one."""
    left, recent = tmp_path / "threadkeep_test_left", tmp_path / "threadkeep_test_recent"
    for folder in (left, recent):
        folder.mkdir()
    os.utime(left, (0, 0))
    monkeypatch.setattr("tests.databases.MEMORY", tmp_path)
    monkeypatch.setattr("tests.databases.MEMORY_BYTES", 0)
    with fast_folder() as found:
        assert found is not None
        assert set(tmp_path.iterdir()) == {found, recent}
    assert set(tmp_path.iterdir()) == {recent}
    monkeypatch.setattr("tests.databases.MEMORY_BYTES", 2**63)
    with fast_folder() as found:
        assert found is None
    monkeypatch.setattr("tests.databases.MEMORY", tmp_path / "nowhere")
    with fast_folder() as found:
        assert found is None


def test_an_empty_database_has_no_tables(empty_database: Database) -> None:
    assert inspect(empty_database.engine()).get_table_names() == []


def test_a_database_keeps_any_text(empty_database: Database) -> None:
    engine = empty_database.engine()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE words (word varchar(20))"))
        connection.execute(text("INSERT INTO words VALUES (:word)"), {"word": "naïve 🧵"})
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT word FROM words")) == "naïve 🧵"


def test_the_prepared_database_has_the_schema(database: Database) -> None:
    names = {f"threadkeep_{name}" for name in ("tenants", "conversations", "items", "version")}
    assert names <= set(inspect(database.engine()).get_table_names())


FAMILY = (
    "CREATE TABLE parents (id integer PRIMARY KEY)",
    """CREATE TABLE children (
        id integer PRIMARY KEY,
        parent_id integer NOT NULL,
        CONSTRAINT fk_parent FOREIGN KEY (parent_id) REFERENCES parents (id) ON DELETE CASCADE
    )""",
    "CREATE INDEX ix_parent ON children (parent_id)",
    "CREATE VIEW elders AS SELECT id FROM parents",
    "INSERT INTO parents VALUES (7)",
)


def a_family(engine: Engine) -> None:
    with engine.begin() as connection:
        for statement in FAMILY:
            connection.execute(text(statement))


@pytest.mark.parametrize("kind", DATABASES)
def test_a_copy_has_everything_of_its_prototype(kind: str, databases: Databases) -> None:
    try:
        copy = databases.prepared(kind, a_family).engine()
    except NotAtHand as refusal:
        not_at_hand(refusal)
    found = inspect(copy)
    assert found.get_view_names() == ["elders"]
    assert [key["options"] for key in found.get_foreign_keys("children")] == [{"ondelete": "CASCADE"}]
    assert [index["name"] for index in found.get_indexes("children")] == ["ix_parent"]
    with copy.connect() as connection:
        assert connection.scalar(text("SELECT id FROM elders")) == 7


def test_only_leftovers_of_another_day_are_dropped(server: Server) -> None:
    now = int(time.time())
    old, fresh = (f"threadkeep_test_{at:08x}_1_master_abcdef" for at in (now - DAY_SECONDS - 60, now - 60))
    try:
        server.create(old)
        server.create(fresh)
        drop_leftovers(server, now=now)
        assert old not in server.names()
        assert fresh in server.names()
    finally:
        server.drop(old)
        server.drop(fresh)
