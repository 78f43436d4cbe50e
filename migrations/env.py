"""Runs the revisions on the connection that `threadkeep.schema` hands over, or on the URL given by -x."""

from __future__ import annotations

from typing import Any

from alembic import context
from alembic.ddl.sqlite import SQLiteImpl
from sqlalchemy import Connection, Table, create_engine

from threadkeep.db.base import with_index_options
from threadkeep.db.models import METADATA
from threadkeep.db.schema import VERSION_TABLE


class CopyingImpl(SQLiteImpl):
    """Alembic's operations on SQLite, where a table that is copied generates its columns anew."""

    __dialect__ = "sqlite"

    def prep_table_for_batch(self, batch_impl: Any, table: Table) -> None:
        """Leave generated columns out of what is copied."""
        super().prep_table_for_batch(batch_impl, table)
        for column in table.columns:
            if column.computed is not None:
                batch_impl.column_transfers.pop(column.name, None)


TABLES = frozenset(METADATA.tables)


def include_name(name: str | None, kind: str, parents: Any) -> bool:  # noqa: ARG001 - Alembic's hook
    """Autogenerate looks at the tables of threadkeep only: the database may hold others."""
    return name in TABLES if kind == "table" else True


def options(dialect: str) -> dict[str, Any]:
    return {
        "target_metadata": with_index_options(METADATA),
        "version_table": VERSION_TABLE,
        "include_name": include_name,
        "render_as_batch": dialect == "sqlite",
        "transactional_ddl": dialect in {"sqlite", "postgresql"},
    }


def run(connection: Connection) -> None:
    context.configure(connection=connection, **options(connection.dialect.name))
    with context.begin_transaction():
        context.run_migrations()


def main() -> None:
    attributes = context.config.attributes
    if context.is_offline_mode():
        dialect = attributes["dialect"]
        context.configure(dialect_name=dialect, literal_binds=True, as_sql=True, **options(dialect))
        with context.begin_transaction():
            context.run_migrations()
    elif (connection := attributes.get("connection")) is not None:
        run(connection)
    else:
        url = context.get_x_argument(as_dictionary=True).get("url", "sqlite:///threadkeep.db")
        with create_engine(url).begin() as opened:
            run(opened)


main()
