"""The schema and its version: what the models say is what the revisions build, and opening a store checks it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Engine, create_engine, inspect, text
from sqlalchemy.schema import CreateIndex

from tests.databases import Database
from tests.migrations.upgrading import upgrade_in_process
from tests.processes import forked
from tests.store.watching import engine_of
from threadkeep import (
    AsyncStore,
    SchemaError,
    SchemaMissing,
    SchemaOutOfDate,
    SchemaTooNew,
    SchemaUnknown,
    Store,
    schema,
)
from threadkeep.db.base import with_index_options
from threadkeep.db.models import METADATA
from threadkeep.db.schema import HEAD, REVISIONS, VERSION_TABLE, migrations_folder
from threadkeep.db.types import MYSQL

TABLES = set(METADATA.tables)


@pytest.fixture
def engine(empty_database: Database) -> Engine:
    return empty_database.engine()


def table_names(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names())


def full_text_tables(engine: Engine) -> set[str]:
    """The tables of SQLite's index: its own, and those that it keeps behind it."""
    index = "threadkeep_search_index"
    shadows = {index, *(f"{index}_{name}" for name in ("config", "data", "idx"))}
    return shadows if engine.dialect.name == "sqlite" else set()


def set_version(engine: Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = :revision"), {"revision": revision})


def test_the_constants_are_those_of_the_files() -> None:
    scripts = ScriptDirectory(str(migrations_folder()))
    found = [script.revision for script in scripts.walk_revisions()]
    assert list(REVISIONS) == found[::-1]
    assert scripts.get_heads() == [HEAD]


def test_the_revisions_build_what_the_models_say(engine: Engine) -> None:
    schema.upgrade(engine)
    with engine.connect() as connection:
        options = {
            "version_table": VERSION_TABLE, "compare_type": True, "target_metadata": METADATA,
            "include_name": lambda name, kind, _: name in TABLES if kind == "table" else True,
        }  # fmt: skip
        assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []
    tables = METADATA.tables.values()
    expected = {str(index.name) for table in tables for index in table.indexes}
    expected |= {str(constraint.name) for table in tables for constraint in table.constraints}
    if engine.dialect.name in MYSQL:  # every primary key is named PRIMARY
        expected = {name for name in expected if not name.endswith("_pkey")}
    assert expected - constraint_names(engine) == set()


def test_an_empty_sqlite_database_gets_what_the_revisions_make(tmp_path: Path) -> None:
    made = []
    for revision in ("head", HEAD):  # the first one is set up from statements that are kept, also a second time
        for number in range(2):
            file = tmp_path / f"{revision}{number}.db"
            engine = create_engine(f"sqlite:///{file}")
            schema.upgrade(engine, revision)
            engine.dispose()
            with closing(sqlite3.connect(file)) as connection:
                objects = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
                made.append([connection.execute(one).fetchall() for one in (objects, f"SELECT * FROM {VERSION_TABLE}")])
    assert made == made[:1] * 4


def test_the_indexes_are_those_of_the_models(engine: Engine) -> None:
    """With their conditions, which Alembic does not compare; those of SQLite can be read back as they were written."""
    statements = [
        " ".join(str(CreateIndex(index).compile(dialect=engine.dialect)).split())
        for table in with_index_options(METADATA).tables.values()
        for index in table.indexes
    ]
    if engine.dialect.name in MYSQL:
        assert sum("FULLTEXT" in statement for statement in statements) == 1
        return
    assert sum(" WHERE " in statement for statement in statements) >= 6
    if engine.dialect.name == "sqlite":
        schema.upgrade(engine)
        with engine.connect() as connection:
            rows = connection.scalars(text("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"))
            assert sorted(" ".join(row.split()) for row in rows) == sorted(statements)


def constraint_names(engine: Engine) -> set[str | None]:
    """The names of keys, constraints and indexes of our tables."""
    inspector, found = inspect(engine), set()
    for name in TABLES:
        found.add(inspector.get_pk_constraint(name)["name"])
        found.update(key["name"] for key in inspector.get_foreign_keys(name))
        found.update(key["name"] for key in inspector.get_unique_constraints(name))
        found.update(index["name"] for index in inspector.get_indexes(name))
    return found


def test_a_difference_would_be_seen(engine: Engine) -> None:
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE threadkeep_items ADD COLUMN mood integer"))
    with engine.connect() as connection:
        assert len(compare_metadata(MigrationContext.configure(connection), METADATA)) >= 1


def test_upgrading_again_changes_nothing(engine: Engine) -> None:
    for _ in range(2):
        schema.upgrade(engine)
        assert table_names(engine) == TABLES | {VERSION_TABLE} | full_text_tables(engine)
        assert schema.current(engine) == HEAD
        schema.check(engine)


@pytest.mark.slow
def test_several_processes_upgrade_at_once(empty_database: Database) -> None:
    """One does it, the others wait."""
    processes = [forked(upgrade_in_process, empty_database.url) for _ in range(4)]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert schema.current(empty_database.engine()) == HEAD


def test_down_to_nothing_and_up_again(empty_database: Database, engine: Engine) -> None:
    for _ in range(2):
        schema.upgrade(engine)
        with Store(empty_database.url) as store:
            store.create_conversation(model="m", input="Hi", labels={"a": "b"})
        schema.downgrade(engine)
        assert table_names(engine) == set()
        assert schema.current(engine) is None


def test_other_tables_are_left_alone(engine: Engine) -> None:
    """threadkeep shares a database with an application and its own Alembic."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num varchar(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('theirs')"))
    schema.upgrade(engine)
    schema.downgrade(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "theirs"


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql", "mariadb"])
def test_the_sql_for_administrators_names_every_table(dialect: str) -> None:
    found = schema.upgrade_sql(dialect)
    assert all(f"CREATE TABLE {name} " in found for name in TABLES)
    assert "IF NOT EXISTS" not in found  # else it would take over tables of an application
    assert HEAD in found


def test_the_sql_for_administrators_upgrades(empty_database: Database, engine: Engine) -> None:
    script = schema.upgrade_sql(empty_database.kind)
    if empty_database.kind == "sqlite":
        with closing(sqlite3.connect(str(engine.url.database))) as connection:
            connection.executescript(script)
    else:
        with engine.begin() as connection:
            for statement in script.split(";\n"):
                if statement.strip() and statement.strip() not in {"BEGIN", "COMMIT"}:
                    connection.exec_driver_sql(statement)
    schema.check(engine)
    with Store(empty_database.url) as store:
        assert store.create_conversation(model="m", input="Hi").head == 0


# Opening


def open_sync(url: str) -> None:
    Store(url).close()


def open_async(url: str) -> None:
    async def opened() -> None:
        store = AsyncStore(url)
        try:
            await store.list_conversations()
        finally:
            await store.close()

    asyncio.run(opened())


@pytest.fixture(params=[open_sync, open_async], ids=["sync", "async"])
def open_store(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_an_empty_database_is_set_up_only_on_sqlite(empty_database: Database, engine: Engine, open_store: Any) -> None:
    if empty_database.kind == "sqlite":
        open_store(empty_database.url)
        assert schema.current(engine) == HEAD
    else:
        with pytest.raises(SchemaMissing, match=r"threadkeep --url .* db upgrade"):
            open_store(empty_database.url)
        assert table_names(engine) == set()


def test_a_database_of_somebody_else_is_not_set_up(empty_database: Database, engine: Engine, open_store: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (number integer)"))
    with pytest.raises(SchemaMissing):
        open_store(empty_database.url)
    assert table_names(engine) == {"orders"}


def test_a_store_is_closed_without_being_opened(tmp_path: Path) -> None:
    asyncio.run(AsyncStore(f"sqlite:///{tmp_path}/chat.db").close())
    assert list(tmp_path.iterdir()) == []


def test_an_older_schema_is_told(
    empty_database: Database, engine: Engine, open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.upgrade(engine)
    monkeypatch.setattr("threadkeep.db.schema.HEAD", "v9_0_0_a")
    monkeypatch.setattr("threadkeep.db.schema.REVISIONS", (*REVISIONS, "v9_0_0_a"))
    with pytest.raises(SchemaOutOfDate, match=r"threadkeep --url .* db upgrade") as caught:
        open_store(empty_database.url)
    assert (caught.value.found, caught.value.wanted) == (HEAD, "v9_0_0_a")


def test_a_newer_schema_is_told(empty_database: Database, engine: Engine, open_store: Any) -> None:
    schema.upgrade(engine)
    set_version(engine, "v9_9_9_z")
    with pytest.raises(SchemaTooNew, match="v9_9_9_z"):
        open_store(empty_database.url)
    with pytest.raises(SchemaTooNew, match="newer release"):
        schema.upgrade(engine)
    assert schema.current(engine) == "v9_9_9_z"


@pytest.mark.parametrize("revision", ["v0_0_9_a", "v0_1_0", "4f3c2a1b"])
def test_an_unknown_schema_that_is_not_newer_is_not_called_newer(
    empty_database: Database, engine: Engine, open_store: Any, revision: str
) -> None:
    schema.upgrade(engine)
    set_version(engine, revision)
    for use in (lambda: open_store(empty_database.url), lambda: schema.upgrade(engine), lambda: schema.check(engine)):
        with pytest.raises(SchemaUnknown, match="of no release before this version") as caught:
            use()
        assert (caught.value.found, caught.value.wanted) == (revision, HEAD)


def test_a_file_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks and other signs in paths are no matter; a relative path is relative."""
    folder = tmp_path / "a b%20é"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with Store("sqlite:///chat.db") as store:
        public_id = store.create_conversation(input="Hi").id
    with Store(create_engine(URL.create("sqlite", database=str(folder / "chat.db")))) as store:
        assert store.get_conversation(public_id).head == 0
        engine_of(store).dispose()


@pytest.mark.parametrize("empty_database", ["postgresql"], indirect=True)
def test_tables_of_another_schema_on_the_search_path_are_not_taken_for_ours(empty_database: Database) -> None:
    """Both teams would write into the same tables."""
    schema.upgrade(empty_database.engine())
    with empty_database.engine().begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA team2")
    url = empty_database.engine().url
    beside = create_engine(url.update_query_dict({"options": "-csearch_path=team2,public"}))
    with pytest.raises(SchemaError, match=r"in the schema public; new ones would be made in team2"):
        schema.upgrade(beside)
    alone = create_engine(url.update_query_dict({"options": "-csearch_path=team2"}))
    schema.upgrade(alone)
    schema.upgrade(beside)
    for engine in (alone, beside):
        engine.dispose()
