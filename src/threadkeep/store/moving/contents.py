"""What belongs to a conversation: which tables, in which order, and its rows as they are in one snapshot.

The tables say it themselves. A table with a `conversation_id` belongs to conversations, and a foreign key to a `hash`
leads to what conversations share. New tables and columns are carried without a change here.

Rows as JSON objects and back, by the types of their columns: whatever the database, a row has one JSON text.

Text stays text, also where it is JSON: its exact bytes matter. Hashes are hexadecimal digits, other bytes base64, times
and days ISO 8601 in UTC. A column that is NULL is left out.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import cache, partial
from hashlib import sha256
from itertools import compress
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from threadkeep.db import backends, base, models, types
from threadkeep.db.queries import removal as queries
from threadkeep.domain.jsontext import JsonObject, canonical, loads, loads_stored
from threadkeep.domain.rendering import ImportInfo
from threadkeep.errors import InvalidOption, shown
from threadkeep.store.media.rows import content_of, read_objects
from threadkeep.store.work.refs import LineagePart, Scope
from threadkeep.store.work.transactions import Transactions

Row = dict[str, Any]
_MODULUS: Final = 1 << 256


class _Codec(NamedTuple):
    """How the values of a column are written, and read again: ValueError or TypeError for what is none."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def encode_row(table: sa.Table, row: Mapping[str, Any], without: Iterable[str] = ("tenant_id",)) -> JsonObject:
    """A row as a JSON object, without some of its columns."""
    return {
        name: encode(value) for name, encode in _encoders(table, frozenset(without)) if (value := row[name]) is not None
    }


def decode_row(table: sa.Table, record: Any, given: Mapping[str, Any]) -> Row:
    """The row of a JSON object, with the columns `given`; ValueError says what is wrong with it."""
    if not isinstance(record, dict):
        raise ValueError(f"the row is not an object but {shown(record)}")  # noqa: TRY004 - as all that is wrong with it
    decoders, blank = _decoding(table, frozenset(given))
    if not record.keys() <= decoders.keys():
        raise ValueError(f"there is no column {min(record.keys() - decoders.keys())!r}")
    row, name = {**blank, **given}, ""
    try:
        for name, value in record.items():
            if value is not None:
                row[name] = decoders[name](value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name} cannot be {shown(record[name])}") from error
    for name in _required(table):
        if row[name] is None and name not in given:
            raise ValueError(f"{name} is missing")
    return row


class Digest:
    """A checksum of rows in any order: databases sort texts differently."""

    def __init__(self) -> None:
        self._sum, self.count = 0, 0

    def add(self, table: str, record: JsonObject) -> None:
        """Take another row into account."""
        self._sum += int.from_bytes(sha256(canonical([table, record])).digest(), "big")
        self.count += 1

    def hex(self) -> str:
        """The checksum."""
        return f"{self._sum % _MODULUS:064x}"


@cache
def _decoding(table: sa.Table, given: frozenset[str]) -> tuple[dict[str, Callable[[Any], Any]], Row]:
    """What reads the columns that are not given, and a row without values."""
    codecs = _codecs(table)
    return {name: codec.decode for name, codec in codecs.items() if name not in given}, dict.fromkeys(codecs)


@cache
def _required(table: sa.Table) -> list[str]:
    """The names of the columns that may not be NULL."""
    return [column.name for column in base.written_columns(table) if not column.nullable]


@cache
def _encoders(table: sa.Table, without: frozenset[str]) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(name, codec.encode) for name, codec in _codecs(table).items() if name not in without]


@cache
def _codecs(table: sa.Table) -> dict[str, _Codec]:
    return {
        str(column.name): _codec_of(column) for column in base.written_columns(table)
    }  # orjson takes no other kind of key


def _codec_of(column: sa.Column[Any]) -> _Codec:
    kind = column.type
    if isinstance(kind, types.UtcDateTime):
        return _Codec(lambda at: at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"), _moment)
    if isinstance(kind, sa.Date):
        return _Codec(date.isoformat, date.fromisoformat)
    if isinstance(kind, sa.LargeBinary):
        length = kind.length
        if length is None:
            return _Codec(lambda value: b64encode(value).decode("ascii"), _bytes)
        return _Codec(lambda value: bytes(value).hex(), lambda value: _hash(value, length))
    if isinstance(kind, sa.Integer):
        bits = 63 if isinstance(kind, sa.BigInteger) else 15 if isinstance(kind, sa.SmallInteger) else 31
        return _Codec(int, partial(_number, numbers=range(-(1 << bits), 1 << bits)))
    if isinstance(kind, types.Identifier):
        return _Codec(str, _name)
    return _Codec(str, _text if isinstance(kind, types.EscapedText) else _storable_text)


def _moment(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(value)
    return moment.astimezone(UTC)


def _bytes(value: str) -> bytes:
    try:
        return b64decode(_text(value), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _hash(value: str, length: int) -> bytes:
    digest = bytes.fromhex(value)
    if len(digest) != length:
        raise ValueError(value)
    return digest


def _number(value: object, numbers: range) -> int:
    if type(value) is not int or value not in numbers:
        raise ValueError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _name(value: object) -> str:
    text = _text(value)
    if len(text) > types.IDENTIFIER_BYTES // 6 and len(types.escaped(text).encode()) > types.IDENTIFIER_BYTES:
        raise ValueError(text)
    return text


def _storable_text(value: object) -> str:
    """A text that is stored as it is, so that it may not contain what a database cannot hold."""
    text = _text(value)
    if "\x00" in text:
        raise ValueError(text)
    text.encode()  # no lone surrogates
    return text


# ---------------------------------------------------------------------------------------------------------------------
# What the JSON columns of an export must hold that others read too: lists of conversations, and who removes them


def problem_in(table: sa.Table, row: Row) -> str | None:
    """Return what is wrong with the JSON of a row; None if nothing is."""
    for name, is_right in _COLUMNS.get(table, {}).items():
        text = row[name]
        if text is None:
            continue
        try:
            value = loads(text)
        except ValueError:
            return f"{name} is not JSON"
        if not is_right(value):
            return f"{name} is not what this column has"
    return None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_config(value: Any) -> bool:
    """Whether options can be read, and where the conversation came from."""
    if not isinstance(value, dict):
        return False
    imported = value.get("imported")
    try:
        return imported is None or ImportInfo.from_dict(imported) is not None
    except InvalidOption:
        return False


def _is_lineage(value: Any) -> bool:
    lengths = range(2, len(LineagePart._fields) + 1)  # the last one has a default
    parts = value if isinstance(value, list) else [None]
    return all(isinstance(one, list) and len(one) in lengths and {*map(type, one)} == {int} for one in parts)


_COLUMNS: Final[Mapping[sa.Table, Mapping[str, Callable[[Any], bool]]]] = {
    models.configs: {"config": _is_config},
    models.tool_definitions: {"definition": _is_object},
    models.conversations: {"labels": _is_texts, "properties": _is_texts, "lineage": _is_lineage},
    models.branches: {"lineage": _is_lineage},
    models.appends: {"outcome": _is_object},
}

BATCH: Final = 200  # rows read at once
BODY_BYTES: Final = 4 * 1024 * 1024  # of bodies

# Tables that are not carried: they are made again, or mean something in one database only
LEFT_BEHIND: Final = {
    "api_keys": "a key opens the database that it was made for, and no other",
    "search_documents": "the index is made again, by the first search",
    "context_caches": "a cache at a provider belongs to the database that created it",
    "changes": "the feed tells what happened in one database",
    "uploads": "an upload is for a message that is about to be written",
    "usage_records": "the ledger is carried by itself: it outlives conversations",
}


def short_name(table: sa.Table) -> str:
    """The name of a table without its prefix."""
    return table.name.removeprefix(base.PREFIX)


@cache
def hash_references(table: sa.Table) -> tuple[tuple[str, sa.Table], ...]:
    """The columns of a table that name shared rows, and where these are."""
    return tuple(
        (element.parent.name, constraint.referred_table)
        for constraint in table.constraints
        if isinstance(constraint, sa.ForeignKeyConstraint)
        for element in constraint.elements
        if element.column.name == "hash"
    )


def _is_part(table: sa.Table) -> bool:
    return "conversation_id" in table.c and short_name(table) not in LEFT_BEHIND


# Tables whose rows belong to one conversation; parents first
PARTS: Final = tuple(filter(_is_part, models.METADATA.sorted_tables))
# Tables whose rows conversations share, by the hash of what they hold -> the column that it is the hash of
SHARED: Final = {
    models.configs: "config",
    models.tool_definitions: "definition",
    models.tool_sets: "definitions",
    models.blobs: "content",
}
# The columns that name what is shared, and in which table that is
_NAMING: Final = tuple(
    (table, name, shared) for table in (models.conversations, *PARTS) for name, shared in hash_references(table)
)
_REFERENCES: Final = tuple((table, name) for table, name, _ in _NAMING)
_REFERRED: Final = tuple(shared for _, _, shared in _NAMING)
_OF_USERS: Final = frozenset(table for table in PARTS if "user_id" in table.c)
BY_NAME: Final = {short_name(table): table for table in (*SHARED, models.conversations, *PARTS)}


def is_shown(scope: Scope, table: sa.Table, row: Row) -> bool:
    """Whether a scope sees a row of its conversations: not what other users think of items, or have read."""
    return scope.user is None or table not in _OF_USERS or bool(row["user_id"] == scope.user)


@cache
def omitted(table: sa.Table) -> frozenset[str]:
    """The columns that the record of a row of a conversation does not have."""
    own = set() if table is models.conversations else {"conversation_id"}
    return frozenset({"tenant_id", *own, *(column.name for column in table.columns if base.LOCAL in column.info)})


def begin_snapshot(connection: sa.Connection, transactions: Transactions) -> None:
    """Let all that is read until the end of this transaction be of one moment; in the caller's it is as it is."""
    if not transactions.commits_itself:
        return
    if not connection.in_transaction():
        connection.begin()
    backends.backend_of(connection).begin_snapshot(connection)


def rows_of(connection: sa.Connection, scope: Scope, key: int) -> Iterator[tuple[sa.Table, Row]]:
    """All rows of a conversation: what it shares with others, its own row, and its parts; none where it is gone.

    Media that a blob store has are read from it.
    """
    which = {"tenant": scope.tenant, "key": key}
    reader = queries.reader_of(models.conversations)
    for found in queries.conversation_beside(PARTS).fetch_all(connection, which):
        own, is_there = found[: -len(PARTS)], found[-len(PARTS) :]
        yield from _shared_rows(connection, scope, key)
        yield models.conversations, reader.mappings(connection, [own])[0]
        for table in compress(PARTS, is_there):
            for part in pages(connection, table, scope.tenant, key):
                yield table, part


def pages(connection: sa.Connection, table: sa.Table, tenant: int, key: int | None = None) -> Iterator[Row]:
    """The rows of a conversation or, without its key, of a tenant, in order of the rest of their key.

    They are read a batch at a time; of bodies, as many as fit in a few megabytes.
    """
    which: dict[str, Any] = {"tenant": tenant, "key": key}
    order, reader, goes_on = queries.order_of(table), queries.reader_of(table), False
    while True:
        limit = _fitting(connection, table, which, goes_on=goes_on) if "body" in table.c else BATCH
        statement = queries.page_of(table, whole=key is None, goes_on=goes_on)
        rows = reader.mappings(connection, statement.fetch_all(connection, which | {"limit": limit}))
        yield from rows
        if len(rows) < limit or not order:
            return
        goes_on = True
        which |= {queries.AFTER + column.name: rows[-1][column.name] for column in order}


def _fitting(connection: sa.Connection, table: sa.Table, which: Row, *, goes_on: bool) -> int:
    """How many bodies can be read at once: up to a batch of them, and at least one."""
    sizes = queries.sizes_of(table, goes_on=goes_on).fetch_all(connection, which | {"limit": BATCH})
    total = 0
    for number, (size,) in enumerate(sizes):
        total += size
        if total > BODY_BYTES:
            return max(number, 1)
    return BATCH


def _shared_rows(connection: sa.Connection, scope: Scope, key: int) -> Iterator[tuple[sa.Table, Row]]:
    tenant = scope.tenant
    hashes: dict[sa.Table, set[bytes]] = {table: set() for table in SHARED}
    for number, hash_ in queries.hashes_of(_REFERENCES).fetch_all(connection, {"tenant": tenant, "key": key}):
        if hash_ is not None:
            hashes[_REFERRED[number]].add(bytes(hash_))
    sets = list(_by_hash(connection, models.tool_sets, tenant, hashes.pop(models.tool_sets)))
    for row in sets:
        hashes[models.tool_definitions].update(definitions_in(row))
    for table, some in hashes.items():
        for row in _by_hash(connection, table, tenant, some):
            yield table, _with_content(scope, row) if table is models.blobs else row
    for row in sets:
        yield models.tool_sets, row


def definitions_in(tool_set: Row) -> list[bytes]:
    """The hashes of the tools in a tool set."""
    names = loads_stored(tool_set["definitions"], "tool_sets", f"hash {bytes(tool_set['hash']).hex()}")
    return [bytes.fromhex(name) for name in names]


def _by_hash(connection: sa.Connection, table: sa.Table, tenant: int, hashes: set[bytes]) -> Iterator[Row]:
    wanted, size = sorted(hashes), 1 if table is models.blobs else BATCH  # media are large
    for start in range(0, len(wanted), size):
        which = {"tenant": tenant, "hashes": wanted[start : start + size]}
        yield from (dict(row) for row in connection.execute(queries.named_by_hash(table), which).mappings())


def _with_content(scope: Scope, row: Row) -> Row:
    """The row of media as if the database had them."""
    if row["location"] is None:
        return row
    place = SimpleNamespace(**row)
    return row | {"content": content_of(place, read_objects(scope.blobs, [place]))}


def record_of(table: sa.Table, row: Row) -> JsonObject:
    """A row of a conversation as it is exported."""
    return encode_row(table, row, omitted(table))


def add_to(digest: Digest, table: sa.Table, record: JsonObject) -> None:
    """Add a record to a checksum: of what is shared only what its hash is about, for others may have stored it."""
    if table in SHARED:
        record = {name: record.get(name) for name in ("hash", SHARED[table])}
    digest.add(short_name(table), record)


def fingerprint(connection: sa.Connection, scope: Scope, key: int) -> dict[str, tuple[int, str]]:
    """How many rows of each table a conversation has, and their checksums; empty where it is gone."""
    digests: dict[str, Digest] = {}
    for table, row in rows_of(connection, scope, key):
        add_to(digests.setdefault(short_name(table), Digest()), table, record_of(table, row))
    return {name: (digest.count, digest.hex()) for name, digest in digests.items()}
