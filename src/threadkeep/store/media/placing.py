"""Putting media into a blob store: before the transaction whose rows name them, under names that are used once.

Whatever happens, no row names an object that is not there. An object that no row names is removed by whoever put it,
or, after a crash or when the caller's transaction was rolled back, by `Store.purge_deleted`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db.queries.items import places_of
from threadkeep.store.connections import run_blocking
from threadkeep.store.media.cutting import MediaPiece
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions

T = TypeVar("T")

LOG: Final = logging.getLogger("threadkeep.blobs")


def write_placed(
    transactions: Transactions,
    scope: Scope,
    store: BlobStore,
    media: Iterable[MediaPiece],
    work: Callable[[Connection], T],
    *,
    is_repeatable: bool,
) -> T:
    """Run work that writes the rows of these media, once they are in the blob store."""
    found: dict[bytes, MediaPiece] = {}
    for piece in media:
        found.setdefault(piece.hash, piece)
    pieces = list(found.values())

    def attempt(connection: Connection) -> T:
        for piece in pieces:
            piece.is_used = False
        return work(connection)

    places: dict[bytes, str] = {}
    with removed_unused(transactions, scope, store, places):
        _place(transactions, scope, store, pieces, places)
        result = transactions.write(attempt, is_repeatable=is_repeatable)
    if not all(piece.is_used or piece.location is None for piece in pieces):
        remove_unused(transactions, scope, store, places)
    return result


@contextmanager
def removed_unused(
    transactions: Transactions, scope: Scope, store: BlobStore, places: Mapping[bytes, str]
) -> Iterator[None]:
    """Remove what was put, by its hashes, if no row names it after an error.

    What was interrupted, or has lost its connection, leaves it for `Store.purge_deleted`: its COMMIT may still arrive.
    """
    try:
        yield
    except Exception as error:
        if not (isinstance(error, DBAPIError) and error.connection_invalidated):
            remove_unused(transactions, scope, store, places)
        raise


def remove_unused(transactions: Transactions, scope: Scope, store: BlobStore, places: Mapping[bytes, str]) -> None:
    """Remove what was put, and is named by no row: the write failed, had been done before, or lost a race."""
    if not places:
        return
    try:
        named = {row.location for row in places_now(transactions, scope, places)}
    except Exception as error:  # noqa: BLE001 - the error of the write counts
        LOG.warning("Objects that may be unused stay in the blob store for now: %r", error)
    else:
        remove_objects(store, set(places.values()) - named)


def _place(
    transactions: Transactions, scope: Scope, store: BlobStore, pieces: Sequence[MediaPiece], places: dict[bytes, str]
) -> None:
    known = {bytes(row.hash) for row in places_now(transactions, scope, (piece.hash for piece in pieces))}
    for piece in pieces:
        piece.is_known = piece.hash in known
        if not piece.is_known:
            piece.location = places[piece.hash] = new_name(scope.tenant, piece.hash)
            run_blocking(store.put, piece.location, piece.content, piece.media_type)


def places_now(transactions: Transactions, scope: Scope, hashes: Iterable[bytes]) -> Sequence[Any]:
    """Return the hashes and locations of those of these media that the database knows."""
    parameters = {"tenant": scope.tenant, "hashes": sorted(hashes)}
    return transactions.read(lambda connection: connection.execute(places_of(""), parameters).all())


def new_name(tenant: int, hash_: bytes) -> str:
    """A name for media that nothing else has or will have: its object is written once."""
    name = hash_.hex()
    return f"{tenant_prefix(tenant)}{name[:2]}/{name}-{secrets.token_hex(8)}"


def tenant_prefix(tenant: int) -> str:
    """How the names of all media of a tenant begin."""
    return f"{tenant}/"


def remove_objects(store: BlobStore, names: Iterable[str], *, is_strict: bool = False) -> bool:
    """Remove objects that no row names; return False if one was left, which is removed later.

    `is_strict`: raise the error instead.
    """
    is_done = True
    for name in names:
        try:
            run_blocking(store.delete, name)
        except Exception as error:  # any: a store may be a class of the application
            if is_strict:
                raise
            LOG.warning(
                "The object %s was not removed from the blob store, which is tried again later: %r", name, error
            )
            is_done = False
    return is_done
