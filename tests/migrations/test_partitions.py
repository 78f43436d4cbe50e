"""Tables with partitions: the same schema, on PostgreSQL alone; keys contain the columns that rows are spread by."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, UniqueConstraint, inspect, text

from tests.databases import Database
from tests.migrations.test_schema import constraint_names
from threadkeep import InvalidOption, SchemaError, Store, schema
from threadkeep.db import partitions
from threadkeep.db.base import with_index_options
from threadkeep.db.engines import engine_for
from threadkeep.db.models import METADATA
from threadkeep.db.partitions import MOST, PARTITIONED, partition_names, partitions_in
from threadkeep.db.schema import VERSION_TABLE

COUNT = 3
TODAY = datetime.now(UTC).date()
POSTGRESQL = pytest.mark.parametrize("empty_database", ["postgresql"], indirect=True)
KEYS = text(
    "SELECT relname, pg_get_partkeydef(oid) FROM pg_class WHERE relkind = 'p' AND relnamespace = 'public'::regnamespace"
)


@pytest.fixture
def engine(empty_database: Database) -> Engine:
    return empty_database.engine()


@pytest.mark.parametrize("name", PARTITIONED)
def test_every_unique_key_contains_the_columns(name: str) -> None:
    table = METADATA.tables[name]
    unique = [table.primary_key, *(index for index in table.indexes if index.unique)]
    keys: list[Any] = [*unique, *(key for key in table.constraints if isinstance(key, UniqueConstraint))]
    assert all(set(PARTITIONED[name]) <= set(key.columns.keys()) for key in keys)


def is_no_copy(thing: Any, _name: str, kind: str, *_: Any) -> bool:
    """PostgreSQL has a copy of a foreign key for every partition of the table that it refers to."""
    return kind != "foreign_key_constraint" or thing.elements[0].target_fullname.partition(".")[0] in METADATA.tables


def differences(connection: Connection) -> Any:
    """What the tables have otherwise than the models, except for partitions and the copies of keys that these have."""
    options = {
        "version_table": VERSION_TABLE, "compare_type": True,
        "include_name": lambda name, kind, _: name in METADATA.tables if kind == "table" else True,
        "include_object": is_no_copy,
    }  # fmt: skip
    return compare_metadata(MigrationContext.configure(connection, opts=options), with_index_options(METADATA))


@POSTGRESQL
def test_the_schema_is_the_same_with_partitions(engine: Engine) -> None:
    schema.upgrade(engine)
    expected = constraint_names(engine)
    schema.downgrade(engine)
    schema.upgrade(engine, partitions=COUNT)
    with engine.connect() as connection:
        assert differences(connection) == []
        keys = {row[0]: row[1] for row in connection.execute(KEYS)}
        assert partitions_in(connection) == COUNT
    assert constraint_names(engine) >= expected  # the copies of foreign keys have names, too
    assert keys == {name: f"HASH ({', '.join(columns)})" for name, columns in PARTITIONED.items()}
    found = set(inspect(engine).get_table_names())
    assert found == {
        *METADATA.tables,
        VERSION_TABLE,
        *(p for name in PARTITIONED for p in partition_names(name, COUNT)),
    }
    assert found <= schema.TABLES


@POSTGRESQL
def test_later_upgrades_leave_partitions_alone(engine: Engine) -> None:
    for count in (COUNT, COUNT, None):
        schema.upgrade(engine, partitions=count)
    with engine.connect() as connection:
        assert partitions_in(connection) == COUNT


@POSTGRESQL
@pytest.mark.parametrize(("before", "said"), [(None, "no partitions"), (2, "2 partitions each")])
def test_an_upgrade_does_not_change_the_number(engine: Engine, before: int | None, said: str) -> None:
    schema.upgrade(engine, partitions=before)
    with pytest.raises(SchemaError, match=said) as caught:
        schema.upgrade(engine, partitions=COUNT)
    assert "threadkeep copy" in str(caught.value)
    with engine.connect() as connection:
        assert partitions_in(connection) == (before or 0)


@pytest.mark.parametrize("empty_database", ["sqlite", "mariadb"], indirect=True)
def test_other_databases_have_none(empty_database: Database, engine: Engine) -> None:
    with pytest.raises(InvalidOption, match=f"for PostgreSQL, not for {engine.dialect.name}"):
        schema.upgrade(engine, partitions=COUNT)
    assert inspect(engine).get_table_names() == []
    with pytest.raises(InvalidOption, match="for PostgreSQL"):
        schema.upgrade_sql(empty_database.kind, partitions=COUNT)


@POSTGRESQL
@pytest.mark.parametrize("partitions", [0, 1, MOST + 1, -2, "16", 2.0, True])
def test_odd_numbers_are_refused(engine: Engine, partitions: Any) -> None:
    with pytest.raises(InvalidOption, match=f"from 2 to {MOST}"):
        schema.upgrade(engine, partitions=partitions)
    assert inspect(engine).get_table_names() == []


@POSTGRESQL
def test_the_sql_for_administrators_makes_them(empty_database: Database, engine: Engine) -> None:
    with engine.begin() as connection:
        for statement in schema.upgrade_sql("postgresql", partitions=COUNT).split(";\n"):
            if statement.strip() and statement.strip() not in {"BEGIN", "COMMIT"}:
                connection.exec_driver_sql(statement)
        assert partitions_in(connection) == COUNT
    with Store(empty_database.url) as store:
        assert store.create_conversation(model="m", input="Hi").head == 0


@POSTGRESQL
def test_a_copy_gives_a_database_partitions(empty_database: Database, engine: Engine) -> None:
    schema.upgrade(engine, partitions=COUNT)
    with Store("sqlite://") as source, Store(empty_database.url) as target:
        ids = [source.create_conversation(model="m", input=f"Hi {number}").id for number in range(60)]
        assert source.copy_to(target).conversations == len(ids)
        assert source.copy_to(target).skipped == len(ids)
    with engine.connect() as connection:
        sizes = [
            connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()
            for name in partition_names("threadkeep_items", COUNT)
        ]
    assert sum(sizes) == len(ids)
    assert all(sizes)


# Months of raw bodies

BODIES = "threadkeep_response_bodies"


def months_of(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [month.name for month in partitions.find_months(connection) or ()]


def coming(first: date) -> list[str]:
    return [month.name for month in partitions.months_until(first, TODAY)]


@pytest.mark.parametrize(
    ("first", "today", "names"),
    [
        (date(2026, 10, 31), date(2026, 11, 1), ["y2026m10", "y2026m11", "y2026m12", "y2027m01", "y2027m02"]),
        (date(2026, 1, 15), date(2026, 1, 31), ["y2026m01", "y2026m02", "y2026m03", "y2026m04"]),
    ],
)
def test_there_are_partitions_until_the_third_month_that_comes(first: date, today: date, names: list[str]) -> None:
    found = list(partitions.months_until(first, today))
    assert [month.name.removeprefix(f"{BODIES}_") for month in found] == names
    assert all(one.end == other.first for one, other in pairwise(found))


@POSTGRESQL
@pytest.mark.parametrize("partitions", [None, COUNT])
def test_the_schema_is_the_same_with_months(engine: Engine, partitions: int | None) -> None:
    schema.upgrade(engine, partitions=partitions, monthly_bodies=TODAY - timedelta(days=40))
    with engine.connect() as connection:
        assert differences(connection) == []
        keys = {row[0]: row[1] for row in connection.execute(KEYS)}
        assert partitions_in(connection) == (partitions or 0)
    assert keys.pop(BODIES) == "RANGE (created_at)"
    assert keys.keys() == (PARTITIONED.keys() - {BODIES} if partitions else set())
    columns = inspect(engine).get_pk_constraint(BODIES)["constrained_columns"]
    assert columns == ["tenant_id", "conversation_id", "number", "created_at"]
    assert months_of(engine) == coming(TODAY - timedelta(days=40))
    assert set(inspect(engine).get_table_names()) <= schema.TABLES


@POSTGRESQL
def test_an_upgrade_makes_the_months_that_come(engine: Engine, empty_database: Database) -> None:
    schema.upgrade(engine, monthly_bodies=TODAY)
    with engine.begin() as connection:
        for name in coming(TODAY)[1:]:
            connection.execute(text(f"DROP TABLE {name}"))
    own = engine_for(empty_database.url)  # as the command line does
    schema.upgrade(own)
    own.dispose()
    assert months_of(engine) == coming(TODAY)


@POSTGRESQL
def test_an_upgrade_does_not_give_months_to_a_table_without(engine: Engine) -> None:
    schema.upgrade(engine)
    with pytest.raises(SchemaError, match="no partitions of months"):
        schema.upgrade(engine, monthly_bodies=TODAY)
    assert months_of(engine) == []


@pytest.mark.parametrize("empty_database", ["sqlite", "mariadb"], indirect=True)
def test_other_databases_have_no_months(empty_database: Database, engine: Engine) -> None:
    with pytest.raises(InvalidOption, match=f"for PostgreSQL, not for {engine.dialect.name}"):
        schema.upgrade(engine, monthly_bodies=TODAY)
    with pytest.raises(InvalidOption, match="for PostgreSQL"):
        schema.upgrade_sql(empty_database.kind, monthly_bodies=TODAY)


@POSTGRESQL
@pytest.mark.parametrize("month", ["2026-11", 202611, True, date(2019, 12, 31), TODAY + timedelta(days=31)])
def test_odd_months_are_refused(engine: Engine, month: Any) -> None:
    with pytest.raises(InvalidOption, match="from 2020-01 to this one"):
        schema.upgrade(engine, monthly_bodies=month)
    assert inspect(engine).get_table_names() == []


@POSTGRESQL
def test_the_sql_for_administrators_makes_months(engine: Engine) -> None:
    with engine.begin() as connection:
        for statement in schema.upgrade_sql("postgresql", partitions=COUNT, monthly_bodies=TODAY).split(";\n"):
            if statement.strip() and statement.strip() not in {"BEGIN", "COMMIT"}:
                connection.exec_driver_sql(statement)
    assert months_of(engine) == coming(TODAY)
