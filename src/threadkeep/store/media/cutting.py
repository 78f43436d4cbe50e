"""Media in the JSON texts of items: found, taken out, and put back or referred to."""

from __future__ import annotations

import base64
import binascii
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db.queries.items import places_of
from threadkeep.domain.media import REFERENCE, media_type_of
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.work.connections import run_blocking
from threadkeep.store.work.refs import Scope
from threadkeep.store.work.transactions import Transactions

SPLICED: Final = 2  # flag in items.codec, beside jsontext.EXACT: media must be spliced in
BLOB_BYTES: Final = 8 * 1024  # base64 text from this length on leaves the item
TEXTS: Final = ("payload", "rest")  # `MediaPiece.part` counts these

# How media come back in texts: as they were; as references; for what is rendered, as marks in place of the base64; or,
# where they do not matter, not at all
MediaForm = Literal["inline", "reference", "marked", "omitted"]

# A string value that is a base64 data URL, or base64 under a key that the providers use for media.
_MEDIA: Final = re.compile(
    rb'(?:"data:[\w.+/-]{1,120}(?:;[\w.+=/-]{1,80}){0,4};base64,|"(?:data|bytes|result|b64_json|file_data)":")'
    rb"([A-Za-z0-9+/]{%d,}={0,2})(?=\")" % BLOB_BYTES
)
_DATA_URL: Final = re.compile(rb'"(data:[^",;]*)[^",]*;base64,\Z')
_LONGEST_HEAD: Final = 512  # bytes before the base64 that may belong to its data URL
# What the object around base64 says of its type, as the providers spell it
_STATED: Final = re.compile(rb'"(?:media_type|mime_type|mimeType|format|output_format)":"([\w.+/-]{1,120})"')
_AROUND: Final = 256  # bytes before and behind the base64 in which that is looked for

# A mark names its media to the renderer; nobody else can write one, because nobody knows the random part.
_SECRET: Final = secrets.token_hex(8)
MARK: Final = re.compile(rb"threadkeep-mark:([0-9a-f]{64}):%s" % _SECRET.encode())


@dataclass(slots=True)
class MediaPiece:
    """Bytes taken out of an item's text, and where they belong.

    `location`: the name under which they were put into the blob store; `is_known`: the database has them already;
    `is_used`: the row that is stored names that location.
    """

    part: int
    ordinal: int
    splice_at: int
    hash: bytes
    content: bytes
    media_type: str | None = None
    location: str | None = None
    is_known: bool = False
    is_used: bool = False


# Taking out


def take_out_media(entry: ItemEntry) -> tuple[bytes | None, bytes | None, tuple[MediaPiece, ...]]:
    """The texts of an entry without their media, and these."""
    texts: list[bytes | None] = [entry.payload, entry.rest]
    media: list[MediaPiece] = []
    for part, text in enumerate(texts):
        if text is not None and len(text) >= BLOB_BYTES:
            texts[part], pieces = _cut_media(text, part)
            media += pieces
    return texts[0], texts[1], tuple(media)


def _cut_media(text: bytes, part: int) -> tuple[bytes, list[MediaPiece]]:
    kept: list[bytes] = []
    media: list[MediaPiece] = []
    last = length = 0
    for match in _MEDIA.finditer(text):
        content = _decode_base64(match[1])
        if content is None:
            continue
        before = text[last : match.start(1)]
        kept.append(before)
        length += len(before)
        stated = _stated_types(text, match.start(1), match.end(1))
        hash_, media_type = sha256(content).digest(), media_type_of(content, stated)
        media.append(MediaPiece(part, len(media), length, hash_, content, media_type))
        last = match.end(1)
    return b"".join([*kept, text[last:]]), media


def _decode_base64(text: bytes) -> bytes | None:
    """The bytes of a base64 text, if they encode to the very same text."""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return content if base64.b64encode(content) == text else None


def _stated_types(text: bytes, start: int, end: int) -> list[str]:
    """The stated types of the base64 at that place: from its data URL, else from the neighboring keys."""
    before = text[max(start - _LONGEST_HEAD, 0) : start]
    if (head := _DATA_URL.search(before)) is not None:
        return [head[1].removeprefix(b"data:").decode()]
    before = before[-_AROUND:].rpartition(b"}")[2]  # a format may stand beside the object with the bytes
    behind = text[end : end + _AROUND].partition(b"}")[0].partition(b"{")[0]
    return [word.decode() for word in [*reversed(_STATED.findall(before)), *_STATED.findall(behind)]]


# Putting back


def splice_media(
    entries: Iterable[ItemEntry], rows: Iterable[Any], form: MediaForm, contents: Callable[[Any], bytes]
) -> list[ItemEntry]:
    """Entries with the media of `rows` (position, part, splice_at, hash …) in their texts, in that form.

    `contents` gives the bytes of a row.
    """
    pieces: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
    for row in rows:
        if form == "inline":
            text = base64.b64encode(contents(row))
        else:
            name = bytes(row.hash).hex()
            text = (REFERENCE + name if form == "reference" else mark_of(name)).encode()
        pieces.setdefault((row.position, row.part), []).append((row.splice_at, text))
    return [_restore(entry, pieces, form) if entry.codec & SPLICED else entry for entry in entries]


def mark_of(name: str) -> str:
    """What stands in the place of base64, of which this is the hash, until it is decided what is rendered."""
    return f"threadkeep-mark:{name}:{_SECRET}"


def _restore(entry: ItemEntry, pieces: Mapping[tuple[int, int], list[tuple[int, bytes]]], form: MediaForm) -> ItemEntry:
    payload, rest = (
        _splice(getattr(entry, name), pieces.get((entry.position, part), []), form) for part, name in enumerate(TEXTS)
    )
    return entry._replace(payload=payload, rest=rest, codec=entry.codec & ~SPLICED)


def _splice(text: bytes | None, pieces: Sequence[tuple[int, bytes]], form: MediaForm) -> bytes | None:
    if text is None or not pieces:
        return text
    spliced, last = [], 0
    for splice_at, content in pieces:
        start = splice_at
        if form == "reference" and (head := _DATA_URL.search(text, max(splice_at - _LONGEST_HEAD, last), splice_at)):
            start = head.start(1)  # the reference takes the place of the whole data URL
        spliced += [text[last:start], content]
        last = splice_at
    return b"".join([*spliced, text[last:]])


# ---------------------------------------------------------------------------------------------------------------------
# Putting media into a blob store: before the transaction whose rows name them, under names that are used once

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
        result = transactions.write(attempt, is_repeatable=is_repeatable, is_short=True)
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
    """Return the hashes and locations of the media that are in the database."""
    parameters = {"tenant": scope.tenant, "hashes": sorted(hashes)}
    return transactions.read(lambda connection: connection.execute(places_of(), parameters).all())


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
