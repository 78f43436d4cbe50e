"""Rows of media: written with the items that have them, and read with or without their content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from threadkeep.db.dialects import check_sizes, insert_missing
from threadkeep.db.queries.items import blobs_of, contents_of, places_of, references_of
from threadkeep.db.tables import blobs, item_blobs
from threadkeep.errors import DamagedRow, InvalidOption
from threadkeep.formats.canonical.entries import Entry
from threadkeep.store.connections import run_blocking
from threadkeep.store.media.cutting import SPLICED, MediaForm, MediaPiece, splice_media
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.refs import ConversationRef, Scope, tenant_not_found

_AT_ONCE: Final = 8  # objects that are read at the same time

Pieces = Mapping[bytes, MediaPiece]  # by hash


# Writing


def insert_media(connection: Connection, tenant: int, pieces: Pieces, now: datetime) -> None:
    """The rows of media, in hash order, so that two writers cannot wait for each other.

    What was found in the database before the transaction, and is gone, goes into the row itself.
    """
    ordered = [pieces[hash_] for hash_ in sorted(pieces)]
    _insert(connection, tenant, [piece for piece in ordered if not piece.is_known], now)
    if not any(piece.is_known or piece.location for piece in ordered):
        return
    rows = connection.execute(places_of(connection.dialect.name), {"tenant": tenant, "hashes": sorted(pieces)})
    places = {bytes(row.hash): row.location for row in rows}
    for piece in ordered:
        piece.is_used = piece.location is not None and places.get(piece.hash) == piece.location
    _insert(connection, tenant, [piece for piece in ordered if piece.hash not in places], now)


def _insert(connection: Connection, tenant: int, pieces: Sequence[MediaPiece], now: datetime) -> None:
    rows = [
        {
            "tenant_id": tenant, "hash": piece.hash, "content": piece.content if piece.location is None else None,
            "location": piece.location, "media_type": piece.media_type, "size": len(piece.content), "created_at": now,
        }
        for piece in pieces
    ]  # fmt: skip
    if rows:
        check_sizes(connection, [row for row in rows if row["content"]], "the media of an item", ("content",))
        try:
            connection.execute(insert_missing(connection, blobs), rows)
        except IntegrityError as error:  # as with options: it is the key of the tenant
            raise tenant_not_found() from error


def link_media(connection: Connection, links: Sequence[dict[str, Any]]) -> None:
    """The rows that say where media belong."""
    connection.execute(insert(item_blobs), links)


# Reading


def with_media(
    connection: Connection, ref: ConversationRef, entries: Sequence[Entry], form: MediaForm, *, is_latest: bool
) -> list[Entry]:
    """Entries with the media that were taken out of them, in a form; only the form "inline" reads them.

    Raises:
        DamagedRow: some are missing, perhaps because they were removed after the entries were read; see `whole`.
    """
    flagged = [entry.position for entry in entries if entry.codec & SPLICED]
    parameters = ref.parameters(after=min(flagged) - 1, upto=max(flagged))
    statement = blobs_of if form == "inline" else references_of
    rows = connection.execute(statement(connection.dialect.name, latest=is_latest), parameters).all()
    if missing := sorted(set(flagged).difference(row.position for row in rows)):
        raise DamagedRow("items", f"position {missing[0]}", "its media are missing")
    objects = {} if form != "inline" else read_objects(ref.scope.blobs, rows)
    return splice_media(entries, rows, form, lambda row: content_of(row, objects))


def read_contents(connection: Connection, scope: Scope, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
    """The bytes of media of the tenant, by hash."""
    rows = connection.execute(contents_of(), {"tenant": scope.tenant, "hashes": sorted(hashes)}).all()
    objects = read_objects(scope.blobs, rows)
    return {bytes(row.hash): content_of(row, objects) for row in rows}


def read_objects(store: BlobStore | None, rows: Sequence[Any]) -> dict[str, bytes | None]:
    """What a blob store has of the rows that name a location, by that; None for what is missing there."""
    names = list(dict.fromkeys(row.location for row in rows if row.location is not None))
    if not names:
        return {}
    if store is None:
        hint = 'Open the store with blobs=…, or read the items with media="reference".'
        raise InvalidOption("These media are kept outside of the database.", hint=hint)
    return dict(zip(names, run_blocking(_read_all, store, names), strict=True))


def _read_all(store: BlobStore, names: Sequence[str]) -> list[bytes | None]:
    def read(name: str) -> bytes | None:
        try:
            return store.get(name)
        except KeyError:
            return None

    if len(names) == 1:
        return [read(names[0])]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(read, names))


def content_of(row: Any, objects: Mapping[str, bytes | None]) -> bytes:
    """The bytes of a row of media: its own, or those of its object, if these are still what they were."""
    if row.location is None:
        if row.content is None:
            raise _damaged(row, "it has neither content nor a location")
        return bytes(row.content)
    content = objects[row.location]
    if content is None:
        raise _damaged(row, f"its object {row.location!r} is not in the blob store")
    if sha256(content).digest() != bytes(row.hash):
        raise _damaged(row, f"its object {row.location!r} has other content")
    return content


def _damaged(row: Any, reason: str) -> DamagedRow:
    return DamagedRow("blobs", f"hash {bytes(row.hash).hex()}", reason)
