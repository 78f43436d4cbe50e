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
from threadkeep.db.queries.conversations import DELETED, conversation_update
from threadkeep.domain import changes
from threadkeep.domain.ids import public_id_bytes
from threadkeep.domain.jsontext import JsonObject, loads, loads_stored
from threadkeep.store.changes.rows import change_row, insert_changes
from threadkeep.store.idempotency import IdempotencyKey, find_outcome, keep_outcome
from threadkeep.store.lineage import find_row
from threadkeep.store.refs import TENANT_WIDE, Scope, conversation_not_found
from threadkeep.store.search.index import forget_batch
from threadkeep.store.streaming.recovery import StreamRecovery, account_unfinished
from threadkeep.store.transactions import Replay

BATCH_CONVERSATIONS: Final = 100  # that are hidden in one transaction
BATCH_SIZE: Final = 1_000  # rows in one transaction

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
)
_SMALL: Final = (
    tables.branches, tables.conversation_labels, tables.conversation_states, tables.conversation_reads,
    tables.context_caches, tables.appends,
)  # fmt: skip

# The key and number of a response, in the order in which raw bodies are removed
BodyCursor = tuple[int, int]


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
        connection.execute(
            update(tables.conversations)
            .where(table.tenant_id == tenant, table.id.in_(hidden))
            .values(
                status=DELETED, external_id=None, title=None, labels=None, properties=None, revision=table.revision + 1
            )
        )
    return [key for key in keys if key in hidden]


def _record_deletions(connection: Connection, tenant: int, deleted: Iterable[tuple[int, bytes]], now: datetime) -> None:
    """Tell the change feed which conversations, by key and public id, are gone."""
    insert_changes(connection, [change_row(tenant, key, public_id, changes.DELETED, now) for key, public_id in deleted])


def count_older(connection: Connection, tenant: int, column: Column[Any], before: datetime | None) -> int:
    """Return how many rows are older than a time; 0 without a time."""
    if before is None:
        return 0
    statement = select(func.count()).where(column.table.c.tenant_id == tenant, column < before)
    count: int = connection.execute(statement).scalar_one()
    return count


# Purging


def purge_batch(connection: Connection, tenant: int, key: int, recovery: StreamRecovery) -> bool:
    """Remove a batch of a deleted conversation's rows; return False if nothing is left.

    Its responses in progress get their ledger rows, of what `recovery` makes of them.
    """
    table = tables.conversations.c
    is_conversation = [table.tenant_id == tenant, table.id == key]
    if connection.execute(select(table.id).where(*is_conversation, table.status == DELETED)).one_or_none() is None:
        return False
    account_unfinished(connection, tenant, key, recovery)
    forgotten = forget_batch(connection, tenant, key, BATCH_SIZE)
    for numbered, order in _NUMBERED:
        if _delete_lowest(connection, numbered, order, tenant, key):
            return True
    if forgotten == BATCH_SIZE:  # there may be more of them
        return True
    for small in _SMALL:
        connection.execute(delete(small).where(*_of_conversation(small, tenant, key)))
    connection.execute(delete(tables.conversations).where(*is_conversation))
    return True


def _delete_lowest(connection: Connection, table: Table, order: str, tenant: int, key: int) -> int:
    """Remove rows in order of their numbers, as a range, because not every database has DELETE … LIMIT."""
    conditions = _of_conversation(table, tenant, key)
    lowest = connection.execute(select(func.min(table.c[order])).where(*conditions)).scalar()
    if lowest is None:
        return 0
    return connection.execute(delete(table).where(*conditions, table.c[order] < lowest + BATCH_SIZE)).rowcount


def _of_conversation(table: Table, tenant: int, key: int) -> list[ColumnElement[bool]]:
    return [table.c.tenant_id == tenant, table.c.conversation_id == key]


# Raw bodies


def delete_bodies(
    connection: Connection, tenant: int, before: datetime, after: BodyCursor
) -> tuple[int, BodyCursor | None]:
    """Remove a batch of old raw bodies; return how many, and where to continue (None: done)."""
    table = tables.response_bodies.c
    key, number = after
    statement = (
        select(table.conversation_id, table.number)
        .where(table.tenant_id == tenant, table.created_at < before, table.conversation_id >= key)
        .where(or_(table.conversation_id > key, table.number > number))
        .order_by(table.conversation_id, table.number)
        .limit(BATCH_SIZE)
    )
    rows = [(row.conversation_id, row.number) for row in connection.execute(statement)]
    for conditions in _by_conversation(tenant, table.number, rows):
        connection.execute(delete(tables.response_bodies).where(*conditions))
    return len(rows), rows[-1] if len(rows) == BATCH_SIZE else None


def _by_conversation(
    tenant: int, column: Column[Any], rows: Iterable[tuple[int, int]]
) -> Iterator[list[ColumnElement[bool]]]:
    """Conditions for rows that are named by their conversation and number: those of one conversation after another."""
    numbers: dict[int, list[int]] = {}
    for conversation, number in rows:
        numbers.setdefault(conversation, []).append(number)
    for conversation, some in numbers.items():
        yield [*_of_conversation(column.table, tenant, conversation), column.in_(some)]


# The change feed


def count_changes(connection: Connection, tenant: int, before: int) -> int:
    """Return how many changes have keys up to one."""
    statement = select(func.count()).where(*_changes_before(connection, tenant, before))
    count: int = connection.execute(statement).scalar_one()
    return count


def prune_changes(connection: Connection, tenant: int, before: int) -> int:
    """Remove a batch of the oldest changes, and note what was removed, for those who come back later; return how many.

    What a long transaction commits meanwhile stays.
    """
    table = tables.changes.c
    statement = select(table.id, table.transaction_id).where(*_changes_before(connection, tenant, before))
    rows = connection.execute(statement.order_by(table.id).limit(BATCH_SIZE)).all()
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


# Names and texts of a user outside of the user's conversations


def clear_ledger(connection: Connection, tenant: int, user: str, keys: Sequence[int]) -> int:
    """Clear provider data of a batch of attempts from before these conversations were the user's; return how many."""
    table = tables.usage_records.c
    conditions = [
        table.conversation_id.in_(keys),
        or_(table.user_id.is_(None), table.user_id != user),
        or_(table.usage.is_not(None), table.error.is_not(None)),
    ]
    return _update_ledger(connection, tenant, conditions, usage=None, error=None)


def anonymize_ledger(connection: Connection, tenant: int, user: str) -> int:
    """Remove a user and provider data from a batch of the ledger, except figures; return how many rows changed."""
    is_of_user = tables.usage_records.c.user_id == user
    return _update_ledger(connection, tenant, [is_of_user], user_id=None, usage=None, error=None)


def _update_ledger(
    connection: Connection, tenant: int, conditions: Sequence[ColumnElement[bool]], **values: None
) -> int:
    table = tables.usage_records.c
    statement = select(table.id).where(table.tenant_id == tenant, *conditions).limit(BATCH_SIZE)
    keys = list(connection.execute(statement).scalars())
    if keys:
        which = [table.tenant_id == tenant, table.id.in_(keys)]
        connection.execute(update(tables.usage_records).where(*which).values(**values))
    return len(keys)


def anonymize_items(connection: Connection, tenant: int, user: str) -> int:
    """Remove a user from a batch of items in the conversations of others; return how many."""
    return _anonymize(connection, tenant, tables.items.c.author_id, user)


def anonymize_approvals(connection: Connection, tenant: int, user: str) -> int:
    """Remove a user from a batch of decisions about calls in the conversations of others; return how many."""
    return _anonymize(connection, tenant, tables.approvals.c.decided_by, user)


def _anonymize(connection: Connection, tenant: int, column: Column[Any], user: str) -> int:
    """Clear a column that names a user, in a batch of rows that belong to items; return how many."""
    table = column.table.c
    statement = (
        select(table.conversation_id, table.position).where(table.tenant_id == tenant, column == user).limit(BATCH_SIZE)
    )
    rows = [(row.conversation_id, row.position) for row in connection.execute(statement)]
    for conditions in _by_conversation(tenant, table.position, rows):
        connection.execute(update(column.table).where(*conditions).values({column.name: None}))
    return len(rows)


def delete_reads(connection: Connection, tenant: int, user: str) -> int:
    """Remove a batch of the marks of how far a user has read; return how many."""
    table = tables.conversation_reads.c
    is_of_user = [table.tenant_id == tenant, table.user_id == user]
    statement = select(table.conversation_id).where(*is_of_user).limit(BATCH_SIZE)
    keys = list(connection.execute(statement).scalars())
    if keys:
        connection.execute(delete(tables.conversation_reads).where(*is_of_user, table.conversation_id.in_(keys)))
    return len(keys)


def delete_feedback(connection: Connection, tenant: int, user: str) -> int:
    """Remove a batch of the feedback of a user in the conversations of others; return how many."""
    table = tables.item_feedback.c
    is_of_user = [table.tenant_id == tenant, table.user_id == user]
    statement = select(table.conversation_id, table.position).where(*is_of_user).limit(BATCH_SIZE)
    rows = [(row.conversation_id, row.position) for row in connection.execute(statement)]
    for conditions in _by_conversation(tenant, table.position, rows):
        connection.execute(delete(tables.item_feedback).where(*conditions, *is_of_user))
    return len(rows)


def collect_keys(connection: Connection, tenant: int, after: str) -> str | None:
    """Remove idempotency keys of the tenant under which conversations were created or deleted that are gone.

    Looks at a batch of keys, those after `after`; returns where to go on (None: nowhere).
    """
    table = tables.appends.c
    conditions = _of_conversation(tables.appends, tenant, TENANT_WIDE)
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
