"""Batches that remove what is stored: conversations, what names a user elsewhere, media and options without users.

Each runs in a transaction of its own and can be repeated; see `retention` for the use cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from threadkeep.db import base, models
from threadkeep.db.queries.changes import PRUNED
from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED, DELETED, conversation_update
from threadkeep.domain import ids, stored
from threadkeep.store.changes.feed import change_row, insert_changes
from threadkeep.store.media.collecting import LostMedia
from threadkeep.store.removing.rules import PARTS, of_conversation
from threadkeep.store.search.index import forget_batch
from threadkeep.store.streaming.recovery import StreamRecovery, account_unfinished
from threadkeep.store.work.connections import Replay
from threadkeep.store.work.idempotency import IdempotencyKey, find_outcome, keep_outcome
from threadkeep.store.work.pacing import Pace
from threadkeep.store.work.refs import TENANT_WIDE, Scope, conversation_not_found, find_row

FOUND: Final = 100  # conversations that are looked for at once
STATUSES: Final = (DELETED, ACTIVE, ARCHIVED)  # of all conversations, with which the index of their activity begins


class Hidden(NamedTuple):
    """How many conversations were looked at, and the keys of those that still have rows, hidden before or now."""

    rows: int
    keys: list[int]


def hide_conversation(connection: sa.Connection, scope: Scope, id: str, key: IdempotencyKey | None) -> int:
    """Hide a conversation; return its key, which is needed to purge its rows."""
    outcome = find_outcome(connection, scope.tenant, TENANT_WIDE, key)
    if outcome is not None:
        raise Replay(outcome["conversation_id"])
    row = find_row(connection, scope, "public_id", ids.public_id_bytes(id))
    if row is None:
        raise conversation_not_found(id)
    conversation: int = row.id
    now = datetime.now(UTC)
    keep_outcome(connection, scope.tenant, TENANT_WIDE, key, now, kind="deleted", conversation_id=conversation)
    statement = conversation_update("external_id", "status", scoped=scope.user is not None, returning=False)
    parameters = scope.parameters(key=conversation, new_status=DELETED, new_external_id=None)
    if not statement.execute(connection, parameters):  # another process was faster
        raise conversation_not_found(id)
    _record_deletions(connection, scope.tenant, [(conversation, ids.public_id_bytes(id))], now)
    return conversation


def find_conversations(
    connection: sa.Connection, tenant: int, which: sa.ColumnElement[bool], statuses: Sequence[str] = STATUSES
) -> list[int]:
    """Return the keys of some conversations, of each status the longest inactive ones first.

    One statement for all statuses: between two, a conversation could change from one to the other.
    """
    table = models.conversations.c
    each = sa.select(table.id).where(table.tenant_id == tenant, which).order_by(table.last_activity_at, table.id)
    found = (each.where(table.status == status).limit(FOUND).subquery() for status in statuses)
    return list(connection.execute(sa.union_all(*(sa.select(some.c.id) for some in found))).scalars())


def hide_conversations(
    connection: sa.Connection, tenant: int, pace: Pace, keys: Sequence[int], which: sa.ColumnElement[bool]
) -> Hidden:
    """Hide some conversations, and clear what their rows contain besides the items.

    The rows are locked, and read again, before they are changed: a writer that was faster keeps its conversation.
    """
    hidden: list[int] = []

    def hide(some: Sequence[int]) -> int:
        found = _hide(connection, tenant, some, which)
        hidden.extend(key for key in some if key in found)
        return len(found)

    return Hidden(pace.change(keys, hide).rows, hidden)


def _hide(connection: sa.Connection, tenant: int, keys: Sequence[int], which: sa.ColumnElement[bool]) -> set[int]:
    table = models.conversations.c
    statement = sa.select(table.id, table.public_id, table.status)
    statement = statement.where(table.tenant_id == tenant, which, table.id.in_(keys)).order_by(table.id)
    rows = connection.execute(statement.with_for_update()).all()
    hidden = {row.id for row in rows}
    if hidden:
        deleted = [(row.id, bytes(row.public_id)) for row in rows if row.status != DELETED]
        _record_deletions(connection, tenant, deleted, datetime.now(UTC))
        cleared = dict.fromkeys(column.name for column in base.columns_holding(models.conversations, "content", "name"))
        connection.execute(
            sa.update(models.conversations)
            .where(table.tenant_id == tenant, table.id.in_(hidden))
            .values(status=DELETED, revision=table.revision + 1, **cleared)
        )
    return hidden


def _record_deletions(
    connection: sa.Connection, tenant: int, deleted: Iterable[tuple[int, bytes]], now: datetime
) -> None:
    """Tell the change feed which conversations, by key and public id, are gone."""
    insert_changes(connection, [change_row(tenant, key, public_id, stored.DELETED, now) for key, public_id in deleted])


class Purged(NamedTuple):
    """How many conversations are gone, and what media they had."""

    rows: int
    media: LostMedia


def purge_some(
    connection: sa.Connection, tenant: int, pace: Pace, keys: Sequence[int], recovery: StreamRecovery
) -> Purged:
    """Remove the rows of deleted conversations, as many as there is time for.

    Their responses in progress get their ledger rows, of what `recovery` makes of them.
    """
    media = LostMedia()
    for done, key in enumerate(keys):
        if purge_batch(connection, tenant, pace, key, recovery, media):
            return Purged(done, media)
        if pace.is_over:
            return Purged(done + 1, media)
    return Purged(len(keys), media)


def purge_batch(
    connection: sa.Connection, tenant: int, pace: Pace, key: int, recovery: StreamRecovery, media: LostMedia
) -> bool:
    """Remove rows of a deleted conversation while there is time; return whether some are left."""
    table = models.conversations.c
    is_conversation = [table.tenant_id == tenant, table.id == key]
    if connection.execute(sa.select(table.id).where(*is_conversation, table.status == DELETED)).one_or_none() is None:
        return False
    account_unfinished(connection, tenant, key, recovery)
    while (count := forget_batch(connection, tenant, key, pace.slice)) > 0:
        pace.note(count)
        if pace.is_over:
            return True
    if _delete_media(connection, tenant, key, pace, media):
        return True
    for part, order in PARTS.items():
        if order is None:
            connection.execute(sa.delete(part).where(*of_conversation(part, tenant, key)))
        elif _delete_in_order(connection, order, tenant, key, pace):
            return True
    connection.execute(sa.delete(models.conversations).where(*is_conversation))
    pace.note(1)
    return False


def _delete_media(connection: sa.Connection, tenant: int, key: int, pace: Pace, media: LostMedia) -> bool:
    """Remove the links to media item by item, with the media that nothing else has: they may be large.

    Returns whether the transaction has to end before all of them are gone.
    """
    link, conditions, after = models.item_blobs.c, of_conversation(models.item_blobs, tenant, key), -1
    found = sa.select(link.position).where(*conditions).distinct().order_by(link.position)
    while positions := connection.execute(found.where(link.position > after).limit(pace.slice)).scalars().all():
        after = positions[-1]
        for position in positions:
            if pace.is_over:
                return True
            at = [*conditions, link.position == position]
            hashes = set(
                connection.execute(sa.select(link.hash).where(*at)).scalars()
            )  # DISTINCT would use their index
            count = connection.execute(sa.delete(models.item_blobs).where(*at)).rowcount
            media.collect(connection, tenant, hashes)
            pace.note(min(count, 1))  # none, if others have removed them
    return False


def _delete_in_order(connection: sa.Connection, column: sa.Column[Any], tenant: int, key: int, pace: Pace) -> bool:
    """Remove the rows of a conversation by a column, as ranges, because not every database has DELETE … LIMIT.

    Returns whether the transaction has to end before all of them are gone. Each range is looked at once: the caller's
    transaction may still see rows that others have removed.
    """
    conditions = of_conversation(column.table, tenant, key)
    left = sa.select(column).where(*conditions).order_by(column)
    while values := connection.execute(left.limit(pace.slice)).scalars().all():
        if pace.is_over:
            return True
        left = sa.select(column).where(*conditions, column > values[-1]).order_by(column)
        statement = sa.delete(column.table).where(*conditions, column.between(values[0], values[-1]))
        pace.note(connection.execute(statement).rowcount)
    return False


def count_changes(connection: sa.Connection, tenant: int, before: int) -> int:
    """Return how many changes have keys up to one."""
    return int(
        connection.execute(sa.select(sa.func.count()).where(*changes_before(connection, tenant, before))).scalar_one()
    )


def prune_changes(connection: sa.Connection, tenant: int, pace: Pace, before: int) -> int:
    """Remove a batch of the oldest changes, and note what was removed, for those who come back later; return how many.

    Changes that a long transaction commits in the meantime stay.
    """
    table = models.changes.c
    statement = sa.select(table.id, table.transaction_id).where(*changes_before(connection, tenant, before))
    rows = connection.execute(statement.order_by(table.id).limit(pace.rows)).all()
    if not rows:
        return 0
    done, removed = pace.change(rows, lambda some: _delete_changes(connection, tenant, [row.id for row in some]))
    if not removed:  # others have removed them, and noted it
        return 0
    is_mark = [table.tenant_id == tenant, table.id == PRUNED]
    mark = connection.execute(sa.select(table.to_position, table.transaction_id).where(*is_mark)).one_or_none()
    numbers = [row.transaction_id for row in (*rows[:done], mark) if row is not None and row.transaction_id is not None]
    last = max(rows[done - 1].id, PRUNED if mark is None else mark.to_position)  # these may have been committed late
    _delete_changes(connection, tenant, [PRUNED])
    connection.execute(
        sa.insert(models.changes),
        {
            "tenant_id": tenant, "id": PRUNED, "conversation_id": 0, "public_id": bytes(16), "kind": "pruned",
            "to_position": last, "transaction_id": max(numbers, default=None),
            "created_at": datetime.now(UTC),
        },
    )  # fmt: skip
    return done


def _delete_changes(connection: sa.Connection, tenant: int, keys: Sequence[int]) -> int:
    table = models.changes.c
    return connection.execute(sa.delete(models.changes).where(table.tenant_id == tenant, table.id.in_(keys))).rowcount


def changes_before(connection: sa.Connection, tenant: int, before: int) -> list[sa.ColumnElement[bool]]:
    """The changes up to a key, except the newest one: it tells whether a cursor is of this feed."""
    table = models.changes.c
    newest = connection.execute(sa.select(sa.func.max(table.id)).where(table.tenant_id == tenant)).scalar() or PRUNED
    return [table.tenant_id == tenant, table.id > PRUNED, table.id <= min(before, newest - 1)]
