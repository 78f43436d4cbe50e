"""The models say what their columns hold, by which rows are deleted, erased, anonymized and carried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from sqlalchemy import Column, LargeBinary, Table
from sqlalchemy.orm import configure_mappers
from sqlalchemy.types import String, TypeDecorator

from threadkeep.db import models
from threadkeep.db.base import HOLDS, LOCAL, OWNER, PREFIX, Base, columns_holding
from threadkeep.db.types import TsVector
from threadkeep.store.removing.rules import PARTS, rows_of_user

KINDS = {"content", "user", "name", "source", "word", "figures"}
TABLES = models.METADATA.tables.values()


def is_text(column: Column[Any]) -> bool:
    """Whether a column may hold text, or bytes of any length: hashes have a length."""
    kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    return isinstance(kind, String | TsVector) or (isinstance(kind, LargeBinary) and kind.length is None)


def named(columns: Iterable[Column[Any]]) -> set[str]:
    return {f"{column.table.name.removeprefix(PREFIX)}.{column.name}" for column in columns}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_columns_of_texts_say_what_they_hold(table: Table) -> None:
    assert {column.name: column.info.get(HOLDS) for column in table.c if is_text(column)} == {
        column.name: column.info[HOLDS] for column in table.c if column.info.get(HOLDS) in KINDS
    }


def test_a_column_that_says_nothing_would_be_seen() -> None:
    assert {column.name for column in models.blobs.c if is_text(column)} == {"content", "location", "media_type"}
    assert {column.name for column in models.search_documents.c if is_text(column)} >= {"text", "words", "scope"}


def test_ids_of_users_are_declared() -> None:
    """What erasing a user goes through; another such column would have to be added there."""
    assert named(column for table in TABLES for column in columns_holding(table, "user")) == {
        "api_keys.user_id", "approvals.decided_by", "conversation_reads.user_id", "conversations.user_id",
        "item_feedback.user_id", "items.author_id", "search_documents.scope", "uploads.user_id",
        "usage_records.user_id",
    }  # fmt: skip


def test_rows_that_go_with_their_user_are_declared() -> None:
    assert named(column for table in TABLES for column in table.c if OWNER in column.info) == {
        "api_keys.user_id", "conversation_reads.user_id", "conversations.user_id", "item_feedback.user_id",
        "uploads.user_id",
    }  # fmt: skip


def test_what_a_redacted_item_keeps_is_declared() -> None:
    assert [column.name for column in columns_holding(models.items, "user", "source")] == [
        "author_id",
        "model",
        "maker",
    ]


def test_what_is_removed_of_a_user_and_of_a_conversation_follows_from_the_declarations() -> None:
    changed = {rows.name: [column.name for column in rows.cleared] for rows in rows_of_user("ann")}
    assert changed == {
        "api keys": [], "approvals": ["decided_by"], "conversation reads": [], "item feedback": [],
        "items": ["author_id"], "usage records": ["user_id", "usage", "error"],
    }  # fmt: skip
    orders = {table.name.removeprefix(PREFIX): None if one is None else one.name for table, one in PARTS.items()}
    assert orders == {
        "appends": "key", "approvals": "position", "branches": "number", "context_caches": None,
        "conversation_labels": "key", "conversation_reads": "user_id", "conversation_states": "name",
        "item_feedback": "position", "item_labels": "position", "items": "position", "response_bodies": "number",
        "responses": "number", "stream_parts": "part",
    }  # fmt: skip


def test_what_a_deleted_conversation_loses_is_declared() -> None:
    names = [column.name for column in columns_holding(models.conversations, "content", "name")]
    assert names == ["external_id", "title", "labels", "properties", "creation_key"]
    assert [column.name for column in columns_holding(models.usage_records, "content")] == ["usage", "error"]


def test_the_ledger_has_no_names() -> None:
    """Its rows outlive their users, and keep what is declared as a name, which might be a person's."""
    ledger = [table for table in TABLES if table.name.startswith(f"{PREFIX}usage_")]
    assert named(column for table in ledger for column in columns_holding(table, "name")) == set()


def test_what_is_not_carried_is_declared() -> None:
    assert named(column for table in TABLES for column in table.c if LOCAL in column.info) == {
        "blobs.location", "conversations.revision", "conversations.search_from", "responses.lease_token",
        "tool_definitions.unused_at",
    }  # fmt: skip


def test_declarations_are_not_shared() -> None:
    """A dictionary for each column, so that a declaration of one is none of another."""
    infos = [column.info for table in TABLES for column in table.c if column.info]
    assert len({id(info) for info in infos}) == len(infos)


def test_every_table_has_a_model_whose_relationships_fit_together() -> None:
    configure_mappers()
    mappers = list(Base.registry.mappers)
    assert {mapper.local_table for mapper in mappers} == set(TABLES)
    assert all(relationship.viewonly for mapper in mappers for relationship in mapper.relationships)
    assert all(mapper.class_.__doc__ for mapper in mappers)
