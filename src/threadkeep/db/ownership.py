"""Which objects of a database are threadkeep's: those of its names, where the table of its version exists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection, text

from threadkeep.db.base import PREFIX
from threadkeep.db.models import Base
from threadkeep.db.queries.search import INDEX
from threadkeep.errors import SchemaError

VERSION_TABLE: Final = f"{PREFIX}version"
# Views for people who write SQL
VIEWS: Final = tuple(f"{PREFIX}{name}" for name in ("usage_by_day", "usage_attempts", "messages_text", "tool_calls"))
# SQLite's full-text index, and the tables that FTS5 keeps for it
_SEARCH_TABLES: Final = (INDEX, *(f"{INDEX}_{name}" for name in ("config", "data", "docsize", "idx")))
# Everything of threadkeep's that a database may list as a table or view: for the `include_name` of a host's Alembic
TABLES: Final = frozenset({*Base.metadata.tables, VERSION_TABLE, *_SEARCH_TABLES, *VIEWS})
_FUNCTIONS: Final = (f"{PREFIX}parts", f"{PREFIX}sum")  # PostgreSQL

# What shares a namespace with our objects: kind and name
_SQLITE_OBJECTS: Final = "SELECT type, name FROM sqlite_master"
_MYSQL_OBJECTS: Final = """
    SELECT CASE table_type WHEN 'BASE TABLE' THEN 'table' ELSE lower(table_type) END, table_name
    FROM information_schema.tables WHERE table_schema = DATABASE()
    UNION ALL SELECT 'foreign key', constraint_name FROM information_schema.table_constraints
    WHERE constraint_schema = DATABASE() AND constraint_type = 'FOREIGN KEY'
"""
_POSTGRESQL_OBJECTS: Final = """
    WITH here AS (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
    SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'i' THEN 'index'
        WHEN 'I' THEN 'index' WHEN 'S' THEN 'sequence' WHEN 'c' THEN 'type' ELSE 'table' END, relname
    FROM pg_class JOIN here ON here.oid = relnamespace
    UNION ALL SELECT 'type', typname FROM pg_type JOIN here ON here.oid = typnamespace WHERE typrelid = 0
    UNION ALL SELECT 'function', proname FROM pg_proc JOIN here ON here.oid = pronamespace
"""


def check_names(connection: Connection) -> None:
    """Make sure that no object of another application has a name that threadkeep needs.

    Raises:
        SchemaError: some have, and the table of threadkeep's version does not exist; the message names all of them.
    """
    dialect = connection.dialect.name
    servers = {"sqlite": _SQLITE_OBJECTS, "postgresql": _POSTGRESQL_OBJECTS}
    rows = connection.execute(text(servers.get(dialect, _MYSQL_OBJECTS))).all()
    needed = {*TABLES, *_FUNCTIONS, *_names_beside_tables()}
    # SQLite, and MySQL on some systems, compare names without their case
    objects = [(kind, name) for kind, name in rows if (name if dialect == "postgresql" else name.lower()) in needed]
    if objects and ("table", VERSION_TABLE) not in objects:
        raise SchemaError(
            "The database has objects of another application under names that threadkeep needs: "
            f"{', '.join(f'{kind} {name}' for kind, name in sorted(objects))}.",
            hint="Rename them, or give threadkeep a database of its own, or on PostgreSQL a schema of its own "
            "(docs/production.md).",
        )


def _names_beside_tables() -> Iterator[str]:
    """Indexes and constraints, which have names of the same kind as tables on some databases."""
    yield f"{VERSION_TABLE}_pkc"
    for table in Base.metadata.tables.values():
        yield from (str(index.name) for index in table.indexes)
        yield from (str(constraint.name) for constraint in table.constraints)
