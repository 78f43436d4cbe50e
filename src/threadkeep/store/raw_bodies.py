"""Reading the bodies of providers' responses as they came."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from sqlalchemy import ColumnElement, Connection, select

from threadkeep import errors
from threadkeep.db.months import has_months
from threadkeep.db.tables import response_bodies, responses
from threadkeep.store.handle import Handle
from threadkeep.store.lineage import get_row
from threadkeep.store.refs import BranchRef
from threadkeep.store.responses import decompress_body
from threadkeep.store.validation import whole_number

_AROUND: Final = timedelta(days=1)  # between a response and the storing of its body, as a rule


def read_body(handle: Handle, number: int) -> bytes:
    """A provider's body as it came; see `Conversation.response_body`."""
    ref, wanted = handle.ref, whole_number("number", number)
    table = response_bodies.c
    statement = select(table.codec, table.body).where(*ref.rows_of(table), table.number == wanted)

    def read(connection: Connection) -> bytes:
        get_row(connection, ref)
        found = (connection.execute(statement.where(*when)).one_or_none() for when in _moments(connection, ref, wanted))
        row = next(filter(None, found), None)
        if row is None:
            raise errors.NotFound(
                f"{ref.public_id} has no raw body of response {wanted}: it does not exist, or has expired."
            )
        try:
            return decompress_body(row.codec, bytes(row.body))
        except zlib.error as error:
            raise errors.DamagedRow("response_bodies", f"number {wanted}", error) from error

    return handle.transactions.read_any(read)


def _moments(connection: Connection, ref: BranchRef, number: int) -> Iterator[list[ColumnElement[bool]]]:
    """When a raw body is likely to have been stored, then any time: it is found sooner if it is in a known month."""
    if has_months(connection):
        table = responses.c
        statement = select(table.created_at).where(*ref.rows_of(table), table.number == number)
        if (moment := connection.execute(statement).scalar()) is not None:
            yield [response_bodies.c.created_at.between(moment - _AROUND, moment + _AROUND)]
    yield []
