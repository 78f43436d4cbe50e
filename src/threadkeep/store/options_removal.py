"""Removing options, tool sets and tools that nothing uses any more.

Who wants to use them again meanwhile writes them again: the use case is repeated when its reference breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, delete, select, union
from sqlalchemy.exc import IntegrityError

from threadkeep.db import tables
from threadkeep.domain.jsontext import loads
from threadkeep.store.pacing import Change, Done, Find, Pace


def _find_unused(connection: Connection, tenant: int, limit: int, table: Table, reference: str) -> Sequence[bytes]:
    """Return hashes that no row refers to; the rows that refer to any are read once, for they have no index of them."""
    users = union(
        *(
            select(user.c[reference]).where(user.c.tenant_id == tenant, user.c[reference].is_not(None))
            for user in (tables.conversations, tables.responses)
        )
    )
    statement = select(table.c.hash).where(table.c.tenant_id == tenant, table.c.hash.not_in(users)).limit(limit)
    return connection.execute(statement).scalars().all()


def _remove(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes], table: Table) -> Done:
    """Remove one after another, for each may need a look at all rows that could refer to it."""

    def remove(some: Sequence[bytes]) -> int:
        statement = delete(table).where(table.c.tenant_id == tenant, table.c.hash.in_(some))
        try:
            with connection.begin_nested():
                return connection.execute(statement).rowcount
        except IntegrityError:  # it is used again
            return 0

    return pace.change(keys, remove, size=1)


def _find_definitions(connection: Connection, tenant: int, limit: int) -> Sequence[bytes]:
    """Return the hashes of tools in no tool set."""
    table = tables.tool_definitions.c
    hashes = _hashes(connection, select(table.hash).where(table.tenant_id == tenant))
    return sorted(hashes - _named_definitions(connection, tenant))[:limit]


def _remove_definitions(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes]) -> Done:
    """Remove tools. They are locked before the sets are read again, because one may be written concurrently."""
    table = tables.tool_definitions.c
    some = keys[: pace.rows]
    locked = select(table.hash).where(table.tenant_id == tenant, table.hash.in_(some)).order_by(table.hash)
    unused = _hashes(connection, locked.with_for_update()) - _named_definitions(connection, tenant)
    if unused:
        connection.execute(delete(tables.tool_definitions).where(table.tenant_id == tenant, table.hash.in_(unused)))
    pace.note(len(some))
    return Done(len(some), len(unused))


def _hashes(connection: Connection, statement: Select[Any]) -> set[bytes]:
    return {bytes(hash_) for hash_ in connection.execute(statement).scalars()}


def _named_definitions(connection: Connection, tenant: int) -> set[bytes]:
    table = tables.tool_sets.c
    texts = connection.execute(select(table.definitions).where(table.tenant_id == tenant)).scalars()
    return {bytes.fromhex(name) for text in texts for name in loads(text)}


# What finds rows, and what removes them, in this order: tools can go when no set names them
STEPS: Final[tuple[tuple[Find, Change], ...]] = (
    *(
        (partial(_find_unused, table=table, reference=reference), partial(_remove, table=table))
        for table, reference in ((tables.configs, "config_hash"), (tables.tool_sets, "tool_set_hash"))
    ),
    (_find_definitions, _remove_definitions),
)
