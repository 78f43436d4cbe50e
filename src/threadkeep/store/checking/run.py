"""Checks: a conversation at a time, each in one snapshot, and with `repair` in a transaction that keeps writers out.

What conversations share, rows without the rows they belong to, and the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import cache, partial
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, ForeignKeyConstraint, RowMapping, Select, Table, bindparam, func, select, update
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from threadkeep.db import backends, models, search
from threadkeep.db.queries.conversations import DELETED
from threadkeep.domain import ids, jsontext
from threadkeep.errors import DamagedRow, InvalidOption
from threadkeep.store.changes.feed import record_change
from threadkeep.store.checking import conversations, items
from threadkeep.store.checking.findings import CheckReport, Findings
from threadkeep.store.media import collecting, rows
from threadkeep.store.moving.contents import SHARED, Row, begin_snapshot, pages
from threadkeep.store.moving.exporting import ExportSource
from threadkeep.store.removing.batches import Progress
from threadkeep.store.usage.rollups import compare_batch, different_days, invalidate, roll_up
from threadkeep.store.work.caches import StoreResources
from threadkeep.store.work.refs import TENANT_WIDE, ConversationRef, Scope
from threadkeep.store.work.transactions import Transactions

T = TypeVar("T")
Part = Callable[[Findings], object]


def check(
    transactions: Transactions, scope: Scope, resources: StoreResources, *, repair: bool, progress: Progress | None
) -> CheckReport:
    """Check all rows of a tenant; see `Store.check`."""
    scope.check_all_users("A check is about the data of all users", "check()")
    if not isinstance(repair, bool):
        raise jsontext.mismatch(InvalidOption, "True or False", repair, "repair")
    if not (progress is None or callable(progress)):
        raise jsontext.mismatch(InvalidOption, "a function", progress, "progress")
    run = _Check(transactions, scope, repair=repair)
    if not run.is_readable():
        return run.report
    for table in (one for one in models.METADATA.sorted_tables if one is not models.tenants):  # parents first
        while run.part(partial(check_orphans, table=table)) >= BATCH:
            pass
    for page in ExportSource(transactions, scope).conversations():
        for key, _ in page:
            run.part(partial(_check_conversation, key=key))
            run.report.conversations += 1
            if progress is not None:
                progress("conversations", run.report.conversations)
    run.part(check_texts)
    run.each(wrong_media, check_media)
    run.each(wrong_attempts, check_attempts, at_once=BATCH)
    run.each(wrong_sums, check_sums)
    run.part(check_unused)
    if run.report.repaired:
        resources.configs.clear()
        resources.histories.clear()
    return run.report


class _Check:
    def __init__(self, transactions: Transactions, scope: Scope, *, repair: bool) -> None:
        self._transactions, self._scope, self._repair = transactions, scope, repair
        self.report = CheckReport()

    def is_readable(self) -> bool:
        """Check whether all rows are found and can be read; if not, nothing else can be checked."""
        for part in (partial(check_file, is_always=self._repair), items.check_types):
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
        """Find problems in one snapshot, then check only the affected rows again, in short transactions."""

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
    table = models.conversations
    is_it = [table.c.tenant_id == findings.tenant, table.c.id == key]
    statement = select(table).where(*is_it, table.c.status != DELETED)
    if findings.repair:
        statement = statement.with_for_update()
    row = findings.connection.execute(statement).mappings().one_or_none()
    if row is None:
        return
    check = conversations.ConversationCheck(findings, dict(row))
    check.run()
    items.check_items(check)
    conversations.check_responses(check)
    if findings.repaired:
        findings.connection.execute(update(table).where(*is_it).values(revision=table.c.revision + 1))
        ref = ConversationRef(findings.scope, key, ids.public_id_text(bytes(row["public_id"])))
        record_change(findings.connection, ref)


BATCH: Final = 500  # rows without a parent, in one transaction; hashes of media in one statement


def check_orphans(findings: Findings, table: Table) -> int:
    """Find rows of a table, a batch of them, whose foreign keys lead nowhere; return how many."""
    count = sum(_check_key(findings, table, constraint) for constraint in _parents(table))
    if table is models.appends:
        table, row = models.appends, models.conversations.c
        there = select(row.id).where(row.tenant_id == table.c.tenant_id, row.id == table.c.conversation_id)
        of_none = [table.c.tenant_id == findings.tenant, table.c.conversation_id != TENANT_WIDE, ~there.exists()]
        rows = (
            findings.connection.execute(select(table.c.conversation_id, table.c.key).where(*of_none).limit(BATCH))
            .mappings()
            .all()
        )
        for found in rows:
            key = dict(found)
            mend = findings.removing(table, key)
            findings.add("orphan", table, key, "the conversation that it belongs to does not exist", "remove it", mend)
        count += len(rows)
    return count


@cache
def _parents(table: Table) -> list[ForeignKeyConstraint]:
    """The foreign keys of a table, except to tenants, in an order that does not change."""
    found = [one for one in table.foreign_key_constraints if one.referred_table is not models.tenants]
    return sorted(found, key=lambda constraint: tuple(constraint.column_keys))


@cache
def _without_parent(constraint: ForeignKeyConstraint) -> Select[Any]:
    """A batch of the rows of a tenant whose foreign key leads nowhere."""
    table, parent = constraint.table, constraint.referred_table.alias()
    pairs = [(element.parent, parent.c[element.column.name]) for element in constraint.elements]
    there = select(parent.c.tenant_id).where(*(own == other for own, other in pairs))
    given = [own.is_not(None) for own, _ in pairs]
    is_wrong = (table.c.tenant_id == bindparam("tenant"), *given, ~there.exists())
    return select(*table.primary_key.columns).where(*is_wrong).limit(BATCH)


def _check_key(findings: Findings, table: Table, constraint: ForeignKeyConstraint) -> int:
    statement = _without_parent(constraint)
    rows = findings.connection.execute(statement, {"tenant": findings.tenant}).mappings().all()
    name = constraint.referred_table.name
    for row in rows:
        key = {column: value for column, value in row.items() if column != "tenant_id"}
        if constraint.ondelete == "CASCADE":
            mend = findings.removing(table, key)
            findings.add(
                "orphan", table, key, f"the row of {name} that it belongs to does not exist", "remove it", mend
            )
        else:
            findings.add("missing", table, key, f"the row of {name} that it names does not exist")
    return len(rows)


# What is stored under its hash


def check_texts(findings: Findings) -> None:
    """Check options and tools against their hashes."""
    for table, column in SHARED.items():
        if table is not models.blobs:
            for row in pages(findings.connection, table, findings.tenant):
                _check_text(findings, table, column, row)


def wrong_media(findings: Findings) -> Iterator[bytes]:
    """Yield the hashes of media about which something is to be found."""
    column, after = models.blobs.c.hash, b""
    statement = select(column).where(models.blobs.c.tenant_id == findings.tenant).order_by(column).limit(BATCH)
    while page := findings.connection.execute(statement.where(column > after)).scalars().all():
        for hash_ in page:
            before = findings.count
            check_media(findings, [hash_])
            if findings.count > before:
                yield hash_
        after = page[-1]


def check_media(findings: Findings, hashes: Sequence[bytes]) -> None:
    """Check media against their hashes; one at a time: they are large."""
    statement = select(models.blobs).where(models.blobs.c.tenant_id == findings.tenant)
    for hash_ in hashes:
        for found in findings.connection.execute(statement.where(models.blobs.c.hash == hash_)).mappings():
            _check_blob(findings, dict(found))


def _check_text(findings: Findings, table: Table, column: str, row: Row) -> None:
    key = {"hash": bytes(row["hash"])}
    if sha256(row[column].encode()).digest() != key["hash"]:
        findings.add("hash", table, key, f"its {column} is not what the hash was made of")
        return
    if table is models.tool_sets:
        named = {bytes.fromhex(name) for name in jsontext.loads(row[column])}
        tool = models.tool_definitions.c
        statement = select(tool.hash).where(tool.tenant_id == findings.tenant, tool.hash.in_(named))
        missing = named - {bytes(found) for found in findings.connection.execute(statement).scalars()}
        if missing:
            findings.add("missing", table, key, f"the tool {min(missing).hex()} that it names does not exist")


def _check_blob(findings: Findings, row: Row) -> None:
    key, location = {"hash": bytes(row["hash"])}, row["location"]
    if location is not None and (findings.scope.blobs is None or collecting.hash_set_aside(location) == key["hash"]):
        return  # it cannot be read here, or is being removed
    try:
        place = SimpleNamespace(**row)
        content = rows.content_of(place, rows.read_objects(findings.scope.blobs, [place]))
    except DamagedRow as error:
        findings.add("media", models.blobs, key, f"its content cannot be read: {error.message}")
        return
    if sha256(content).digest() != key["hash"]:
        findings.add("hash", models.blobs, key, "its content is not what the hash was made of")
    elif row["size"] != len(content):
        problem, repair = f"size is {row['size']}, not {len(content)}", f"set it to {len(content)}"
        findings.add(
            "media", models.blobs, key, problem, repair, findings.setting(models.blobs, key, size=len(content))
        )


def check_unused(findings: Findings) -> None:
    """Find media that neither an item nor an upload has, unless conversations are being deleted."""
    blob, row = models.blobs.c, models.conversations.c
    deleted = select(row.id).where(row.tenant_id == findings.tenant, row.status == DELETED).limit(1)
    if findings.connection.execute(deleted).first() is not None:
        return
    statement = select(blob.hash, blob.location).where(blob.tenant_id == findings.tenant, ~collecting.is_used())
    for found in findings.connection.execute(statement).all():
        hash_, location = bytes(found.hash), found.location
        if location is None or collecting.hash_set_aside(location) != hash_:
            mend = partial(collecting.collect_these_media, tenant=findings.tenant, hashes=[hash_])
            repair = "remove it" if location is None else "set it aside for purge_deleted(), which removes its object"
            findings.add("unused", models.blobs, {"hash": hash_}, "no item has it", repair, mend)


# The file

_INDEX: Final = " index "  # ends with the name of the index, what SQLite says of one
_DUPLICATES: Final = "none: change or remove one of the rows that have the same values, and repair again"


def check_file(findings: Findings, *, is_always: bool) -> None:
    """Let SQLite compare its tables with the indexes through which rows are found, before anything is made of these.

    Once for all tenants of a file, with the first one; or always.
    """
    connection = findings.connection
    first = connection.execute(select(func.min(models.tenants.c.id))).scalar()
    if is_always or first == findings.tenant:
        for table in models.METADATA.tables.values():
            said: list[str] = []
            try:
                said.extend(backends.backend_of(connection).integrity_of(connection, table.name))
            except DatabaseError as error:  # of a table that cannot be read, after what was found until then
                said.append(_damage(error))
            if said:
                _report_file(findings, table, said)


def _damage(error: DatabaseError) -> str:
    """What is wrong with the file; raises what is wrong with something else, such as a lock."""
    if isinstance(error, OperationalError):
        raise error
    return search.reason_of(error)


def _report_file(findings: Findings, table: Table, said: Sequence[str]) -> None:
    """Report what SQLite says of a table; of its indexes, all are made anew, for it does not say everything."""
    of_indexes = [line for line in said if _INDEX in line]
    refused = _reindex(findings.connection, table.name) if findings.repair and of_indexes else {}
    for line in said:
        problem, index = f"SQLite says: {line}", line.rpartition(_INDEX)[2]
        if line not in of_indexes or index in refused:
            findings.add("file", table, {}, problem)
        elif line.startswith("non-unique"):
            findings.add("file", table, {}, problem, _DUPLICATES)
        else:
            findings.add("file", table, {}, problem, "make the index anew", lambda _: None)  # all were at once
    for index, error in refused.items():
        problem = f"the index {index} cannot be made anew: {_damage(error)}"
        findings.add("file", table, {}, problem, _DUPLICATES if isinstance(error, IntegrityError) else None)


def _reindex(connection: Connection, table: str) -> dict[str, DatabaseError]:
    """Make the indexes of a table anew; return those for which it is not possible, and why."""
    refused, backend = {}, backends.backend_of(connection)
    for index in backend.index_names(connection, table):
        try:
            backend.remake_index(connection, index)
        except DatabaseError as error:
            _damage(error)
            refused[index] = error
    return refused


# The ledger


def wrong_attempts(findings: Findings) -> Iterator[int]:
    """Yield the keys of ledger rows whose day does not match their time."""
    for row in pages(findings.connection, models.usage_records, findings.tenant):
        if _day_of(row) != row["day"]:
            yield row["id"]


def check_attempts(findings: Findings, keys: Sequence[int]) -> None:
    """Check the days of ledger rows."""
    table = models.usage_records
    statement = select(table.c.id, table.c.day, table.c.occurred_at).where(table.c.tenant_id == findings.tenant)
    for row in findings.connection.execute(statement.where(table.c.id.in_(keys)).order_by(table.c.id)).mappings().all():
        day = _day_of(row)
        if day != row["day"]:
            mend = partial(_move, findings=findings, key=row["id"], days=(row["day"], day))
            findings.add("day", table, {"id": row["id"]}, f"day is {row['day']}, not {day}", f"set it to {day}", mend)


def _day_of(row: Row | RowMapping) -> date:
    day: date = row["occurred_at"].astimezone(UTC).date()
    return day


def wrong_sums(findings: Findings) -> Iterator[date]:
    """Yield the days whose sums differ from the ledger."""
    last, different = compare_batch(findings.connection, findings.tenant, None)
    while last is not None:
        yield from different
        last, different = compare_batch(findings.connection, findings.tenant, last)


def check_sums(findings: Findings, days: Sequence[date]) -> None:
    """Check the sums of days."""
    for day in different_days(findings.connection, findings.tenant, days):
        mend = partial(roll_up, tenant=findings.tenant, days=[day], now=datetime.now(UTC))
        problem = "its sums differ from the ledger"
        findings.add("sums", models.usage_days, {"day": day}, problem, "sum them up again", mend)


def _move(connection: Any, findings: Findings, key: int, days: Sequence[date]) -> None:
    findings.setting(models.usage_records, {"id": key}, day=days[1])(connection)
    for day in sorted(days):
        invalidate(connection, findings.tenant, day)
