"""Removing options, tool sets and tools that nothing uses any more.

Whoever wants to use them again meanwhile writes them again: the use case is repeated when its reference breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, delete, select, update
from sqlalchemy.exc import IntegrityError

from threadkeep.db import tables
from threadkeep.db.dialects import is_mysql, sees_commits
from threadkeep.db.queries.items import latest_of
from threadkeep.db.queries.references import is_referred_to
from threadkeep.domain.jsontext import loads
from threadkeep.store.config_cache import unmark_definitions
from threadkeep.store.connections import savepoint
from threadkeep.store.pacing import Change, Done, Find, Pace


def _find_unused(
    connection: Connection, tenant: int, after: bytes, limit: int, table: Table, reference: str
) -> Sequence[bytes]:
    """Return hashes that no row refers to, in order, behind one."""
    is_used = is_referred_to(table.c.hash, tables.conversations.c[reference], tables.responses.c[reference])
    statement = select(table.c.hash).where(table.c.tenant_id == tenant, table.c.hash > after, ~is_used)
    return connection.execute(statement.order_by(table.c.hash).limit(limit)).scalars().all()


def _remove(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes], table: Table) -> Done:
    """Remove one after another: if somebody uses it again, the others are removed."""

    def remove(some: Sequence[bytes]) -> int:
        statement = delete(table).where(table.c.tenant_id == tenant, table.c.hash.in_(some))
        try:
            with savepoint(connection):
                return connection.execute(statement).rowcount
        except IntegrityError:  # it is used again
            return 0

    return pace.change(keys, remove, size=1)


# Options and tool sets: what finds rows, and what removes them
STEPS: Final[tuple[tuple[Find, Change], ...]] = tuple(
    (partial(_find_unused, table=table, reference=reference), partial(_remove, table=table))
    for table, reference in ((tables.configs, "config_hash"), (tables.tool_sets, "tool_set_hash"))
)


# Tools, when no set names them any more
#
# A set names its tools in JSON, which no index finds, so all sets are read to know what is unused. Nothing is locked
# for that: tools that seem to be unused are marked first (`unused_at`), and whoever stores one again takes its mark
# away. What still has the same mark after all sets were read again is named by none. Another mark may be of a removal
# that read the sets before a new one named the tool.


def way_to_read(connection: Connection, tenant: int) -> bool | None:
    """Return whether sets have to be read with locks, to see what is committed (MySQL); None if nothing sees that.

    For the caller's transaction, which may see the past; reads of this library see it anyway.
    """
    del tenant
    if sees_commits(connection):
        return False
    return True if is_mysql(connection.dialect) else None


def find_definitions(connection: Connection, tenant: int, after: bytes, limit: int) -> Sequence[bytes]:
    """Return the hashes of tools, in order, behind one."""
    table = tables.tool_definitions.c
    statement = select(table.hash).where(table.tenant_id == tenant, table.hash > after)
    return list(map(bytes, connection.execute(statement.order_by(table.hash).limit(limit)).scalars()))


def find_sets(
    connection: Connection, tenant: int, after: bytes, limit: int, *, is_locking: bool
) -> Sequence[tuple[bytes, set[bytes]]]:
    """Return the hashes of tool sets, in order, behind one, each with those of its tools."""
    table = tables.tool_sets.c
    statement = select(table.hash, table.definitions).where(table.tenant_id == tenant, table.hash > after)
    statement = statement.order_by(table.hash).limit(limit)
    rows = connection.execute(latest_of(statement, connection.dialect.name) if is_locking else statement)
    return [(bytes(row.hash), set(map(bytes.fromhex, loads(row.definitions)))) for row in rows]


def mark_definitions(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes], mark: datetime) -> Done:
    """Mark tools, when everybody who has stored one of them has committed.

    On PostgreSQL, only the lock makes those who store one see its mark, or wait for it.
    """

    def change(some: Sequence[bytes]) -> int:
        table, which = tables.tool_definitions.c, _these(tenant, some)
        connection.execute(select(table.hash).where(*which).order_by(table.hash).with_for_update()).all()
        return connection.execute(update(tables.tool_definitions).where(*which).values(unused_at=mark)).rowcount

    return pace.change(keys, change)


def keep_definitions(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes]) -> Done:
    """Take away the marks of tools that a set names all the same."""

    def unmark(some: Sequence[bytes]) -> int:
        unmark_definitions(connection, tenant, some)
        return len(some)

    return pace.change(keys, unmark)


def remove_definitions(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes], mark: datetime) -> Done:
    """Remove those of some tools that still have this mark."""

    def remove(some: Sequence[bytes]) -> int:
        which = [*_these(tenant, some), tables.tool_definitions.c.unused_at == mark]
        return connection.execute(delete(tables.tool_definitions).where(*which)).rowcount

    return pace.change(keys, remove)


def _these(tenant: int, hashes: Sequence[bytes]) -> list[ColumnElement[bool]]:
    table = tables.tool_definitions.c
    return [table.tenant_id == tenant, table.hash.in_(hashes)]
