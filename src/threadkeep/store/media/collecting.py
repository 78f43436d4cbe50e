"""Removing media that no item or upload has any more: their rows, and after these their objects in the blob store.

A row that names an object is first set aside: it gets a hash that nothing can refer to. It is deleted when the object
is gone. So what is interrupted, or has to wait for a store with `blobs` or for the COMMIT of the caller, is found
again, and storing the same media in the meantime makes another row and object.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, delete, select, update

from threadkeep.db.models import blobs, item_blobs, uploads
from threadkeep.db.queries import items, removal
from threadkeep.store.media import cutting, stores
from threadkeep.store.work import connections, pacing, refs
from threadkeep.store.work.transactions import Transactions

BATCH_SIZE: Final = 1_000  # rows in one statement


@dataclass(frozen=True, slots=True)
class LostMedia:
    """Media that have lost an item: hashes of those that something else had, and the objects that were set aside."""

    shared: set[bytes] = field(default_factory=set)
    aside: dict[bytes, str] = field(default_factory=dict)

    def collect(self, connection: Connection, tenant: int, hashes: Collection[bytes]) -> None:
        """Remove the media that nothing else has; each hash once."""
        count, aside = _collect(connection, tenant, list(hashes))
        self.aside.update(aside)
        if count < len(hashes):
            self.shared.update(map(bytes, hashes))


class Collected(NamedTuple):
    """How many rows were looked at and removed, and what media they had."""

    rows: int
    changed: int
    media: LostMedia


def find_unused_of(connection: Connection, tenant: int, hashes: Sequence[bytes]) -> Sequence[bytes]:
    """Return the hashes whose media are still there, and not used any more."""
    found: list[bytes] = []
    for start in range(0, len(hashes), BATCH_SIZE):
        which = [*_unused(tenant), blobs.c.hash.in_(hashes[start : start + BATCH_SIZE])]
        found += connection.execute(select(blobs.c.hash).where(*which)).scalars()
    return found


def find_inside(connection: Connection, tenant: int, hashes: Sequence[bytes]) -> Sequence[bytes]:
    """Return the hashes whose media are in the database; SQLite reads through the media for that."""
    which = [blobs.c.tenant_id == tenant, blobs.c.hash.in_(hashes), blobs.c.location.is_(None)]
    return connection.execute(select(blobs.c.hash).where(*which)).scalars().all()


def remove_unused(connection: Connection, tenant: int, pace: pacing.Pace, keys: Sequence[bytes]) -> Collected:
    """Remove the media that are not used any more, one after another: they may be large."""
    media = LostMedia()

    def remove(some: Sequence[bytes]) -> int:
        count, aside = _collect(connection, tenant, some)
        media.aside.update(aside)
        return count

    return Collected(*pace.change(keys, remove, size=1), media)


def find_expired_uploads(connection: Connection, tenant: int, limit: int) -> Sequence[bytes]:
    """Return the hashes of uploads that have expired, the oldest ones first: an order by hashes would read all."""
    table = uploads.c
    statement = select(table.hash).where(table.tenant_id == tenant, _is_over(None)).order_by(table.expires_at)
    return connection.execute(statement.limit(limit)).scalars().all()


def forget_uploads(
    connection: Connection, tenant: int, pace: pacing.Pace, keys: Sequence[bytes], user: str | None = None
) -> Collected:
    """Forget the uploads that have expired, or belong to a user, with their media if nothing else has them."""
    media = LostMedia()
    statement = delete(uploads).where(uploads.c.tenant_id == tenant, _is_over(user))

    def forget(some: Sequence[bytes]) -> int:
        count = connection.execute(statement.where(uploads.c.hash.in_(some))).rowcount
        media.collect(connection, tenant, set(some))  # one may be an upload of several users
        return count

    return Collected(*pace.change(keys, forget, size=1), media)


def _is_over(user: str | None) -> ColumnElement[bool]:
    return uploads.c.expires_at <= datetime.now(UTC) if user is None else uploads.c.user_id == user


def collect_these_media(connection: Connection, tenant: int, hashes: Sequence[bytes]) -> dict[bytes, str]:
    """Remove the media that nothing refers to any more.

    Returns the names of the objects that were set aside, by the new hashes of their rows.
    """
    return _collect(connection, tenant, hashes)[1]


def _collect(connection: Connection, tenant: int, hashes: Sequence[bytes]) -> tuple[int, dict[bytes, str]]:
    """The same, with how many were removed or set aside."""
    count, aside = 0, dict[bytes, str]()
    for start in range(0, len(hashes), BATCH_SIZE):
        are_these = blobs.c.hash.in_(hashes[start : start + BATCH_SIZE])
        statement = delete(blobs).where(*_unused(tenant), are_these, blobs.c.location.is_(None))
        count += connection.execute(statement).rowcount
        aside |= _set_aside(connection, tenant, [are_these])
    return count + len(aside), aside


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
    return removal.is_referred_to(blobs.c.hash, item_blobs.c.hash, uploads.c.hash)


def hash_set_aside(location: str) -> bytes:
    """The hash that stands in the row of media whose object is going to be removed."""
    return sha256(location.encode()).digest()


def remove_lost(transactions: Transactions, scope: refs.Scope, lost: LostMedia) -> None:
    """After the commit: remove the objects that were set aside, and media that others were removing at the same time.

    Neither of the transactions saw what the other one had not committed yet. The last to commit finds them.
    """
    remove_set_aside(transactions, scope, lost.aside)
    if lost.shared and transactions.commits_itself:
        left = transactions.read(partial(find_unused_of, tenant=scope.tenant, hashes=list(lost.shared)))
        if left:
            work = partial(collect_these_media, tenant=scope.tenant, hashes=left)
            remove_set_aside(transactions, scope, transactions.write(work, is_repeatable=True))


def remove_set_aside(
    transactions: Transactions, scope: refs.Scope, aside: Mapping[bytes, str], *, is_strict: bool = False
) -> bool:
    """Remove the objects of media that were set aside, then their rows; return False where that has to wait.

    `is_strict`: raise the errors of the blob store.
    """
    if not aside:
        return True
    if scope.blobs is None or not transactions.commits_itself:
        return False
    if not cutting.remove_objects(scope.blobs, aside.values(), is_strict=is_strict):
        return False
    transactions.write(partial(_forget, tenant=scope.tenant, hashes=aside), is_repeatable=True)
    return True


def _forget(connection: Connection, tenant: int, hashes: Collection[bytes]) -> None:
    connection.execute(delete(blobs).where(blobs.c.tenant_id == tenant, blobs.c.hash.in_(list(hashes))))


def has_objects(connection: Connection, tenant: int) -> bool:
    """Return whether media of a tenant are in a blob store."""
    statement = select(blobs.c.hash).where(blobs.c.tenant_id == tenant, blobs.c.location.is_not(None)).limit(1)
    return connection.execute(statement).first() is not None


# ---------------------------------------------------------------------------------------------------------------------
# Objects in a blob store that no row names: what a killed writer, or a caller's rolled back transaction, has left

_NAME: Final = re.compile(r"[0-9]+/[0-9a-f]{2}/([0-9a-f]{64})-[0-9a-f]{16}")
_BATCH: Final = 500  # names that are looked up with one statement


def remove_orphans(transactions: Transactions, tenant: int, store: stores.BlobStore, before: datetime) -> None:
    """Remove the objects of a tenant that no row names and that were written before a time."""
    names = connections.run_blocking(store.names, cutting.tenant_prefix(tenant), before)
    while found := connections.run_blocking(lambda: list(islice(names, _BATCH))):
        cutting.remove_objects(store, sorted(set(filter(_NAME.fullmatch, found)) - _named(transactions, tenant, found)))


def _named(transactions: Transactions, tenant: int, names: Sequence[str]) -> set[str]:
    hashes = {bytes.fromhex(match[1]) for match in map(_NAME.fullmatch, names) if match}
    hashes |= set(map(hash_set_aside, names))

    def read(connection: Connection) -> set[str]:
        rows = connection.execute(items.places_of(), {"tenant": tenant, "hashes": sorted(hashes)})
        return {row.location for row in rows}

    return transactions.read(read)
