"""The first tables: conversations, items, tools, responses, the usage ledger.

Revises: nothing
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql, postgresql

revision = "v0_1_0_a"
down_revision = None
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")


def identifier() -> sa.types.TypeEngine[Any]:
    return sa.String(255).with_variant(mysql.VARBINARY(255), *MYSQL)


def long_text() -> sa.types.TypeEngine[Any]:
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)


def long_bytes() -> sa.types.TypeEngine[Any]:
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)


def digest(length: int = 32) -> sa.types.TypeEngine[Any]:
    return (
        sa.LargeBinary(length).with_variant(mysql.BINARY(length), *MYSQL).with_variant(postgresql.BYTEA(), "postgresql")
    )


def moment() -> sa.types.TypeEngine[Any]:
    return (
        sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *MYSQL).with_variant(sa.DateTime(timezone=True), "postgresql")
    )


def needed(name: str, kind: Any = sa.BigInteger) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def key(name: str, kind: sa.types.TypeEngine[Any] | None = None) -> sa.Column[Any]:
    return sa.Column(name, kind if kind is not None else sa.BigInteger(), nullable=False, autoincrement=False)


def tenant() -> tuple[sa.Column[Any], sa.ForeignKeyConstraint]:
    return key("tenant_id"), references("tenants", tenant_id="id")


def references(table: str, ondelete: str = "CASCADE", **columns: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(list(columns), [f"{table}.{name}" for name in columns.values()], ondelete=ondelete)


def primary(*columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns)


def of_conversation() -> sa.ForeignKeyConstraint:
    return references("conversations", tenant_id="tenant_id", conversation_id="id")


def create(name: str, *parts: sa.schema.SchemaItem) -> None:
    """A table, unless an earlier run that crashed made it (MySQL commits every statement by itself)."""
    op.create_table(
        name, *parts, if_not_exists=True, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin"
    )


def create_index(name: str, table: str, *columns: str, where: str | None = None) -> None:
    if not context.is_offline_mode():
        found = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
        if name in found:
            return
    condition = sa.text(where) if where else None
    op.create_index(name, table, list(columns), postgresql_where=condition, sqlite_where=condition)


FIGURES = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "cost_nano")


def upgrade() -> None:
    create_contents()
    create_conversations()
    create_items()
    create_responses()
    create_ledger()


def create_contents() -> None:
    create(
        "tenants",
        key("id"),
        needed("name", identifier()),
        needed("created_at", moment()),
        primary("id"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    create(
        "configs", *tenant(), key("hash", digest()), needed("config", long_text()), needed("created_at", moment()),
        primary("tenant_id", "hash"),
    )  # fmt: skip
    create(
        "tool_definitions", *tenant(), key("hash", digest()), needed("type", identifier()),
        sa.Column("name", identifier()), needed("definition", long_text()), needed("created_at", moment()),
        primary("tenant_id", "hash"),
    )  # fmt: skip
    create(
        "tool_sets", *tenant(), key("hash", digest()), needed("definitions", long_text()),
        needed("created_at", moment()), primary("tenant_id", "hash"),
    )  # fmt: skip
    create(
        "blobs", *tenant(), key("hash", digest()), needed("content", long_bytes()), needed("created_at", moment()),
        primary("tenant_id", "hash"),
    )  # fmt: skip


def create_conversations() -> None:
    create(
        "conversations",
        *tenant(),
        key("id"),
        needed("public_id", digest(16)),
        sa.Column("external_id", identifier()),
        sa.Column("user_id", identifier()),
        sa.Column("title", long_text()),
        sa.Column("labels", long_text()),
        needed("status", identifier()),
        needed("config_hash", digest()),
        sa.Column("tool_set_hash", digest()),
        needed("active_branch", sa.Integer()),
        needed("next_position"),
        needed("next_response", sa.Integer()),
        needed("next_branch", sa.Integer()),
        needed("head_position"),
        needed("revision", sa.Integer()),
        needed("created_at", moment()),
        needed("last_activity_at", moment()),
        primary("tenant_id", "id"),
        references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
        sa.UniqueConstraint("tenant_id", "public_id"),
        sa.UniqueConstraint("tenant_id", "external_id"),
    )
    activity = ("status", "last_activity_at", "id")
    create_index("ix_conversations_activity", "conversations", "tenant_id", *activity)
    create_index("ix_conversations_user_activity", "conversations", "tenant_id", "user_id", *activity)
    create(
        "conversation_labels", key("tenant_id"), key("conversation_id"), key("key", identifier()),
        needed("value", identifier()), primary("tenant_id", "conversation_id", "key"), of_conversation(),
    )  # fmt: skip
    create_index("ix_conversation_labels_value", "conversation_labels", "tenant_id", "key", "value", "conversation_id")
    create(
        "branches", key("tenant_id"), key("conversation_id"), key("number", sa.Integer()),
        needed("parent", sa.Integer()), needed("fork_position"), needed("head_position"),
        needed("lineage", long_text()), needed("created_at", moment()),
        primary("tenant_id", "conversation_id", "number"), of_conversation(),
    )  # fmt: skip


def create_items() -> None:
    create(
        "items",
        key("tenant_id"),
        key("conversation_id"),
        key("position"),
        needed("branch", sa.Integer()),
        sa.Column("turn", sa.BigInteger()),
        sa.Column("seen", sa.BigInteger()),
        sa.Column("item_id", long_text()),
        sa.Column("item_hash", digest(16)),
        sa.Column("call_id", long_text()),
        sa.Column("call_hash", digest(16)),
        needed("type", identifier()),
        sa.Column("role", identifier()),
        sa.Column("status", identifier()),
        sa.Column("name", identifier()),
        sa.Column("author_id", identifier()),
        sa.Column("origin", identifier()),
        sa.Column("model", identifier()),
        sa.Column("payload", long_text()),
        sa.Column("rest", long_text()),
        needed("codec", sa.SmallInteger()),
        needed("created_at", moment()),
        primary("tenant_id", "conversation_id", "position"),
        of_conversation(),
    )
    create_index("ix_items_call", "items", "tenant_id", "call_hash", where="call_hash IS NOT NULL")
    create_index("ix_items_item", "items", "tenant_id", "item_hash", where="item_hash IS NOT NULL")
    place = {"tenant_id": "tenant_id", "conversation_id": "conversation_id", "position": "position"}
    create(
        "item_blobs", key("tenant_id"), key("conversation_id"), key("position"), key("part", sa.SmallInteger()),
        key("ordinal", sa.SmallInteger()), needed("splice_at"), needed("hash", digest()),
        primary("tenant_id", "conversation_id", "position", "part", "ordinal"),
        references("items", **place), references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
    )  # fmt: skip
    create_index("ix_item_blobs_hash", "item_blobs", "tenant_id", "hash")


def create_responses() -> None:
    create(
        "responses",
        key("tenant_id"),
        key("conversation_id"),
        key("number", sa.Integer()),
        sa.Column("provider_response_id", long_text()),
        needed("branch", sa.Integer()),
        needed("input_to"),
        needed("from_position"),
        needed("to_position"),
        sa.Column("view", long_text()),
        needed("config_hash", digest()),
        sa.Column("tool_set_hash", digest()),
        needed("format", identifier()),
        sa.Column("model", long_text()),
        sa.Column("status", identifier()),
        sa.Column("finish_reason", long_text()),
        sa.Column("incomplete_details", long_text()),
        sa.Column("error", long_text()),
        sa.Column("provider_data", long_text()),
        needed("created_at", moment()),
        sa.Column("completed_at", moment()),
        primary("tenant_id", "conversation_id", "number"),
        of_conversation(),
        references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
    )
    place = {"tenant_id": "tenant_id", "conversation_id": "conversation_id", "number": "number"}
    create(
        "response_bodies", key("tenant_id"), key("conversation_id"), key("number", sa.Integer()),
        needed("codec", sa.SmallInteger()), needed("body", long_bytes()), needed("created_at", moment()),
        primary("tenant_id", "conversation_id", "number"), references("responses", **place),
    )  # fmt: skip
    create(
        "appends", *tenant(), key("conversation_id"), key("key", identifier()), needed("request_hash", digest()),
        needed("outcome", long_text()), needed("created_at", moment()),
        primary("tenant_id", "conversation_id", "key"),
    )  # fmt: skip


def create_ledger() -> None:
    create(
        "usage_records",
        key("tenant_id"),
        key("id"),
        needed("day", sa.Date()),
        needed("occurred_at", moment()),
        sa.Column("user_id", identifier()),
        needed("conversation_id"),
        sa.Column("response", sa.Integer()),
        sa.Column("tool_set_hash", digest()),
        sa.Column("provider", identifier()),
        sa.Column("model", identifier()),
        needed("format", identifier()),
        sa.Column("status", identifier()),
        sa.Column("latency_ms", sa.BigInteger()),
        sa.Column("input_tokens", sa.BigInteger()),
        sa.Column("cached_tokens", sa.BigInteger()),
        sa.Column("cache_write_tokens", sa.BigInteger()),
        sa.Column("output_tokens", sa.BigInteger()),
        sa.Column("reasoning_tokens", sa.BigInteger()),
        sa.Column("total_tokens", sa.BigInteger()),
        sa.Column("cost_nano", sa.BigInteger()),
        sa.Column("usage", long_text()),
        sa.Column("error", long_text()),
        primary("tenant_id", "id"),
    )
    create_index("ix_usage_records_day", "usage_records", "tenant_id", "day", "model", *FIGURES)
    create_index("ix_usage_records_user", "usage_records", "tenant_id", "user_id", "day", *FIGURES)
    create_index("ix_usage_records_conversation", "usage_records", "tenant_id", "conversation_id")


def downgrade() -> None:
    for table in (
        "usage_records", "appends", "response_bodies", "responses", "item_blobs", "items", "branches",
        "conversation_labels", "conversations", "blobs", "tool_sets", "tool_definitions", "configs", "tenants",
    ):  # fmt: skip
        op.drop_table(table)
