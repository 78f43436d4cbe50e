"""Reading the lines of an export: what is wrong is said with the number of the line, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Final

from sqlalchemy import Table

from threadkeep.db import tables
from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.objects import mismatch
from threadkeep.errors import CannotParse, InvalidOption, shown
from threadkeep.store.moving import contents
from threadkeep.store.moving.contents import BY_NAME, SHARED, definitions_in, hash_references, short_name
from threadkeep.store.moving.records import Digest, Row, decode_row
from threadkeep.store.moving.values import problem_in
from threadkeep.store.refs import Scope

# The counters of a conversation, and the table and column whose values are below them
_COUNTERS: Final = (
    ("next_position", tables.items, "position"),
    ("next_response", tables.responses, "number"),
    ("next_branch", tables.branches, "number"),
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


def decode_line(value: JsonObject, tenant: int, key: int) -> tuple[Table, Row]:
    """The row of a line of a conversation; ValueError says what is wrong with it."""
    table = BY_NAME.get(value.get("table")) if isinstance(value.get("table"), str) else None  # type: ignore[arg-type]
    if table is None:
        raise ValueError(f"there is no table {shown(value.get('table'))} in conversations")
    beside: JsonObject = dict.fromkeys(contents.omitted(table)) | {"tenant_id": tenant}
    if "conversation_id" in beside:
        beside["conversation_id"] = key
    return table, decode_row(table, value.get("row"), beside)


Decode = Callable[[JsonObject], tuple[Table, Row]]


def rows_until_end(lines: Lines, kind: str, decode: Decode) -> Iterator[tuple[bytes, Table, Row]]:
    """The rows of a block with their lines; at its last line, their number and checksum are compared."""
    digest = Digest()
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
        contents.add_to(digest, BY_NAME.get(short_name(table), table), value["row"])
        yield data, table, row
    raise lines.cut_off()


class Checks:
    """What must hold for the rows of a conversation together, beyond what the database sees itself."""

    def __init__(self, lines: Lines, scope: Scope, public_id: bytes) -> None:
        self._lines, self._scope, self._public_id = lines, scope, public_id
        self._own: Row | None = None
        self._there: dict[Table, set[bytes]] = {table: set() for table in SHARED}
        self._named: dict[Table, set[bytes]] = {table: set() for table in SHARED}
        self._highest: dict[Table, int] = {}
        self._open: set[int] = set()  # the numbers of responses in progress …
        self._begun: set[int] = set()  # … and of those whose first part is there

    def row(self, value: JsonObject) -> tuple[Table, Row]:
        """The row of a line."""
        return decode_line(value, self._scope.tenant, 0)

    def add(self, table: Table, row: Row) -> None:
        """Look at a row."""
        if table in SHARED:
            self._check_hash(table, row)
        elif table is tables.conversations:
            self._check_own(row)
        elif table is tables.responses:
            self._check_open(row)
        elif table is tables.stream_parts and row["part"] == 0:
            self._begun.add(row["number"])
        if (problem := problem_in(table, row)) is not None:
            raise self._lines.error(problem)
        for name, shared in hash_references(table):
            if row[name] is not None:
                self._named[shared].add(row[name])
        for _, counted, column in _COUNTERS:
            if table is counted:
                self._highest[table] = max(row[column], self._highest.get(table, -1))

    def end(self) -> Row:
        """The row of the conversation, when all rows were looked at."""
        own = self._own
        if own is None:
            raise self._lines.error("the block that ends here has no row of the conversation")
        for table, hashes in self._named.items():
            if missing := hashes - self._there[table]:
                hash_ = min(missing).hex()
                raise self._lines.error(
                    f"the block that ends here has no row of {short_name(table)} with the hash {hash_}"
                )
        for counter, table, column in _COUNTERS:
            if own[counter] <= self._highest.get(table, -1):
                raise self._lines.error(f"{counter} is not above each {column} of {short_name(table)}")
        if missing_parts := self._open - self._begun:
            raise self._lines.error(f"response {min(missing_parts)} is in progress, and its first part is missing")
        return own

    def _check_hash(self, table: Table, row: Row) -> None:
        content = row[SHARED[table]]
        data = content.encode() if isinstance(content, str) else content
        if data is None or sha256(data).digest() != row["hash"]:
            raise self._lines.error(f"the hash is not that of its {SHARED[table]}")
        self._there[table].add(row["hash"])
        if table is tables.tool_sets:
            try:
                self._named[tables.tool_definitions].update(definitions_in(row))
            except (ValueError, TypeError) as error:
                raise self._lines.error("the tool set is not a list of hashes") from error

    def _check_open(self, row: Row) -> None:
        if row["open_branch"] is None:
            return
        if row["lease_until"] is None:
            raise self._lines.error("a response is in progress without a lease")
        self._open.add(row["number"])

    def _check_own(self, row: Row) -> None:
        if self._own is not None or row["public_id"] != self._public_id or row["status"] not in {ACTIVE, ARCHIVED}:
            raise self._lines.error("this is not the one row of the conversation that began")
        if self._scope.user not in {None, row["user_id"]}:
            problem = f"the conversation does not belong to the user {self._scope.user!r}, for whom this store is"
            raise self._lines.error(problem)
        self._own = row
