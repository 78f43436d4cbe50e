"""An upgrade that is killed leaves nothing, or something that the next upgrade goes on with."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from tests.databases import Database, Databases
from tests.migrations.hosts import definitions, tables
from tests.migrations.upgrading import burning
from threadkeep import SchemaError, SchemaMissing, Store, schema
from threadkeep.db.engines import engine_for


@pytest.fixture
def engine(empty_database: Database) -> Engine:
    return empty_database.engine()


@pytest.mark.parametrize("empty_database", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("fuse", [1, 2, 3, 21, 38])
def test_nothing_is_left_where_statements_are_rolled_back(engine: Engine, fuse: int) -> None:
    with pytest.raises(KeyboardInterrupt), burning(engine, fuse):
        schema.upgrade(engine)
    assert definitions(engine) == {}
    schema.upgrade(engine)
    schema.check(engine)


@pytest.mark.parametrize("empty_database", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("fuse", [3, 38])
def test_nothing_is_left_by_the_command_line(empty_database: Database, fuse: int) -> None:
    """Its engine is that of a store, which is in autocommit mode on PostgreSQL."""
    engine = engine_for(empty_database.url)
    with pytest.raises(KeyboardInterrupt), burning(engine, fuse):
        schema.upgrade(engine)
    assert definitions(empty_database.engine()) == {}
    schema.upgrade(engine)
    schema.check(engine)
    engine.dispose()


def upgrade_by_one_statement(engine: Engine) -> bool:
    """Kill an upgrade after the first table, view or index that it creates; False when nothing else was missing."""
    try:
        with burning(engine, 2):
            schema.upgrade(engine)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("empty_database", ["mariadb"], indirect=True)
def test_an_upgrade_goes_on_after_any_statement(empty_database: Database, engine: Engine, databases: Databases) -> None:
    """MariaDB commits each of them, that of the version first; in the end the schema is like any other."""
    steps = 0
    while upgrade_by_one_statement(engine):
        steps += 1
        if steps == 1:
            assert tables(engine) == {"threadkeep_version"}
            with pytest.raises(SchemaMissing):
                Store(empty_database.url)
        assert schema.current(engine) is None
    schema.check(engine)
    whole = databases.empty("mariadb")
    schema.upgrade(whole.engine())
    assert definitions(engine) == definitions(whole.engine())
    assert steps > len(tables(engine))
    databases.drop(whole)


@pytest.mark.parametrize("empty_database", ["mariadb"], indirect=True)
def test_an_upgrade_that_broke_off_can_be_taken_back(engine: Engine) -> None:
    with pytest.raises(KeyboardInterrupt), burning(engine, 25):
        schema.upgrade(engine)
    assert len(tables(engine)) > 1
    schema.downgrade(engine)
    assert tables(engine) == set()


@pytest.mark.parametrize("empty_database", ["mariadb"], indirect=True)
def test_a_downgrade_that_broke_off_is_told(engine: Engine) -> None:
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE threadkeep_usage_records")
    for attempt in (schema.check, schema.upgrade):
        with pytest.raises(SchemaError, match=r"lacks threadkeep_usage_records: a downgrade was interrupted"):
            attempt(engine)
    schema.downgrade(engine)
    schema.upgrade(engine)
    schema.check(engine)
