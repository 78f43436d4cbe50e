"""An application that shares its database with threadkeep, and what the database says of all objects in it."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, ForeignKey, Index, String, inspect, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Host(DeclarativeBase):
    """The tables of the application; all but one have the name of a table or view of threadkeep without its prefix."""


class Tenant(Host):
    __tablename__ = "tenants"

    id: Mapped[int] = mapped_column(primary_key=True)


class User(Host):
    __tablename__ = "users"

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))


class Conversation(Host):
    __tablename__ = "conversations"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    thread: Mapped[str] = mapped_column(String(64), unique=True)  # the id that threadkeep has for it


class Item(Host):
    __tablename__ = "items"
    __table_args__ = (Index("items_call_idx", "conversation_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    conversation_id: Mapped[int] = mapped_column(ForeignKey("conversations.id"))
    name: Mapped[str] = mapped_column(String(64))


class ToolCall(Host):
    __tablename__ = "tool_calls"

    id: Mapped[int] = mapped_column(primary_key=True)
    item_id: Mapped[int] = mapped_column(ForeignKey("items.id"))


VIEWS = {
    "usage_by_day": "SELECT user_id, count(*) AS number FROM conversations GROUP BY user_id",
    "open_items": "SELECT id, name FROM items",
}


def install(engine: Engine) -> None:
    """Create the application's tables, views and a first tenant."""
    Host.metadata.create_all(engine)
    with engine.begin() as connection:
        for name, query in VIEWS.items():
            connection.execute(text(f"CREATE VIEW {name} AS {query}"))
        connection.execute(text("INSERT INTO tenants VALUES (1)"))


SQLITE = "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_master"
POSTGRESQL = """
    WITH here AS (SELECT oid FROM pg_namespace WHERE nspname = current_schema()),
    relations AS (SELECT c.* FROM pg_class c JOIN here ON here.oid = relnamespace)
    SELECT concat(relname, ' ', relkind), coalesce(CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(oid) END, '')
    FROM relations
    UNION ALL SELECT relname || '.' || attname, format_type(atttypid, atttypmod) || ' ' || attnotnull::text
    FROM pg_attribute JOIN relations ON relations.oid = attrelid
    UNION ALL SELECT relname || ' index', pg_get_indexdef(indexrelid) FROM pg_index JOIN relations ON oid = indexrelid
    UNION ALL SELECT conname || ' constraint', pg_get_constraintdef(c.oid)
    FROM pg_constraint c JOIN relations ON relations.oid = conrelid
    UNION ALL SELECT typname || ' type', typtype::text FROM pg_type JOIN here ON here.oid = typnamespace
    UNION ALL SELECT concat(proname, ' ', prokind), CASE prokind WHEN 'f' THEN pg_get_functiondef(p.oid) ELSE '' END
    FROM pg_proc p JOIN here ON here.oid = pronamespace
"""


def definitions(engine: Engine) -> dict[str, str]:
    """What the database says of every object in it, by kind and name."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            return {row[0]: row[1] for row in connection.exec_driver_sql(SQLITE)}
        if engine.dialect.name == "postgresql":
            return {row[0]: row[1] for row in connection.exec_driver_sql(POSTGRESQL)}
        return dict(created(connection, name) for name in names_of(connection))


def names_of(connection: Connection) -> list[str]:
    """The tables, views and sequences of a MariaDB database."""
    statement = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    return list(connection.exec_driver_sql(statement).scalars())


def created(connection: Connection, name: str) -> tuple[str, str]:
    """A table or view of MariaDB as it would be created."""
    row = connection.exec_driver_sql(f"SHOW CREATE TABLE `{name}`").one()
    return name, str(row[1]).replace(f"`{connection.engine.url.database}`.", "")


def tables(engine: Engine) -> set[str]:
    """The names of all tables and views."""
    inspector = inspect(engine)
    return {*inspector.get_table_names(), *inspector.get_view_names()}
