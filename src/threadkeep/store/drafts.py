"""Items on their way into rows: their JSON text, the columns cut from them, and media taken out."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, Final

from threadkeep.db.types import IDENTIFIER_BYTES, escaped
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Entry
from threadkeep.errors import InvalidItem
from threadkeep.formats.entries import entry_of
from threadkeep.store.place import identifier

SPLICED: Final = 2  # flag in items.codec, beside jsontext.EXACT: media must be spliced in
BLOB_BYTES: Final = 8 * 1024  # base64 text from this length on leaves the item

# A string value that is a base64 data URL, or base64 under a key that the providers use for media.
_MEDIA: Final = re.compile(
    rb'(?:"data:[\w.+/-]{1,120}(?:;[\w.+=/-]{1,80}){0,4};base64,|"(?:data|bytes|result|b64_json|file_data)":")'
    rb"([A-Za-z0-9+/]{%d,}={0,2})(?=\")" % BLOB_BYTES
)
_PARTS: Final = ("payload", "rest")  # `Media.part` counts these


@dataclass(frozen=True, slots=True)
class Media:
    """Bytes taken out of an item's text, and where they belong."""

    part: int
    ordinal: int
    splice_at: int
    hash: bytes
    content: bytes


@dataclass(slots=True)
class Draft:
    """An item ready to be stored: what its row holds of it, and the media that were taken out of its texts."""

    columns: dict[str, Any]
    media: tuple[Media, ...] = ()
    whole: Entry | None = None  # where media were taken out: the item with them

    def row(self, place: Mapping[str, Any], position: int, turn: int | None) -> dict[str, Any]:
        """The row of `items`: the columns, with its place put in; good until the next call."""
        row = self.columns
        row.update(place)
        row["position"], row["turn"] = position, turn
        return row

    def entry(self, position: int, turn: int | None, seen: int | None) -> Entry:
        """The item as the formats read it, once it has a place."""
        if self.whole is not None:
            return self.whole._replace(position=position, turn=turn, seen=seen)
        row = self.columns
        payload, rest = row["payload"], row["rest"]
        return Entry(
            position, row["type"], row["role"], turn, seen, row["call_id"], row["origin"],
            None if payload is None else payload.encode(), None if rest is None else rest.encode(), row["codec"],
        )  # fmt: skip


def drafted(item: JsonObject, *, author_id: str | None = None, model: str | None = None) -> Draft:
    """The draft of an item object.

    Raises:
        InvalidItem: it holds something that cannot be stored.
    """
    author = item.get("author_id")
    if isinstance(author, str):  # a column of its own: it is never sent to a provider
        item = {name: value for name, value in item.items() if name != "author_id"}
        author_id = author_id or identifier("author_id", author)
    entry = entry_of(item, position=-1)
    payload, rest = entry.payload, entry.rest
    media: tuple[Media, ...] = ()
    if len(payload or b"") >= BLOB_BYTES or len(rest or b"") >= BLOB_BYTES:
        payload, rest, media = _without_media(entry)
    call_id, item_id, status, name = entry.call_id, item.get("id"), item.get("status"), item.get("name")
    if not isinstance(item_id, str):
        item_id = None
    columns = {  # most of them are None, which needs no look
        "item_id": item_id,
        "item_hash": None if item_id is None else _short_hash(item_id),
        "call_id": call_id,
        "call_hash": None if call_id is None else _short_hash(call_id),
        "type": _needed("type", entry.type),
        "role": _needed("role", entry.role),
        "status": None if status is None else fitting(status),
        "name": None if name is None else fitting(name),
        "author_id": author_id,
        "origin": entry.origin,
        "model": None if model is None else fitting(model),
        "payload": None if payload is None else payload.decode(),
        "rest": None if rest is None else rest.decode(),
        "codec": entry.codec | (SPLICED if media else 0),
    }
    return Draft(columns, media, entry if media else None)


def spliced(rows: Iterable[Any], found: Iterable[Any]) -> list[Any]:
    """Entries with the media of `found` (position, part, splice_at, content) back in their texts."""
    pieces: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
    for position, part, splice_at, content in found:
        pieces.setdefault((position, part), []).append((splice_at, base64.b64encode(bytes(content))))
    return [_restored(row, pieces) if row.codec & SPLICED else row for row in rows]


def media_rows(draft: Draft, now: datetime, **place: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of `blobs` and `item_blobs` for a draft."""
    tenant = place["tenant_id"]
    blobs = [{"tenant_id": tenant, "hash": m.hash, "content": m.content, "created_at": now} for m in draft.media]
    links = [
        {**place, "part": m.part, "ordinal": m.ordinal, "splice_at": m.splice_at, "hash": m.hash} for m in draft.media
    ]
    return blobs, links


def _restored(entry: Entry, pieces: Mapping[tuple[int, int], list[tuple[int, bytes]]]) -> Entry:
    texts = {
        name: _with_pieces(getattr(entry, name), pieces.get((entry.position, part), []))
        for part, name in enumerate(_PARTS)
    }
    return entry._replace(payload=texts["payload"], rest=texts["rest"], codec=entry.codec & ~SPLICED)


def _with_pieces(text: bytes | None, pieces: list[tuple[int, bytes]]) -> bytes | None:
    if text is None or not pieces:
        return text
    found, last = [], 0
    for splice_at, content in pieces:
        found += [text[last:splice_at], content]
        last = splice_at
    return b"".join([*found, text[last:]])


def _without_media(entry: Entry) -> tuple[bytes | None, bytes | None, tuple[Media, ...]]:
    texts: list[bytes | None] = [entry.payload, entry.rest]
    media: list[Media] = []
    for part, text in enumerate(texts):
        if text is not None and len(text) >= BLOB_BYTES:
            texts[part], found = _cut(text, part)
            media += found
    return texts[0], texts[1], tuple(media)


def _cut(text: bytes, part: int) -> tuple[bytes, list[Media]]:
    kept: list[bytes] = []
    media: list[Media] = []
    last = length = 0
    for match in _MEDIA.finditer(text):
        content = _decoded(match[1])
        if content is None:
            continue
        before = text[last : match.start(1)]
        kept.append(before)
        length += len(before)
        media.append(Media(part, len(media), length, sha256(content).digest(), content))
        last = match.end(1)
    return b"".join([*kept, text[last:]]), media


def _decoded(text: bytes) -> bytes | None:
    """The bytes of a base64 text, if they encode to the very same text."""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return content if base64.b64encode(content) == text else None


def _short_hash(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def fitting(value: object) -> str | None:
    """A value for a short column, if it fits; the row's JSON text holds the whole of what does not."""
    if not isinstance(value, str):
        return None
    is_short = len(value) <= IDENTIFIER_BYTES // 6  # the longest a character can become
    return value if is_short or len(escaped(value).encode()) <= IDENTIFIER_BYTES else None


@lru_cache(maxsize=1024)
def _needed(name: str, value: str | None) -> str | None:
    if value is not None and (fitting(value) is None or escaped(value) != value):
        raise InvalidItem(
            f"The {name} of an item is a word of at most {IDENTIFIER_BYTES} bytes without control characters, "
            f"not {value[:40]!r}."
        )
    return value
