"""Reading exports back: each block is checked as a whole, and then written in one transaction.

What is read may come from anywhere: a row can say nothing about another tenant, and what conversations share is stored
only under the hash of what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from secrets import randbelow, token_bytes
from tempfile import SpooledTemporaryFile
from typing import IO, Final, Literal

from sqlalchemy import Connection, LargeBinary, Table, Text, select
from sqlalchemy.exc import IntegrityError

from threadkeep.db import tables
from threadkeep.db.base import written_columns
from threadkeep.db.dialects import check_sizes, insert_missing
from threadkeep.db.driver import insert_many, insert_statement
from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.types import EscapedText
from threadkeep.domain.changes import APPENDED
from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import CannotParse, Conflict, NotFound, shown
from threadkeep.store.changes.rows import change_row, insert_changes
from threadkeep.store.config_cache import insert_definitions
from threadkeep.store.moving.contents import SHARED, among, is_shown, short_name
from threadkeep.store.moving.exporting import CONVERSATION, IN_MEMORY, KEYS, LEDGER, VERSION
from threadkeep.store.moving.placing import placed_media
from threadkeep.store.moving.reading import Checks, Lines, decode_line, rows_until_end
from threadkeep.store.moving.records import Row, decode_row
from threadkeep.store.refs import TENANT_WIDE, Scope, tenant_not_found
from threadkeep.store.retries import Replay
from threadkeep.store.rollups import invalidate
from threadkeep.store.transactions import Transactions
from threadkeep.store.upkeep import Upkeep
from threadkeep.store.validation import one_of

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


class Target:
    """Writes blocks into the tenant of a scope; `is_checked`: without rows that only other users could have written."""

    def __init__(self, transactions: Transactions, scope: Scope, *, is_checked: bool = False) -> None:
        self.transactions, self.scope, self._is_checked = transactions, scope, is_checked
        self._upkeep = Upkeep(transactions)

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
            table = tables.usage_records if kind == LEDGER else tables.appends
            decode = partial(self._row_beside, lines, table)
            return kind, self._insert_beside(kind, [row for _, _, row in rows_until_end(lines, kind, decode)])
        raise lines.error(f"a block of the unknown kind {shown(kind)} begins")

    def _write_conversation(self, lines: Lines, begin: JsonObject) -> int:
        try:
            public_id = public_id_bytes(begin.get("id"))
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
                    raise lines.error(f"the rows of {public_id_text(public_id)} do not fit together") from error

    def _insert_conversation(
        self, connection: Connection, own: Row, file: IO[bytes], places: Mapping[bytes, str]
    ) -> int:
        _check_tenant(connection, self.scope.tenant)
        if self._exists(connection, own):
            raise Replay(0)
        file.seek(0)
        batch: list[Row] = []
        last: Table | None = None
        size = 0
        for line in file:
            table, row = decode_line(loads(line), self.scope.tenant, own["id"])
            if self._is_checked and not is_shown(self.scope, table, row):
                continue
            _complete(table, row, places)
            if batch and (table is not last or len(batch) == BATCH_ROWS or size > BATCH_BYTES):
                self._insert(connection, last, batch)
                batch, size = [], 0
            batch.append(row)
            last, size = table, size + len(line)
        self._insert(connection, last, batch)
        change = change_row(
            self.scope.tenant, own["id"], own["public_id"], APPENDED, datetime.now(UTC),
            branch=0, from_position=0, to_position=own["head_position"],
        )  # fmt: skip
        insert_changes(connection, [change])
        return 1

    def _exists(self, connection: Connection, own: Row) -> bool:
        """Whether the conversation is there; Conflict where something else has its place."""
        row = tables.conversations.c
        named = public_id_text(own["public_id"])
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

    def _row_beside(self, lines: Lines, table: Table, value: JsonObject) -> tuple[Table, Row]:
        record = value.get("row")
        if value.get("table") != short_name(table) or not isinstance(record, dict):
            raise lines.error(f"it is not a row of {short_name(table)}")
        row = decode_row(table, record, {"tenant_id": self.scope.tenant})
        if table is tables.appends and row["conversation_id"] != TENANT_WIDE:
            raise lines.error("the key is that of a conversation")
        if table is tables.usage_records and self.scope.user not in {None, row["user_id"]}:
            raise lines.error(f"it is not about the user {self.scope.user!r}, for whom this store is")
        return table, row

    def write_rows(self, kind: str, rows: list[Row]) -> int:
        """Write rows of the ledger, or idempotency keys, that are not there yet; returns how many of the ledger."""
        written = self._insert_beside(kind, rows)
        self._upkeep.add(len(rows))
        return written

    def _insert_beside(self, kind: str, rows: list[Row]) -> int:
        insert_rows = self._insert_attempts if kind == LEDGER else self._insert_keys

        def write(connection: Connection) -> int:
            _check_tenant(connection, self.scope.tenant)
            return insert_rows(connection, rows)

        return self.transactions.write(write, is_repeatable=True)

    def _insert_attempts(self, connection: Connection, rows: list[Row]) -> int:
        if not rows:
            return 0
        record, conversation = tables.usage_records.c, tables.conversations.c
        tenant = self.scope.tenant
        known = select(record.id).where(record.tenant_id == tenant, *among(record.id, [row["id"] for row in rows]))
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
            insert_many(connection, tables.usage_records, new)
        return len(new)

    def _insert_keys(self, connection: Connection, rows: list[Row]) -> int:
        """Add idempotency keys of the tenant; those that are there stay. In the store of a user: none."""
        if self.scope.user is None and rows:
            connection.execute(insert_missing(connection, tables.appends), rows)
        return 0

    def _insert(self, connection: Connection, table: Table | None, rows: list[Row]) -> None:
        if table is None or not rows:
            return
        unlimited = (Text, LargeBinary, EscapedText)
        columns = [column.name for column in written_columns(table) if isinstance(column.type, unlimited)]
        check_sizes(connection, rows, f"threadkeep_{short_name(table)}", columns)
        if table is tables.tool_definitions:
            insert_definitions(connection, self.scope.tenant, rows)
        elif table in SHARED:
            connection.execute(insert_missing(connection, table), rows)
        elif len(rows) == 1:
            insert_statement(table).execute(connection, rows[0])
        else:
            insert_many(connection, table, rows)


def _check_tenant(connection: Connection, tenant: int) -> None:
    """Refuse to write for a tenant that is deleted, which then waits: rows of the ledger have no foreign key."""
    statement = select(tables.tenants.c.id).where(tables.tenants.c.id == tenant)
    if connection.execute(statement.with_for_update(read=True, key_share=True)).one_or_none() is None:
        raise tenant_not_found()


def _complete(table: Table, row: Row, places: Mapping[bytes, str]) -> None:
    """Set the columns that an export does not have; `places` are the names of media in the blob store."""
    if table is tables.conversations:
        row["search_from"] = 0 if row["next_position"] or row["title"] is not None else None
        row["revision"] = randbelow(REVISIONS)  # who has read it here before it was deleted must not go on from that
    elif table is tables.responses and row["open_branch"] is not None:
        row["lease_token"] = token_bytes(16)  # its recorder writes to the other database
    elif table is tables.blobs and row["hash"] in places:
        row |= {"content": None, "location": places[row["hash"]]}


def import_export(
    transactions: Transactions, scope: Scope, lines: Iterable[str | bytes], existing: Existing
) -> ImportReport:
    """Read an export; see `Store.import_export`."""
    one_of("existing", existing, ("skip", "refuse"))
    read, target, report = Lines(lines), Target(transactions, scope, is_checked=True), ImportReport()
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
