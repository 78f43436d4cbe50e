"""Rows of media: written with the items that have them, and read with or without their content."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from threadkeep.blobs import FolderBlobs, S3Blobs
from threadkeep.db import backends, models
from threadkeep.db.queries.items import blobs_of, contents_of, media_of, places_of, references_of
from threadkeep.domain.jsontext import mismatch
from threadkeep.domain.media import Media, UploadedMedia, media_hash, media_type_of
from threadkeep.errors import DamagedRow, InvalidOption, NotFound
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.store.media.cutting import SPLICED, MediaForm, MediaPiece, splice_media, write_placed
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.work import erasures
from threadkeep.store.work.connections import made_of, run_blocking, whole
from threadkeep.store.work.refs import ConversationRef, Scope, tenant_not_found
from threadkeep.store.work.transactions import Transactions

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
    rows = connection.execute(places_of(latest=True), {"tenant": tenant, "hashes": sorted(pieces)})
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
        backends.check_sizes(connection, [row for row in rows if row["content"]], "the media of an item", ("content",))
        try:
            connection.execute(backends.backend_of(connection).insert_missing(models.blobs), rows)
        except IntegrityError as error:  # as with options: it is the key of the tenant
            raise tenant_not_found() from error


def link_media(connection: Connection, links: Sequence[dict[str, Any]]) -> None:
    """The rows that say where media belong."""
    connection.execute(insert(models.item_blobs), links)


# Reading


def with_media(
    connection: Connection, ref: ConversationRef, entries: Sequence[ItemEntry], form: MediaForm, *, is_latest: bool
) -> list[ItemEntry]:
    """Entries with the media that were taken out of them, in a form; only the form "inline" reads them.

    Raises:
        DamagedRow: some are missing, perhaps because they were removed after the entries were read; see `whole`.
    """
    flagged = [entry.position for entry in entries if entry.codec & SPLICED]
    parameters = ref.parameters(after=min(flagged) - 1, upto=max(flagged))
    statement = blobs_of if form == "inline" else references_of
    rows = connection.execute(statement(latest=is_latest), parameters).all()
    if missing := sorted(set(flagged).difference(row.position for row in rows)):
        raise DamagedRow("items", f"position {missing[0]}", "its media are missing")
    if form != "inline":
        return splice_media(entries, rows, form, lambda row: content_of(row, {}))
    objects = read_objects(ref.scope.blobs, rows)
    size = sum(len(content) for content in (*(row.content for row in rows), *objects.values()) if content is not None)
    return made_of(size, lambda: splice_media(entries, rows, form, lambda row: content_of(row, objects)))


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
    """The bytes of a row of media: its own, or its object's, if the object is unchanged."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Media by the hash of their bytes: what items have, and what was uploaded for an item to come

UPLOAD_AGE: Final = timedelta(days=1)  # for which an upload that no item has is kept
NOBODY: Final = ""  # the user of uploads of a store for all users


def get_media(transactions: Transactions, scope: Scope, name: str, *, is_own: bool = False) -> Media:
    """The media with that hash, if an item or an upload of this scope has them; see `Store.media`.

    `is_own`: only if its user has uploaded them.
    """
    hash_ = media_hash(name)
    return whole(lambda: _read_media(transactions, scope, hash_, is_own=is_own))


def _read_media(transactions: Transactions, scope: Scope, hash_: bytes, *, is_own: bool) -> Media:
    parameters = scope.parameters(hash=hash_, now=datetime.now(UTC))
    if is_own:
        parameters["uploader"] = scope.user or NOBODY
    statement = media_of(scoped=scope.user is not None, own=is_own)
    row = transactions.read_any(lambda connection: connection.execute(statement, parameters).one_or_none())
    if row is None:
        hint = "Check the hash, and that the store has the right database, tenant and user."
        raise NotFound(f"No item or upload has media with the hash {hash_.hex()}.", hint=hint)
    content = content_of(row, read_objects(scope.blobs, [row]))
    return Media(content, row.uploaded_type or row.media_type, row.size, hash_.hex())


def upload_media(transactions: Transactions, scope: Scope, content: object, media_type: object) -> UploadedMedia:
    """Store media for the user of a scope; see `Store.upload_media`."""
    if not isinstance(content, bytes | bytearray | memoryview) or not len(content):
        raise mismatch(InvalidOption, "bytes, at least one", content, "content")
    if media_type is not None and (not isinstance(media_type, str) or media_type_of(b"", [media_type]) is None):
        raise mismatch(InvalidOption, "a media type such as image/png", media_type, "media_type")
    kept, now = bytes(content), datetime.now(UTC)
    piece = MediaPiece(0, 0, 0, sha256(kept).digest(), kept, media_type_of(kept, [media_type] if media_type else []))
    found = UploadedMedia(piece.media_type, len(kept), piece.hash.hex(), now + UPLOAD_AGE)
    row = {
        "tenant_id": scope.tenant, "hash": piece.hash, "user_id": scope.user or NOBODY,
        "media_type": found.media_type, "expires_at": found.expires_at,
    }  # fmt: skip

    def write(connection: Connection) -> None:
        insert_media(connection, scope.tenant, {piece.hash: piece}, now)
        connection.execute(
            backends.backend_of(connection).insert_or_replace(models.uploads, "media_type", "expires_at"), row
        )
        erasures.check_users(connection, scope, [scope.user])

    if scope.blobs is None:
        transactions.write(write, is_repeatable=True)
    else:
        write_placed(transactions, scope, scope.blobs, [piece], write, is_repeatable=True)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Where the media of a database are, as ``--blobs`` or THREADKEEP_BLOBS names it: a folder, or a bucket of S3

_S3: Final = re.compile(r"s3://(?P<bucket>[^/]+)(?:/(?P<prefix>.*))?", re.DOTALL)
_URL: Final = re.compile(r"[a-zA-Z][\w+.-]+:")


def blob_store_at(place: str, argument: str = "path", *, creates: bool = False) -> FolderBlobs | S3Blobs:
    """Return the blob store in a folder, or below ``s3://BUCKET/PREFIX``; with `creates`, a new folder is made.

    Raises:
        InvalidOption: it names neither.
        MissingExtra: boto3 is not installed.
    """
    bucket = _S3.fullmatch(place)
    if bucket is not None:
        prefix = (bucket["prefix"] or "").rstrip("/")
        return S3Blobs(bucket["bucket"], prefix=f"{prefix}/" if prefix else "")
    if not place or _URL.match(place):
        problem = f"{place!r} is neither a folder nor the URL of a bucket, such as s3://chats/media."
        raise InvalidOption(problem, argument=argument)
    if creates and not Path(place).is_dir():
        try:
            Path(place).mkdir()
        except OSError as error:
            raise InvalidOption(f"is no folder, and cannot become one: {error}.", argument=argument) from error
    return FolderBlobs(place)
