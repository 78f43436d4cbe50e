"""Appending items that the application made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count, groupby, islice, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Table

from threadkeep.db import backends, driver, functions
from threadkeep.db.driver import inserting
from threadkeep.db.models import appends, changes, items, response_bodies, responses, usage_records
from threadkeep.db.queries.appends import FIRST, append_at_once, placed_rows
from threadkeep.domain.ids import derived_id
from threadkeep.domain.items import Item, given_of
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.options import SERVER_STATE
from threadkeep.domain.stored import APPENDED, StoredItem
from threadkeep.domain.written import call_output, given_item, given_items, message_of
from threadkeep.errors import Conflict, NotFound, shown
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.shared.pairing import ALL_KINDS, Pairing
from threadkeep.store.changes.feed import serial_numbers
from threadkeep.store.media.cutting import write_placed
from threadkeep.store.reading.calls import entries_with_call_id, paired_by_client
from threadkeep.store.reading.items import ItemWindow, read_items
from threadkeep.store.work import erasures, idempotency, positions, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.item_rows import ItemRecord, author_of, encode_item, insert_media_of, link_media_of
from threadkeep.store.work.refs import BranchRef, Scope, check_new_ids, check_unique_ids, lock_lineage
from threadkeep.store.work.transactions import Transactions

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
        "serial": next(serial_numbers) % functions.SERIALS, "of_tenant": ref.scope.tenant,
    }  # fmt: skip
    return changes, row


def kept_row(key: idempotency.IdempotencyKey, outcome: JsonObject, first: int = 0) -> tuple[Table, dict[str, Any]]:
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
    run: Callable[[Callable[[Connection], T]], T] | None = None,
) -> T:
    """Run work that writes these items; once their media are in the blob store, if there is one.

    `run` is called in place of `transactions.write` where that is all that there is to do.
    """
    if scope.since is not None and scope.user is None:  # else their conversation is that user's
        authors = {record.columns["author_id"] for record in records} - {None}
        if authors:
            work, at_once = partial(_named, work, scope, authors), None
    if scope.blobs is not None and any(record.media for record in records):
        media = (piece for record in records for piece in record.media)
        return write_placed(transactions, scope, scope.blobs, media, work, is_repeatable=is_repeatable)
    if run is not None:
        return run(work)
    return transactions.write(work, is_repeatable=is_repeatable, is_short=True, at_once=at_once)


def _named(work: Callable[[Connection], T], scope: Scope, authors: set[str], connection: Connection) -> T:
    """Run work that writes items with authors."""
    result = work(connection)
    erasures.check_users(connection, scope, authors)
    return result


def write_rows(
    connection: Connection,
    ref: BranchRef,
    reservation: positions.Reservation,
    rows: AppendedRows,
    now: datetime,
    records: Sequence[ItemRecord] = (),
) -> None:
    """Write rows at the numbers that were reserved; `records` are the items' records, in their order."""
    _check_sizes(connection, rows)
    has_media = any(record.media for record in records)
    if has_media:
        insert_media_of(connection, records, ref.scope.tenant, now)
    shared = {"tenant": ref.scope.tenant, "key": ref.key, "now": now, **reservation.taken()}
    if backends.backend_of(connection).writes_together and len(rows) <= inserting.MAX_ROWS:
        writes = [(placed_rows(tuple(map(_TABLE, rows))), [row for _, row in rows])]
    else:
        writes = [(placed_rows((table,)), [row for _, row in same]) for table, same in groupby(rows, _TABLE)]
    driver.execute_rows(connection, shared, writes)
    if has_media:
        places = (ref.columns(position=position) for position in count(reservation.first))
        link_media_of(connection, records, islice(places, len(records)))


def write_at_once(
    connection: Connection,
    ref: BranchRef,
    check: positions.HeadCheck,
    counts: positions.Counts,
    rows: AppendedRows,
    now: datetime,
    records: Sequence[ItemRecord],
) -> positions.Reservation | None:
    """Reserve the numbers and write the rows, in one statement of PostgreSQL that is a transaction of its own.

    None where it wrote nothing: the branch is not as expected, or has a response in progress; or it is an append of
    which the statement knows nothing: with states or a time in the past, or as in `fetch_at_once`.
    """
    if check.states or check.at is not None:
        return None
    expected = check.expected_head
    statement = partial(append_at_once, scoped=ref.scope.user is not None, expected=expected is not None)
    shared = positions.reservation_parameters(ref, counts, now, expected)
    found = fetch_at_once(connection, ref, statement, shared, rows, records)
    return None if found is None else positions.Reservation.of_row(connection, ref, counts, found)


def fetch_at_once(
    connection: Connection,
    ref: BranchRef,
    statement: Callable[[tuple[Table, ...]], driver.RowsStatement],
    shared: driver.Parameters,
    rows: AppendedRows,
    records: Sequence[ItemRecord],
) -> driver.Row | None:
    """Run the statement for these rows that is a transaction of its own, and return its row.

    None where it has none; or it knows nothing of such rows: on a branch that was forked, with media, or many.
    """
    if ref.branch or len(rows) > inserting.MAX_ROWS or any(record.media for record in records):
        return None
    _check_sizes(connection, rows)
    found = statement(tuple(map(_TABLE, rows))).fetch_rows(
        connection, {**shared, "branch": ref.branch}, [row for _, row in rows]
    )
    return found[0] if found else None


def _check_sizes(connection: Connection, rows: AppendedRows) -> None:
    for table, row in rows:
        if (found := _UNLIMITED.get(table)) is not None:
            name, columns, values = found
            if sum(map(len, filter(None, values(row)))) >= backends.LARGE:
                backends.check_sizes(connection, [row], name, columns)


# ---------------------------------------------------------------------------------------------------------------------
# Appending items that the application made


@dataclass(slots=True)
class AppendResult:
    """Where items were appended; `revision` is -1 when an earlier call had done it."""

    first: int
    count: int
    branch: int
    revision: int = -1
    at: datetime | None = None

    @property
    def is_replayed(self) -> bool:
        """Whether an earlier call with the same idempotency key had appended them."""
        return self.revision < 0

    @classmethod
    def of(cls, reservation: positions.Reservation, now: datetime) -> AppendResult:
        """Where they were appended now."""
        return cls(reservation.first, reservation.count, reservation.branch, reservation.revision, now)

    @classmethod
    def of_outcome(cls, outcome: JsonObject) -> AppendResult:
        """What was kept under an idempotency key."""
        return cls(outcome["first"], outcome["count"], outcome["branch"])


def _outcome(first: int | str, count: int, branch: int) -> JsonObject:
    """What is kept of it under an idempotency key."""
    return {"kind": "items", "first": first, "count": count, "branch": branch}


class NewItems(NamedTuple):
    """Items to be appended; `turns` are the offsets at which their wire turns begin, where they have any."""

    items: Sequence[Item]
    records: Sequence[ItemRecord]
    turns: Sequence[int | None] = ()

    def insert(
        self,
        connection: Connection,
        ref: BranchRef,
        reservation: positions.Reservation,
        key: idempotency.IdempotencyKey | None,
        now: datetime,
        **outcome: Any,
    ) -> AppendResult:
        """Write them at the positions that were reserved, and keep that, with `outcome`, under the key."""
        if self.records:
            rows = [*item_rows(self.records, self.turns), change_row(ref, len(self.records) - 1)]
            write_rows(connection, ref, reservation, rows, now, self.records)
        result = AppendResult.of(reservation, now)
        if key is not None:
            outcome = _outcome(result.first, result.count, result.branch) | outcome
            idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, key, now, **outcome)
        return result

    def insert_at_once(
        self, connection: Connection, ref: BranchRef, check: positions.HeadCheck, key: idempotency.IdempotencyKey | None
    ) -> AppendResult | None:
        """Reserve positions and write them in one statement of PostgreSQL; None where that takes a transaction."""
        count, now = len(self.records), datetime.now(UTC)
        if not count:  # nothing to tell of
            return None
        rows = [*item_rows(self.records, self.turns), change_row(ref, count - 1)]
        if key is not None:
            rows.append(kept_row(key, _outcome(FIRST, count, ref.branch)))
        reservation = write_at_once(connection, ref, check, positions.Counts(items=count), rows, now, self.records)
        return None if reservation is None else AppendResult.of(reservation, now)

    def take_in(self, handle: Handle, result: AppendResult) -> None:
        """Let the handle know what it appended, turn by turn."""
        if not result.is_replayed and result.branch == handle.ref.branch:
            if self.turns:
                for turn, group in groupby(range(len(self.turns)), self.turns.__getitem__):
                    first, *_ = offsets = list(group)
                    start = None if turn is None else result.first + turn
                    records = self.records[first : first + len(offsets)]
                    handle.cache.append(records, result.first + first, result.revision, turn=start)
            else:
                handle.cache.append(self.records, result.first, result.revision)
        handle.after_write()

    def stored(self, ref: BranchRef, result: AppendResult, author_id: str | None = None) -> list[StoredItem]:
        """What a caller gets of them."""
        first, branch, is_replayed, public_id = result.first, result.branch, result.is_replayed, ref.public_id
        stored = [
            StoredItem(
                record.columns["item_id"] or derived_id(item.type, public_id, position),
                position, branch, None, item, is_replayed, result.at, author_id, public_id, _views=record,
            )
            for position, item, record in zip(count(first), self.items, self.records, strict=False)
        ]  # fmt: skip
        if not self.turns:
            return stored
        pairs = zip(stored, self.turns, strict=True)
        return [item if turn is None else replace(item, turn=first + turn) for item, turn in pairs]


NO_ITEMS: Final = NewItems((), ())


class TurnItems(NamedTuple):
    """What a response answers that is stored with it; `content` is what an idempotency key stands for."""

    items: NewItems
    content: JsonObject
    method: str = "add_turn"


NO_TURN: Final = TurnItems(NO_ITEMS, {}, "add_response")


# Appending


def append_message(
    handle: Handle, role: str, content: Any, options: positions.AppendOptions, author_id: str | None = None
) -> StoredItem:
    """Append a message; see `Conversation.user`."""
    return _append(handle, role, [message_of(role, content)], options, author_id)[0]


def append_item(
    handle: Handle, item: Any, options: positions.AppendOptions, author_id: str | None = None, *, known: bool = True
) -> StoredItem:
    """Append an item of any type; see `Conversation.add_item`."""
    return _append(handle, "add_item", [given_item(item, known=known)], options, author_id, known=known)[0]


def append_items(
    handle: Handle,
    items: Iterable[Any],
    options: positions.AppendOptions,
    author_id: str | None = None,
    *,
    unique_ids: bool = False,
    known: bool = True,
) -> list[StoredItem]:
    """Append several items, all or none; see `Conversation.add_items`."""
    given = given_items(items, known=known)
    return _append(handle, "add_items", given, options, author_id, unique_ids=unique_ids, known=known)


def append_call_output(
    handle: Handle, call_id: str | None, output: Any, result: Any, status: str | None, options: positions.AppendOptions
) -> StoredItem:
    """Append what a called function returned; see `Conversation.add_function_call_output`."""
    item = call_output(call_id, output, result, status)
    return _append(handle, "add_function_call_output", [item], options)[0]


def _append(
    handle: Handle,
    method: str,
    items: Sequence[Item],
    options: positions.AppendOptions,
    author_id: str | None = None,
    *,
    unique_ids: bool = False,
    known: bool = True,
) -> list[StoredItem]:
    ref, check = handle.ref, positions.head_check(options)
    author = None if author_id is None else validation.identifier("author_id", author_id)
    objects = [item.to_object() for item in items]
    key = positions.idempotency_key(options, method, {"items": objects, "author_id": author})
    pairs = zip(items, objects, strict=True)
    records = [encode_item(value, author_id=author or author_of(item), given=given_of(item)) for item, value in pairs]
    new = NewItems(items, records)
    counts = positions.Counts(items=len(items), is_idle=not items)
    own_ids = ((index, record.columns["item_id"]) for index, record in enumerate(records) if unique_ids)
    ids = {index: item_id for index, item_id in own_ids if item_id is not None}
    check_unique_ids(ids)
    outputs = OutputCheck.of(handle, items, records) if known else None

    def write(connection: Connection) -> AppendResult:
        now = check.at or datetime.now(UTC)
        reservation = positions.reserve_once(connection, ref, check, now, counts, key, AppendResult.of_outcome)
        if ids:
            place = ref.on(reservation.branch)
            check_new_ids(connection, place, lock_lineage(connection, place), ids)
        if outputs is not None:
            outputs.run(connection, ref.on(reservation.branch), reservation.first)
        return new.insert(connection, ref, reservation, key, now)

    def write_now(connection: Connection) -> AppendResult | None:
        if ids or (outputs is not None and (outputs.head is None or check.expected_head not in {None, outputs.head})):
            return None
        expected = check if outputs is None else check._replace(expected_head=outputs.head)
        return new.insert_at_once(connection, ref, expected, key)

    is_once = key is not None
    result = write_items(handle.transactions, ref.scope, records, write, is_repeatable=is_once, at_once=write_now)
    new.take_in(handle, result)
    return new.stored(ref, result, author_id)


# Outputs of calls that an application appends: each answers a call on its branch that has none

_RECENT: Final = 64  # items in which calls are looked for before the database is asked
_HINT: Final = "pending_calls() lists the calls without an output; known=False appends it anyway."


@dataclass(slots=True)
class OutputCheck:
    """The check of the outputs among new items.

    Attributes:
        head: where the branch ends, if what the handle has read shows that calls wait for all outputs; otherwise None.
    """

    handle: Handle
    records: Sequence[ItemRecord]
    head: int | None = None

    @classmethod
    def of(cls, handle: Handle, items: Sequence[Item], records: Sequence[ItemRecord]) -> OutputCheck | None:
        """The check of these items; None if there is no output among them that the application wrote."""
        if not any(item.type in ALL_KINDS.outputs and item.origin is None for item in items):
            return None
        check = cls(handle, records)
        _, entries, following = handle.cache.history()
        pairing = paired_by_client([*entries[-_RECENT:], *check._entries(following)])
        if following == handle.cache.head + 1 and not any(check._unpaired(pairing, following)):
            check.head = handle.cache.head
        return check

    def _entries(self, first: int) -> list[ItemEntry]:
        return [record.entry(first + index, None, None) for index, record in enumerate(self.records)]

    def _unpaired(self, pairing: Pairing, first: int) -> tuple[list[ItemEntry], list[ItemEntry]]:
        """The new outputs whose calls have one already, and those without a call."""
        answered, unknown = (
            [entry for entry in entries if entry.position >= first and entry.origin is None]
            for entries in (pairing.orphans, pairing.unknown)
        )
        return answered, unknown

    def run(self, connection: Connection, ref: BranchRef, first: int) -> None:
        """Refuse outputs that answer no call, in the transaction that has reserved the positions from `first` on.

        Raises:
            NotFound: the branch has no call with that id.
            Conflict: the call has an output already.
        """
        if self.head is not None and first == self.head + 1:  # nothing was appended since
            return
        new = self._entries(first)
        answered, unknown = self._unpaired(paired_by_client(new), first)
        call_ids = {entry.call_id: None for entry in (*answered, *unknown)}
        if not call_ids:
            return
        lineage = lock_lineage(connection, ref)
        known = [entry for id_ in call_ids for entry in entries_with_call_id(connection, ref, lineage, id_)]
        answered, unknown = self._unpaired(paired_by_client([*known, *new]), first)
        if answered:
            raise Conflict(f"The call {shown(answered[0].call_id)} has an output already.", hint=_HINT)
        if unknown and not any(name in self.handle.cache.conversation.settings for name in SERVER_STATE):
            output = unknown[0]
            other = next((entry.type for entry in known if entry.call_id == output.call_id), None)
            problem = f"Branch {ref.branch} of {ref.public_id} has no call {shown(output.call_id)}"
            detail = "." if other is None else f" that a {output.type} answers: it is of a {other}."
            raise NotFound(problem + detail, hint=_HINT)


# Replays


def read_appended(connection: Connection, ref: BranchRef, result: AppendResult) -> list[StoredItem]:
    """The items that an earlier call with the same idempotency key had appended."""
    window = ItemWindow(after=result.first - 1, before=result.first + result.count, limit=None)
    items = read_items(connection, ref.on(result.branch), window)
    return [replace(item, replayed=True, created_at=None) for item in items]
