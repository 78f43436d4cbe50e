"""Conversations of an export on their way into the database: several of them in one transaction.

What is there already is left as it is. If one of several cannot be written, each is written alone, up to that one, so
that what came before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from secrets import randbelow, token_bytes
from tempfile import TemporaryFile
from typing import IO, Any, Final

from sqlalchemy import Connection, LargeBinary, Table, Text, select
from sqlalchemy.exc import IntegrityError

from threadkeep.db import backends, base, models, types
from threadkeep.db.driver import inserting
from threadkeep.db.queries.conversations import DELETED
from threadkeep.domain import ids, stored
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import CannotParse, Conflict, ThreadkeepError, shown
from threadkeep.store.changes.feed import change_row, insert_changes
from threadkeep.store.media.cutting import new_name, places_now, remove_unused, removed_unused
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.moving import contents
from threadkeep.store.moving.exporting import IN_MEMORY
from threadkeep.store.work import caches, connections
from threadkeep.store.work.refs import Scope, tenant_not_found
from threadkeep.store.work.transactions import Transactions

BATCH_ROWS: Final = 2_000  # written in one transaction, with one statement for each table
BATCH_BYTES: Final = 4 * 1024 * 1024
REVISIONS: Final = 2**30  # of which a conversation gets one
_ORDER: Final = (*contents.SHARED, models.conversations, *contents.PARTS)  # in which rows are written
_NAMES: Final = ("public_id", "id", "external_id")  # by which conversations are told apart


def decode_line(value: JsonObject, tenant: int, key: int) -> tuple[Table, contents.Row]:
    """The row of a line of a conversation; ValueError says what is wrong with it."""
    table = contents.BY_NAME.get(value.get("table")) if isinstance(value.get("table"), str) else None  # type: ignore[arg-type]
    if table is None:
        raise ValueError(f"there is no table {shown(value.get('table'))} in conversations")
    given = dict.fromkeys(contents.omitted(table)) | {"tenant_id": tenant}
    if "conversation_id" in given:
        given["conversation_id"] = key
    return table, contents.decode_row(table, value.get("row"), given)


@dataclass(slots=True)
class ConversationBlock:
    """A conversation that was read and checked.

    Attributes:
        line: the number of its last line.
        own: its own row.
        count, size: of its lines, and of their bytes.
        has_media: whether there are media among its rows.
    """

    tenant: int
    line: int = 0
    own: contents.Row = field(default_factory=dict)
    count: int = 0
    size: int = 0
    has_media: bool = False
    _rows: list[tuple[Table, contents.Row, int]] = field(default_factory=list)
    _file: IO[bytes] | None = None  # of lines, once there are too many for memory

    @property
    def public_id(self) -> str:
        """The id that users see."""
        return ids.public_id_text(self.own["public_id"])

    def add(self, line: bytes, table: Table, row: contents.Row) -> None:
        """Take a row, and the line that it was read from."""
        self.count += 1
        self.size += len(line)
        self.has_media = self.has_media or table is models.blobs
        if self._file is None and self.size <= IN_MEMORY:
            self._rows.append((table, row, len(line)))
            return
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._file.write(line.rstrip(b"\r\n") + b"\n")

    def rows(self) -> Iterator[tuple[Table, contents.Row, int]]:
        """Its rows, and how many bytes the line of each has."""
        key = self.own["id"]
        for table, row, size in self._rows:
            if "conversation_id" in row:
                row["conversation_id"] = key
            yield table, row, size
        if self._file is not None:
            self._file.seek(0)
            for line in self._file:
                yield *decode_line(loads(line), self.tenant, key), len(line)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


@dataclass(slots=True)
class ImportWriter:
    """Writes conversations into the tenant of a scope.

    `is_checked`: without rows that only other users could have written. `refuses`: whether one that is there already is
    an error.
    """

    transactions: Transactions
    scope: Scope
    is_checked: bool = False
    refuses: bool = False

    def write(self, blocks: Sequence[ConversationBlock]) -> int:
        """Write conversations; return how many there were not yet.

        Raises:
            CannotParse, Conflict, TooLarge: one cannot be written; those before it were.
        """
        try:
            return self._write(blocks)
        except (IntegrityError, ThreadkeepError):
            if len(blocks) == 1:
                raise
        return sum(self._write([block]) for block in blocks)

    def _write(self, blocks: Sequence[ConversationBlock]) -> int:
        with self._placed_media([block for block in blocks if block.has_media]) as places:
            write = partial(self._insert, blocks=blocks, places=places)
            try:
                return self.transactions.write(write, is_repeatable=True)
            except IntegrityError as error:
                problem = f"line {blocks[0].line}: the rows of {blocks[0].public_id} do not fit together"
                raise CannotParse(f"The export cannot be read: {problem}.") from error

    @contextmanager
    def _placed_media(self, blocks: Sequence[ConversationBlock]) -> Iterator[Mapping[bytes, str]]:
        """Put the media of conversations into the blob store, if there is one; gives their names by their hashes.

        Whatever no row names afterwards is removed again: the database had it already, or the write failed.
        """
        places: dict[bytes, str] = {}
        blobs = self.scope.blobs
        if blobs is None or not blocks:
            yield places
            return
        with removed_unused(self.transactions, self.scope, blobs, places):
            for table, row, _ in (found for block in blocks for found in block.rows()):
                if table is models.blobs:
                    self._put(blobs, row, places)
            yield places
        remove_unused(self.transactions, self.scope, blobs, places)

    def _put(self, blobs: BlobStore, row: contents.Row, places: dict[bytes, str]) -> None:
        if row["hash"] not in places and not places_now(self.transactions, self.scope, [row["hash"]]):
            name = places[row["hash"]] = new_name(self.scope.tenant, row["hash"])
            connections.run_blocking(blobs.put, name, row["content"], row["media_type"])

    def _insert(self, connection: Connection, blocks: Sequence[ConversationBlock], places: Mapping[bytes, str]) -> int:
        """Write the rows of conversations that are not there, some thousands at once."""
        check_tenant(connection, self.scope.tenant)
        there = self._existing(connection, [block.own for block in blocks])
        new = [block for block in blocks if block.own["public_id"] not in there]
        if self.refuses and len(new) < len(blocks):
            known = next(block for block in blocks if block.own["public_id"] in there)
            problem = f"The conversation {known.public_id} (before line {known.line}) is there already."
            raise Conflict(problem, hint='Pass existing="skip" to leave it as it is and go on.')
        if not new:
            raise connections.Replay(0)
        rows: dict[Table, list[contents.Row]] = {}
        count = size = 0
        for table, row, length in (found for block in new for found in block.rows()):
            if self.is_checked and not contents.is_shown(self.scope, table, row):
                continue
            rows.setdefault(table, []).append(_completed(table, row, places))
            count, size = count + 1, size + length
            if count >= BATCH_ROWS or size > BATCH_BYTES:
                insert_tables(connection, rows)
                count = size = 0
        insert_tables(connection, rows)
        insert_changes(connection, [self._change(block.own, datetime.now(UTC)) for block in new])
        return len(new)

    def _change(self, own: contents.Row, now: datetime) -> JsonObject:
        return change_row(
            self.scope.tenant, own["id"], own["public_id"], stored.APPENDED, now,
            branch=0, from_position=0, to_position=own["head_position"],
        )  # fmt: skip

    def _existing(self, connection: Connection, rows: Sequence[contents.Row]) -> set[bytes]:
        """The public ids of the conversations that are there; Conflict where something else has the place of one."""
        row, tenant = models.conversations.c, self.scope.tenant
        wanted = {own["public_id"]: own for own in rows}
        known = select(row.public_id, row.tenant_id, row.status, row.user_id).where(row.public_id.in_(wanted))
        there: set[bytes] = set()
        for found in connection.execute(known):  # of all tenants, for which there is but one index
            if found.tenant_id != tenant:
                continue
            public_id = bytes(found.public_id)
            named = ids.public_id_text(public_id)
            if found.status == DELETED:
                raise Conflict(f"The conversation {named} is being deleted.", hint="Call purge_deleted() first.")
            if self.scope.user not in {None, found.user_id}:
                raise Conflict(f"The id {named} is taken.")
            there.add(public_id)
        new = [own for own in rows if own["public_id"] not in there]
        keys = {own["id"]: own for own in new}
        of_tenant = select(row.id, row.external_id).where(row.tenant_id == tenant)
        for taken in connection.execute(of_tenant.where(row.id.in_(keys))) if keys else ():
            named = ids.public_id_text(keys[taken.id]["public_id"])
            raise Conflict(f"Another conversation has the internal key of {named}.")
        names = {own["external_id"]: own for own in new if own["external_id"] is not None}
        for taken in connection.execute(of_tenant.where(row.external_id.in_(names))) if names else ():
            named = ids.public_id_text(names[taken.external_id]["public_id"])
            problem = f"Another conversation has the external_id {taken.external_id!r} of {named}."
            raise Conflict(problem, hint="Change or delete one of them.")
        return there


@dataclass(slots=True)
class BlockBatch:
    """Collects conversations, and writes some thousand rows at once.

    Attributes:
        read, written: how many conversations were given, and how many of them were written.
    """

    writer: ImportWriter
    read: int = 0
    written: int = 0
    _blocks: list[ConversationBlock] = field(default_factory=list)
    _names: set[tuple[str, Any]] = field(default_factory=set)
    _count: int = 0
    _size: int = 0

    def add(self, block: ConversationBlock) -> int:
        """Take a conversation; return how many rows were written now."""
        written = 0
        names = {(name, block.own[name]) for name in _NAMES if block.own[name] is not None}
        is_full = self._count + block.count > BATCH_ROWS or self._size + block.size > BATCH_BYTES
        if is_full or not names.isdisjoint(self._names):
            written = self.flush()
        self.read += 1
        self._blocks.append(block)
        self._names |= names
        self._count += block.count
        self._size += block.size
        return written

    def flush(self) -> int:
        """Write what was collected; return how many rows that were."""
        blocks, count = self._blocks, self._count
        self._blocks, self._names, self._count, self._size = [], set(), 0, 0
        try:
            if blocks:
                self.written += self.writer.write(blocks)
        finally:
            for block in blocks:
                block.close()
        return count


def insert_tables(connection: Connection, rows: dict[Table, list[contents.Row]]) -> None:
    """Write rows by their tables, which are empty afterwards; of what conversations share, each once."""
    for table in _ORDER:
        of_table = rows.pop(table, None)
        if not of_table:
            continue
        backends.check_sizes(connection, of_table, f"threadkeep_{contents.short_name(table)}", _unlimited(table))
        if table not in contents.SHARED:
            inserting.insert_rows(connection, [(table, of_table)])
            continue
        by_hash = {row["hash"]: row for row in of_table}
        each = [by_hash[hash_] for hash_ in sorted(by_hash)]
        if table is models.tool_definitions:
            caches.insert_definitions(connection, each[0]["tenant_id"], each)
        else:
            inserting.insert_missing(connection, table, each)


@cache
def _unlimited(table: Table) -> Sequence[str]:
    """The columns of texts and bytes without a limit."""
    kinds = (Text, LargeBinary, types.EscapedText)
    return [column.name for column in base.written_columns(table) if isinstance(column.type, kinds)]


def check_tenant(connection: Connection, tenant: int) -> None:
    """Refuse to write for a tenant that is deleted, which then waits: rows of the ledger have no foreign key."""
    statement = select(models.tenants.c.id).where(models.tenants.c.id == tenant)
    if connection.execute(statement.with_for_update(read=True, key_share=True)).one_or_none() is None:
        raise tenant_not_found()


def _completed(table: Table, row: contents.Row, places: Mapping[bytes, str]) -> contents.Row:
    """A row with the columns that an export does not have; `places` are the names of media in the blob store."""
    if table is models.conversations:
        revision = randbelow(REVISIONS)  # who has read it here before it was deleted must not go on from that
        is_searched = row["next_position"] or row["title"] is not None
        return row | {"search_from": 0 if is_searched else None, "revision": revision}
    if table is models.responses and row["open_branch"] is not None:
        return row | {"lease_token": token_bytes(16)}  # its recorder writes to the other database
    if table is models.blobs and row["hash"] in places:
        return row | {"content": None, "location": places[row["hash"]]}
    return row
