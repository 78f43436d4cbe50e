"""Erasing what is stored of a user, and what has been kept long enough, in bounded batches that can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, func, or_, select, update

from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.tables import (
    appends,
    configs,
    conversations,
    items,
    response_bodies,
    responses,
    tool_definitions,
    tool_sets,
    usage_records,
)
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.store.actions.purging import BATCH
from threadkeep.store.place import TENANT_WIDE

# A row's place in the order in which a sweep goes through a table
Cursor = tuple[Any, ...]


def hide_of_user(connection: Connection, tenant: int, user: str, limit: int) -> list[int]:
    """Hide some conversations of a user; returns all of these that still have rows, those deleted before, too."""
    return _hide(connection, tenant, [conversations.c.user_id == user], limit)


def hide_quiet(connection: Connection, tenant: int, moment: datetime, limit: int) -> list[int]:
    """Hide some conversations that nobody has added to since a moment; returns all of these that still have rows."""
    return _hide(connection, tenant, [conversations.c.last_activity_at < moment], limit)


def count_quiet_since(connection: Connection, tenant: int, moment: datetime) -> int:
    """How many conversations nobody has added to since a moment; those that are being removed count, too."""
    table = conversations.c
    statement = select(func.count()).where(table.tenant_id == tenant, table.last_activity_at < moment)
    found: int = connection.execute(statement).scalar_one()
    return found


def _hide(connection: Connection, tenant: int, wanted: Sequence[ColumnElement[bool]], limit: int) -> list[int]:
    """Take conversations out of everybody's sight, with what their rows say beside the items; returns which.

    The rows are locked, and looked at again, before they are changed: a writer that was faster keeps its conversation.
    """
    table = conversations.c
    listed = select(table.id).where(table.tenant_id == tenant, *wanted)
    keys = list(connection.execute(listed.order_by(table.last_activity_at, table.id).limit(limit)).scalars())
    found = connection.execute(listed.where(table.id.in_(keys)).order_by(table.id).with_for_update()).scalars()
    hidden = set(found) if keys else set()
    if hidden:
        connection.execute(
            update(conversations)
            .where(table.tenant_id == tenant, table.id.in_(hidden))
            .values(status=DELETED, external_id=None, title=None, labels=None, revision=table.revision + 1)
        )
    return [key for key in keys if key in hidden]


def count_bodies_before(connection: Connection, tenant: int, moment: datetime) -> int:
    """How many raw bodies are older than a moment."""
    table = response_bodies.c
    statement = select(func.count()).where(table.tenant_id == tenant, table.created_at < moment)
    found: int = connection.execute(statement).scalar_one()
    return found


def drop_bodies_before(
    connection: Connection, tenant: int, moment: datetime, after: Cursor
) -> tuple[int, Cursor | None]:
    """Remove a batch of raw bodies older than a moment; how many, and where to go on (None: nowhere)."""
    table = response_bodies.c
    key, number = after
    statement = (
        select(table.conversation_id, table.number)
        .where(table.tenant_id == tenant, table.created_at < moment, table.conversation_id >= key)
        .where(or_(table.conversation_id > key, table.number > number))
        .order_by(table.conversation_id, table.number)
        .limit(BATCH)
    )
    rows = [tuple(row) for row in connection.execute(statement)]
    for conversation, numbers in _by_conversation(rows).items():
        where = (table.tenant_id == tenant, table.conversation_id == conversation, table.number.in_(numbers))
        connection.execute(delete(response_bodies).where(*where))
    return len(rows), rows[-1] if len(rows) == BATCH else None


def clear_ledger(connection: Connection, tenant: int, user: str, keys: Sequence[int]) -> int:
    """Take what providers said out of a batch of the ledger: attempts in conversations that are being erased.

    These are attempts from before the conversations were the user's; the user's own ones are found by their user.
    Returns how many rows it was.
    """
    table = usage_records.c
    wanted = [
        table.conversation_id.in_(keys),
        or_(table.user_id.is_(None), table.user_id != user),
        or_(table.usage.is_not(None), table.error.is_not(None)),
    ]
    return _change_ledger(connection, tenant, wanted, usage=None, error=None)


def anonymize_ledger(connection: Connection, tenant: int, user: str) -> int:
    """Take a user out of a batch of the ledger, with what the provider said; the figures stay. How many rows it was."""
    return _change_ledger(connection, tenant, [usage_records.c.user_id == user], user_id=None, usage=None, error=None)


def _change_ledger(connection: Connection, tenant: int, wanted: Sequence[ColumnElement[bool]], **values: None) -> int:
    table = usage_records.c
    keys = list(connection.execute(select(table.id).where(table.tenant_id == tenant, *wanted).limit(BATCH)).scalars())
    if keys:
        connection.execute(update(usage_records).where(table.tenant_id == tenant, table.id.in_(keys)).values(**values))
    return len(keys)


def anonymize_items(connection: Connection, tenant: int, user: str) -> int:
    """Take a user out of a batch of items that stand in the conversations of others; returns how many."""
    table = items.c
    rows = connection.execute(
        select(table.conversation_id, table.position)
        .where(table.tenant_id == tenant, table.author_id == user)
        .limit(BATCH)
    ).all()
    for key, positions in _by_conversation(rows).items():
        where = (table.tenant_id == tenant, table.conversation_id == key, table.position.in_(positions))
        connection.execute(update(items).where(*where).values(author_id=None))
    return len(rows)


def _by_conversation(rows: Sequence[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for conversation, number in rows:
        found.setdefault(conversation, []).append(number)
    return found


def forget_creations(connection: Connection, tenant: int, after: str) -> tuple[int, str | None]:
    """Remove idempotency keys of the tenant under which conversations were made or deleted that are gone.

    A batch of keys is looked at; how many were removed, and where to go on (None: nowhere).
    """
    table = appends.c
    statement = (
        select(table.key, table.outcome)
        .where(table.tenant_id == tenant, table.conversation_id == TENANT_WIDE, table.key > after)
        .order_by(table.key)
        .limit(BATCH)
    )
    rows = connection.execute(statement).all()
    gone = [row.key for row in rows if not _names_one_that_is_there(connection, tenant, loads(row.outcome))]
    if gone:
        where = (table.tenant_id == tenant, table.conversation_id == TENANT_WIDE, table.key.in_(gone))
        connection.execute(delete(appends).where(*where))
    return len(gone), rows[-1].key if len(rows) == BATCH else None


def _names_one_that_is_there(connection: Connection, tenant: int, outcome: JsonObject) -> bool:
    texts = [outcome["public_id"]] if "public_id" in outcome else outcome.get("ids", ())
    raw = [bytes.fromhex(text.rpartition("_")[2]) for text in texts]
    table = conversations.c
    is_one = table.public_id.in_(raw) if raw else table.id == outcome.get("key", 0)
    return connection.execute(select(table.id).where(table.tenant_id == tenant, is_one).limit(1)).first() is not None


def collect_contents(connection: Connection, tenant: int) -> int:
    """Remove a batch of options, tool sets and tools that nothing uses any more; returns how many.

    Who wants to use them again meanwhile writes them again: the use case is repeated when its reference breaks.
    """
    count = _collect(connection, configs, tenant, "config_hash")
    count += _collect(connection, tool_sets, tenant, "tool_set_hash")
    return count or _collect_definitions(connection, tenant)


def _collect(connection: Connection, table: Table, tenant: int, reference: str) -> int:
    users = [
        select(user.c[reference]).where(user.c.tenant_id == table.c.tenant_id, user.c[reference] == table.c.hash)
        for user in (conversations, responses)
    ]
    return _remove(connection, table, tenant, [~user.exists() for user in users])


def _collect_definitions(connection: Connection, tenant: int) -> int:
    """Definitions that no set names. They are locked and looked at again, because a set may be written just now."""
    table = tool_definitions.c
    every = select(table.hash).where(table.tenant_id == tenant)
    found = {bytes(hash_) for hash_ in connection.execute(every).scalars()}
    unused = sorted(found - _named_definitions(connection, tenant))[:BATCH]
    if unused:
        locked = every.where(table.hash.in_(unused)).order_by(table.hash).with_for_update()
        found = {bytes(hash_) for hash_ in connection.execute(locked).scalars()}
        unused = sorted(found - _named_definitions(connection, tenant))
    if unused:
        connection.execute(delete(tool_definitions).where(table.tenant_id == tenant, table.hash.in_(unused)))
    return len(unused)


def _named_definitions(connection: Connection, tenant: int) -> set[bytes]:
    rows = connection.execute(select(tool_sets.c.definitions).where(tool_sets.c.tenant_id == tenant)).scalars()
    return {bytes.fromhex(text) for definitions in rows for text in loads(definitions)}


def _remove(connection: Connection, table: Table, tenant: int, unused: Sequence[ColumnElement[bool]]) -> int:
    hashes = list(
        connection.execute(select(table.c.hash).where(table.c.tenant_id == tenant, *unused).limit(BATCH)).scalars()
    )
    if hashes:
        connection.execute(delete(table).where(table.c.tenant_id == tenant, table.c.hash.in_(hashes)))
    return len(hashes)
