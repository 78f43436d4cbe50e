"""PostgreSQL's statistics of our tables, for what multiplies the rows before autovacuum has looked at them.

The other databases need none: MariaDB and MySQL count rows while they are written, and SQLite's plans are the same with
and without.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from threadkeep.db.tables import METADATA

# Tables that have twice as many pages as when their rows were counted last, and more than so many. Those of a table
# with partitions are the pages of these: nobody else counts the rows of it all.
_PAGES: Final = 16
_GROWN: Final = text(
    "SELECT named.table::text FROM unnest(CAST(:names AS text[])) AS name "
    "CROSS JOIN LATERAL (SELECT to_regclass(name) AS table) named LEFT JOIN pg_inherits ON inhparent = named.table "
    "JOIN pg_class ON oid = coalesce(inhrelid, named.table) GROUP BY named.table "
    "HAVING sum(pg_relation_size(oid)) > 2 * current_setting('block_size')::bigint * greatest(sum(relpages), :pages)"
)


def analyze_grown(connection: Connection) -> list[str]:
    """Let PostgreSQL count the rows of our tables that have grown much since it did; return their names.

    Waits for nobody: a table that is being analyzed, or changed, is left out. So are tables that the user does not own.
    """
    if connection.dialect.name != "postgresql":
        return []
    grown = connection.execute(_GROWN, {"names": list(METADATA.tables), "pages": _PAGES}).scalars().all()
    if grown:
        connection.exec_driver_sql(f"ANALYZE (SKIP_LOCKED) {', '.join(grown)}")
    return list(grown)
