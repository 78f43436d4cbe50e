"""Responses: by number, or by an id in one conversation or in all of a store; their items, and their bodies as sent."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, select

from threadkeep import errors
from threadkeep.db import driver, models, partitions
from threadkeep.db.queries.responses import STORED, newest_with_id, response_at, response_page, response_with_id
from threadkeep.domain import jsontext, rendering, response
from threadkeep.domain.ids import public_id_bytes, public_id_text, response_id, response_place, short_hash
from threadkeep.domain.stored import Page, StoredItem, StoredResponse
from threadkeep.store.reading.history import state_of
from threadkeep.store.reading.items import ItemWindow, item_window, read_window
from threadkeep.store.work import caches, connections, item_rows, positions, refs, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.transactions import Transactions

_AROUND: Final = timedelta(days=1)  # between a response and the storing of its body, as a rule


def read_body(handle: Handle, number: int) -> bytes:
    """A provider's body as it came; see `Conversation.response_body`."""
    ref, wanted = handle.ref, validation.whole_number("number", number)

    def read(connection: Connection) -> bytes:
        refs.get_row(connection, ref)
        body = find_body(connection, ref, wanted)
        if body is None:
            raise errors.NotFound(
                f"{ref.public_id} has no raw body of response {wanted}: it does not exist, or has expired."
            )
        return body

    return handle.transactions.read_any(read)


def find_body(
    connection: Connection, ref: refs.ConversationRef, number: int, moment: datetime | None = None
) -> bytes | None:
    """The raw body of a response, or None; `moment` is the time at which the response was stored, if it is known."""
    table = models.response_bodies.c
    statement = select(table.codec, table.body).where(*ref.rows_of(table), table.number == number)
    found = (
        connection.execute(statement.where(*when)).one_or_none() for when in _times(connection, ref, number, moment)
    )
    row = next(filter(None, found), None)
    try:
        return None if row is None else item_rows.decompress_body(row.codec, bytes(row.body))
    except zlib.error as error:
        raise errors.DamagedRow("response_bodies", f"number {number}", error) from error


def _times(
    connection: Connection, ref: refs.ConversationRef, number: int, moment: datetime | None
) -> Iterator[list[ColumnElement[bool]]]:
    """When a raw body is likely to have been stored, then any time: it is found sooner if it is in a known month."""
    if partitions.has_months(connection):
        if moment is None:
            table = models.responses.c
            statement = select(table.created_at).where(*ref.rows_of(table), table.number == number)
            moment = connection.execute(statement).scalar()
        if moment is not None:
            yield [models.response_bodies.c.created_at.between(moment - _AROUND, moment + _AROUND)]
    yield []


PATIENCE_SECONDS: Final = 2.5  # in which a recorder that lives renews its lease once it can
T = TypeVar("T")
Check: TypeAlias = Callable[[refs.ConversationRef, RowMapping], None]


class ResponseDetails(NamedTuple):
    """A stored response with all that an API shows of it.

    Attributes:
        stored: the response.
        items: its items, in order.
        body: what the provider sent; None where there is none, or none any more.
        options: the options and tools of its request; neither is to be changed.
        asked: what the request said of itself besides, where that was recorded with its view.
        parsed: what the body means, where it need not be parsed for that: its recorder has assembled it.
    """

    stored: StoredResponse
    items: Sequence[StoredItem]
    body: bytes | None
    options: caches.Config
    asked: jsontext.JsonObject
    parsed: response.Response | None = None

    @classmethod
    def of(
        cls, row: RowMapping | Mapping[str, Any], ref: refs.ConversationRef, items: Sequence[StoredItem],
        body: bytes | None, options: caches.Config,
    ) -> ResponseDetails:  # fmt: skip
        """The response of a row."""
        stored, asked = stored_response(row, ref.public_id), (_parsed(row, "view") or {}).get(rendering.ASKED, {})
        return cls(stored, items, body, options, asked)


class ResponsePlace(NamedTuple):
    """A stored response, as the ledger names it."""

    number: int
    model: str | None
    status: str | None
    hashes: refs.ConfigHashes


# One response


def find_response(transactions: Transactions, scope: refs.Scope, wanted: object) -> StoredResponse:
    """The response with an id, from any conversation that the scope sees; see `Store.get_response`."""

    def read(connection: Connection, check: Check) -> StoredResponse:
        row, public_id = locate_response(connection, scope, wanted)
        check(refs.ConversationRef(scope, row["conversation_id"], public_id), row)
        return stored_response(row, public_id)

    return read_ended(transactions, read)


def read_ended(transactions: Transactions, read: Callable[[Connection, Check], T]) -> T:
    """What `read` returns, which checks each row: a response whose recorder is gone is ended by its reader.

    Before, its recorder has time to renew its lease, for the database may just be back. A response that cannot be ended
    is read as it is, and shown as incomplete.
    """
    ended: set[int] = set()  # all are of one conversation
    look, is_patient = transactions.read_any, transactions.commits_itself

    def check(ref: refs.ConversationRef, row: RowMapping) -> None:
        if row["is_lost"] and row["number"] not in ended:
            raise lost_response(ref, row)

    while True:
        try:
            return look(lambda connection: read(connection, check))
        except connections.StreamBlocksWrite as lost:
            look = transactions.read  # what a replica does not have yet
            if is_patient:
                is_patient = False
                connections.sleep(PATIENCE_SECONDS)
            else:
                transactions.end_lost(lost)
                ended.add(lost.number)


def lost_response(ref: refs.ConversationRef, row: RowMapping) -> connections.StreamBlocksWrite:
    """What ends a transaction that finds a response whose recorder is gone, so that it is ended first."""
    place = refs.BranchRef(ref.scope, ref.key, ref.public_id, row["branch"])
    return connections.StreamBlocksWrite(place, row["number"], positions.INCOMPLETE)


def locate_response(connection: Connection, scope: refs.Scope, wanted: object) -> tuple[RowMapping, str]:
    """The row of the response with an id, and the id of its conversation; NotFound if the scope sees none."""
    return _locate(connection, scope, wanted)[:2]


def _locate(connection: Connection, scope: refs.Scope, wanted: object) -> tuple[RowMapping, str, driver.LazyRow | None]:
    """The same, with the row of the conversation, if that was read."""
    if not isinstance(wanted, str) or not wanted:
        raise _not_found(wanted)
    place = response_place(wanted)
    if place is not None:
        row = refs.find_row(connection, scope, "public_id", public_id_bytes(place[0]))
        ref = None if row is None else refs.ConversationRef(scope, row.id, place[0])
        found = None if ref is None else _numbered(connection, ref, place[1])
        if found is not None:
            return found, place[0], row
    statement = newest_with_id(scoped=scope.user is not None)
    found = connection.execute(statement, scope.parameters(hash=short_hash(wanted))).mappings().one_or_none()
    if found is None:
        raise _not_found(wanted)
    return found, public_id_text(bytes(found["public_id"])), None


def get_response(handle: Handle, wanted: int | str) -> StoredResponse:
    """A response of a conversation; see `Conversation.get_response`."""
    row = _read(handle, wanted, lambda _, row: row)
    return stored_response(row, handle.ref.public_id)


def get_place(handle: Handle, wanted: int | str) -> ResponsePlace:
    """What the ledger says of a response of a conversation."""
    row = _read(handle, wanted, lambda _, row: row)
    tools = row["tool_set_hash"]
    hashes = refs.ConfigHashes(bytes(row["config_hash"]), None if tools is None else bytes(tools))
    return ResponsePlace(row["number"], row["model"], row["status"], hashes)


def locate_with_state(
    connection: Connection, scope: refs.Scope, configs: caches.ConfigCache, wanted: object, check: Check
) -> tuple[RowMapping, refs.ConversationState]:
    """The row of the response with an id, and its conversation, on its branch; NotFound if the scope sees none."""
    found, public_id, row = _locate(connection, scope, wanted)
    check(refs.ConversationRef(scope, found["conversation_id"], public_id), found)
    while True:
        is_newer = row is None
        row = row or refs.find_row(connection, scope, "id", found["conversation_id"])
        if row is None:  # it was deleted since
            raise _not_found(wanted)
        state = state_of(connection, scope, row, configs, found["branch"])
        if is_newer or state.lineage.head >= found["to_position"]:
            return found, state
        row = None  # the response ended after its conversation was read, which does not have its items yet


def read_details(
    connection: Connection, state: refs.ConversationState, configs: caches.ConfigCache, row: RowMapping
) -> ResponseDetails:
    """All of a response whose row was read, in a conversation on its branch."""
    ref = state.ref()
    window = ItemWindow(after=row["from_position"] - 1, limit=None)
    is_empty = row["to_position"] < row["from_position"]
    items = [] if is_empty else read_window(connection, ref, state.lineage, window, row["to_position"])
    body = find_body(connection, ref, row["number"], row["created_at"])
    options = configs.get(connection, ref.scope.tenant, row["config_hash"], row["tool_set_hash"])
    return ResponseDetails.of(row, ref, items, body, options)


def _read(handle: Handle, wanted: object, use: Callable[[Connection, RowMapping], Any]) -> Any:
    """What `use` makes of the row of a response of a conversation, given by number or id."""
    ref, number = handle.ref, None if isinstance(wanted, str) else validation.whole_number("response", wanted)

    def read(connection: Connection, check: Check) -> Any:
        refs.get_row(connection, ref)
        found = _named(connection, ref, str(wanted)) if number is None else _numbered(connection, ref, number)
        if found is None:
            problem = f"{ref.public_id} has no response {errors.shown(wanted)}."
            raise errors.NotFound(problem, hint="responses() lists the responses it has.")
        check(ref, found)
        return use(connection, found)

    return read_ended(handle.transactions, read)


def _named(connection: Connection, ref: refs.ConversationRef, wanted: str) -> RowMapping | None:
    place = response_place(wanted)
    if place is not None and place[0] == ref.public_id:
        return _numbered(connection, ref, place[1])
    parameters = ref.parameters(hash=short_hash(wanted))
    return connection.execute(response_with_id(), parameters).mappings().one_or_none()


def _numbered(connection: Connection, ref: refs.ConversationRef, number: int) -> RowMapping | None:
    if number > validation.MAX_NUMBER:
        return None
    return connection.execute(response_at(), ref.parameters(number=number)).mappings().one_or_none()


def stored_response(row: RowMapping | Mapping[str, Any], public_id: str) -> StoredResponse:
    """The response of a row."""
    fields = {name: row[name] for name in STORED} | {name: _parsed(row, name) for name in ("view", "error")}
    if row["is_lost"]:
        fields["status"] = positions.INCOMPLETE
    if fields["view"] is not None:
        fields["view"].pop(rendering.ASKED, None)
    return StoredResponse(**fields, id=response_id(public_id, row["number"]), conversation_id=public_id)


def _parsed(row: RowMapping | Mapping[str, Any], name: str) -> Any:
    """The JSON in a column of a response."""
    return jsontext.loads_stored(row[name] or "null", "responses", f"number {row['number']}")


def _not_found(wanted: object) -> errors.NotFound:
    hint = "Check the id, and that the store has the right database, tenant and user."
    return errors.NotFound(f"There is no response with the id {errors.shown(wanted)}.", hint=hint)


# Lists


def list_responses(handle: Handle, after: int | str | None, limit: int) -> Page[StoredResponse]:
    """A page of a conversation's responses on all branches, oldest first."""
    ref, start, size = handle.ref, validation.cursor_position(after), validation.page_size(limit)
    last = -1 if start is None else validation.whole_number("after", start)

    def read(connection: Connection, check: Check) -> list[StoredResponse]:
        refs.get_row(connection, ref)
        rows = connection.execute(response_page(), ref.parameters(after=last, limit=size + 1)).mappings().all()
        for row in rows:
            check(ref, row)
        return [stored_response(row, ref.public_id) for row in rows]

    return Page.of(read_ended(handle.transactions, read), size, lambda response: str(response.number))


def list_input(
    handle: Handle, wanted: int | str, after: int | str | None, before: int | str | None, limit: int, order: str
) -> Page[StoredItem]:
    """A page of the items that the request of a response showed; see `Conversation.input_items`."""
    window, size = item_window(before, after, limit, order)

    def read(connection: Connection, row: RowMapping) -> list[StoredItem]:
        return _read_items(connection, handle.ref.on(row["branch"]), window, row["input_to"])

    return Page.of(_read(handle, wanted, read), size, lambda item: str(item.position))


def list_output(handle: Handle, wanted: int | str) -> list[StoredItem]:
    """The items of a response, in order; see `Conversation.output_items`."""

    def read(connection: Connection, row: RowMapping) -> list[StoredItem]:
        window = ItemWindow(after=row["from_position"] - 1, limit=None)
        return _read_items(connection, handle.ref.on(row["branch"]), window, row["to_position"])

    items: list[StoredItem] = _read(handle, wanted, read)
    return items


def _read_items(connection: Connection, ref: refs.BranchRef, window: ItemWindow, upto: int) -> list[StoredItem]:
    lineage = refs.get_lineage(connection, ref, refs.get_row(connection, ref))
    return read_window(connection, ref, lineage, window, upto)
