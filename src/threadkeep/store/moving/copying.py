"""Copies: conversations and the ledger of a scope, from one database to another, compared at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sqlalchemy import Connection, select

from threadkeep.db import backends, engines, models
from threadkeep.db.queries.conversations import DELETED
from threadkeep.domain import ids, jsontext, usage
from threadkeep.errors import CannotParse, Conflict, InvalidOption
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.moving.contents import Digest, Row, begin_snapshot, encode_row, fingerprint
from threadkeep.store.moving.exporting import KEYS, LEDGER, ExportSource
from threadkeep.store.moving.restoring import ImportTarget, Lines
from threadkeep.store.removing.batches import Progress
from threadkeep.store.work import refs, tenants, transactions

MAX_DIFFERENCES: Final = 1000  # that are listed; all are counted
_SUMMED: Final = (*usage.FIGURES, "cost_nano")  # columns of the ledger


@dataclass(frozen=True, slots=True)
class Difference:
    """What is not the same in both databases.

    Attributes:
        conversation_id: the conversation; None for the ledger.
        tables: the tables with rows that differ, or that one of the databases does not have.
        reason: why it could not be copied; None if it was, or was there already.
    """

    conversation_id: str | None
    tables: tuple[str, ...]
    reason: str | None = None


@dataclass(slots=True)
class CopyReport:
    """What `copy_to` wrote, and what it found when it compared both databases afterwards.

    Attributes:
        conversations: how many conversations were copied.
        skipped: how many were there already.
        attempts: how many rows of the ledger were copied.
        compared: how many conversations were compared, row by row.
        figures: the sums of the ledger that were found in both databases, by figure; None where they differ.
        different: how many conversations, and pages of the ledger, are not the same in both.
        differences: what these are; at most 1,000 of them.
        extra: how many conversations only the target has: from elsewhere, or deleted in the source since they were
            copied.
        extras: the ids of these; at most 1,000 of them.
    """

    conversations: int = 0
    skipped: int = 0
    attempts: int = 0
    compared: int = 0
    figures: dict[str, int | None] = field(default_factory=dict)
    different: int = 0
    differences: list[Difference] = field(default_factory=list)
    extra: int = 0
    extras: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether the target has everything, as the source has it. It may have more, see `extra`."""
        return not self.different

    def add(self, other: CopyReport) -> None:
        """Add what was copied for another tenant."""
        for name in ("conversations", "skipped", "attempts", "compared", "different", "extra"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.differences = [*self.differences, *other.differences][:MAX_DIFFERENCES]
        self.extras = [*self.extras, *other.extras][:MAX_DIFFERENCES]
        names = {**self.figures, **other.figures}
        self.figures = {name: _sum(self.figures.get(name, 0), other.figures.get(name, 0)) for name in names}

    def add_extras(self, ids: list[str]) -> None:
        """Add conversations that only the target has."""
        self.extra += len(ids)
        self.extras += ids[: MAX_DIFFERENCES - len(self.extras)]


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def copy(source: ExportSource, target: ImportTarget, progress: Progress | None) -> CopyReport:
    """Copy what the target does not have, and compare; see `Store.copy_to`."""
    if not (progress is None or callable(progress)):
        raise jsontext.mismatch(InvalidOption, "a function", progress, "progress")
    source.transactions.check_open()
    target.transactions.check_open()
    if target.scope.user not in {None, source.scope.user}:
        problem = f"is for the user {target.scope.user!r} only, and this store is not."
        raise InvalidOption(problem, argument="other", hint="Copy from the same user's store, or to one for all users.")
    if source.scope.tenant == target.scope.tenant and _is_same_database(source.transactions, target.transactions):
        problem = "is a store of the same tenant in the same database, which would be compared with itself."
        raise InvalidOption(problem, argument="other", hint="Copy to another database, or to another tenant.")
    run = _Copy(source, target, progress or (lambda _what, _count: None))
    run.copy_conversations()
    run.copy_beside()
    run.compare()
    run.find_extras()
    return run.report


def _is_same_database(one: transactions.Transactions, other: transactions.Transactions) -> bool:
    if isinstance(one, transactions.EngineTransactions) and isinstance(other, transactions.EngineTransactions):
        return engines.is_same_database(one.engine, other.engine)
    return False


# How to reach all tenants of a database, and its blob store
Database = tuple[transactions.Transactions, BlobStore | None]


def copy_tenants(ours: Database, theirs: Database, progress: Progress | None) -> CopyReport:
    """Copy all tenants; those that are missing in the target are created."""
    report, names = CopyReport(), tenants.list_tenants(ours[0])
    for name in names:
        source = ExportSource(ours[0], refs.Scope(tenants.get_tenant(ours[0], name), None, ours[1]))
        target = ImportTarget(theirs[0], refs.Scope(tenants.get_or_create_tenant(theirs[0], name), None, theirs[1]))
        report.add(copy(source, target, progress))
    for name in sorted({*tenants.list_tenants(theirs[0])} - {*names}):
        for page in ExportSource(theirs[0], refs.Scope(tenants.get_tenant(theirs[0], name))).conversations():
            report.add_extras([public_id for _, public_id in page])
    return report


class _Copy:
    def __init__(self, source: ExportSource, target: ImportTarget, progress: Progress) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._reasons: dict[str, str] = {}  # why conversations could not be copied
        self.report = CopyReport()

    def copy_conversations(self) -> None:
        """Copy those that are missing, each in a transaction of its own."""
        for page in self._source.conversations():
            there = _existing(self._target, page)
            for key, public_id in page:
                if ids.public_id_bytes(public_id) in there:
                    self.report.skipped += 1
                    continue
                try:
                    self._copy_conversation(key, public_id)
                except (CannotParse, Conflict) as error:  # the others can be copied
                    self._reasons[public_id] = error.message
                self._progress("conversations", self.report.conversations)

    def _copy_conversation(self, key: int, public_id: str) -> None:
        block = self._source.block(key, public_id)
        if block is None:  # deleted meanwhile
            return
        with block.file:
            lines = Lines(block.lines())
            begin = lines.next()
            is_new = begin is not None and self._target.write_conversation(lines, begin[1])
        if is_new:
            self.report.conversations += 1
        else:
            self.report.skipped += 1

    def copy_beside(self) -> None:
        """Copy the tenant's idempotency keys and the ledger, a page in a transaction."""
        of_target = {"tenant_id": self._target.scope.tenant}
        for page in self._source.tenant_keys():
            self._target.write_rows(KEYS, [row | of_target for row in page])
        for page in self._source.attempts():
            self.report.attempts += self._target.write_rows(LEDGER, [row | of_target for row in page])
            self._progress("attempts", self.report.attempts)

    def compare(self) -> None:
        """Read everything again, in both databases."""
        for page in self._source.conversations():
            for key, public_id in page:
                ours, theirs = self._fingerprint(self._source, key), self._fingerprint(self._target, key)
                if ours:
                    self.report.compared += 1
                    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
                    self._note(public_id, names, self._reasons.get(public_id))
                    self._progress("compared", self.report.compared)
        sums, found_sums = dict.fromkeys(_SUMMED, 0), dict.fromkeys(_SUMMED, 0)
        for rows in self._source.attempts():
            found = self._target.transactions.read(partial(self._attempts, keys=[row["id"] for row in rows]))
            sums, found_sums = _added(sums, rows), _added(found_sums, found)
            if _checksum(rows) != _checksum(found):
                self._note(None, ["usage_records"])
        self.report.figures = {name: sums[name] if sums[name] == found_sums[name] else None for name in sums}

    def find_extras(self) -> None:
        """Find the conversations that only the target has."""
        source, found = self._source, self._target
        there = ExportSource(found.transactions, refs.Scope(found.scope.tenant, source.scope.user, None))
        for page in there.conversations():
            ours = _existing(source, page)
            self.report.add_extras([public_id for _, public_id in page if ids.public_id_bytes(public_id) not in ours])

    def _fingerprint(self, side: ExportSource | ImportTarget, key: int) -> dict[str, tuple[int, str]]:
        def read(connection: Connection) -> dict[str, tuple[int, str]]:
            begin_snapshot(connection, side.transactions)
            return fingerprint(connection, side.scope, key)

        return side.transactions.read(read)

    def _attempts(self, connection: Connection, keys: list[int]) -> list[Row]:
        row = models.usage_records.c
        statement = select(models.usage_records).where(row.tenant_id == self._target.scope.tenant)
        statement = backends.backend_of(connection).by_keys(statement, row.id, keys)
        return [dict(found) for found in connection.execute(statement).mappings()]

    def _note(self, public_id: str | None, names: list[str], reason: str | None = None) -> None:
        if names:
            self.report.different += 1
            if len(self.report.differences) < MAX_DIFFERENCES:
                self.report.differences.append(Difference(public_id, tuple(names), reason))


def _existing(side: ExportSource | ImportTarget, page: Iterable[tuple[int, str]]) -> set[bytes]:
    """Which of these conversations are there, and not being deleted."""
    row = models.conversations.c
    keys = [key for key, _ in page]
    statement = select(row.public_id).where(row.tenant_id == side.scope.tenant, row.status != DELETED)

    def read(connection: Connection) -> set[bytes]:
        those = backends.backend_of(connection).by_keys(statement, row.id, keys)
        return {bytes(one) for one in connection.execute(those).scalars()}

    return side.transactions.read(read)


def _added(sums: dict[str, int], rows: Iterable[Row]) -> dict[str, int]:
    return {name: total + sum(row[name] or 0 for row in rows) for name, total in sums.items()}


def _checksum(rows: Iterable[Row]) -> str:
    digest = Digest()
    for row in rows:
        digest.add("usage_records", encode_row(models.usage_records, row))
    return digest.hex()
