"""How items lie in rows: columns and JSON texts, written and read here, with media taken out of them; raw bodies."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.backends import backend_of, check_sizes
from threadkeep.db.driver import LazyRow, Row, inserting
from threadkeep.db.models import items as items_table
from threadkeep.db.queries import histories, items
from threadkeep.db.types import IDENTIFIER_BYTES, escaped, name_from
from threadkeep.domain import ids
from threadkeep.domain import items as item_objects
from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import InvalidItem
from threadkeep.formats.canonical.entries import ItemEntry, PackedEntries, entries_of_joined, entries_of_rows, entry_of
from threadkeep.formats.canonical.given import given_text
from threadkeep.formats.canonical.view import StoredItemViews
from threadkeep.store.media.cutting import BLOB_BYTES, SPLICED, MediaForm, MediaPiece, take_out_media
from threadkeep.store.media.rows import insert_media, link_media, with_media
from threadkeep.store.work.refs import BranchRef, ConversationRef, Lineage, Scope, Span
from threadkeep.store.work.validation import identifier

_BATCH: Final = 500  # positions in one statement
_MEDIA: Final = attrgetter("media")

ENTRY_WIDTH: Final = len(ItemEntry._fields)
_CALL_ID, _PAYLOAD, _REST = (ItemEntry._fields.index(name) for name in ("call_id", "payload", "rest"))
_WORDS: Final = tuple(ItemEntry._fields.index(name) for name in ("type", "role", "origin", "maker"))


@dataclass(slots=True)
class ItemRecord:
    """An item ready to be stored: what its row holds of it, and the media that were taken out of its texts."""

    columns: dict[str, Any]
    media: tuple[MediaPiece, ...] = ()
    with_media: ItemEntry | None = None  # where media were taken out: the item with them

    def row(self, location: Mapping[str, Any], position: int, turn: int | None) -> dict[str, Any]:
        """The row of `items`: the columns and where the item is; good until the next call."""
        row = self.columns
        row.update(location)
        row["position"], row["turn"] = position, turn
        return row

    def entry(self, position: int, turn: int | None, seen: int | None) -> ItemEntry:
        """The item as the formats read it, once it has a position."""
        if self.with_media is not None:
            return self.with_media._replace(position=position, turn=turn, seen=seen)
        row = self.columns
        payload, rest = row["payload"], row["rest"]
        return ItemEntry(
            position, row["type"], row["role"], turn, seen, row["call_id"], row["origin"],
            None if payload is None else payload.encode(), None if rest is None else rest.encode(), row["codec"],
            row["maker"],
        )  # fmt: skip

    @property
    def size(self) -> int:
        """The bytes of its texts, with its media."""
        return self._views().size

    def canonical(self, item_id: str) -> Any:
        """The item as OpenAI's clients validate it."""
        return self._views().canonical(item_id)

    def given(self) -> Any:
        """The item as it was given."""
        return self._views().given()

    def _views(self) -> StoredItemViews:
        return StoredItemViews(self.entry(-1, None, None), self.columns["given"])


def encode_item(
    item: JsonObject,
    *,
    author_id: str | None = None,
    model: str | None = None,
    maker: str | None = None,
    given: item_objects.Given | None = None,
) -> ItemRecord:
    """The record of an item object; InvalidItem for what cannot be stored. `given`: the JSON it was read from."""
    if isinstance(item.get("author_id"), str):  # a column of its own: it is never sent to a provider
        author_id = author_id or item["author_id"]
        item = {name: value for name, value in item.items() if name != "author_id"}
    if author_id is not None:
        author_id = identifier("author_id", author_id)
    entry = entry_of(item, position=-1, maker=maker)
    payload, rest = entry.payload, entry.rest
    media: tuple[MediaPiece, ...] = ()
    if max(len(payload or b""), len(rest or b"")) >= BLOB_BYTES:
        payload, rest, media = take_out_media(entry)
    item_id = ids.own_id(item)
    columns = {
        "item_id": item_id,
        "item_hash": ids.short_hash(item_id),
        "call_id": entry.call_id,
        "call_hash": ids.short_hash(entry.call_id),
        "type": _word("type", entry.type),
        "role": _word("role", entry.role),
        "status": fitting(item.get("status")),
        "name": fitting(item.get("name")),
        "author_id": author_id,
        "origin": entry.origin,
        "model": fitting(model),
        "maker": maker,
        "payload": payload and payload.decode(),
        "rest": rest and rest.decode(),
        "given": None if given is None else given_text(given, entry),
        "codec": entry.codec,
    }
    if not media:
        return ItemRecord(columns)
    columns["codec"] = entry.codec | SPLICED
    return ItemRecord(columns, media, entry)


def author_of(item: item_objects.Item) -> str | None:
    """Who wrote a message, where the message says so."""
    return item.author_id if isinstance(item, item_objects.Message) else None


def turn_offsets(turns: Sequence[int | None]) -> list[int | None]:
    """Turn numbers as the offsets at which the turns begin."""
    starts: dict[int, int] = {}
    return [None if turn is None else starts.setdefault(turn, offset) for offset, turn in enumerate(turns)]


def fitting(value: object) -> str | None:
    """A value for a short column, if it fits; the row's JSON text holds the whole of what does not."""
    if not isinstance(value, str):
        return None
    is_short = len(value) <= IDENTIFIER_BYTES // 6  # the longest a character can become
    return value if is_short or len(escaped(value).encode()) <= IDENTIFIER_BYTES else None


@lru_cache(maxsize=1024)
def _word(name: str, value: str | None) -> str | None:
    if value is not None and (fitting(value) is None or escaped(value) != value):
        raise InvalidItem(
            f"The {name} of an item must be a word of at most {IDENTIFIER_BYTES} bytes without control characters, "
            f"not {value[:40]!r}."
        )
    return value


# Writing


def insert_item_rows(
    connection: Connection,
    rows: Sequence[dict[str, Any]],
    records: Sequence[ItemRecord],
    now: datetime,
    before: inserting.TableRows = (),
    behind: inserting.TableRows = (),
) -> None:
    """Rows of items of new conversations, and their media; `before` and `behind`: rows of other tables with them."""
    check_sizes(connection, rows, "an item", ("payload", "rest", "given"))
    has_media = any(map(_MEDIA, records))
    if has_media:
        insert_media_of(connection, records, rows[0]["tenant_id"], now)
    inserting.insert_rows(connection, [*before, (items_table, rows), *behind])
    if has_media:
        link_media_of(connection, records, rows)


def insert_media_of(connection: Connection, records: Iterable[ItemRecord], tenant: int, now: datetime) -> None:
    """The media of items, before the rows of these; in hash order, so that two writers cannot wait for each other."""
    pieces: dict[bytes, MediaPiece] = {}
    for record in records:
        for piece in record.media:
            pieces.setdefault(piece.hash, piece)
    if pieces:
        insert_media(connection, tenant, pieces, now)


def link_media_of(connection: Connection, records: Iterable[ItemRecord], places: Iterable[Mapping[str, Any]]) -> None:
    """Where media belong, behind the rows of their items; `places` name the conversation and position of each item."""
    links = [
        {
            "tenant_id": place["tenant_id"], "conversation_id": place["conversation_id"],
            "position": place["position"], "part": piece.part, "ordinal": piece.ordinal,
            "splice_at": piece.splice_at, "hash": piece.hash,
        }
        for record, place in zip(records, places, strict=True)
        for piece in record.media
    ]  # fmt: skip
    if links:
        link_media(connection, links)


# Reading


def read_entries(
    connection: Connection,
    ref: ConversationRef,
    ranges: Iterable[tuple[int, int, int]],
    *,
    is_latest: bool = False,
    media: MediaForm = "inline",
) -> list[ItemEntry]:
    """The items of ranges (branch, after, up to), media in place; `is_latest` and `media` as in `read_history`."""
    statement, entries = items.entries_of(latest=is_latest), []
    for branch, after, upto in ranges:
        parameters = ref.parameters(branch=branch, after=after, upto=upto)
        rows = statement.fetch_all(connection, parameters)
        entries += decode_entries(connection, ref, rows, is_latest=is_latest, media=media)
    return entries


def read_spans(
    connection: Connection,
    ref: ConversationRef,
    lineage: Lineage,
    spans: Iterable[Span],
    *,
    is_latest: bool = False,
    media: MediaForm = "inline",
) -> list[ItemEntry]:
    """The items in spans of a branch, without those that were removed from it."""
    entries = read_entries(connection, ref, [span[:3] for span in spans], is_latest=is_latest, media=media)
    if not lineage.parts:
        return entries
    keeps = lineage.keeps()
    return [entry for entry in entries if keeps(entry.position)]


def read_branch(
    connection: Connection, ref: BranchRef, lineage: Lineage, after: int, *, is_latest: bool = False
) -> list[ItemEntry]:
    """The items of a branch after a position, up to where its lineage ends."""
    spans = lineage.spans(ref.branch, after, lineage.head)
    return read_spans(connection, ref, lineage, spans, is_latest=is_latest)


def read_texts(connection: Connection, ref: ConversationRef, positions: Iterable[int]) -> dict[int, JsonObject]:
    """The items at some positions; without items of which media were taken out."""
    found: dict[int, JsonObject] = {}
    rest = iter(sorted(positions))
    while batch := list(islice(rest, _BATCH)):
        for row in connection.execute(items.texts_at(), ref.parameters(positions=batch)):
            if not row.codec & SPLICED:
                payload, over = (None if text is None else text.encode() for text in (row.payload, row.rest))
                entry = ItemEntry(
                    row.position, row.type, origin=row.origin, payload=payload, rest=over, codec=row.codec
                )
                found[row.position] = entry.item()
    return found


def decode_entries(
    connection: Connection,
    ref: ConversationRef,
    rows: Sequence[Row],
    *,
    is_latest: bool = False,
    media: MediaForm = "inline",
) -> list[ItemEntry]:
    """Entries of rows that begin with the columns of one, as the driver gives them; media in place, in that form."""
    if backend_of(connection).gives_names_as_bytes:
        entries = [_with_names(row[:ENTRY_WIDTH]) for row in rows]
    else:  # long texts come as bytes
        is_wider = len(rows) > 0 and len(rows[0]) > ENTRY_WIDTH
        entries = list(map(_NEW_ENTRY, repeat(ItemEntry), map(_ENTRY_COLUMNS, rows) if is_wider else rows))
        if "\\" in "".join(filter(None, map(itemgetter(_CALL_ID), entries))):  # something is escaped
            entries = [entry._replace(call_id=name_from(entry.call_id)) for entry in entries]
    return list(spliced(connection, ref, entries, is_latest=is_latest, media=media))


def spliced(
    connection: Connection,
    ref: ConversationRef,
    entries: Sequence[ItemEntry],
    *,
    is_latest: bool = False,
    media: MediaForm = "inline",
) -> Sequence[ItemEntry]:
    """The entries with the media in place that were taken out of them, in that form."""
    if isinstance(entries, PackedEntries) or max(map(_CODEC, entries), default=0) < SPLICED:
        return entries
    if media == "omitted":
        return [entry._replace(codec=entry.codec & ~SPLICED) for entry in entries]
    return with_media(connection, ref, list(entries), media, is_latest=is_latest)


_ENTRY_COLUMNS: Final = itemgetter(slice(ENTRY_WIDTH))
_NEW_ENTRY: Final[Callable[[type[ItemEntry], Iterable[Any]], ItemEntry]] = tuple.__new__  # without a check of its width
_CODEC: Final = itemgetter(ItemEntry._fields.index("codec"))


def _with_names(row: Row) -> ItemEntry:
    """An entry whose short columns come as bytes, and long ones as text."""
    values = list(row)
    for index in _WORDS:
        if isinstance(values[index], bytes):
            values[index] = values[index].decode()
    values[_CALL_ID] = name_from(row[_CALL_ID])
    for index in (_PAYLOAD, _REST):
        values[index] = None if row[index] is None else row[index].encode()
    return _NEW_ENTRY(ItemEntry, values)


# ---------------------------------------------------------------------------------------------------------------------
# Reading the items of a branch from the columns that databases have packed: the way that most requests go


class PackedHistory(NamedTuple):
    """The revision and next position of a conversation, and a branch's own items; their media are not put back yet."""

    revision: int
    next_position: int
    entries: Sequence[ItemEntry]


def read_packed(connection: Connection, ref: BranchRef, parameters: Mapping[str, Any]) -> PackedHistory | None:
    """Read what these parameters select with one statement; None if it has to be read with the columns of entries."""
    found = histories.read_packed_history(connection, parameters, scoped=ref.scope.user is not None)
    if found is None:
        return None
    if found.values is None:
        raise ref.not_found()
    entries = _unpacked(found)
    return None if entries is None else PackedHistory(found.values[0], found.values[1], entries)


def _unpacked(found: histories.PackedItems) -> Sequence[ItemEntry] | None:
    if not found.item_count:
        return ()
    return entries_of_joined(found.item_count, *found.texts) if found.is_joined else entries_of_rows(*found.texts)


class PackedState(NamedTuple):
    """The row of a conversation that is its items on branch 0, and these; their media are not put back yet."""

    row: LazyRow
    entries: Sequence[ItemEntry]


def read_packed_state(connection: Connection, scope: Scope, public_id: bytes, since: int) -> PackedState | None:
    """Read a conversation and its items from a position on with one statement; None if that does not do."""
    parameters = scope.parameters(public_id=public_id, branch=0, after=since - 1)
    found = histories.read_packed_state(connection, parameters, scoped=scope.user is not None)
    if found is None or found.values is None or (entries := _unpacked(found)) is None:
        return None
    return PackedState(histories.STATE_READER.read(connection, [found.values])[0], entries)


# Raw bodies of responses

PLAIN: Final = 0
ZLIB: Final = 1
_WORTH_COMPRESSING: Final = 2048  # bytes; shorter bodies are kept as they are


def body_columns(body: bytes, created_at: datetime) -> dict[str, Any]:
    """Return how the raw body of a response is stored."""
    codec, stored = (ZLIB, zlib.compress(body, 1)) if len(body) >= _WORTH_COMPRESSING else (PLAIN, body)
    return {"codec": codec, "body": stored, "created_at": created_at}


def decompress_body(codec: int, body: bytes) -> bytes:
    """Return a raw body from its stored form."""
    return zlib.decompress(body) if codec == ZLIB else body
