"""What belongs to a conversation: which tables, in which order, and its rows as they are in one snapshot.

The tables say it themselves. A table with a `conversation_id` belongs to conversations, and a foreign key to a `hash`
leads to what conversations share. New tables and columns are carried without a change here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, ForeignKeyConstraint, Table, and_, or_, select

from threadkeep.db import tables
from threadkeep.db.base import PREFIX, written_columns
from threadkeep.db.dialects import is_mysql
from threadkeep.db.queries.conversations import DELETED
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.store.media.rows import content_of, read_objects
from threadkeep.store.moving.records import Digest, Row, encode_row
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import HostTransactions, Transactions

BATCH: Final = 200  # rows read at once

# Tables that are not carried: they are made again, or mean something in one database only
LEFT_BEHIND: Final = {
    "api_keys": "a key opens the database that it was made for, and no other",
    "search_documents": "the index is made again, by the first search",
    "context_caches": "a cache at a provider belongs to whoever deletes it there",
    "changes": "the feed tells what happened in one database",
    "uploads": "an upload is for a message that is about to be written",
    "usage_records": "the ledger is carried by itself: it outlives conversations",
}
# Columns that are not carried: derived, a secret of a process, or of where a blob is kept
_OMITTED: Final = {
    "conversations": {"search_from"},
    "responses": {"lease_token"},
    "blobs": {"location"},
    "tool_definitions": {"unused_at"},
}


def short_name(table: Table) -> str:
    """The name of a table without its prefix."""
    return table.name.removeprefix(PREFIX)


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
_OF_USERS: Final = frozenset(table for table in PARTS if "user_id" in table.c)
BY_NAME: Final = {short_name(table): table for table in (*SHARED, tables.conversations, *PARTS)}


def is_shown(scope: Scope, table: Table, row: Row) -> bool:
    """Whether a scope sees a row of its conversations: not what other users think of items, or have read."""
    return scope.user is None or table not in _OF_USERS or bool(row["user_id"] == scope.user)


def omitted(table: Table) -> set[str]:
    """The columns that the record of a row of a conversation does not have."""
    own = set() if table is tables.conversations else {"conversation_id"}
    return {"tenant_id", *own, *_OMITTED.get(short_name(table), ())}


def hash_references(table: Table) -> list[tuple[str, Table]]:
    """The columns of a table that name shared rows, and where these are."""
    return [
        (element.parent.name, constraint.referred_table)
        for constraint in table.constraints
        if isinstance(constraint, ForeignKeyConstraint)
        for element in constraint.elements
        if element.column.name == "hash"
    ]


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
    row, tenant = tables.conversations.c, scope.tenant
    own = select(tables.conversations).where(row.tenant_id == tenant, row.id == key, row.status != DELETED)
    found = connection.execute(own).mappings().one_or_none()
    if found is None:
        return
    yield from _shared_rows(connection, scope, key)
    yield tables.conversations, dict(found)
    for table in PARTS:
        for part in pages(connection, table, [table.c.tenant_id == tenant, table.c.conversation_id == key]):
            yield table, part


def pages(connection: Connection, table: Table, conditions: Sequence[ColumnElement[bool]]) -> Iterator[Row]:
    """The rows of a table that meet conditions, in order of the rest of its key, a batch at a time."""
    order = [column for column in table.primary_key.columns if column.name not in {"tenant_id", "conversation_id"}]
    statement = select(*written_columns(table)).where(*conditions).order_by(*order)
    size = 1 if "body" in table.c else BATCH
    last: Row | None = None
    while True:
        after = () if last is None else (_after(order, last),)
        rows = [dict(row) for row in connection.execute(statement.where(*after).limit(size)).mappings()]
        yield from rows
        if len(rows) < size or not order:
            return
        last = rows[-1]


def _after(order: Sequence[Any], last: Row) -> ColumnElement[bool]:
    """The condition for keys behind the last one; the first column bounds it, for an index."""
    steps = [
        and_(*(column == last[column.name] for column in order[:number]), order[number] > last[order[number].name])
        for number in range(len(order))
    ]
    return and_(order[0] >= last[order[0].name], or_(*steps))


def _shared_rows(connection: Connection, scope: Scope, key: int) -> Iterator[tuple[Table, Row]]:
    tenant = scope.tenant
    hashes: dict[Table, set[bytes]] = {table: set() for table in SHARED}
    for user in (tables.conversations, *PARTS):
        own = user.c.id if user is tables.conversations else user.c.conversation_id
        for name, table in hash_references(user):
            statement = select(user.c[name]).distinct().where(user.c.tenant_id == tenant, own == key)
            found = connection.execute(statement.where(user.c[name].is_not(None))).scalars()
            hashes[table].update(map(bytes, found))
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
    for hash_ in sorted(hashes):  # one at a time: media are large
        statement = select(table).where(table.c.tenant_id == tenant, table.c.hash == hash_)
        yield from (dict(row) for row in connection.execute(statement).mappings())


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
