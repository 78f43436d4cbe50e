"""Checks: a conversation at a time, each in one snapshot, and with `repair` in a transaction that keeps writers out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, select, update

from threadkeep.db import tables
from threadkeep.db.queries.conversations import DELETED
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption
from threadkeep.store.batches import Progress
from threadkeep.store.changes.rows import record_change
from threadkeep.store.checking import shared
from threadkeep.store.checking.conversations import ConversationCheck
from threadkeep.store.checking.findings import CheckReport, Findings
from threadkeep.store.checking.items import check_items
from threadkeep.store.checking.responses import check_responses
from threadkeep.store.checking.types import check_types
from threadkeep.store.handle import StoreResources
from threadkeep.store.moving.contents import begin_snapshot
from threadkeep.store.moving.exporting import Source
from threadkeep.store.refs import ConversationRef, Scope
from threadkeep.store.transactions import Transactions

T = TypeVar("T")
Part = Callable[[Findings], object]


def check(
    transactions: Transactions, scope: Scope, resources: StoreResources, *, repair: bool, progress: Progress | None
) -> CheckReport:
    """Check all rows of a tenant; see `Store.check`."""
    scope.check_all_users("A check is about the data of all users", "check()")
    if not isinstance(repair, bool):
        raise mismatch(InvalidOption, "True or False", repair, "repair")
    if not (progress is None or callable(progress)):
        raise mismatch(InvalidOption, "a function", progress, "progress")
    run = _Check(transactions, scope, repair=repair)
    if not run.is_readable():
        return run.report
    for table in shared.tables_with_parents():
        while run.part(partial(shared.check_orphans, table=table)) >= shared.BATCH:
            pass
    for page in Source(transactions, scope).conversations():
        for key, _ in page:
            run.part(partial(_check_conversation, key=key))
            run.report.conversations += 1
            if progress is not None:
                progress("conversations", run.report.conversations)
    run.part(shared.check_texts)
    run.each(shared.wrong_media, shared.check_media)
    run.each(shared.wrong_attempts, shared.check_attempts, at_once=shared.BATCH)
    run.each(shared.wrong_sums, shared.check_sums)
    run.part(shared.check_unused)
    if run.report.repaired:
        resources.configs.clear()
        resources.histories.clear()
    return run.report


class _Check:
    def __init__(self, transactions: Transactions, scope: Scope, *, repair: bool) -> None:
        self._transactions, self._scope, self._repair = transactions, scope, repair
        self.report = CheckReport()

    def is_readable(self) -> bool:
        """Check whether all rows are found and can be read; if not, nothing else can be told."""
        for part in (partial(shared.check_file, is_always=self._repair), check_types):
            self.part(part)
            if not self.report.is_healthy:
                return False
        return True

    def part(self, part: Part) -> int:
        """Check a part, and mend what can be mended; return how many rows were mended."""

        def read(connection: Connection) -> Findings:
            begin_snapshot(connection, self._transactions)
            return self._run(connection, part, repair=False)

        found = self._transactions.read(read)
        if found.can_repair and self._repair:  # again, and nobody changes it meanwhile
            write = partial(self._run, part=part, repair=True)
            found = self._transactions.write(write, is_repeatable=True)
        self.report.add(found)
        return found.repaired

    def each(
        self, find: Callable[[Findings], Iterable[T]], check: Callable[[Findings, Sequence[T]], object],
        *, at_once: int = 1,
    ) -> None:  # fmt: skip
        """Look for what is wrong in one snapshot, and check that alone: nobody waits while all the rest is read."""

        def read(connection: Connection) -> list[T]:
            begin_snapshot(connection, self._transactions)
            return list(find(Findings(connection, self._scope, repair=False)))

        wrong = self._transactions.read(read)
        for first in range(0, len(wrong), at_once):

            def part(findings: Findings, some: Sequence[T] = wrong[first : first + at_once]) -> None:
                check(findings, some)

            self.part(part)

    def _run(self, connection: Connection, part: Part, *, repair: bool) -> Findings:
        findings = Findings(connection, self._scope, repair=repair)
        part(findings)
        findings.name_conversations()
        return findings


def _check_conversation(findings: Findings, key: int) -> None:
    """Check a conversation; before it is mended, it is locked, and other processes read it again afterwards."""
    table = tables.conversations
    is_it = [table.c.tenant_id == findings.tenant, table.c.id == key]
    statement = select(table).where(*is_it, table.c.status != DELETED)
    if findings.repair:
        statement = statement.with_for_update()
    row = findings.connection.execute(statement).mappings().one_or_none()
    if row is None:
        return
    check = ConversationCheck(findings, dict(row))
    check.run()
    check_items(check)
    check_responses(check)
    if findings.repaired:
        findings.connection.execute(update(table).where(*is_it).values(revision=table.c.revision + 1))
        ref = ConversationRef(findings.scope, key, public_id_text(bytes(row["public_id"])))
        record_change(findings.connection, ref)
