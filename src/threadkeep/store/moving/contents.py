"""What belongs to a conversation: which tables, in which order, and its rows as they are in one snapshot.

The tables say it themselves. A table with a `conversation_id` belongs to conversations, and a foreign key to a `hash`
leads to what conversations share. New tables and columns are carried without a change here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import compress
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, ForeignKeyConstraint, Table

from threadkeep.db import tables
from threadkeep.db.base import PREFIX
from threadkeep.db.dialects import is_mysql
from threadkeep.db.queries.moving import (
    AFTER,
    conversation_beside,
    hashes_of,
    named_by_hash,
    order_of,
    page_of,
    reader_of,
    sizes_of,
)
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.store.media.rows import content_of, read_objects
from threadkeep.store.moving.records import Digest, Row, encode_row
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import HostTransactions, Transactions

BATCH: Final = 200  # rows read at once
BODY_BYTES: Final = 4 * 1024 * 1024  # of bodies

# Tables that are not carried: they are made again, or mean something in one database only
LEFT_BEHIND: Final = {
    "api_keys": "a key opens the database that it was made for, and no other",
    "search_documents": "the index is made again, by the first search",
    "context_caches": "a cache at a provider belongs to whoever deletes it there",
    "changes": "the feed tells what happened in one database",
    "uploads": "an upload is for a message that is about to be written",
    "usage_records": "the ledger is carried by itself: it outlives conversations",
}
# Columns that are not carried: derived, a secret of a process, or about one database and who reads it
_OMITTED: Final = {
    "conversations": {"search_from", "revision"},
    "responses": {"lease_token"},
    "blobs": {"location"},
    "tool_definitions": {"unused_at"},
}


def short_name(table: Table) -> str:
    """The name of a table without its prefix."""
    return table.name.removeprefix(PREFIX)


@cache
def hash_references(table: Table) -> tuple[tuple[str, Table], ...]:
    """The columns of a table that name shared rows, and where these are."""
    return tuple(
        (element.parent.name, constraint.referred_table)
        for constraint in table.constraints
        if isinstance(constraint, ForeignKeyConstraint)
        for element in constraint.elements
        if element.column.name == "hash"
    )


def _is_part(table: Table) -> bool:
    return "conversation_id" in table.c and short_name(table) not in LEFT_BEHIND


# Tables whose rows belong to one conversation; parents first
PARTS: Final = tuple(filter(_is_part, tables.METADATA.sorted_tables))
# Tables whose rows conversations share, by the hash of what they hold -> the column that it is the hash of
SHARED: Final = {
    tables.configs: "config",
    tables.tool_definitions: "definition",
    tables.tool_sets: "definitions",
    tables.blobs: "content",
}
# The columns that name what is shared, and in which table that is
_NAMING: Final = tuple(
    (table, name, shared) for table in (tables.conversations, *PARTS) for name, shared in hash_references(table)
)
_REFERENCES: Final = tuple((table, name) for table, name, _ in _NAMING)
_REFERRED: Final = tuple(shared for _, _, shared in _NAMING)
_OF_USERS: Final = frozenset(table for table in PARTS if "user_id" in table.c)
BY_NAME: Final = {short_name(table): table for table in (*SHARED, tables.conversations, *PARTS)}


def is_shown(scope: Scope, table: Table, row: Row) -> bool:
    """Whether a scope sees a row of its conversations: not what other users think of items, or have read."""
    return scope.user is None or table not in _OF_USERS or bool(row["user_id"] == scope.user)


@cache
def omitted(table: Table) -> frozenset[str]:
    """The columns that the record of a row of a conversation does not have."""
    own = set() if table is tables.conversations else {"conversation_id"}
    return frozenset({"tenant_id", *own, *_OMITTED.get(short_name(table), ())})


def begin_snapshot(connection: Connection, transactions: Transactions) -> None:
    """Let all that is read until the end of this transaction be of one moment; in the caller's it is as it is."""
    if isinstance(transactions, HostTransactions):
        return
    if not connection.in_transaction():
        connection.begin()
    dialect = connection.dialect
    if dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")
    elif is_mysql(dialect):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    else:
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ")


def rows_of(connection: Connection, scope: Scope, key: int) -> Iterator[tuple[Table, Row]]:
    """All rows of a conversation: what it shares with others, its own row, and its parts; none where it is gone.

    Media that a blob store has are read from it.
    """
    which = {"tenant": scope.tenant, "key": key}
    reader = reader_of(tables.conversations)
    for found in conversation_beside(PARTS).fetch_all(connection, which):
        own, is_there = found[: -len(PARTS)], found[-len(PARTS) :]
        yield from _shared_rows(connection, scope, key)
        yield tables.conversations, reader.mappings(connection.dialect, [own])[0]
        for table in compress(PARTS, is_there):
            for part in pages(connection, table, scope.tenant, key):
                yield table, part


def pages(connection: Connection, table: Table, tenant: int, key: int | None = None) -> Iterator[Row]:
    """The rows of a conversation or, without its key, of a tenant, in order of the rest of their key.

    They are read a batch at a time; of bodies, as many as fit in a few megabytes.
    """
    which: dict[str, Any] = {"tenant": tenant, "key": key}
    order, reader, goes_on = order_of(table), reader_of(table), False
    while True:
        limit = _fitting(connection, table, which, goes_on=goes_on) if "body" in table.c else BATCH
        statement = page_of(table, whole=key is None, goes_on=goes_on)
        rows = reader.mappings(connection.dialect, statement.fetch_all(connection, which | {"limit": limit}))
        yield from rows
        if len(rows) < limit or not order:
            return
        goes_on = True
        which |= {AFTER + column.name: rows[-1][column.name] for column in order}


def _fitting(connection: Connection, table: Table, which: Row, *, goes_on: bool) -> int:
    """How many bodies can be read at once: up to a batch of them, and at least one."""
    sizes = sizes_of(table, goes_on=goes_on).fetch_all(connection, which | {"limit": BATCH})
    total = 0
    for number, (size,) in enumerate(sizes):
        total += size
        if total > BODY_BYTES:
            return max(number, 1)
    return BATCH


def among(column: ColumnElement[int], keys: Sequence[int]) -> list[ColumnElement[bool]]:
    """Conditions for a page of keys, whose order is to be asked for, too.

    Without statistics, PostgreSQL looks for many keys in an index of the tenant's rows. With bounds and an order, it
    takes the primary key.
    """
    return [column.between(min(keys), max(keys)), column.in_(keys)]


def _shared_rows(connection: Connection, scope: Scope, key: int) -> Iterator[tuple[Table, Row]]:
    tenant = scope.tenant
    hashes: dict[Table, set[bytes]] = {table: set() for table in SHARED}
    for number, hash_ in hashes_of(_REFERENCES).fetch_all(connection, {"tenant": tenant, "key": key}):
        if hash_ is not None:
            hashes[_REFERRED[number]].add(bytes(hash_))
    sets = list(_by_hash(connection, tables.tool_sets, tenant, hashes.pop(tables.tool_sets)))
    for row in sets:
        hashes[tables.tool_definitions].update(definitions_in(row))
    for table, some in hashes.items():
        for row in _by_hash(connection, table, tenant, some):
            yield table, _with_content(scope, row) if table is tables.blobs else row
    for row in sets:
        yield tables.tool_sets, row


def definitions_in(tool_set: Row) -> list[bytes]:
    """The hashes of the tools in a tool set."""
    names = loads_stored(tool_set["definitions"], "tool_sets", f"hash {bytes(tool_set['hash']).hex()}")
    return [bytes.fromhex(name) for name in names]


def _by_hash(connection: Connection, table: Table, tenant: int, hashes: set[bytes]) -> Iterator[Row]:
    wanted, size = sorted(hashes), 1 if table is tables.blobs else BATCH  # media are large
    for start in range(0, len(wanted), size):
        which = {"tenant": tenant, "hashes": wanted[start : start + size]}
        yield from (dict(row) for row in connection.execute(named_by_hash(table), which).mappings())


def _with_content(scope: Scope, row: Row) -> Row:
    """The row of media as if the database had them."""
    if row["location"] is None:
        return row
    place = SimpleNamespace(**row)
    return row | {"content": content_of(place, read_objects(scope.blobs, [place]))}


def record_of(table: Table, row: Row) -> JsonObject:
    """A row of a conversation as it is exported."""
    return encode_row(table, row, omitted(table))


def add_to(digest: Digest, table: Table, record: JsonObject) -> None:
    """Add a record to a checksum: of what is shared only what its hash is about, for others may have stored it."""
    if table in SHARED:
        record = {name: record.get(name) for name in ("hash", SHARED[table])}
    digest.add(short_name(table), record)


def fingerprint(connection: Connection, scope: Scope, key: int) -> dict[str, tuple[int, str]]:
    """How many rows of each table a conversation has, and their checksums; empty where it is gone."""
    digests: dict[str, Digest] = {}
    for table, row in rows_of(connection, scope, key):
        add_to(digests.setdefault(short_name(table), Digest()), table, record_of(table, row))
    return {name: (digest.count, digest.hex()) for name, digest in digests.items()}
