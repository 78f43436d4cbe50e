"""Responses in progress: what a stream has brought so far, who records it, and until when.

Revises: v0_1_0_a
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql, postgresql

revision = "v0_1_0_b"
down_revision = "v0_1_0_a"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
OPEN_BRANCH = "uq_responses_open_branch"


def long_text() -> sa.types.TypeEngine[Any]:
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)


def token() -> sa.types.TypeEngine[Any]:
    return sa.LargeBinary(16).with_variant(mysql.BINARY(16), *MYSQL).with_variant(postgresql.BYTEA(), "postgresql")


def moment() -> sa.types.TypeEngine[Any]:
    return (
        sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *MYSQL).with_variant(sa.DateTime(timezone=True), "postgresql")
    )


def key(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.BigInteger) -> sa.Column[Any]:
    return sa.Column(name, kind(), nullable=False, autoincrement=False)


COLUMNS = (
    ("conversations", "streams", sa.Integer()),
    ("responses", "lease_until", moment()),
    ("responses", "lease_token", token()),
    ("responses", "open_branch", sa.Integer()),
)


def columns_of(table: str) -> set[str]:
    """The columns that are there: an earlier run that crashed may have added some (MySQL commits every statement)."""
    if context.is_offline_mode():
        return set()
    return {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}


def upgrade() -> None:
    for table, name, kind in COLUMNS:
        if name not in columns_of(table):
            op.add_column(table, sa.Column(name, kind, nullable=True))
    create_index()
    op.create_table(
        "stream_parts",
        key("tenant_id"),
        key("conversation_id"),
        key("number", sa.Integer),
        key("part", sa.Integer),
        sa.Column("content", long_text(), nullable=False),
        sa.Column("created_at", moment(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "number", "part"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id", "number"],
            ["responses.tenant_id", "responses.conversation_id", "responses.number"],
            ondelete="CASCADE",
        ),
        if_not_exists=True, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin",
    )  # fmt: skip


def create_index() -> None:
    if not context.is_offline_mode():
        found = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("responses")}
        if OPEN_BRANCH in found:
            return
    op.create_index(OPEN_BRANCH, "responses", ["tenant_id", "conversation_id", "open_branch"], unique=True)


def downgrade() -> None:
    """What has come of responses in progress is lost; their rows stay, without items."""
    op.drop_table("stream_parts")
    op.drop_index(OPEN_BRANCH, "responses")
    for table, name, _ in reversed(COLUMNS):
        op.drop_column(table, name)
