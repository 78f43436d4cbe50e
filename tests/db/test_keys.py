"""The tenant is part of every key: a foreign reference is a constraint violation. No key is made by a database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import BigInteger, Connection, Date, Integer, LargeBinary, SmallInteger, Table, Text, insert, inspect
from sqlalchemy.exc import IntegrityError

from tests.databases import Database
from threadkeep.db import tables
from threadkeep.db.schema import VERSION_TABLE
from threadkeep.db.tables import METADATA
from threadkeep.db.types import Identifier, UtcDateTime

WITHOUT_TENANT = {tables.tenants.name, VERSION_TABLE}
FULL_TEXT = "threadkeep_search_index"  # SQLite's own tables for it begin like this
WORDS = "threadkeep_search_documents_words_idx"  # full text of all tenants; what it finds is looked up by tenant
WITHOUT_PARENT = {tables.usage_records.name, tables.changes.name}  # which outlive what they tell of
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
        assert all(key[0] == "tenant_id" for key in keys), table
        for key in seen.get_foreign_keys(table):
            expected = "id" if key["referred_table"] == tables.tenants.name else "tenant_id"
            assert key["referred_columns"][0] == expected, table


@pytest.mark.parametrize("name", TABLES)
def test_every_key_is_made_by_the_application(name: str) -> None:
    table = METADATA.tables[name]
    assert table.primary_key.columns.keys()[0] == "tenant_id"
    assert not any(column.autoincrement is True or column.server_default for column in table.columns)
    assert all(key.ondelete for key in table.foreign_key_constraints)


@pytest.mark.parametrize("name", sorted(set(TABLES) - WITHOUT_PARENT))
def test_every_table_leads_to_the_tenant(name: str) -> None:
    """By its own foreign key, or by that of its parent: nothing is left when a tenant goes."""
    pending, seen = [METADATA.tables[name]], set()
    while pending:
        table = pending.pop()
        seen.add(table.name)
        pending += [key.referred_table for key in table.foreign_key_constraints if key.referred_table.name not in seen]
    assert tables.tenants.name in seen


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
    connection.execute(insert(tables.tenants), {"id": tenant, "name": f"t{tenant}", "created_at": NOW})
    for table in (tables.configs, tables.tool_sets, tables.blobs):
        connection.execute(insert(table), row(table, **place))
    connection.execute(
        insert(tables.conversations), row(tables.conversations, tenant_id=tenant, id=tenant, config_hash=b"h" * 32)
    )
    connection.execute(insert(tables.items), row(tables.items, tenant_id=tenant, conversation_id=tenant, position=0))
    connection.execute(
        insert(tables.responses),
        row(tables.responses, tenant_id=tenant, conversation_id=tenant, number=0, config_hash=b"h" * 32),
    )


# A row of tenant 2 that points at what only tenant 1 has.
FOREIGN: dict[str, dict[str, Any]] = {
    "threadkeep_conversations": {"id": 9, "config_hash": b"1" * 32},
    "threadkeep_conversation_labels": {"conversation_id": 1},
    "threadkeep_branches": {"conversation_id": 1, "number": 1},
    "threadkeep_items": {"conversation_id": 1, "position": 1},
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
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_row_cannot_point_at_another_tenant(connection: Connection, name: str) -> None:
    table = METADATA.tables[name]
    for tenant in (1, 2):
        filled(connection, tenant)
    connection.execute(insert(tables.configs), row(tables.configs, tenant_id=1, hash=b"1" * 32))
    connection.execute(insert(tables.usage_days), row(tables.usage_days, tenant_id=1))
    own = {**FOREIGN[name], "tenant_id": 1}
    if table is tables.conversations:
        own["public_id"] = b"p" * 16
    connection.execute(insert(table), row(table, **own))
    with pytest.raises(IntegrityError):
        connection.execute(insert(table), row(table, **FOREIGN[name], tenant_id=2))


def test_every_reference_inside_a_tenant_is_tried() -> None:
    pointing = {
        name for name in TABLES
        if any(key.referred_table is not tables.tenants for key in METADATA.tables[name].foreign_key_constraints)
    }  # fmt: skip
    assert pointing == set(FOREIGN)


@pytest.mark.parametrize("name", sorted(set(TABLES) - set(FOREIGN) - WITHOUT_PARENT))
def test_a_row_needs_its_tenant(connection: Connection, name: str) -> None:
    table = METADATA.tables[name]
    with pytest.raises(IntegrityError):
        connection.execute(insert(table), row(table, tenant_id=404))
