"""Reading exports back: each block is checked as a whole, and then written in one transaction.

What is read may come from anywhere: a row can say nothing about another tenant, and what conversations share is stored
only under the hash of what it holds.

Reading the lines of an export: what is wrong is said with the number of the line, before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from secrets import randbelow, token_bytes
from tempfile import SpooledTemporaryFile
from typing import IO, Final, Literal

from sqlalchemy import Connection, LargeBinary, Table, Text, select
from sqlalchemy.exc import IntegrityError

from threadkeep.db import backends, base, models, types
from threadkeep.db.driver.inserting import insert_many, insert_statement
from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED, DELETED
from threadkeep.domain import ids, stored
from threadkeep.domain.jsontext import JsonObject, loads, mismatch
from threadkeep.errors import CannotParse, Conflict, InvalidOption, NotFound, shown
from threadkeep.store.changes.feed import change_row, insert_changes
from threadkeep.store.media.cutting import new_name, places_now, remove_unused, removed_unused
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.moving import contents
from threadkeep.store.moving.exporting import CONVERSATION, IN_MEMORY, KEYS, LEDGER, VERSION
from threadkeep.store.usage.rollups import invalidate
from threadkeep.store.work import caches, connections, pacing, validation
from threadkeep.store.work.refs import TENANT_WIDE, Scope, tenant_not_found
from threadkeep.store.work.transactions import Transactions

# The counters of a conversation, and the table and column whose values are below them
_COUNTERS: Final = (
    ("next_position", models.items, "position"),
    ("next_response", models.responses, "number"),
    ("next_branch", models.branches, "number"),
)


class Lines:
    """The lines of an export, counted; every error about them names the line."""

    def __init__(self, lines: Iterable[str | bytes]) -> None:
        if isinstance(lines, str | bytes | dict) or not isinstance(lines, Iterable):
            raise mismatch(InvalidOption, "lines: a list of them, or an open file", lines, "lines")
        self._lines, self.number = iter(lines), 0

    def next(self) -> tuple[bytes, JsonObject] | None:
        """The next line that is not empty, and its value; None at the end."""
        for line in self._lines:
            self.number += 1
            if not isinstance(line, str | bytes):
                raise mismatch(InvalidOption, "lines of text", line, f"lines[{self.number - 1}]")
            data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
            data = data.removeprefix(b"\xef\xbb\xbf") if self.number == 1 else data
            if data.strip():
                return data, self._value(data)
        return None

    def error(self, problem: str) -> CannotParse:
        """An error about the line that was read last."""
        return CannotParse(f"The export cannot be read: line {self.number}: {problem}.")

    def cut_off(self) -> CannotParse:
        """The error for an export that ends too early."""
        return CannotParse(
            f"The export is cut off after line {self.number}: its last line is missing.",
            hint="What was complete has been imported; the whole export can be imported again.",
        )

    def _value(self, data: bytes) -> JsonObject:
        try:
            value = loads(data)
        except ValueError as error:
            raise self.error("it is not JSON, so it is damaged or cut off") from error
        if not isinstance(value, dict):
            raise self.error(f"it is not an object but {shown(value)}")
        return value


def decode_line(value: JsonObject, tenant: int, key: int) -> tuple[Table, contents.Row]:
    """The row of a line of a conversation; ValueError says what is wrong with it."""
    table = contents.BY_NAME.get(value.get("table")) if isinstance(value.get("table"), str) else None  # type: ignore[arg-type]
    if table is None:
        raise ValueError(f"there is no table {shown(value.get('table'))} in conversations")
    given: JsonObject = dict.fromkeys(contents.omitted(table)) | {"tenant_id": tenant}
    if "conversation_id" in given:
        given["conversation_id"] = key
    return table, contents.decode_row(table, value.get("row"), given)


Decode = Callable[[JsonObject], tuple[Table, contents.Row]]


def rows_until_end(lines: Lines, kind: str, decode: Decode) -> Iterator[tuple[bytes, Table, contents.Row]]:
    """The rows of a block with their lines; at its last line, their number and checksum are compared."""
    digest = contents.Digest()
    while (line := lines.next()) is not None:
        data, value = line
        if "end" in value:
            if (value["end"], value.get("rows"), value.get("checksum")) != (kind, digest.count, digest.hex()):
                raise lines.error("the block that ends here is not complete, or was changed")
            return
        try:
            table, row = decode(value)
        except ValueError as error:
            raise lines.error(str(error)) from error
        contents.add_to(digest, contents.BY_NAME.get(contents.short_name(table), table), value["row"])
        yield data, table, row
    raise lines.cut_off()


class Checks:
    """What must hold for the rows of a conversation together, beyond what the database sees itself."""

    def __init__(self, lines: Lines, scope: Scope, public_id: bytes) -> None:
        self._lines, self._scope, self._public_id = lines, scope, public_id
        self._own: contents.Row | None = None
        self._there: dict[Table, set[bytes]] = {table: set() for table in contents.SHARED}
        self._named: dict[Table, set[bytes]] = {table: set() for table in contents.SHARED}
        self._highest: dict[Table, int] = {}
        self._open: set[int] = set()  # the numbers of responses in progress …
        self._begun: set[int] = set()  # … and of those whose first part is there

    def row(self, value: JsonObject) -> tuple[Table, contents.Row]:
        """The row of a line."""
        return decode_line(value, self._scope.tenant, 0)

    def add(self, table: Table, row: contents.Row) -> None:
        """Look at a row."""
        if table in contents.SHARED:
            self._check_hash(table, row)
        elif table is models.conversations:
            self._check_own(row)
        elif table is models.responses:
            self._check_open(row)
        elif table is models.stream_parts and row["part"] == 0:
            self._begun.add(row["number"])
        if (problem := contents.problem_in(table, row)) is not None:
            raise self._lines.error(problem)
        for name, shared in contents.hash_references(table):
            if row[name] is not None:
                self._named[shared].add(row[name])
        for _, counted, column in _COUNTERS:
            if table is counted:
                self._highest[table] = max(row[column], self._highest.get(table, -1))

    def end(self) -> contents.Row:
        """The row of the conversation, when all rows were looked at."""
        own = self._own
        if own is None:
            raise self._lines.error("the block that ends here has no row of the conversation")
        for table, hashes in self._named.items():
            if missing := hashes - self._there[table]:
                hash_ = min(missing).hex()
                raise self._lines.error(
                    f"the block that ends here has no row of {contents.short_name(table)} with the hash {hash_}"
                )
        for counter, table, column in _COUNTERS:
            if own[counter] <= self._highest.get(table, -1):
                raise self._lines.error(f"{counter} is not above each {column} of {contents.short_name(table)}")
        if missing_parts := self._open - self._begun:
            raise self._lines.error(f"response {min(missing_parts)} is in progress, and its first part is missing")
        return own

    def _check_hash(self, table: Table, row: contents.Row) -> None:
        content = row[contents.SHARED[table]]
        data = content.encode() if isinstance(content, str) else content
        if data is None or sha256(data).digest() != row["hash"]:
            raise self._lines.error(f"the hash does not match its {contents.SHARED[table]}")
        self._there[table].add(row["hash"])
        if table is models.tool_sets:
            try:
                self._named[models.tool_definitions].update(contents.definitions_in(row))
            except (ValueError, TypeError) as error:
                raise self._lines.error("the tool set is not a list of hashes") from error

    def _check_open(self, row: contents.Row) -> None:
        if row["open_branch"] is None:
            return
        if row["lease_until"] is None:
            raise self._lines.error("a response is in progress without a lease")
        self._open.add(row["number"])

    def _check_own(self, row: contents.Row) -> None:
        if self._own is not None or row["public_id"] != self._public_id or row["status"] not in {ACTIVE, ARCHIVED}:
            raise self._lines.error("this is not the one row of the conversation that began")
        if self._scope.user not in {None, row["user_id"]}:
            problem = f"the conversation does not belong to the user {self._scope.user!r}, for whom this store is"
            raise self._lines.error(problem)
        self._own = row


_MEDIA: bytes = b'"blobs"'  # in the lines with media, and hardly any other


@contextmanager
def placed_media(transactions: Transactions, scope: Scope, file: IO[bytes]) -> Iterator[Mapping[bytes, str]]:
    """Put the media of these lines into the blob store, if there is one; gives their names by their hashes.

    Whatever no row names afterwards is removed again, as by `write_placed`: the database had it already, or the write
    failed.
    """
    places: dict[bytes, str] = {}
    if scope.blobs is None:
        yield places
        return
    with removed_unused(transactions, scope, scope.blobs, places):
        _put(transactions, scope, scope.blobs, file, places)
        yield places
    remove_unused(transactions, scope, scope.blobs, places)


def _put(transactions: Transactions, scope: Scope, store: BlobStore, file: IO[bytes], places: dict[bytes, str]) -> None:
    file.seek(0)
    for line in file:
        if _MEDIA not in line[:40]:
            continue
        table, row = decode_line(loads(line), scope.tenant, 0)
        if table is models.blobs and not places_now(transactions, scope, [row["hash"]]):
            name = places[row["hash"]] = new_name(scope.tenant, row["hash"])
            connections.run_blocking(store.put, name, row["content"], row["media_type"])


# ---------------------------------------------------------------------------------------------------------------------
# Reading exports back: each block is checked as a whole, and then written in one transaction

Existing = Literal["skip", "refuse"]
"""What happens when a conversation of an export is there already."""
BATCH_ROWS: Final = 500  # written with one call
BATCH_BYTES: Final = 4 * 1024 * 1024
REVISIONS: Final = 2**30  # of which a conversation gets one


@dataclass(slots=True)
class ImportReport:
    """What `import_export` wrote.

    Attributes:
        conversations: how many conversations were created.
        skipped: how many were there already, and were left as they are.
        attempts: how many rows of the ledger were added.
    """

    conversations: int = 0
    skipped: int = 0
    attempts: int = 0


class ImportTarget:
    """Writes blocks into the tenant of a scope; `is_checked`: without rows that only other users could have written."""

    def __init__(self, transactions: Transactions, scope: Scope, *, is_checked: bool = False) -> None:
        self.transactions, self.scope, self._is_checked = transactions, scope, is_checked
        self._upkeep = pacing.Upkeep(transactions)

    def write_block(self, lines: Lines, begin: JsonObject) -> tuple[str, int]:
        """Check a block, and write it; returns its kind, and how many conversations or rows were written."""
        first = lines.number
        written = self._write(lines, begin)
        self._upkeep.add(lines.number - first)
        return written

    def _write(self, lines: Lines, begin: JsonObject) -> tuple[str, int]:
        kind = begin.get("begin")
        if kind == CONVERSATION:
            return kind, self._write_conversation(lines, begin)
        if kind in (LEDGER, KEYS):
            table = models.usage_records if kind == LEDGER else models.appends
            decode = partial(self._row_beside, lines, table)
            return kind, self._insert_beside(kind, [row for _, _, row in rows_until_end(lines, kind, decode)])
        raise lines.error(f"a block of the unknown kind {shown(kind)} begins")

    def _write_conversation(self, lines: Lines, begin: JsonObject) -> int:
        try:
            public_id = ids.public_id_bytes(begin.get("id"))
        except NotFound as error:
            raise lines.error(f"{shown(begin.get('id'))} is not the id of a conversation") from error
        checks = Checks(lines, self.scope, public_id)
        with SpooledTemporaryFile(max_size=IN_MEMORY) as file:
            for line, table, row in rows_until_end(lines, CONVERSATION, checks.row):
                checks.add(table, row)
                file.write(line.rstrip(b"\r\n") + b"\n")
            own = checks.end()
            with placed_media(self.transactions, self.scope, file) as places:
                write = partial(self._insert_conversation, own=own, file=file, places=places)
                try:
                    return self.transactions.write(write, is_repeatable=True)
                except IntegrityError as error:
                    raise lines.error(f"the rows of {ids.public_id_text(public_id)} do not fit together") from error

    def _insert_conversation(
        self, connection: Connection, own: contents.Row, file: IO[bytes], places: Mapping[bytes, str]
    ) -> int:
        _check_tenant(connection, self.scope.tenant)
        if self._exists(connection, own):
            raise connections.Replay(0)
        file.seek(0)
        batch: list[contents.Row] = []
        last: Table | None = None
        size = 0
        for line in file:
            table, row = decode_line(loads(line), self.scope.tenant, own["id"])
            if self._is_checked and not contents.is_shown(self.scope, table, row):
                continue
            _complete(table, row, places)
            if batch and (table is not last or len(batch) == BATCH_ROWS or size > BATCH_BYTES):
                self._insert(connection, last, batch)
                batch, size = [], 0
            batch.append(row)
            last, size = table, size + len(line)
        self._insert(connection, last, batch)
        change = change_row(
            self.scope.tenant, own["id"], own["public_id"], stored.APPENDED, datetime.now(UTC),
            branch=0, from_position=0, to_position=own["head_position"],
        )  # fmt: skip
        insert_changes(connection, [change])
        return 1

    def _exists(self, connection: Connection, own: contents.Row) -> bool:
        """Whether the conversation is there; Conflict where something else has its place."""
        row = models.conversations.c
        named = ids.public_id_text(own["public_id"])
        known = select(row.tenant_id, row.status, row.user_id).where(row.public_id == own["public_id"])
        for found in connection.execute(known):  # of all tenants, for which there is but one index
            if found.tenant_id != self.scope.tenant:
                continue
            if found.status == DELETED:
                raise Conflict(f"The conversation {named} is being deleted.", hint="Call purge_deleted() first.")
            if self.scope.user not in {None, found.user_id}:
                raise Conflict(f"The id {named} is taken.")
            return True
        statement = select(row.id).where(row.tenant_id == self.scope.tenant)
        if connection.execute(statement.where(row.id == own["id"])).first() is not None:
            raise Conflict(f"Another conversation has the internal key of {named}.")
        if own["external_id"] is not None:
            taken = connection.execute(statement.where(row.external_id == own["external_id"])).first()
            if taken is not None:
                problem = f"Another conversation has the external_id {own['external_id']!r} of {named}."
                raise Conflict(problem, hint="Change or delete one of them.")
        return False

    def _row_beside(self, lines: Lines, table: Table, value: JsonObject) -> tuple[Table, contents.Row]:
        record = value.get("row")
        if value.get("table") != contents.short_name(table) or not isinstance(record, dict):
            raise lines.error(f"it is not a row of {contents.short_name(table)}")
        row = contents.decode_row(table, record, {"tenant_id": self.scope.tenant})
        if table is models.appends and row["conversation_id"] != TENANT_WIDE:
            raise lines.error("the key belongs to a conversation")
        if table is models.usage_records and self.scope.user not in {None, row["user_id"]}:
            raise lines.error(f"it is not about the user {self.scope.user!r}, for whom this store is")
        return table, row

    def write_rows(self, kind: str, rows: list[contents.Row]) -> int:
        """Write rows of the ledger, or idempotency keys, that are not there yet; returns how many of the ledger."""
        written = self._insert_beside(kind, rows)
        self._upkeep.add(len(rows))
        return written

    def _insert_beside(self, kind: str, rows: list[contents.Row]) -> int:
        insert_rows = self._insert_attempts if kind == LEDGER else self._insert_keys

        def write(connection: Connection) -> int:
            _check_tenant(connection, self.scope.tenant)
            return insert_rows(connection, rows)

        return self.transactions.write(write, is_repeatable=True)

    def _insert_attempts(self, connection: Connection, rows: list[contents.Row]) -> int:
        if not rows:
            return 0
        record, conversation = models.usage_records.c, models.conversations.c
        tenant = self.scope.tenant
        known = select(record.id).where(
            record.tenant_id == tenant, *contents.among(record.id, [row["id"] for row in rows])
        )
        there = set(connection.execute(known.order_by(record.id)).scalars())
        new = [row for row in rows if row["id"] not in there]
        if self.scope.user is not None:
            named = {row["conversation_id"] for row in new}
            foreign = select(conversation.id).where(
                conversation.tenant_id == tenant, conversation.id.in_(named),
                conversation.user_id.is_distinct_from(self.scope.user),
            )  # fmt: skip
            if connection.execute(foreign.limit(1)).first() is not None:
                raise Conflict("The ledger of the export names conversations of another user.")
        for day in sorted({row["day"] for row in new}):
            if day != datetime.now(UTC).date():
                invalidate(connection, tenant, day)
        if new:
            insert_many(connection, models.usage_records, new)
        return len(new)

    def _insert_keys(self, connection: Connection, rows: list[contents.Row]) -> int:
        """Add idempotency keys of the tenant; those that are there stay. In the store of a user: none."""
        if self.scope.user is None and rows:
            connection.execute(backends.backend_of(connection).insert_missing(models.appends), rows)
        return 0

    def _insert(self, connection: Connection, table: Table | None, rows: list[contents.Row]) -> None:
        if table is None or not rows:
            return
        unlimited = (Text, LargeBinary, types.EscapedText)
        columns = [column.name for column in base.written_columns(table) if isinstance(column.type, unlimited)]
        backends.check_sizes(connection, rows, f"threadkeep_{contents.short_name(table)}", columns)
        if table is models.tool_definitions:
            caches.insert_definitions(connection, self.scope.tenant, rows)
        elif table in contents.SHARED:
            connection.execute(backends.backend_of(connection).insert_missing(table), rows)
        elif len(rows) == 1:
            insert_statement(table).execute(connection, rows[0])
        else:
            insert_many(connection, table, rows)


def _check_tenant(connection: Connection, tenant: int) -> None:
    """Refuse to write for a tenant that is deleted, which then waits: rows of the ledger have no foreign key."""
    statement = select(models.tenants.c.id).where(models.tenants.c.id == tenant)
    if connection.execute(statement.with_for_update(read=True, key_share=True)).one_or_none() is None:
        raise tenant_not_found()


def _complete(table: Table, row: contents.Row, places: Mapping[bytes, str]) -> None:
    """Set the columns that an export does not have; `places` are the names of media in the blob store."""
    if table is models.conversations:
        row["search_from"] = 0 if row["next_position"] or row["title"] is not None else None
        row["revision"] = randbelow(REVISIONS)  # who has read it here before it was deleted must not go on from that
    elif table is models.responses and row["open_branch"] is not None:
        row["lease_token"] = token_bytes(16)  # its recorder writes to the other database
    elif table is models.blobs and row["hash"] in places:
        row |= {"content": None, "location": places[row["hash"]]}


def import_export(
    transactions: Transactions, scope: Scope, lines: Iterable[str | bytes], existing: Existing
) -> ImportReport:
    """Read an export; see `Store.import_export`."""
    validation.one_of("existing", existing, ("skip", "refuse"))
    read, target, report = Lines(lines), ImportTarget(transactions, scope, is_checked=True), ImportReport()
    _check_header(read)
    while (line := read.next()) is not None:
        value = line[1]
        if value.get("complete") is True:
            if value.get("conversations") != report.conversations + report.skipped:
                raise read.error("conversations are missing before it")
            return report
        kind, count = target.write_block(read, value)
        if kind == LEDGER:
            report.attempts += count
        elif kind == CONVERSATION and count:
            report.conversations += 1
        elif kind == CONVERSATION:
            if existing == "refuse":
                raise Conflict(
                    f"The conversation {value['id']} (before line {read.number}) is there already.",
                    hint='Pass existing="skip" to leave it as it is and go on.',
                )
            report.skipped += 1
    raise read.cut_off()


def _check_header(lines: Lines) -> None:
    first = lines.next()
    if first is None:
        raise CannotParse("The export is empty: it has no lines.")
    version = first[1].get("threadkeep_export")
    if version is None:
        raise lines.error("it is not the beginning of an export")
    if version != VERSION:
        raise lines.error(f"the export has the version {shown(version)}, this release reads version {VERSION}")
