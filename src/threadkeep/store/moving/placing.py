"""Media of an export, put into a blob store before the transaction whose rows name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from threadkeep.db import tables
from threadkeep.domain.jsontext import loads
from threadkeep.store.connections import run_blocking
from threadkeep.store.media.placing import new_name, places_now, remove_unused, removed_unused
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.moving.reading import decode_line
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions

_MEDIA: bytes = b'"blobs"'  # in the lines with media, and hardly any other


@contextmanager
def placed_media(transactions: Transactions, scope: Scope, file: IO[bytes]) -> Iterator[Mapping[bytes, str]]:
    """Put the media of these lines into the blob store, if there is one; gives their names by their hashes.

    Whatever no row names afterwards is removed again, as by `write_placed`: the database had it already, or the write
    failed.
    """
    places: dict[bytes, str] = {}
    if scope.blobs is None:
        yield places
        return
    with removed_unused(transactions, scope, scope.blobs, places):
        _put(transactions, scope, scope.blobs, file, places)
        yield places
    remove_unused(transactions, scope, scope.blobs, places)


def _put(transactions: Transactions, scope: Scope, store: BlobStore, file: IO[bytes], places: dict[bytes, str]) -> None:
    file.seek(0)
    for line in file:
        if _MEDIA not in line[:40]:
            continue
        table, row = decode_line(loads(line), scope.tenant, 0)
        if table is tables.blobs and not places_now(transactions, scope, [row["hash"]]):
            name = places[row["hash"]] = new_name(scope.tenant, row["hash"])
            run_blocking(store.put, name, row["content"], row["media_type"])
