"""Batches that remove what is stored: conversations, what names a user elsewhere, media and options without users.

Each runs in a transaction of its own and can be repeated; see `retention` for the use cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Select, Table, delete, func, insert, or_, select, update

from threadkeep.db import tables
from threadkeep.db.queries.changes import PRUNED
from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED, DELETED, conversation_update
from threadkeep.domain import changes
from threadkeep.domain.ids import public_id_bytes
from threadkeep.domain.jsontext import loads
from threadkeep.store.changes.rows import change_row, insert_changes
from threadkeep.store.idempotency import IdempotencyKey, find_outcome, keep_outcome
from threadkeep.store.lineage import find_row
from threadkeep.store.refs import TENANT_WIDE, Scope, conversation_not_found
from threadkeep.store.retries import Replay
from threadkeep.store.search.index import forget_batch
from threadkeep.store.streaming.recovery import StreamRecovery, account_unfinished

BATCH_CONVERSATIONS: Final = 100  # that are hidden in one transaction
BATCH_SIZE: Final = 1_000  # rows in one transaction
STATUSES: Final = (DELETED, ACTIVE, ARCHIVED)  # of all conversations, with which the index of their activity begins

# Tables whose rows are removed in batches, children first -> the column that orders its rows
_NUMBERED: Final = (
    (tables.item_blobs, "position"),
    (tables.item_labels, "position"),
    (tables.item_feedback, "position"),
    (tables.approvals, "position"),
    (tables.items, "position"),
    (tables.stream_parts, "part"),
    (tables.response_bodies, "number"),
    (tables.responses, "number"),
    (tables.branches, "number"),
)
# The same, of rows that have names instead
_NAMED: Final = ((tables.appends, "key"), (tables.conversation_reads, "user_id"))
_SMALL: Final = (tables.conversation_labels, tables.conversation_states, tables.context_caches)

# The key of a conversation, and the number of a response or the position of an item there
Place = tuple[int, int]


# Hiding


def hide_conversation(connection: Connection, scope: Scope, id: str, key: IdempotencyKey | None) -> int:
    """Hide a conversation; return its key, which is needed to purge its rows."""
    outcome = find_outcome(connection, scope.tenant, TENANT_WIDE, key)
    if outcome is not None:
        raise Replay(outcome["conversation_id"])
    row = find_row(connection, scope, "public_id", public_id_bytes(id))
    if row is None:
        raise conversation_not_found(id)
    conversation: int = row.id
    now = datetime.now(UTC)
    keep_outcome(connection, scope.tenant, TENANT_WIDE, key, now, kind="deleted", conversation_id=conversation)
    statement = conversation_update("external_id", "status", scoped=scope.user is not None, returning=False)
    parameters = scope.parameters(key=conversation, new_status=DELETED, new_external_id=None)
    if not statement.execute(connection, parameters):  # another process was faster
        raise conversation_not_found(id)
    _record_deletions(connection, scope.tenant, [(conversation, public_id_bytes(id))], now)
    return conversation


def find_conversations(connection: Connection, tenant: int, which: ColumnElement[bool]) -> list[int]:
    """Return the keys of some conversations, the longest inactive ones first."""
    table = tables.conversations.c
    statement = select(table.id).where(table.tenant_id == tenant, which)
    statement = statement.order_by(table.last_activity_at, table.id).limit(BATCH_CONVERSATIONS)
    return list(connection.execute(statement).scalars())


def hide_conversations(connection: Connection, tenant: int, which: ColumnElement[bool]) -> list[int]:
    """Hide conversations, and clear what their rows contain besides the items.

    Returns the keys of those that still have rows, hidden before or now. The rows are locked, and read again, before
    they are changed: a writer that was faster keeps its conversation.
    """
    keys = find_conversations(connection, tenant, which)
    if not keys:
        return []
    table = tables.conversations.c
    statement = select(table.id, table.public_id, table.status)
    statement = statement.where(table.tenant_id == tenant, which, table.id.in_(keys)).order_by(table.id)
    rows = connection.execute(statement.with_for_update()).all()
    hidden = {row.id for row in rows}
    if hidden:
        deleted = [(row.id, bytes(row.public_id)) for row in rows if row.status != DELETED]
        _record_deletions(connection, tenant, deleted, datetime.now(UTC))
        cleared = dict.fromkeys(("external_id", "title", "labels", "properties", "creation_key"))
        connection.execute(
            update(tables.conversations)
            .where(table.tenant_id == tenant, table.id.in_(hidden))
            .values(status=DELETED, revision=table.revision + 1, **cleared)
        )
    return [key for key in keys if key in hidden]


def _record_deletions(connection: Connection, tenant: int, deleted: Iterable[tuple[int, bytes]], now: datetime) -> None:
    """Tell the change feed which conversations, by key and public id, are gone."""
    insert_changes(connection, [change_row(tenant, key, public_id, changes.DELETED, now) for key, public_id in deleted])


def count_inactive(connection: Connection, tenant: int, before: datetime | None) -> int:
    """Return how many conversations have been inactive since a time; 0 without a time."""
    table = tables.conversations.c
    return _count_older(
        connection, before, table.last_activity_at, table.tenant_id == tenant, table.status.in_(STATUSES)
    )


def count_bodies(connection: Connection, tenant: int, before: datetime | None) -> int:
    """Return how many raw bodies are older than a time; 0 without a time."""
    table = tables.response_bodies.c
    return _count_older(connection, before, table.created_at, table.tenant_id == tenant)


def _count_older(
    connection: Connection, before: datetime | None, column: Column[Any], *which: ColumnElement[bool]
) -> int:
    if before is None:
        return 0
    count: int = connection.execute(select(func.count()).where(*which, column < before)).scalar_one()
    return count


# Purging


def purge_batch(
    connection: Connection, tenant: int, key: int, recovery: StreamRecovery, limit: int = BATCH_SIZE
) -> bool:
    """Remove a batch of a deleted conversation's rows, of `limit` at most; return False if nothing is left.

    Its responses in progress get their ledger rows, of what `recovery` makes of them.
    """
    table = tables.conversations.c
    is_conversation = [table.tenant_id == tenant, table.id == key]
    if connection.execute(select(table.id).where(*is_conversation, table.status == DELETED)).one_or_none() is None:
        return False
    account_unfinished(connection, tenant, key, recovery)
    if forget_batch(connection, tenant, key, limit) == limit:  # there may be more of them
        return True
    for numbered, order in _NUMBERED:
        if _delete_lowest(connection, numbered.c[order], tenant, key, limit):
            return True
    for named, order in _NAMED:
        if _delete_some(connection, named.c[order], tenant, key, limit):
            return True
    for small in _SMALL:
        connection.execute(delete(small).where(*of_conversation(small, tenant, key)))
    connection.execute(delete(tables.conversations).where(*is_conversation))
    return True


def _delete_lowest(connection: Connection, column: Column[Any], tenant: int, key: int, limit: int) -> int:
    """Remove rows in order of their numbers, as a range, because not every database has DELETE … LIMIT."""
    conditions = of_conversation(column.table, tenant, key)
    lowest = connection.execute(select(func.min(column)).where(*conditions)).scalar()
    if lowest is None:
        return 0
    return connection.execute(delete(column.table).where(*conditions, column < lowest + limit)).rowcount


def _delete_some(connection: Connection, column: Column[Any], tenant: int, key: int, limit: int) -> int:
    conditions = of_conversation(column.table, tenant, key)
    names = list(connection.execute(select(column).where(*conditions).limit(limit)).scalars())
    if names:
        connection.execute(delete(column.table).where(*conditions, column.in_(names)))
    return len(names)


def of_conversation(table: Table, tenant: int, key: int) -> list[ColumnElement[bool]]:
    """Conditions for the rows of a conversation."""
    return [table.c.tenant_id == tenant, table.c.conversation_id == key]


# Raw bodies


def find_bodies(connection: Connection, tenant: int, after: Place, limit: int, before: datetime) -> list[Place]:
    """Return where old raw bodies are, behind a place."""
    return find_places(
        connection, tables.response_bodies.c.number, tenant, after, limit, tables.response_bodies.c.created_at < before
    )


def find_places(
    connection: Connection, column: Column[Any], tenant: int, after: Place, limit: int, which: ColumnElement[bool]
) -> list[Place]:
    """Return where rows of conversations are, behind a place; `column` is that of their numbers."""
    table, (key, number) = column.table.c, after
    statement = (
        select(table.conversation_id, column)
        .where(table.tenant_id == tenant, which, table.conversation_id >= key)
        .where(or_(table.conversation_id > key, column > number))
        .order_by(table.conversation_id, column)
        .limit(limit)
    )
    return [(row[0], row[1]) for row in connection.execute(statement)]


def delete_bodies(connection: Connection, tenant: int, places: Sequence[Place]) -> int:
    """Remove raw bodies; return how many."""
    count = 0
    for conditions in by_conversation(tenant, tables.response_bodies.c.number, places):
        count += connection.execute(delete(tables.response_bodies).where(*conditions)).rowcount
    return count


def by_conversation(
    tenant: int, column: Column[Any], rows: Iterable[tuple[int, int]]
) -> Iterator[list[ColumnElement[bool]]]:
    """Conditions for rows that are named by their conversation and number: those of one conversation after another."""
    numbers: dict[int, list[int]] = {}
    for conversation, number in rows:
        numbers.setdefault(conversation, []).append(number)
    for conversation, some in numbers.items():
        yield [*of_conversation(column.table, tenant, conversation), column.in_(some)]


# The change feed


def count_changes(connection: Connection, tenant: int, before: int) -> int:
    """Return how many changes have keys up to one."""
    statement = select(func.count()).where(*_changes_before(connection, tenant, before))
    count: int = connection.execute(statement).scalar_one()
    return count


def prune_changes(connection: Connection, tenant: int, before: int, limit: int = BATCH_SIZE) -> int:
    """Remove a batch of the oldest changes, and note what was removed, for those who come back later; return how many.

    What a long transaction commits meanwhile stays.
    """
    table = tables.changes.c
    statement = select(table.id, table.transaction_id).where(*_changes_before(connection, tenant, before))
    rows = connection.execute(statement.order_by(table.id).limit(limit)).all()
    if not rows:
        return 0
    is_mark = [table.tenant_id == tenant, table.id == PRUNED]
    mark = connection.execute(select(table.transaction_id).where(*is_mark)).one_or_none()
    numbers = [row.transaction_id for row in (*rows, mark) if row is not None and row.transaction_id is not None]
    removed = [PRUNED, *(row.id for row in rows)]
    connection.execute(delete(tables.changes).where(table.tenant_id == tenant, table.id.in_(removed)))
    connection.execute(
        insert(tables.changes),
        {
            "tenant_id": tenant, "id": PRUNED, "conversation_id": 0, "public_id": bytes(16), "kind": "pruned",
            "to_position": removed[-1], "transaction_id": max(numbers, default=None), "created_at": datetime.now(UTC),
        },
    )  # fmt: skip
    return len(rows)


def _changes_before(connection: Connection, tenant: int, before: int) -> list[ColumnElement[bool]]:
    """The changes up to a key, except the newest one: it tells whether a cursor is of this feed."""
    table = tables.changes.c
    newest = connection.execute(select(func.max(table.id)).where(table.tenant_id == tenant)).scalar() or PRUNED
    return [table.tenant_id == tenant, table.id > PRUNED, table.id <= min(before, newest - 1)]


# Collecting what nothing uses any more


def collect_configs(connection: Connection, tenant: int) -> int:
    """Remove a batch of options, tool sets and tools that are no longer used; return how many.

    Who wants to use them again meanwhile writes them again: the use case is repeated when its reference breaks.
    """
    count = 0
    for table, reference in ((tables.configs, "config_hash"), (tables.tool_sets, "tool_set_hash")):
        users = [
            select(user.c[reference]).where(user.c.tenant_id == table.c.tenant_id, user.c[reference] == table.c.hash)
            for user in (tables.conversations, tables.responses)
        ]
        count += _collect(connection, table, tenant, users)
    return count or _collect_definitions(connection, tenant)


def _collect(connection: Connection, table: Table, tenant: int, users: Iterable[Select[Any]]) -> int:
    """Remove a batch of rows, given by hash, for which none of the statements finds a reference."""
    is_unused = [~user.exists() for user in users]
    statement = select(table.c.hash).where(table.c.tenant_id == tenant, *is_unused).limit(BATCH_SIZE)
    hashes = list(connection.execute(statement).scalars())
    if hashes:
        connection.execute(delete(table).where(table.c.tenant_id == tenant, table.c.hash.in_(hashes)))
    return len(hashes)


def _collect_definitions(connection: Connection, tenant: int) -> int:
    """Return tools in no tool set. They are locked and read again, because a set may be written concurrently."""
    table = tables.tool_definitions.c
    statement = select(table.hash).where(table.tenant_id == tenant)
    hashes = _hashes(connection, statement)
    unused = sorted(hashes - _named_definitions(connection, tenant))[:BATCH_SIZE]
    if unused:
        hashes = _hashes(connection, statement.where(table.hash.in_(unused)).order_by(table.hash).with_for_update())
        unused = sorted(hashes - _named_definitions(connection, tenant))
    if unused:
        connection.execute(delete(tables.tool_definitions).where(table.tenant_id == tenant, table.hash.in_(unused)))
    return len(unused)


def _hashes(connection: Connection, statement: Select[Any]) -> set[bytes]:
    return {bytes(hash_) for hash_ in connection.execute(statement).scalars()}


def _named_definitions(connection: Connection, tenant: int) -> set[bytes]:
    table = tables.tool_sets.c
    texts = connection.execute(select(table.definitions).where(table.tenant_id == tenant)).scalars()
    return {bytes.fromhex(name) for text in texts for name in loads(text)}
