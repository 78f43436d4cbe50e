"""Reading stored responses and their raw bodies."""

from __future__ import annotations

import zlib
from typing import Any

from sqlalchemy import Connection, select

from threadkeep.db.tables import response_bodies, responses
from threadkeep.domain.jsontext import loads_stored
from threadkeep.domain.stored import Page, StoredResponse
from threadkeep.errors import DamagedRow, NotFound
from threadkeep.store.handle import Handle
from threadkeep.store.lineage import get_row
from threadkeep.store.responses import decompress_body
from threadkeep.store.validation import cursor_position, page_size, whole_number


def list_responses(handle: Handle, after: int | str | None, limit: int) -> Page[StoredResponse]:
    """A page of a conversation's responses on all branches, oldest first."""
    ref, start, size = handle.ref, cursor_position(after), page_size(limit)
    table = responses.c
    statement = (
        select(responses)
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
        return [_stored_response(row) for row in connection.execute(statement)]

    return Page.of(handle.transactions.read(read), size, lambda response: str(response.number))


def _stored_response(row: Any) -> StoredResponse:
    return StoredResponse(
        number=row.number,
        branch=row.branch,
        format=row.format,
        model=row.model,
        status=row.status,
        finish_reason=row.finish_reason,
        provider_response_id=row.provider_response_id,
        input_to=row.input_to,
        from_position=row.from_position,
        to_position=row.to_position,
        view=None if row.view is None else loads_stored(row.view, "responses", f"number {row.number}"),
        created_at=row.created_at,
    )


def read_body(handle: Handle, number: int) -> bytes:
    """A provider's body as it came.

    Raises:
        NotFound: there is no such response, or its body has expired.
    """
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
