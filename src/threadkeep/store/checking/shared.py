"""What conversations share, rows without the rows they belong to, and the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from functools import cache, partial
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import Connection, ForeignKeyConstraint, RowMapping, Select, Table, bindparam, func, select
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from threadkeep.db import tables
from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.tables import METADATA
from threadkeep.domain.jsontext import loads
from threadkeep.errors import DamagedRow
from threadkeep.store.checking.findings import Findings
from threadkeep.store.media.collecting import collect_these_media, hash_set_aside, is_used
from threadkeep.store.media.rows import content_of, read_objects
from threadkeep.store.moving.contents import SHARED, pages
from threadkeep.store.moving.records import Row
from threadkeep.store.places import FIRST_HASH
from threadkeep.store.refs import TENANT_WIDE
from threadkeep.store.rollups import compare_batch, different_days, invalidate, roll_up
from threadkeep.store.search.index import reason_of

BATCH: Final = 500  # rows without a parent, in one transaction; hashes of media in one statement


def check_orphans(findings: Findings, table: Table) -> int:
    """Find rows of a table, a batch of them, whose foreign keys lead nowhere; return how many."""
    count = sum(_check_key(findings, table, constraint) for constraint in _parents(table))
    if table is tables.appends:
        count += _check_keys_of_conversations(findings)
    return count


@cache
def _parents(table: Table) -> list[ForeignKeyConstraint]:
    """The foreign keys of a table, but for those of tenants, in an order that does not change."""
    found = [one for one in table.foreign_key_constraints if one.referred_table is not tables.tenants]
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


def _check_keys_of_conversations(findings: Findings) -> int:
    table, row = tables.appends, tables.conversations.c
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
    return len(rows)


# What is stored under its hash


def check_texts(findings: Findings) -> None:
    """Check options and tools against their hashes."""
    for table, column in SHARED.items():
        if table is not tables.blobs:
            for row in pages(findings.connection, table, findings.tenant):
                _check_text(findings, table, column, row)


def wrong_media(findings: Findings) -> Iterator[bytes]:
    """Yield the hashes of media about which something is to be found."""
    for hash_ in _hashes_of_media(findings):
        before = findings.count
        check_media(findings, [hash_])
        if findings.count > before:
            yield hash_


def check_media(findings: Findings, hashes: Sequence[bytes]) -> None:
    """Check media against their hashes; one at a time: they are large."""
    statement = select(tables.blobs).where(tables.blobs.c.tenant_id == findings.tenant)
    for hash_ in hashes:
        for found in findings.connection.execute(statement.where(tables.blobs.c.hash == hash_)).mappings():
            _check_blob(findings, dict(found))


def _hashes_of_media(findings: Findings) -> Iterator[bytes]:
    column, after = tables.blobs.c.hash, FIRST_HASH
    statement = select(column).where(tables.blobs.c.tenant_id == findings.tenant).order_by(column).limit(BATCH)
    while page := findings.connection.execute(statement.where(column > after)).scalars().all():
        yield from page
        after = page[-1]


def _check_text(findings: Findings, table: Table, column: str, row: Row) -> None:
    key = {"hash": bytes(row["hash"])}
    if sha256(row[column].encode()).digest() != key["hash"]:
        findings.add("hash", table, key, f"its {column} is not what the hash was made of")
        return
    if table is tables.tool_sets:
        named = {bytes.fromhex(name) for name in loads(row[column])}
        tool = tables.tool_definitions.c
        statement = select(tool.hash).where(tool.tenant_id == findings.tenant, tool.hash.in_(named))
        missing = named - {bytes(found) for found in findings.connection.execute(statement).scalars()}
        if missing:
            findings.add("missing", table, key, f"the tool {min(missing).hex()} that it names does not exist")


def _check_blob(findings: Findings, row: Row) -> None:
    key, location = {"hash": bytes(row["hash"])}, row["location"]
    if location is not None and (findings.scope.blobs is None or hash_set_aside(location) == key["hash"]):
        return  # it cannot be read here, or is being removed
    try:
        place = SimpleNamespace(**row)
        content = content_of(place, read_objects(findings.scope.blobs, [place]))
    except DamagedRow as error:
        findings.add("media", tables.blobs, key, f"its content cannot be read: {error.message}")
        return
    if sha256(content).digest() != key["hash"]:
        findings.add("hash", tables.blobs, key, "its content is not what the hash was made of")
    elif row["size"] != len(content):
        problem, repair = f"size is {row['size']}, not {len(content)}", f"set it to {len(content)}"
        findings.add(
            "media", tables.blobs, key, problem, repair, findings.setting(tables.blobs, key, size=len(content))
        )


def check_unused(findings: Findings) -> None:
    """Find media that neither an item nor an upload has, unless somebody is deleting conversations just now."""
    blob, row = tables.blobs.c, tables.conversations.c
    deleted = select(row.id).where(row.tenant_id == findings.tenant, row.status == DELETED).limit(1)
    if findings.connection.execute(deleted).first() is not None:
        return
    statement = select(blob.hash, blob.location).where(blob.tenant_id == findings.tenant, ~is_used())
    for found in findings.connection.execute(statement).all():
        hash_, location = bytes(found.hash), found.location
        if location is None or hash_set_aside(location) != hash_:
            mend = partial(collect_these_media, tenant=findings.tenant, hashes=[hash_])
            repair = "remove it" if location is None else "set it aside for purge_deleted(), which removes its object"
            findings.add("unused", tables.blobs, {"hash": hash_}, "no item has it", repair, mend)


# The file

_INDEX: Final = " index "  # ends with the name of the index, what SQLite says of one
_DUPLICATES: Final = "none: change or remove one of the rows that have the same values, and repair again"


def check_file(findings: Findings, *, is_always: bool) -> None:
    """Let SQLite compare its tables with the indexes through which rows are found, before anything is made of these.

    Once for all tenants of a file, with the first one; or always.
    """
    connection = findings.connection
    first = connection.execute(select(func.min(tables.tenants.c.id))).scalar()
    if connection.dialect.name != "sqlite" or not (is_always or first == findings.tenant):
        return
    for table in METADATA.tables.values():
        said = _integrity_of(connection, table.name)
        if said != ["ok"]:
            _report_file(findings, table, said)


def _integrity_of(connection: Connection, table: str) -> list[str]:
    said: list[str] = []
    try:
        said.extend(connection.exec_driver_sql(f'PRAGMA integrity_check("{table}")').scalars())
    except DatabaseError as error:  # of a table that cannot be read, after what was found until then
        said.append(_damage(error))
    return said


def _damage(error: DatabaseError) -> str:
    """What is wrong with the file; raises what is wrong with something else, such as a lock."""
    if isinstance(error, OperationalError):
        raise error
    return reason_of(error)


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
            findings.add("file", table, {}, problem, "make the index anew", _is_mended)
    for index, error in refused.items():
        problem = f"the index {index} cannot be made anew: {_damage(error)}"
        findings.add("file", table, {}, problem, _DUPLICATES if isinstance(error, IntegrityError) else None)


def _reindex(connection: Connection, table: str) -> dict[str, DatabaseError]:
    """Make the indexes of a table anew; return those for which it is not possible, and why."""
    refused = {}
    for index in connection.exec_driver_sql(f'PRAGMA index_list("{table}")').all():
        try:
            connection.exec_driver_sql(f'REINDEX "{index.name}"')
        except DatabaseError as error:
            _damage(error)
            refused[index.name] = error
    return refused


def _is_mended(connection: Connection) -> None:
    """Nothing is left to be done: all indexes of the table were made anew at once."""


# The ledger


def wrong_attempts(findings: Findings) -> Iterator[int]:
    """Yield the keys of ledger rows with another day than that of their time."""
    for row in pages(findings.connection, tables.usage_records, findings.tenant):
        if _day_of(row) != row["day"]:
            yield row["id"]


def check_attempts(findings: Findings, keys: Sequence[int]) -> None:
    """Check the days of ledger rows."""
    table = tables.usage_records
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
    """Yield the days whose sums are not those of the ledger."""
    last, different = compare_batch(findings.connection, findings.tenant, None)
    while last is not None:
        yield from different
        last, different = compare_batch(findings.connection, findings.tenant, last)


def check_sums(findings: Findings, days: Sequence[date]) -> None:
    """Check the sums of days."""
    for day in different_days(findings.connection, findings.tenant, days):
        mend = partial(_sum_again, findings=findings, day=day)
        problem = "its sums are not those of the ledger"
        findings.add("sums", tables.usage_days, {"day": day}, problem, "sum them up again", mend)


def _move(connection: Any, findings: Findings, key: int, days: Sequence[date]) -> None:
    findings.setting(tables.usage_records, {"id": key}, day=days[1])(connection)
    for day in sorted(days):
        invalidate(connection, findings.tenant, day)


def _sum_again(connection: Any, findings: Findings, day: date) -> None:
    roll_up(connection, findings.tenant, [day], datetime.now(UTC))


def tables_with_parents() -> Iterator[Table]:
    """The tables whose rows may lack the rows they belong to; parents first."""
    return iter(table for table in tables.METADATA.sorted_tables if table is not tables.tenants)
