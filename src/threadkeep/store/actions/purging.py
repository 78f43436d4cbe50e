"""Removing the rows of deleted conversations, in bounded batches."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select

from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.tables import (
    appends,
    blobs,
    branches,
    context_caches,
    conversation_labels,
    conversations,
    item_blobs,
    items,
    response_bodies,
    responses,
    stream_parts,
)
from threadkeep.store.actions.searching import forget_batch
from threadkeep.store.actions.streams import Endings, account_unfinished

BATCH: Final = 1_000  # rows in one transaction

# Children first: (table, the column that orders its rows, how many of its rows are one batch)
_NUMBERED: Final = (
    (item_blobs, "position", BATCH),
    (items, "position", BATCH),
    (stream_parts, "part", BATCH),
    (response_bodies, "number", BATCH),
    (responses, "number", BATCH),
)
_WHOLE: Final = (branches, conversation_labels, context_caches, appends)


def deleted_keys(connection: Connection, tenant: int, limit: int) -> list[int]:
    """The keys of deleted conversations that still have rows."""
    statement = (
        select(conversations.c.id)
        .where(conversations.c.tenant_id == tenant, conversations.c.status == DELETED)
        .order_by(conversations.c.last_activity_at, conversations.c.id)
        .limit(limit)
    )
    return list(connection.execute(statement).scalars())


def purge_batch(connection: Connection, tenant: int, key: int, endings: Endings) -> bool:
    """Remove a batch of a deleted conversation's rows; False when nothing is left of it.

    Its responses in progress get their ledger rows, of what `endings` makes of them.
    """
    if connection.execute(_still_deleted(tenant, key)).one_or_none() is None:
        return False
    account_unfinished(connection, tenant, key, endings)
    forgotten = forget_batch(connection, tenant, key, BATCH)
    for table, order, size in _NUMBERED:
        if _remove_lowest(connection, table, order, size, tenant, key):
            return True
    if forgotten == BATCH:  # there may be more of them
        return True
    for table in _WHOLE:
        connection.execute(delete(table).where(*_of(table, tenant, key)))
    connection.execute(delete(conversations).where(conversations.c.tenant_id == tenant, conversations.c.id == key))
    return True


def collect_blobs(connection: Connection, tenant: int) -> int:
    """Remove media that no item points at any more; returns how many."""
    unused = (
        select(blobs.c.hash)
        .where(
            blobs.c.tenant_id == tenant,
            ~select(item_blobs.c.hash)
            .where(item_blobs.c.tenant_id == blobs.c.tenant_id, item_blobs.c.hash == blobs.c.hash)
            .exists(),
        )
        .limit(BATCH)
    )
    hashes = list(connection.execute(unused).scalars())
    if hashes:
        connection.execute(delete(blobs).where(blobs.c.tenant_id == tenant, blobs.c.hash.in_(hashes)))
    return len(hashes)


def _still_deleted(tenant: int, key: int) -> Any:
    return select(conversations.c.id).where(
        conversations.c.tenant_id == tenant, conversations.c.id == key, conversations.c.status == DELETED
    )


def _remove_lowest(connection: Connection, table: Table, order: str, size: int, tenant: int, key: int) -> int:
    """Remove rows from the lowest number on; a range, because DELETE … LIMIT is not for every database."""
    lowest = connection.execute(select(func.min(table.c[order])).where(*_of(table, tenant, key))).scalar()
    if lowest is None:
        return 0
    where = [*_of(table, tenant, key), table.c[order] < lowest + size]
    return connection.execute(delete(table).where(*where)).rowcount


def _of(table: Table, tenant: int, key: int) -> list[ColumnElement[bool]]:
    return [table.c.tenant_id == tenant, table.c.conversation_id == key]
