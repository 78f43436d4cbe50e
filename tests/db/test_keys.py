"""The tenant is part of every key: a foreign reference is a constraint violation. No key is made by a database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Connection,
    Date,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    insert,
    inspect,
    text,
)
from sqlalchemy.exc import IntegrityError

from tests.databases import Database
from threadkeep import schema
from threadkeep.db import models
from threadkeep.db.base import with_index_options, written_columns
from threadkeep.db.models import METADATA
from threadkeep.db.schema import VERSION_TABLE
from threadkeep.db.types import Identifier, UtcDateTime

WITHOUT_TENANT = {models.tenants.name, VERSION_TABLE}
FULL_TEXT = "threadkeep_search_index"  # SQLite's own tables for it begin like this
WORDS = "threadkeep_search_documents_words_idx"  # full text of all tenants; what it finds is looked up by tenant
PARENTS = sorted(
    {key.referred_table.name for table in METADATA.tables.values() for key in table.foreign_key_constraints}
)
EQUAL = {"status", "user_id", "public_id"}  # columns that queries compare with one value, so that the tenant may follow
WITHOUT_PARENT = {models.usage_records.name, models.changes.name}  # which outlive what they tell of
TABLES = sorted(set(METADATA.tables) - WITHOUT_TENANT)
NOW = datetime.now(UTC)
SOME: dict[type, Any] = {
    Identifier: "x", Text: "x", UtcDateTime: NOW, Date: NOW.date(), LargeBinary: b"x" * 16,
    BigInteger: 0, Integer: 0, SmallInteger: 0,
}  # fmt: skip


def test_every_key_holds_the_tenant(database: Database) -> None:
    """Primary keys, unique keys and foreign keys of the real tables; only then can they be distributed by tenant."""
    seen = inspect(database.engine())
    names = {name for name in seen.get_table_names() if not name.startswith(FULL_TEXT)} - WITHOUT_TENANT
    assert names == set(TABLES)
    for table in names:
        keys: list[Any] = [seen.get_pk_constraint(table)["constrained_columns"]]
        keys += (key["column_names"] for key in seen.get_unique_constraints(table))
        keys += (index["column_names"] for index in seen.get_indexes(table) if index["name"] != WORDS)
        keys += (key["constrained_columns"] for key in seen.get_foreign_keys(table))
        assert all("tenant_id" in key for key in keys), table
        assert keys[0][0] == "tenant_id"
        for key in seen.get_foreign_keys(table):
            assert key["constrained_columns"][0] == "tenant_id", table
            expected = "id" if key["referred_table"] == models.tenants.name else "tenant_id"
            assert key["referred_columns"][0] == expected, table


def offending(table: Table) -> list[str]:
    """The indexes by which PostgreSQL, without statistics, may look a row of this table up: all of the tenant's.

    It may use one for the check of a foreign key if it begins with the tenant and holds all rows. An index with a
    condition is for statements that say the same, as the check says of the columns of the primary key.
    """
    wrong = []
    for key in (*table.indexes, *table.constraints):
        if not isinstance(key, Index | UniqueConstraint):
            continue
        names = key.columns.keys()
        if "tenant_id" not in names:
            wrong.append(str(key.name))
        elif names[0] == "tenant_id":
            condition = key.dialect_options["postgresql"]["where"] if isinstance(key, Index) else None
            column, _, rest = str(condition).partition(" ")
            if condition is None or (rest == "IS NOT NULL" and table.c[column].primary_key):
                wrong.append(str(key.name))
        elif not set(names[: names.index("tenant_id")]) <= EQUAL:
            wrong.append(str(key.name))
    return wrong


@pytest.fixture(autouse=True, scope="module")
def index_options() -> None:
    with_index_options(METADATA)


@pytest.mark.parametrize("name", sorted(set(PARENTS) - WITHOUT_TENANT))
def test_no_plan_looks_parents_up_by_the_tenant_alone(name: str) -> None:
    """Only the primary key begins with the tenant; before it in others are columns that are compared with one value."""
    assert offending(METADATA.tables[name]) == []


WRONG = {
    "all rows": ["tenant_id", "id"],
    "range first": ["last_activity_at", "tenant_id", "id"],
    "all rows where": ["tenant_id", "id"],
    "elsewhere": ["status", "id"],
}


@pytest.mark.parametrize("name", WRONG)
def test_an_offending_index_would_be_seen(name: str) -> None:
    table = models.conversations.to_metadata(MetaData())
    condition = text("id IS NOT NULL") if name == "all rows where" else None
    Index(name, *(table.c[column] for column in WRONG[name]), postgresql_where=condition)
    assert offending(table) == [name]


@pytest.mark.parametrize("name", TABLES)
def test_every_key_is_made_by_the_application(name: str) -> None:
    table = METADATA.tables[name]
    assert table.primary_key.columns.keys()[0] == "tenant_id"
    assert not any(column.autoincrement is True or column.server_default for column in written_columns(table))
    assert not any(column.computed for column in table.primary_key.columns)
    assert all(key.ondelete for key in table.foreign_key_constraints)


@pytest.mark.parametrize("name", sorted(set(TABLES) - WITHOUT_PARENT))
def test_every_table_leads_to_the_tenant(name: str) -> None:
    """By its own foreign key, or by that of its parent: nothing is left when a tenant goes."""
    pending, seen = [METADATA.tables[name]], set()
    while pending:
        table = pending.pop()
        seen.add(table.name)
        pending += [key.referred_table for key in table.foreign_key_constraints if key.referred_table.name not in seen]
    assert models.tenants.name in seen


def row(table: Table, **values: Any) -> dict[str, Any]:
    """A row with something in every column that needs it."""
    needed = [column for column in table.columns if not column.nullable]
    return {column.name: SOME[type(column.type)] for column in needed} | values


@pytest.fixture
def connection(database: Database) -> Any:
    engine = database.engine()
    with engine.connect() as opened:
        if database.kind == "sqlite":
            opened.exec_driver_sql("PRAGMA foreign_keys=ON")
        yield opened
        opened.rollback()


def filled(connection: Connection, tenant: int) -> None:
    """A tenant with a row in every table that others point at."""
    place = {"tenant_id": tenant, "hash": b"h" * 32}
    connection.execute(insert(models.tenants), {"id": tenant, "name": f"t{tenant}", "created_at": NOW})
    for table in (models.configs, models.tool_sets, models.blobs):
        connection.execute(insert(table), row(table, **place))
    options = {"config_hash": b"h" * 32, "tool_set_hash": b"h" * 32}
    connection.execute(insert(models.conversations), row(models.conversations, tenant_id=tenant, id=tenant, **options))
    connection.execute(insert(models.items), row(models.items, tenant_id=tenant, conversation_id=tenant, position=0))
    connection.execute(
        insert(models.responses), row(models.responses, tenant_id=tenant, conversation_id=tenant, number=0, **options)
    )


# A row of tenant 2 that points at what only tenant 1 has.
FOREIGN: dict[str, dict[str, Any]] = {
    "threadkeep_conversations": {"id": 9, "config_hash": b"1" * 32},
    "threadkeep_conversation_labels": {"conversation_id": 1},
    "threadkeep_branches": {"conversation_id": 1, "number": 1},
    "threadkeep_items": {"conversation_id": 1, "position": 1},
    "threadkeep_uploads": {"hash": b"1" * 32, "user_id": "ann"},
    "threadkeep_item_blobs": {"conversation_id": 1, "position": 0, "hash": b"h" * 32},
    "threadkeep_item_labels": {"conversation_id": 1, "position": 0},
    "threadkeep_item_feedback": {"conversation_id": 1, "position": 0},
    "threadkeep_approvals": {"conversation_id": 1, "position": 0},
    "threadkeep_conversation_states": {"conversation_id": 1},
    "threadkeep_conversation_reads": {"conversation_id": 1},
    "threadkeep_responses": {"conversation_id": 1, "number": 1, "config_hash": b"h" * 32},
    "threadkeep_response_bodies": {"conversation_id": 1, "number": 0},
    "threadkeep_search_documents": {"id": 9, "conversation_id": 1, "position": 0},
    "threadkeep_stream_parts": {"conversation_id": 1, "number": 0, "part": 0},
    "threadkeep_context_caches": {"conversation_id": 1},
    "threadkeep_usage_daily": {"number": 0},
    "threadkeep_usage_daily_models": {"number": 0},
    "threadkeep_usage_daily_sketches": {"number": 0},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_row_cannot_point_at_another_tenant(connection: Connection, name: str) -> None:
    table = METADATA.tables[name]
    for tenant in (1, 2):
        filled(connection, tenant)
    for shared in (models.configs, models.blobs):
        connection.execute(insert(shared), row(shared, tenant_id=1, hash=b"1" * 32))
    connection.execute(insert(models.usage_days), row(models.usage_days, tenant_id=1))
    own = {**FOREIGN[name], "tenant_id": 1}
    if table is models.conversations:
        own["public_id"] = b"p" * 16
    connection.execute(insert(table), row(table, **own))
    with pytest.raises(IntegrityError):
        connection.execute(insert(table), row(table, **FOREIGN[name], tenant_id=2))


def test_every_reference_inside_a_tenant_is_tried() -> None:
    pointing = {
        name for name in TABLES
        if any(key.referred_table is not models.tenants for key in METADATA.tables[name].foreign_key_constraints)
    }  # fmt: skip
    assert pointing == set(FOREIGN)


@pytest.mark.parametrize("name", sorted(set(TABLES) - set(FOREIGN) - WITHOUT_PARENT))
def test_a_row_needs_its_tenant(connection: Connection, name: str) -> None:
    table = METADATA.tables[name]
    with pytest.raises(IntegrityError):
        connection.execute(insert(table), row(table, tenant_id=404))


SCANNED = text(
    "SELECT table_.relname, index_.relname, index.indisprimary FROM pg_index index "
    "JOIN pg_class table_ ON table_.oid = index.indrelid JOIN pg_class index_ ON index_.oid = index.indexrelid "
    "WHERE table_.relname LIKE 'threadkeep%' AND pg_stat_get_xact_numscans(index.indexrelid) > 0"
)


@pytest.mark.parametrize("empty_database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("is_wrong", [False, True], ids=["as it is", "with an index that begins with the tenant"])
def test_foreign_keys_are_checked_on_primary_keys(empty_database: Database, is_wrong: bool) -> None:
    """On PostgreSQL before the first ANALYZE. What each table needs is written last, so that it is looked up."""
    engine = empty_database.engine()
    schema.upgrade(engine)
    with engine.begin() as connection:
        if is_wrong:
            connection.execute(text("CREATE INDEX wrong ON threadkeep_conversations (tenant_id, user_id, status, id)"))
        filled(connection, 1)
        for shared in (models.configs, models.blobs):
            connection.execute(insert(shared), row(shared, tenant_id=1, hash=b"1" * 32))
        connection.execute(insert(models.usage_days), row(models.usage_days, tenant_id=1))
        for name, values in FOREIGN.items():
            if name != models.conversations.name:
                connection.execute(insert(METADATA.tables[name]), row(METADATA.tables[name], tenant_id=1, **values))
        scanned = connection.execute(SCANNED).all()
    beside = {models.conversations.name} if is_wrong else set()
    assert {table for table, _, is_primary in scanned if is_primary} == set(PARENTS) - beside
    assert {index for _, index, is_primary in scanned if not is_primary} == ({"wrong"} if is_wrong else set())
