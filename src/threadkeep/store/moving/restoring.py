"""Reading exports back: each block is checked as a whole, and written in one transaction, with others if it is short.

What is read may come from anywhere: a row can say nothing about another tenant, and what conversations share is stored
only under the hash of what it holds.

Reading the lines of an export: what is wrong is said with the number of the line, before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import tee
from typing import Final, Literal

from sqlalchemy import Connection, Table, select

from threadkeep.db import backends, models
from threadkeep.db.driver.inserting import insert_many
from threadkeep.db.engines import SQLITE_FILE
from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED
from threadkeep.domain import ids
from threadkeep.domain.jsontext import JsonObject, loads, mismatch
from threadkeep.errors import CannotParse, Conflict, InvalidOption, NotFound, shown
from threadkeep.store.moving import blocks, contents
from threadkeep.store.moving.exporting import CONVERSATION, KEYS, LEDGER, VERSION
from threadkeep.store.usage.rollups import invalidate
from threadkeep.store.work import pacing, validation
from threadkeep.store.work.refs import TENANT_WIDE, Scope
from threadkeep.store.work.transactions import Transactions

# The counters of a conversation, and the table and column whose values are below them
_COUNTERS: Final = (
    ("next_position", models.items, "position"),
    ("next_response", models.responses, "number"),
    ("next_branch", models.branches, "number"),
)


def refuse_database(data: bytes) -> None:
    """Raise CannotParse for what begins as a SQLite database, such as a backup: it is to be opened, not to be read."""
    if data.startswith(SQLITE_FILE):
        hint = "Open a backup as a database, by the URL sqlite:///FILE, or put it in the place of one (docs/moving.md)."
        raise CannotParse("This is a SQLite database, not a file of JSON.", hint=hint)


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
            refuse_database(data)
            raise self.error("it is not JSON, so it is damaged or cut off") from error
        if not isinstance(value, dict):
            raise self.error(f"it is not an object but {shown(value)}")
        return value


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
        return blocks.decode_line(value, self._scope.tenant, 0)

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


# ---------------------------------------------------------------------------------------------------------------------
# Reading exports back: each block is checked as a whole, and then written in one transaction

Existing = Literal["skip", "refuse"]
"""What happens when a conversation of an export is there already."""


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
    """Writes blocks into the tenant of a scope; `is_checked` and `refuses` as in `ImportWriter`."""

    def __init__(
        self, transactions: Transactions, scope: Scope, *, is_checked: bool = False, refuses: bool = False
    ) -> None:
        self.transactions, self.scope = transactions, scope
        self.batch = blocks.BlockBatch(blocks.ImportWriter(transactions, scope, is_checked, refuses))
        self._upkeep = pacing.Upkeep(transactions)

    def write_conversation(self, lines: Lines, begin: JsonObject) -> bool:
        """Check a conversation, and write it in a transaction of its own; returns whether it was not there yet."""
        before = self.batch.written
        self.add_conversation(lines, begin)
        self.flush()
        return self.batch.written > before

    def add_conversation(self, lines: Lines, begin: JsonObject) -> None:
        """Check a conversation, and write it, soon, with others."""
        try:
            public_id = ids.public_id_bytes(begin.get("id"))
        except NotFound as error:
            raise lines.error(f"{shown(begin.get('id'))} is not the id of a conversation") from error
        checks, block = Checks(lines, self.scope, public_id), blocks.ConversationBlock(self.scope.tenant)
        try:
            for line, table, row in rows_until_end(lines, CONVERSATION, checks.row):
                checks.add(table, row)
                block.add(line, table, row)
            block.own, block.line = checks.end(), lines.number
        except BaseException:
            block.close()
            raise
        self._upkeep.add(self.batch.add(block))

    def flush(self) -> None:
        """Write the conversations that wait for others."""
        self._upkeep.add(self.batch.flush())

    def write_beside(self, lines: Lines, kind: str) -> int:
        """Check a block of rows outside of conversations, and write it; returns how many rows of the ledger are new."""
        table = models.usage_records if kind == LEDGER else models.appends
        decode = partial(self._row_beside, lines, table)
        rows = [row for _, _, row in rows_until_end(lines, kind, decode)]
        self.flush()
        return self.write_rows(kind, rows)

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
            blocks.check_tenant(connection, self.scope.tenant)
            return insert_rows(connection, rows)

        return self.transactions.write(write, is_repeatable=True)

    def _insert_attempts(self, connection: Connection, rows: list[contents.Row]) -> int:
        if not rows:
            return 0
        record, conversation = models.usage_records.c, models.conversations.c
        tenant = self.scope.tenant
        known = backends.backend_of(connection).by_keys(
            select(record.id).where(record.tenant_id == tenant), record.id, [row["id"] for row in rows]
        )
        there = set(connection.execute(known).scalars())
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


def import_export(
    transactions: Transactions, scope: Scope, lines: Iterable[str | bytes], existing: Existing
) -> ImportReport:
    """Read an export; see `Store.import_export`."""
    validation.one_of("existing", existing, ("skip", "refuse"))
    read = Lines(lines)
    target = ImportTarget(transactions, scope, is_checked=True, refuses=existing == "refuse")
    try:
        attempts = _import_blocks(read, target)
    except Exception:
        target.flush()  # what was complete
        raise
    batch = target.batch
    return ImportReport(batch.written, batch.read - batch.written, attempts)


def _import_blocks(lines: Lines, target: ImportTarget) -> int:
    """Read and write the blocks of an export; returns how many rows of the ledger were new."""
    _check_header(lines)
    attempts = 0
    while (line := lines.next()) is not None:
        value = line[1]
        kind = value.get("begin")
        if value.get("complete") is True:
            if value.get("conversations") != target.batch.read:
                raise lines.error("conversations are missing before it")
            target.flush()
            return attempts
        if kind == CONVERSATION:
            target.add_conversation(lines, value)
        elif kind in (LEDGER, KEYS):
            attempts += target.write_beside(lines, kind)
        else:
            raise lines.error(f"a block of the unknown kind {shown(kind)} begins")
    raise lines.cut_off()


def begun_export(lines: Iterable[str | bytes]) -> Iterable[str | bytes]:
    """Return the lines of an export, once its first line has been checked.

    Raises:
        CannotParse: it is not the beginning of an export.
    """
    ahead, found = tee(lines)
    _check_header(Lines(ahead))
    return found


def _check_header(lines: Lines) -> None:
    first = lines.next()
    if first is None:
        raise CannotParse("The export is empty: it has no lines.")
    version = first[1].get("threadkeep_export")
    if version is None:
        raise lines.error("it is not the beginning of an export")
    if version != VERSION:
        raise lines.error(f"the export has the version {shown(version)}, this release reads version {VERSION}")
