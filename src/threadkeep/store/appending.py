"""Writing at the end of a branch: the rows of an append, at the numbers that it takes of its conversation.

Rows are made before these numbers are known, and have their own relative to them: the position 1 is the second one of
the append. They are written in the transaction that has reserved the numbers. On PostgreSQL most appends are a single
statement instead, which reserves the numbers and writes the rows (`write_at_once`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count, groupby, islice, repeat
from operator import itemgetter
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table

from threadkeep.db.change_keys import SERIALS
from threadkeep.db.dialects import LARGE, check_sizes
from threadkeep.db.driver import MAX_ROWS, execute_rows
from threadkeep.db.queries.appends import append_at_once, placed_rows
from threadkeep.db.tables import appends, changes, items, response_bodies, responses, usage_records
from threadkeep.domain.changes import APPENDED
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.store.changes.rows import serial_numbers
from threadkeep.store.idempotency import IdempotencyKey
from threadkeep.store.item_rows import ItemRecord, insert_media_of, link_media_of
from threadkeep.store.media.placing import write_placed
from threadkeep.store.positions import Counts, HeadCheck, Reservation, reservation_parameters
from threadkeep.store.refs import BranchRef, Scope
from threadkeep.store.transactions import Transactions

T = TypeVar("T")

# Rows with the tables that they belong to
AppendedRows = list[tuple[Table, dict[str, Any]]]

# table -> what its rows are called in errors, and their columns without a fixed limit
_UNLIMITED: Final = {
    table: (name, columns, itemgetter(*columns, *columns[:1]))  # of two or more, `itemgetter` gives a tuple
    for table, (name, columns) in {
        items: ("an item", ("payload", "rest", "given")),
        responses: ("a response", ("provider_data", "error", "view")),
        response_bodies: ("the raw body of a response", ("body",)),
        usage_records: ("the usage ledger", ("usage", "error", "price", "terms")),
    }.items()
}
_TABLE: Final = itemgetter(0)


def item_rows(
    records: Sequence[ItemRecord], turns: Sequence[int | None] = (), *, first: int = 0, seen: int | None = None
) -> AppendedRows:
    """The rows of items, from the position `first` on; `turns` are where their wire turns begin.

    `seen`: they are the output of a response, whose request showed nothing behind that position of the conversation.
    """
    is_output = seen is not None
    place = {"seen": seen, "before": first - 1 if is_output else None}
    rows: AppendedRows = []
    for position, record, turn in zip(count(first), records, turns or repeat(first if is_output else None)):
        record.columns.update(place, position=position, turn=turn)
        rows.append((items, record.columns))
    return rows


def change_row(ref: BranchRef, last: int) -> tuple[Table, dict[str, Any]]:
    """The row that tells of an append with items up to a position, -1 for none."""
    row = {
        "public_id": ref.public_bytes, "kind": APPENDED, "from_position": 0, "to_position": last,
        "serial": next(serial_numbers) % SERIALS, "of_tenant": ref.scope.tenant,
    }  # fmt: skip
    return changes, row


def kept_row(key: IdempotencyKey, outcome: JsonObject, first: int = 0) -> tuple[Table, dict[str, Any]]:
    """The row that keeps the outcome of an append under its key: FIRST stands for the position `first` in it."""
    text = dumps(outcome).decode()
    return appends, {"key": key.key, "request_hash": key.request_hash, "outcome": text, "first": first}


def write_items(
    transactions: Transactions,
    scope: Scope,
    records: Sequence[ItemRecord],
    work: Callable[[Connection], T],
    *,
    is_repeatable: bool,
    at_once: Callable[[Connection], T | None] | None = None,
) -> T:
    """Run work that writes these items; once their media are in the blob store, if there is one."""
    if scope.blobs is not None and any(record.media for record in records):
        media = (piece for record in records for piece in record.media)
        return write_placed(transactions, scope, scope.blobs, media, work, is_repeatable=is_repeatable)
    return transactions.write(work, is_repeatable=is_repeatable, at_once=at_once)


def write_rows(
    connection: Connection,
    ref: BranchRef,
    reservation: Reservation,
    rows: AppendedRows,
    now: datetime,
    records: Sequence[ItemRecord] = (),
) -> None:
    """Write rows at the numbers that were reserved; `records` are those of the items, in their order."""
    _check_sizes(connection, rows)
    has_media = any(record.media for record in records)
    if has_media:
        insert_media_of(connection, records, ref.scope.tenant, now)
    shared = {"tenant": ref.scope.tenant, "key": ref.key, "now": now, **reservation.taken()}
    dialect = connection.dialect.name
    if dialect == "postgresql" and len(rows) <= MAX_ROWS:
        writes = [(placed_rows(tuple(map(_TABLE, rows)), dialect), [row for _, row in rows])]
    else:
        writes = [(placed_rows((table,), dialect), [row for _, row in same]) for table, same in groupby(rows, _TABLE)]
    execute_rows(connection, shared, writes)
    if has_media:
        places = (ref.columns(position=position) for position in count(reservation.first))
        link_media_of(connection, records, islice(places, len(records)))


def write_at_once(
    connection: Connection,
    ref: BranchRef,
    check: HeadCheck,
    counts: Counts,
    rows: AppendedRows,
    now: datetime,
    records: Sequence[ItemRecord],
) -> Reservation | None:
    """Reserve the numbers and write the rows, in one statement of PostgreSQL that is a transaction of its own.

    None where it wrote nothing: the branch is not as expected, or has a response in progress; or it is an append of
    which the statement knows nothing: on a branch that was forked, with states, media or a time in the past, or long.
    """
    is_plain = ref.branch == 0 and not check.states and check.at is None and len(rows) <= MAX_ROWS
    if not is_plain or any(record.media for record in records):
        return None
    _check_sizes(connection, rows)
    expected = check.expected_head
    tables = tuple(map(_TABLE, rows))
    statement = append_at_once(tables, scoped=ref.scope.user is not None, expected=expected is not None)
    shared = {**reservation_parameters(ref, counts, now, expected), "branch": ref.branch}
    found = statement.fetch_rows(connection, shared, [row for _, row in rows])
    return Reservation.of_row(connection, ref, counts, found[0]) if found else None


def _check_sizes(connection: Connection, rows: AppendedRows) -> None:
    for table, row in rows:
        if (found := _UNLIMITED.get(table)) is not None:
            name, columns, values = found
            if sum(map(len, filter(None, values(row)))) >= LARGE:
                check_sizes(connection, [row], name, columns)
