"""Media by the hash of their bytes: what items have, and what was uploaded for an item to come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection

from threadkeep.db.dialects import insert_or_replace
from threadkeep.db.queries.items import media_of
from threadkeep.db.tables import uploads
from threadkeep.domain.media import Media, UploadedMedia, media_hash, media_type_of
from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption, NotFound
from threadkeep.store.media.cutting import MediaPiece
from threadkeep.store.media.placing import write_placed
from threadkeep.store.media.rows import content_of, insert_media, read_objects
from threadkeep.store.refs import Scope
from threadkeep.store.retries import whole
from threadkeep.store.transactions import Transactions

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
        connection.execute(insert_or_replace(connection, uploads, "media_type", "expires_at"), row)

    if scope.blobs is None:
        transactions.write(write, is_repeatable=True)
    else:
        write_placed(transactions, scope, scope.blobs, [piece], write, is_repeatable=True)
    return found
