"""Removing options, tool sets and tools that nothing uses any more.

Whoever wants to use them again meanwhile writes them again: the use case is repeated when its reference breaks. Rows
that another transaction has locked are left for a later removal: it uses them, and may go on for long, in which others
would wait for the rows that are locked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import ColumnElement, Connection, Delete, Table, Update, bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError

from threadkeep.db import tables
from threadkeep.db.dialects import is_mysql, sees_commits
from threadkeep.db.queries.items import latest_of
from threadkeep.db.queries.references import is_referred_to
from threadkeep.domain.jsontext import loads
from threadkeep.store.connections import savepoint
from threadkeep.store.pacing import Change, Done, Find, Pace

_TOOLS: Final = tables.tool_definitions


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
        which = _these(table, tenant, some)
        try:
            with savepoint(connection):
                free = _lock_free(connection, table, which)
                return connection.execute(delete(table).where(*which)).rowcount if free else 0
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
    """Mark tools that nobody is storing at the moment.

    On PostgreSQL, only the lock makes those who store one see its mark, or wait for it.
    """
    statement = update(_TOOLS).values(unused_at=mark)
    return pace.change(keys, lambda some: _change_free(connection, statement, _these(_TOOLS, tenant, some)))


def keep_definitions(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes]) -> Done:
    """Take away the marks of tools that a set names all the same."""
    statement = update(_TOOLS).values(unused_at=None)
    return pace.change(keys, lambda some: _change_free(connection, statement, _these(_TOOLS, tenant, some)))


def remove_definitions(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes], mark: datetime) -> Done:
    """Remove those of some tools that still have this mark."""
    statement = delete(_TOOLS).where(_TOOLS.c.unused_at == mark)

    def remove(some: Sequence[bytes]) -> int:
        return _change_free(connection, statement, [*_these(_TOOLS, tenant, some), _TOOLS.c.unused_at == mark])

    return pace.change(keys, remove)


def _these(table: Table, tenant: int, hashes: Sequence[bytes]) -> list[ColumnElement[bool]]:
    return [table.c.tenant_id == tenant, table.c.hash.in_(hashes)]


def _lock_free(connection: Connection, table: Table, which: Sequence[ColumnElement[bool]]) -> Sequence[bytes]:
    """Lock those of some rows that no other transaction has locked; return their hashes."""
    statement = select(table.c.hash).where(*which).order_by(table.c.hash).with_for_update(skip_locked=True)
    return connection.execute(statement).scalars().all()


def _change_free(connection: Connection, statement: Update | Delete, which: Sequence[ColumnElement[bool]]) -> int:
    """Change those of some tools that no other transaction has locked; return how many.

    Each by its key: to find many, MariaDB would read others beside them, and wait for those.
    """
    hashes = _lock_free(connection, _TOOLS, which)
    if hashes:
        by_key = statement.where(which[0], _TOOLS.c.hash == bindparam("of_tool"))
        connection.execute(by_key, [{"of_tool": hash_} for hash_ in hashes])
    return len(hashes)
