"""Batches that remove the names and texts of a user outside of the user's conversations; see `retention.erase_user`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, delete, or_, select, update

from threadkeep.db import tables
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.store.purging import BATCH_SIZE, Place, by_conversation, find_places, of_conversation
from threadkeep.store.refs import TENANT_WIDE


def clear_ledger(connection: Connection, tenant: int, user: str, keys: Sequence[int], limit: int) -> int:
    """Clear provider data of a batch of attempts from before these conversations were the user's; return how many."""
    table = tables.usage_records.c
    conditions = [
        table.conversation_id.in_(keys),
        or_(table.user_id.is_(None), table.user_id != user),
        or_(table.usage.is_not(None), table.error.is_not(None)),
    ]
    return _update_ledger(connection, tenant, conditions, limit, usage=None, error=None)


def anonymize_ledger(connection: Connection, tenant: int, user: str, limit: int) -> int:
    """Remove a user and provider data from a batch of the ledger, except figures; return how many rows changed."""
    is_of_user = tables.usage_records.c.user_id == user
    return _update_ledger(connection, tenant, [is_of_user], limit, user_id=None, usage=None, error=None)


def _update_ledger(
    connection: Connection, tenant: int, conditions: Sequence[ColumnElement[bool]], limit: int, **values: None
) -> int:
    table = tables.usage_records.c
    statement = select(table.id).where(table.tenant_id == tenant, *conditions).limit(limit)
    keys = list(connection.execute(statement).scalars())
    if keys:
        which = [table.tenant_id == tenant, table.id.in_(keys)]
        connection.execute(update(tables.usage_records).where(*which).values(**values))
    return len(keys)


def find_items(connection: Connection, tenant: int, after: Place, limit: int, user: str) -> list[Place]:
    """Return where items of a user are in the conversations of others, behind a place."""
    return find_places(connection, tables.items.c.position, tenant, after, limit, tables.items.c.author_id == user)


def anonymize_items(connection: Connection, tenant: int, places: Sequence[Place], user: str) -> int:
    """Remove a user from items; return how many."""
    count = 0
    for conditions in by_conversation(tenant, tables.items.c.position, places):
        is_of_user = tables.items.c.author_id == user
        count += connection.execute(update(tables.items).where(*conditions, is_of_user).values(author_id=None)).rowcount
    return count


def anonymize_approvals(connection: Connection, tenant: int, user: str, limit: int) -> int:
    """Remove a user from a batch of decisions about calls in the conversations of others; return how many."""
    return _anonymize(connection, tenant, tables.approvals.c.decided_by, user, limit)


def _anonymize(connection: Connection, tenant: int, column: Column[Any], user: str, limit: int) -> int:
    """Clear a column that names a user, in a batch of rows that belong to items; return how many."""
    table = column.table.c
    statement = (
        select(table.conversation_id, table.position).where(table.tenant_id == tenant, column == user).limit(limit)
    )
    rows = [(row.conversation_id, row.position) for row in connection.execute(statement)]
    for conditions in by_conversation(tenant, table.position, rows):
        connection.execute(update(column.table).where(*conditions).values({column.name: None}))
    return len(rows)


def delete_reads(connection: Connection, tenant: int, user: str, limit: int) -> int:
    """Remove a batch of the marks of how far a user has read; return how many."""
    table = tables.conversation_reads.c
    is_of_user = [table.tenant_id == tenant, table.user_id == user]
    statement = select(table.conversation_id).where(*is_of_user).limit(limit)
    keys = list(connection.execute(statement).scalars())
    if keys:
        connection.execute(delete(tables.conversation_reads).where(*is_of_user, table.conversation_id.in_(keys)))
    return len(keys)


def delete_feedback(connection: Connection, tenant: int, user: str, limit: int) -> int:
    """Remove a batch of the feedback of a user in the conversations of others; return how many."""
    table = tables.item_feedback.c
    is_of_user = [table.tenant_id == tenant, table.user_id == user]
    statement = select(table.conversation_id, table.position).where(*is_of_user).limit(limit)
    rows = [(row.conversation_id, row.position) for row in connection.execute(statement)]
    for conditions in by_conversation(tenant, table.position, rows):
        connection.execute(delete(tables.item_feedback).where(*conditions, *is_of_user))
    return len(rows)


def collect_keys(connection: Connection, tenant: int, after: str) -> str | None:
    """Remove idempotency keys of the tenant under which conversations were created or deleted that are gone.

    Looks at a batch of keys, those after `after`; returns where to go on (None: nowhere).
    """
    table = tables.appends.c
    conditions = of_conversation(tables.appends, tenant, TENANT_WIDE)
    statement = (
        select(table.key, table.outcome).where(*conditions, table.key > after).order_by(table.key).limit(BATCH_SIZE)
    )
    rows = connection.execute(statement).all()
    outcomes = [(row.key, loads_stored(row.outcome, "appends", f"key {row.key!r}")) for row in rows]
    unused = [key for key, outcome in outcomes if not _names_conversation(connection, tenant, outcome)]
    if unused:
        connection.execute(delete(tables.appends).where(*conditions, table.key.in_(unused)))
    last: str | None = rows[-1].key if len(rows) == BATCH_SIZE else None
    return last


def _names_conversation(connection: Connection, tenant: int, outcome: JsonObject) -> bool:
    """Return whether the conversation of an outcome still exists."""
    texts = [outcome["public_id"]] if "public_id" in outcome else outcome.get("ids", ())
    public_ids = [bytes.fromhex(text.rpartition("_")[2]) for text in texts]
    table = tables.conversations.c
    is_named = table.public_id.in_(public_ids) if public_ids else table.id == outcome.get("conversation_id", 0)
    return connection.execute(select(table.id).where(table.tenant_id == tenant, is_named).limit(1)).first() is not None
