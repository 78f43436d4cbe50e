"""Batches that remove the names and texts of a user outside of the user's conversations; see `retention.erase_user`.

Each kind of rows is found by one function and changed by another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, delete, or_, select, update

from threadkeep.db import tables
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.store.pacing import Done, Pace
from threadkeep.store.places import Place, change_places, find_places
from threadkeep.store.purging import of_conversation
from threadkeep.store.refs import TENANT_WIDE

_LEDGER: Final = tables.usage_records.c

# The ledger


def find_attempts_of_others(
    connection: Connection, tenant: int, limit: int, user: str, conversations: Sequence[int]
) -> Sequence[int]:
    """Return attempts with provider data from before these conversations were the user's."""
    is_of_other = or_(_LEDGER.user_id.is_(None), _LEDGER.user_id != user)
    has_data = or_(_LEDGER.usage.is_not(None), _LEDGER.error.is_not(None))
    return _find_attempts(connection, tenant, limit, _LEDGER.conversation_id.in_(conversations), is_of_other, has_data)


def clear_attempts(connection: Connection, tenant: int, pace: Pace, keys: Sequence[int]) -> Done:
    """Clear provider data of attempts."""
    return _change_attempts(connection, tenant, pace, keys, usage=None, error=None)


def find_attempts(connection: Connection, tenant: int, limit: int, user: str) -> Sequence[int]:
    """Return attempts of a user."""
    return _find_attempts(connection, tenant, limit, _LEDGER.user_id == user)


def anonymize_attempts(connection: Connection, tenant: int, pace: Pace, keys: Sequence[int]) -> Done:
    """Remove their users and provider data from attempts, except figures."""
    return _change_attempts(connection, tenant, pace, keys, user_id=None, usage=None, error=None)


def _find_attempts(connection: Connection, tenant: int, limit: int, *conditions: ColumnElement[bool]) -> Sequence[int]:
    statement = select(_LEDGER.id).where(_LEDGER.tenant_id == tenant, *conditions).limit(limit)
    return connection.execute(statement).scalars().all()


def _change_attempts(connection: Connection, tenant: int, pace: Pace, keys: Sequence[int], **values: None) -> Done:
    statement = update(tables.usage_records).where(_LEDGER.tenant_id == tenant).values(**values)
    return pace.change(keys, lambda some: connection.execute(statement.where(_LEDGER.id.in_(some))).rowcount)


# Conversations of others


def find_items(connection: Connection, tenant: int, after: Place, limit: int, user: str) -> list[Place]:
    """Return where items of a user are in the conversations of others, behind a place."""
    return find_places(connection, tables.items.c.position, tenant, after, limit, tables.items.c.author_id == user)


def anonymize_items(connection: Connection, tenant: int, pace: Pace, keys: Sequence[Place], user: str) -> Done:
    """Remove a user from items."""
    return _anonymize(connection, tenant, pace, keys, tables.items.c.author_id, user)


def find_approvals(connection: Connection, tenant: int, limit: int, user: str) -> list[Place]:
    """Return where decisions of a user are about calls in the conversations of others."""
    return _find_named(connection, tenant, limit, tables.approvals.c.decided_by, user)


def anonymize_approvals(connection: Connection, tenant: int, pace: Pace, keys: Sequence[Place], user: str) -> Done:
    """Remove a user from decisions."""
    return _anonymize(connection, tenant, pace, keys, tables.approvals.c.decided_by, user)


def find_feedback(connection: Connection, tenant: int, limit: int, user: str) -> list[Place]:
    """Return where feedback of a user is in the conversations of others."""
    return _find_named(connection, tenant, limit, tables.item_feedback.c.user_id, user)


def delete_feedback(connection: Connection, tenant: int, pace: Pace, keys: Sequence[Place], user: str) -> Done:
    """Remove the feedback of a user."""
    table = tables.item_feedback.c
    statement = delete(tables.item_feedback).where(table.user_id == user)
    return pace.change(keys, lambda some: change_places(connection, statement, table.position, tenant, some))


def find_reads(connection: Connection, tenant: int, limit: int, user: str) -> Sequence[int]:
    """Return the conversations of which is known how far a user has read."""
    table = tables.conversation_reads.c
    statement = select(table.conversation_id).where(table.tenant_id == tenant, table.user_id == user).limit(limit)
    return connection.execute(statement).scalars().all()


def delete_reads(connection: Connection, tenant: int, pace: Pace, keys: Sequence[int], user: str) -> Done:
    """Remove the marks of how far a user has read."""
    table = tables.conversation_reads.c
    statement = delete(tables.conversation_reads).where(table.tenant_id == tenant, table.user_id == user)
    return pace.change(keys, lambda some: connection.execute(statement.where(table.conversation_id.in_(some))).rowcount)


def _find_named(connection: Connection, tenant: int, limit: int, column: Column[Any], user: str) -> list[Place]:
    """Return where rows that belong to items name a user in a column."""
    table = column.table.c
    statement = select(table.conversation_id, table.position).where(table.tenant_id == tenant, column == user)
    return [(row.conversation_id, row.position) for row in connection.execute(statement.limit(limit))]


def _anonymize(
    connection: Connection, tenant: int, pace: Pace, keys: Sequence[Place], column: Column[Any], user: str
) -> Done:
    """Clear a column that names a user."""
    statement = update(column.table).where(column == user).values({column.name: None})
    return pace.change(keys, lambda some: change_places(connection, statement, column.table.c.position, tenant, some))


# Idempotency keys


def find_keys(connection: Connection, tenant: int, after: str, limit: int) -> tuple[list[str], str | None]:
    """Look at idempotency keys of the tenant under which conversations were created or deleted, behind a key.

    Returns those whose conversations are gone, and where to go on (None: nowhere).
    """
    table = tables.appends.c
    conditions = of_conversation(tables.appends, tenant, TENANT_WIDE)
    statement = select(table.key, table.outcome).where(*conditions, table.key > after).order_by(table.key).limit(limit)
    rows = connection.execute(statement).all()
    return _unused(connection, tenant, rows), rows[-1].key if len(rows) == limit else None


def delete_keys(connection: Connection, tenant: int, pace: Pace, keys: Sequence[str]) -> Done:
    """Remove those of some keys whose conversations are gone."""
    table = tables.appends.c
    conditions = of_conversation(tables.appends, tenant, TENANT_WIDE)

    def remove(some: Sequence[str]) -> int:
        rows = connection.execute(select(table.key, table.outcome).where(*conditions, table.key.in_(some))).all()
        unused = _unused(connection, tenant, rows)
        return connection.execute(delete(tables.appends).where(*conditions, table.key.in_(unused))).rowcount

    return pace.change(keys, remove)


def _unused(connection: Connection, tenant: int, rows: Sequence[Any]) -> list[str]:
    outcomes = [(row.key, loads_stored(row.outcome, "appends", f"key {row.key!r}")) for row in rows]
    return [key for key, outcome in outcomes if not _names_conversation(connection, tenant, outcome)]


def _names_conversation(connection: Connection, tenant: int, outcome: JsonObject) -> bool:
    """Return whether the conversation of an outcome still exists."""
    texts = [outcome["public_id"]] if "public_id" in outcome else outcome.get("ids", ())
    public_ids = [bytes.fromhex(text.rpartition("_")[2]) for text in texts]
    table = tables.conversations.c
    is_named = table.public_id.in_(public_ids) if public_ids else table.id == outcome.get("conversation_id", 0)
    return connection.execute(select(table.id).where(table.tenant_id == tenant, is_named).limit(1)).first() is not None
