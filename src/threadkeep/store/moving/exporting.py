"""Exports: conversations and the ledger as lines of JSON.

The first line says what it is. Then come blocks: a line that begins one, a line for each row, and a line that ends it
with the number and a checksum of its rows. Each conversation is a block that needs no other; it is read in one snapshot
and kept in a temporary file until its lines have been taken, so that no connection is held until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from os import PathLike, fspath
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import IO, Any, Final, Self

from sqlalchemy import ColumnElement, Connection, Select, Table, select

from threadkeep.db import backends, models, schema
from threadkeep.db.queries.conversations import DELETED
from threadkeep.domain import stored, transcripts
from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.domain.jsontext import JsonObject, dumps, mismatch
from threadkeep.errors import InvalidOption
from threadkeep.store.moving import contents
from threadkeep.store.reading.items import list_all_items
from threadkeep.store.removing.batches import Progress
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import TENANT_WIDE, Scope, conversation_not_found, find_row
from threadkeep.store.work.transactions import Transactions

VERSION: Final = 1
PAGE: Final = 500  # conversations, or rows of the ledger, read at once
IN_MEMORY: Final = 4 * 1024 * 1024  # bytes of a conversation; more go to a temporary file
CONVERSATION, LEDGER, KEYS = "conversation", "ledger", "keys"  # kinds of blocks


@dataclass(frozen=True, slots=True)
class ExportBlock:
    """The lines of a conversation, or of some rows outside of conversations, in a temporary file."""

    file: IO[bytes]
    count: int  # of its rows

    def lines(self) -> Iterator[bytes]:
        """Its lines, from the beginning."""
        self.file.seek(0)
        return iter(self.file)


class BlockWriter:
    """Writes a block: rows, with its first and its last line."""

    def __init__(self, kind: str, **about: Any) -> None:
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - the reader of the block closes it
        self._kind, self._digest, self._is_ended = kind, contents.Digest(), False
        self._write({"begin": kind, **about})

    def add(self, table: Table, record: JsonObject) -> None:
        """Write a row."""
        contents.add_to(self._digest, table, record)
        self._write({"table": contents.short_name(table), "row": record})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_ended:
            self._file.close()

    def end(self) -> ExportBlock | None:
        """Write the last line; None where there are no rows."""
        if not self._digest.count:
            return None
        self._is_ended = True
        self._write({"end": self._kind, "rows": self._digest.count, "checksum": self._digest.hex()})
        return ExportBlock(self._file, self._digest.count)

    def _write(self, line: JsonObject) -> None:
        self._file.write(dumps(line) + b"\n")


class ExportSource:
    """Reads what a scope has, a page or a conversation at a time."""

    def __init__(self, transactions: Transactions, scope: Scope) -> None:
        self.transactions, self.scope = transactions, scope

    def conversations(self) -> Iterator[list[tuple[int, str]]]:
        """The keys and ids of all conversations that are not deleted, in pages."""
        row = models.conversations.c
        conditions = [row.tenant_id == self.scope.tenant, row.status != DELETED]
        if self.scope.user is not None:
            conditions.append(row.user_id == self.scope.user)
        for page in self._pages(select(row.id, row.public_id).where(*conditions), row.id):
            yield [(found["id"], public_id_text(bytes(found["public_id"]))) for found in page]

    def named(self, ids: Iterable[str]) -> list[tuple[int, str]]:
        """The keys of conversations by their ids; NotFound where there is none."""
        if isinstance(ids, str | bytes | dict) or not isinstance(ids, Iterable):
            raise mismatch(InvalidOption, "a list of ids", ids, "conversation_ids")
        unique = {public_id_bytes(text): text for text in ids}
        return [(self.transactions.read(partial(self._find_key, id=raw)), text) for raw, text in unique.items()]

    def block(self, key: int, id: str, *, is_shown: bool = False) -> ExportBlock | None:
        """All rows of a conversation as they are now, or those that are shown to its user; None if it is deleted."""

        def read(connection: Connection) -> ExportBlock | None:
            contents.begin_snapshot(connection, self.transactions)
            with BlockWriter(CONVERSATION, id=id) as writer:
                for table, row in contents.rows_of(connection, self.scope, key):
                    if not is_shown or contents.is_shown(self.scope, table, row):
                        writer.add(table, contents.record_of(table, row))
                return writer.end()

        return self.transactions.read(read)

    def attempts(self, keys: Iterable[int] | None = None) -> Iterator[list[contents.Row]]:
        """The rows of the ledger, or of some conversations, in pages."""
        row = models.usage_records.c
        of_tenant = row.tenant_id == self.scope.tenant
        statement = select(models.usage_records).where(of_tenant)
        if self.scope.user is not None:
            statement = statement.where(row.user_id == self.scope.user)
        if keys is None:
            yield from self._pages(statement, row.id)
        for key in keys or ():  # in order, and with a limit, databases would read all that the tenant has
            own = select(row.id).where(of_tenant, row.conversation_id == key)
            ids = sorted(found["id"] for found in self.transactions.read(partial(_read_page, statement=own)))
            for start in range(0, len(ids), PAGE):
                some = partial(_read_page, statement=statement, ids=ids[start : start + PAGE])
                yield sorted(self.transactions.read(some), key=itemgetter("id"))

    def tenant_keys(self) -> Iterator[list[contents.Row]]:
        """The idempotency keys of the tenant, in pages; a conversation's keys are part of its block."""
        row = models.appends.c
        statement = select(models.appends).where(row.tenant_id == self.scope.tenant, row.conversation_id == TENANT_WIDE)
        return iter(()) if self.scope.user is not None else self._pages(statement, row.key)

    def _find_key(self, connection: Connection, id: bytes) -> int:
        row = find_row(connection, self.scope, "public_id", id)
        if row is None:
            raise conversation_not_found(public_id_text(id))
        key: int = row.id
        return key

    def _pages(self, statement: Select[Any], order: ColumnElement[Any]) -> Iterator[list[contents.Row]]:
        statement, last = statement.order_by(order).limit(PAGE), None
        while last is None or len(last) == PAGE:
            page = statement if last is None else statement.where(order > last[-1][str(order.key)])
            last = self.transactions.read(partial(_read_page, statement=page))
            if last:
                yield last


def _read_page(connection: Connection, statement: Select[Any], ids: Sequence[int] | None = None) -> list[contents.Row]:
    if ids is not None:
        statement = backends.backend_of(connection).by_keys(statement, models.usage_records.c.id, ids)
    return [dict(row) for row in connection.execute(statement).mappings()]


def export(source: ExportSource, conversation_ids: Iterable[str] | None) -> Iterator[str]:
    """The lines of an export; see `Store.export`."""
    chosen = None if conversation_ids is None else source.named(conversation_ids)
    return _lines(source, chosen)


def _lines(source: ExportSource, chosen: list[tuple[int, str]] | None) -> Iterator[str]:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    yield _text({"threadkeep_export": VERSION, "schema": schema.HEAD, "exported_at": now})
    conversations = rows = 0
    for page in source.conversations() if chosen is None else [chosen]:
        for key, public_id in page:
            block = source.block(key, public_id, is_shown=True)
            if block is not None:
                conversations, rows = conversations + 1, rows + block.count
            yield from _texts(block)
    keys = None if chosen is None else [key for key, _ in chosen]
    for kind, table, pages in (
        (LEDGER, models.usage_records, source.attempts(keys)),
        (KEYS, models.appends, source.tenant_keys() if chosen is None else ()),
    ):
        for some in pages:
            rows += len(some)
            with BlockWriter(kind) as writer:
                for row in some:
                    writer.add(table, contents.encode_row(table, row))
                block = writer.end()
            yield from _texts(block)
    yield _text({"complete": True, "conversations": conversations, "rows": rows})


def _texts(block: ExportBlock | None) -> Iterator[str]:
    if block is None:
        return
    with block.file:
        for line in block.lines():
            yield line.decode()


def _text(line: JsonObject) -> str:
    return dumps(line).decode() + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# Conversations as Markdown


def to_markdown(handle: Handle) -> str:
    """See `Conversation.to_markdown`."""
    return with_facts(handle, list_all_items(handle))


def with_facts(handle: Handle, items: Iterable[stored.StoredItem]) -> str:
    """Items of a conversation as Markdown, below what is known of it. Does not query the database."""
    conversation = handle.conversation
    row, settings = conversation.row, conversation.settings
    facts = {
        "conversation": handle.ref.public_id,
        "user": row.user_id,
        "model": settings.get("model"),
        "created": row.created_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "branch": str(conversation.branch) if conversation.branch else None,
        "instructions": settings.get("instructions"),
    }
    shown = [(name, str(value)) for name, value in facts.items() if value is not None]
    return transcripts.markdown_of(row.title or "Conversation", shown, items)


# ---------------------------------------------------------------------------------------------------------------------
# Backups of SQLite files, while they are in use


def backup(transactions: Transactions, scope: Scope | None, file: object, progress: Progress | None) -> int:
    """Copy a SQLite database into a new file; returns its size in bytes. See `Store.backup`."""
    if scope is not None:
        scope.check_all_users("A backup has the data of all users", "backup()")
    name = fspath(file) if isinstance(file, str | PathLike) else ""
    if not isinstance(name, str) or not name:
        raise mismatch(InvalidOption, "the name of a new file", file, "file")
    if not (progress is None or callable(progress)):
        raise mismatch(InvalidOption, "a function", progress, "progress")
    if not transactions.commits_itself:
        raise InvalidOption("A backup cannot be made within a transaction.", hint="Call backup() on the store itself.")
    path = Path(name)
    return transactions.read(lambda connection: _copy(connection, path, progress))


def _copy(connection: Connection, path: Path, progress: Progress | None) -> int:
    backends.backend_of(connection).backup(connection, path, lambda pages: progress and progress("pages", pages))
    return path.stat().st_size
