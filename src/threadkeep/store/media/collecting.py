"""Removing media that no item or upload has any more: their rows, and after these their objects in the blob store.

A row that names an object is first set aside: it gets a hash that nothing can refer to. It is deleted when the object
is gone. So what is interrupted, or has to wait for a store with `blobs` or for the COMMIT of the caller, is found
again, and who stores the same media meanwhile makes a row and an object of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, bindparam, delete, or_, select, update

from threadkeep.db.tables import blobs, item_blobs, uploads
from threadkeep.store.media.placing import remove_objects
from threadkeep.store.pacing import Done, Pace
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions

BATCH_SIZE: Final = 1_000  # rows in one transaction


def find_unused(connection: Connection, tenant: int, limit: int) -> Sequence[bytes]:
    """Return the hashes of media in rows that are not used any more."""
    statement = select(blobs.c.hash).where(*_unused(tenant), blobs.c.location.is_(None)).limit(limit)
    return connection.execute(statement).scalars().all()


def remove_unused(connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes]) -> Done:
    """Remove those of some media in rows that are not used any more, one after another: they may be large."""
    statement = delete(blobs).where(*_unused(tenant), blobs.c.location.is_(None))
    return pace.change(keys, lambda some: connection.execute(statement.where(blobs.c.hash.in_(some))).rowcount, size=1)


def find_uploads(connection: Connection, tenant: int, limit: int, user: str | None = None) -> Sequence[bytes]:
    """Return the hashes of uploads that have expired, or of all of a user."""
    statement = select(uploads.c.hash).where(uploads.c.tenant_id == tenant, _is_over(user)).limit(limit)
    return connection.execute(statement).scalars().all()


def forget_uploads(
    connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes], user: str | None = None
) -> Done:
    """Forget those of some uploads that have expired, or are of a user: only items keep their media then."""
    statement = delete(uploads).where(uploads.c.tenant_id == tenant, _is_over(user))
    return pace.change(keys, lambda some: connection.execute(statement.where(uploads.c.hash.in_(some))).rowcount)


def _is_over(user: str | None) -> ColumnElement[bool]:
    return uploads.c.expires_at <= datetime.now(UTC) if user is None else uploads.c.user_id == user


def find_unused_objects(connection: Connection, tenant: int, limit: int) -> Sequence[bytes]:
    """Return the hashes of unused media in the blob store; also those that an interrupted call had set aside."""
    statement = select(blobs.c.hash).where(*_unused(tenant), blobs.c.location.is_not(None)).limit(limit)
    return connection.execute(statement).scalars().all()


def set_aside_some(
    connection: Connection, tenant: int, pace: Pace, keys: Sequence[bytes]
) -> tuple[int, dict[bytes, str]]:
    """Set aside those of some media in the blob store that are not used any more.

    Returns how many it has looked at, and the names of their objects by the new hashes of their rows.
    """
    aside: dict[bytes, str] = {}

    def set_aside(some: Sequence[bytes]) -> int:
        found = _set_aside(connection, tenant, [blobs.c.hash.in_(some)])
        aside.update(found)
        return len(found)

    return pace.change(keys, set_aside).rows, aside


def collect_these_media(connection: Connection, tenant: int, hashes: Sequence[bytes]) -> dict[bytes, str]:
    """Remove those of some media that no item refers to any more; return what was set aside, see `set_aside_some`."""
    aside: dict[bytes, str] = {}
    for start in range(0, len(hashes), BATCH_SIZE):
        are_these = blobs.c.hash.in_(hashes[start : start + BATCH_SIZE])
        connection.execute(delete(blobs).where(*_unused(tenant), are_these, blobs.c.location.is_(None)))
        aside |= _set_aside(connection, tenant, [are_these])
    return aside


def _set_aside(connection: Connection, tenant: int, conditions: Sequence[ColumnElement[bool]]) -> dict[bytes, str]:
    statement = select(blobs.c.hash, blobs.c.location).where(
        *_unused(tenant), *conditions, blobs.c.location.is_not(None)
    )
    places = {row.location: bytes(row.hash) for row in connection.execute(statement.limit(BATCH_SIZE))}
    aside = {hash_set_aside(location): location for location in places}
    changes = [{"old": places[name], "new": new} for new, name in aside.items() if places[name] != new]
    if changes:
        change = update(blobs).where(blobs.c.tenant_id == tenant, blobs.c.hash == bindparam("old"))
        connection.execute(change.values(hash=bindparam("new")), changes)
    return aside


def _unused(tenant: int) -> list[Any]:
    return [blobs.c.tenant_id == tenant, ~is_used()]


def is_used() -> ColumnElement[bool]:
    """The condition for rows of media that an item refers to, or that were uploaded and have not been collected."""
    users = (
        select(table.c.hash).where(table.c.tenant_id == blobs.c.tenant_id, table.c.hash == blobs.c.hash).exists()
        for table in (item_blobs, uploads)
    )
    return or_(*users)


def hash_set_aside(location: str) -> bytes:
    """The hash that stands in the row of media whose object is going to be removed."""
    return sha256(location.encode()).digest()


def remove_set_aside(
    transactions: Transactions, scope: Scope, aside: Mapping[bytes, str], *, is_strict: bool = False
) -> bool:
    """Remove the objects of media that were set aside, then their rows; return False where that has to wait.

    `is_strict`: raise the errors of the blob store.
    """
    if not aside:
        return True
    if scope.blobs is None or not transactions.keeps_history:
        return False
    if not remove_objects(scope.blobs, aside.values(), is_strict=is_strict):
        return False
    transactions.write(partial(_forget, tenant=scope.tenant, hashes=aside), is_repeatable=True)
    return True


def _forget(connection: Connection, tenant: int, hashes: Collection[bytes]) -> None:
    connection.execute(delete(blobs).where(blobs.c.tenant_id == tenant, blobs.c.hash.in_(list(hashes))))


def has_objects(connection: Connection, tenant: int) -> bool:
    """Return whether media of a tenant are in a blob store."""
    statement = select(blobs.c.hash).where(blobs.c.tenant_id == tenant, blobs.c.location.is_not(None)).limit(1)
    return connection.execute(statement).first() is not None
