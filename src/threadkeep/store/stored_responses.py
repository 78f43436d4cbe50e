"""Reading stored responses and their raw bodies."""

from __future__ import annotations

import zlib
from dataclasses import fields
from typing import Final

from sqlalchemy import Connection, RowMapping, select

from threadkeep.db.tables import response_bodies, responses
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.domain.stored import Page, StoredResponse
from threadkeep.errors import DamagedRow, NotFound
from threadkeep.store.handle import Handle
from threadkeep.store.lineage import get_row
from threadkeep.store.responses import decompress_body
from threadkeep.store.validation import cursor_position, page_size, whole_number

_FIELDS: Final = tuple(field.name for field in fields(StoredResponse))


def list_responses(handle: Handle, after: int | str | None, limit: int) -> Page[StoredResponse]:
    """A page of a conversation's responses on all branches, oldest first."""
    ref, start, size = handle.ref, cursor_position(after), page_size(limit)
    table = responses.c
    statement = (
        select(*(table[name] for name in _FIELDS))
        .where(
            table.tenant_id == ref.scope.tenant,
            table.conversation_id == ref.key,
            table.number > (-1 if start is None else whole_number("after", start)),
        )
        .order_by(table.number)
        .limit(size + 1)
    )

    def read(connection: Connection) -> list[StoredResponse]:
        get_row(connection, ref)
        rows = connection.execute(statement).mappings()
        return [StoredResponse(**{**row, "view": _view_of(row)}) for row in rows]

    return Page.of(handle.transactions.read(read), size, lambda response: str(response.number))


def _view_of(row: RowMapping) -> JsonObject | None:
    view: JsonObject | None = loads_stored(row["view"] or "null", "responses", f"number {row['number']}")
    return view


def read_body(handle: Handle, number: int) -> bytes:
    """A provider's body as it came; see `Conversation.raw_response`."""
    ref, wanted = handle.ref, whole_number("number", number)
    table = response_bodies.c
    statement = select(table.codec, table.body).where(
        table.tenant_id == ref.scope.tenant, table.conversation_id == ref.key, table.number == wanted
    )

    def read(connection: Connection) -> bytes:
        get_row(connection, ref)
        row = connection.execute(statement).one_or_none()
        if row is None:
            raise NotFound(f"{ref.public_id} has no raw body of response {wanted}: it does not exist, or has expired.")
        try:
            return decompress_body(row.codec, bytes(row.body))
        except zlib.error as error:
            raise DamagedRow("response_bodies", f"number {wanted}", error) from error

    return handle.transactions.read(read)
