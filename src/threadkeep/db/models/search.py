"""What is searched: bounded text of items and titles, with an index that each database has its own kind of.

On SQLite the index is a table of its own (`search_index`, FTS5), whose rowid is a document's id.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Index, Text, UniqueConstraint, text
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db.base import Base, BigNumber, Count, Key, LongText, Moment, Name, Tenant, to_conversation
from threadkeep.db.types import MYSQL

# The words of a text as the database's index takes them: folded already, so that MySQL compares them byte for byte.
Words: Final = (
    Text()
    .with_variant(TSVECTOR(), "postgresql")
    .with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)
)


class SearchDocumentRow(Base):
    """The text of an item, or a conversation's title at position -1."""

    __tablename__ = "search_documents"
    __table_args__ = (
        to_conversation(),
        UniqueConstraint("tenant_id", "conversation_id", "position", name="position"),
        # GIN or FULLTEXT; SQLite has a table of its own instead, and this index is empty there
        Index(
            "words",
            "words",
            postgresql_using="gin",
            mysql_prefix="FULLTEXT",
            mariadb_prefix="FULLTEXT",
            sqlite_where=text("0"),
        ),
    )

    tenant_id: Mapped[Tenant]
    id: Mapped[Key]
    conversation_id: Mapped[BigNumber]
    position: Mapped[BigNumber]
    branch: Mapped[Count]
    type: Mapped[Name]
    role: Mapped[Name | None]
    created_at: Mapped[Moment]  # of the item
    text: Mapped[LongText]
    words: Mapped[str | None] = mapped_column(Words)  # SQLite: only where they are not those of the text
