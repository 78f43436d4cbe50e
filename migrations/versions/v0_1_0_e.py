"""Explicit context caches: names, expiry, and who is making one.

Revises: v0_1_0_d
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql, postgresql

revision = "v0_1_0_e"
down_revision = "v0_1_0_d"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
BY_CONVERSATION = "ix_context_caches_conversation_id"


def identifier() -> sa.types.TypeEngine[Any]:
    return sa.String(255).with_variant(mysql.VARBINARY(255), *MYSQL)


def long_text() -> sa.types.TypeEngine[Any]:
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)


def digest(length: int) -> sa.types.TypeEngine[Any]:
    return (
        sa.LargeBinary(length).with_variant(mysql.BINARY(length), *MYSQL).with_variant(postgresql.BYTEA(), "postgresql")
    )


def moment() -> sa.types.TypeEngine[Any]:
    return (
        sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *MYSQL).with_variant(sa.DateTime(timezone=True), "postgresql")
    )


def indexes() -> set[str | None]:
    """Those that are there: an earlier run that crashed may have made some (MySQL commits every statement)."""
    if context.is_offline_mode():
        return set()
    return {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("context_caches")}


def upgrade() -> None:
    op.create_table(
        "context_caches",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("account", identifier(), nullable=False),
        sa.Column("model", identifier(), nullable=False),
        sa.Column("hash", digest(32), nullable=False),
        sa.Column("conversation_id", sa.BigInteger(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Integer(), nullable=False),
        sa.Column("token", digest(16), nullable=False),
        sa.Column("claim_until", moment(), nullable=True),
        sa.Column("name", long_text(), nullable=True),
        sa.Column("expires_at", moment(), nullable=True),
        sa.Column("is_shared", sa.SmallInteger(), nullable=False),
        sa.Column("created_at", moment(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "account", "model", "hash"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"], ondelete="CASCADE"
        ),
        if_not_exists=True, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin",
    )  # fmt: skip
    if BY_CONVERSATION not in indexes():
        op.create_index(BY_CONVERSATION, "context_caches", ["tenant_id", "conversation_id"])


def downgrade() -> None:
    op.drop_table("context_caches")
