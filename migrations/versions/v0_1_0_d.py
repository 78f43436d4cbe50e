"""The search: documents with an index of each database's own kind, and how far it has seen each conversation.

What was stored before is not looked at here: it has not been seen, and `threadkeep reindex` or the next questions
see it.

Revises: v0_1_0_c
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql, postgresql

revision = "v0_1_0_d"
down_revision = "v0_1_0_c"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
SEARCH = "ix_conversations_search"
WORDS = "ix_search_documents_words"
# It keeps no text: that stands in the documents.
FTS5 = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS search_index "
    "USING fts5(words, content='', tokenize='unicode61 remove_diacritics 2')"
)


def identifier() -> sa.types.TypeEngine[Any]:
    return sa.String(255).with_variant(mysql.VARBINARY(255), *MYSQL)


def long_text() -> sa.types.TypeEngine[Any]:
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)


def moment() -> sa.types.TypeEngine[Any]:
    return (
        sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *MYSQL).with_variant(sa.DateTime(timezone=True), "postgresql")
    )


def number(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.BigInteger) -> sa.Column[Any]:
    return sa.Column(name, kind(), nullable=False, autoincrement=False)


def found(kind: str, table: str) -> set[str]:
    """Columns or indexes that are there: a run that crashed may have made some (MySQL commits every statement)."""
    if context.is_offline_mode():
        return set()
    return {one["name"] for one in getattr(sa.inspect(op.get_bind()), f"get_{kind}")(table)}


def has_fts5() -> bool:
    if context.is_offline_mode():
        return True
    modules = sa.text("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
    return op.get_bind().execute(modules).first() is not None


def upgrade() -> None:
    if "search_from" not in found("columns", "conversations"):
        # the default stands for the rows that are there; it costs no copy of the table
        op.add_column("conversations", sa.Column("search_from", sa.BigInteger(), nullable=True, server_default="0"))
    if SEARCH not in found("indexes", "conversations"):
        is_unseen = sa.text("search_from IS NOT NULL")
        op.create_index(
            SEARCH, "conversations", ["tenant_id", "search_from", "id"],
            postgresql_where=is_unseen, sqlite_where=is_unseen,
        )  # fmt: skip
    op.create_table(
        "search_documents",
        number("tenant_id"),
        number("id"),
        number("conversation_id"),
        number("position"),
        number("branch", sa.Integer),
        sa.Column("type", identifier(), nullable=False),
        sa.Column("role", identifier()),
        sa.Column("created_at", moment(), nullable=False),
        sa.Column("text", long_text(), nullable=False),
        sa.Column("words", long_text().with_variant(postgresql.TSVECTOR(), "postgresql")),
        sa.PrimaryKeyConstraint("tenant_id", "id"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"], ondelete="CASCADE"
        ),
        sa.UniqueConstraint("tenant_id", "conversation_id", "position"),
        if_not_exists=True, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin",
    )  # fmt: skip
    if WORDS not in found("indexes", "search_documents"):
        op.create_index(
            WORDS, "search_documents", ["words"],
            postgresql_using="gin", mysql_prefix="FULLTEXT", mariadb_prefix="FULLTEXT", sqlite_where=sa.text("0"),
        )  # fmt: skip
    if context.get_context().dialect.name == "sqlite" and has_fts5():
        op.execute(FTS5)


def downgrade() -> None:
    if context.get_context().dialect.name == "sqlite":
        op.execute("DROP TABLE IF EXISTS search_index")
    op.drop_table("search_documents")
    op.drop_index(SEARCH, "conversations")
    op.drop_column("conversations", "search_from")
