"""Single responses: by number, or by an id in one conversation or in all of a store; and their items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import Connection, RowMapping

from threadkeep.db.queries.responses import STORED, newest_with_id, response_at, response_page, response_with_id
from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.domain.item_ids import response_id, response_place
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.domain.rendering import ASKED
from threadkeep.domain.stored import Page, StoredItem, StoredResponse
from threadkeep.errors import NotFound, shown
from threadkeep.store.config_cache import Config
from threadkeep.store.connections import sleep
from threadkeep.store.handle import Handle
from threadkeep.store.item_reading import ItemWindow, item_window, read_window
from threadkeep.store.item_rows import short_hash
from threadkeep.store.lineage import find_row, get_lineage, get_row
from threadkeep.store.positions import INCOMPLETE
from threadkeep.store.refs import BranchRef, ConfigHashes, ConversationRef, Scope
from threadkeep.store.retries import StreamBlocksWrite
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import MAX_NUMBER, cursor_position, page_size, whole_number

PATIENCE_SECONDS: Final = 2.5  # in which a recorder that lives renews its lease once it can
T = TypeVar("T")
Check: TypeAlias = Callable[[ConversationRef, RowMapping], None]


class ResponsePlace(NamedTuple):
    """A stored response, as the ledger names it."""

    number: int
    model: str | None
    status: str | None
    hashes: ConfigHashes


# One response


def find_response(transactions: Transactions, scope: Scope, wanted: object) -> StoredResponse:
    """The response with an id, from any conversation that the scope sees; see `Store.get_response`."""

    def read(connection: Connection, check: Check) -> StoredResponse:
        row, public_id = locate_response(connection, scope, wanted)
        check(ConversationRef(scope, row["conversation_id"], public_id), row)
        return stored_response(row, public_id)

    return _read_ended(transactions, read)


def _read_ended(transactions: Transactions, read: Callable[[Connection, Check], T]) -> T:
    """What `read` returns, which checks each row: a response whose recorder is gone is ended by whoever reads it.

    Before, its recorder has time to renew its lease, for the database may just be back. A response that cannot be ended
    is read as it is, and shown as incomplete.
    """
    ended: set[int] = set()  # all are of one conversation
    look, is_patient = transactions.read_any, transactions.commits_itself

    def check(ref: ConversationRef, row: RowMapping) -> None:
        if row["is_lost"] and row["number"] not in ended:
            raise lost_response(ref, row)

    while True:
        try:
            return look(lambda connection: read(connection, check))
        except StreamBlocksWrite as lost:
            look = transactions.read  # what a replica does not have yet
            if is_patient:
                is_patient = False
                sleep(PATIENCE_SECONDS)
            else:
                transactions.end_lost(lost)
                ended.add(lost.number)


def lost_response(ref: ConversationRef, row: RowMapping) -> StreamBlocksWrite:
    """What ends a transaction that finds a response whose recorder is gone, so that it is ended first."""
    place = BranchRef(ref.scope, ref.key, ref.public_id, row["branch"])
    return StreamBlocksWrite(place, row["number"], INCOMPLETE)


def locate_response(connection: Connection, scope: Scope, wanted: object) -> tuple[RowMapping, str]:
    """The row of the response with an id, and the id of its conversation; NotFound if the scope sees none."""
    if not isinstance(wanted, str) or not wanted:
        raise _not_found(wanted)
    place = response_place(wanted)
    if place is not None:
        row = find_row(connection, scope, "public_id", public_id_bytes(place[0]))
        ref = None if row is None else ConversationRef(scope, row.id, place[0])
        found = None if ref is None else _numbered(connection, ref, place[1])
        if found is not None:
            return found, place[0]
    statement = newest_with_id(scoped=scope.user is not None)
    found = connection.execute(statement, scope.parameters(hash=short_hash(wanted))).mappings().one_or_none()
    if found is None:
        raise _not_found(wanted)
    return found, public_id_text(bytes(found["public_id"]))


def get_response(handle: Handle, wanted: int | str) -> StoredResponse:
    """A response of a conversation; see `Conversation.get_response`."""
    row = _read(handle, wanted, lambda _, row: row)
    return stored_response(row, handle.ref.public_id)


def get_place(handle: Handle, wanted: int | str) -> ResponsePlace:
    """What the ledger says of a response of a conversation."""
    row = _read(handle, wanted, lambda _, row: row)
    tools = row["tool_set_hash"]
    hashes = ConfigHashes(bytes(row["config_hash"]), None if tools is None else bytes(tools))
    return ResponsePlace(row["number"], row["model"], row["status"], hashes)


def request_options(handle: Handle, wanted: int | str) -> tuple[Config, JsonObject]:
    """The options and tools of the request of a response of a conversation; neither is to be changed.

    And what it said of itself besides, where that was recorded with its view.
    """
    configs, tenant = handle.resources.configs, handle.ref.scope.tenant

    def read(connection: Connection, row: RowMapping) -> tuple[Config, JsonObject]:
        view = _parsed(row, "view") or {}
        return configs.get(connection, tenant, row["config_hash"], row["tool_set_hash"]), view.get(ASKED, {})

    found: tuple[Config, JsonObject] = _read(handle, wanted, read)
    return found


def _read(handle: Handle, wanted: object, use: Callable[[Connection, RowMapping], Any]) -> Any:
    """What `use` makes of the row of a response of a conversation, given by number or id."""
    ref, number = handle.ref, None if isinstance(wanted, str) else whole_number("response", wanted)

    def read(connection: Connection, check: Check) -> Any:
        get_row(connection, ref)
        found = _named(connection, ref, str(wanted)) if number is None else _numbered(connection, ref, number)
        if found is None:
            problem = f"{ref.public_id} has no response {shown(wanted)}."
            raise NotFound(problem, hint="responses() lists the responses it has.")
        check(ref, found)
        return use(connection, found)

    return _read_ended(handle.transactions, read)


def _named(connection: Connection, ref: ConversationRef, wanted: str) -> RowMapping | None:
    place = response_place(wanted)
    if place is not None and place[0] == ref.public_id:
        return _numbered(connection, ref, place[1])
    parameters = ref.parameters(hash=short_hash(wanted))
    return connection.execute(response_with_id(), parameters).mappings().one_or_none()


def _numbered(connection: Connection, ref: ConversationRef, number: int) -> RowMapping | None:
    if number > MAX_NUMBER:
        return None
    return connection.execute(response_at(), ref.parameters(number=number)).mappings().one_or_none()


def stored_response(row: RowMapping, public_id: str) -> StoredResponse:
    """The response of a row."""
    fields = {name: row[name] for name in STORED} | {name: _parsed(row, name) for name in ("view", "error")}
    if row["is_lost"]:
        fields["status"] = INCOMPLETE
    if fields["view"] is not None:
        fields["view"].pop(ASKED, None)
    return StoredResponse(**fields, id=response_id(public_id, row["number"]), conversation_id=public_id)


def _parsed(row: RowMapping, name: str) -> Any:
    """The JSON in a column of a response."""
    return loads_stored(row[name] or "null", "responses", f"number {row['number']}")


def _not_found(wanted: object) -> NotFound:
    hint = "Check the id, and that the store has the right database, tenant and user."
    return NotFound(f"There is no response with the id {shown(wanted)}.", hint=hint)


# Lists


def list_responses(handle: Handle, after: int | str | None, limit: int) -> Page[StoredResponse]:
    """A page of a conversation's responses on all branches, oldest first."""
    ref, start, size = handle.ref, cursor_position(after), page_size(limit)
    last = -1 if start is None else whole_number("after", start)

    def read(connection: Connection, check: Check) -> list[StoredResponse]:
        get_row(connection, ref)
        rows = connection.execute(response_page(), ref.parameters(after=last, limit=size + 1)).mappings().all()
        for row in rows:
            check(ref, row)
        return [stored_response(row, ref.public_id) for row in rows]

    return Page.of(_read_ended(handle.transactions, read), size, lambda response: str(response.number))


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


def _read_items(connection: Connection, ref: BranchRef, window: ItemWindow, upto: int) -> list[StoredItem]:
    lineage = get_lineage(connection, ref, get_row(connection, ref))
    return read_window(connection, ref, lineage, window, upto)
