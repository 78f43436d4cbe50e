"""What has come of a response that is being streamed, read from what its recorder has stored: from any process."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Connection

from threadkeep.db.queries.streams import parts_of, stream_of
from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import loads
from threadkeep.domain.response import Response
from threadkeep.store.handle import Handle
from threadkeep.store.lineage import get_row


def read_partial(handle: Handle, number: int) -> Response | None:
    """Return what is stored of a response in progress; None if it has ended, or there is none with that number."""
    ref = handle.ref

    def read(connection: Connection) -> Response | None:
        get_row(connection, ref)
        parameters = ref.parameters(number=number)
        row = connection.execute(stream_of(), parameters).one_or_none()
        parts = connection.execute(parts_of(), parameters).all()
        if row is None or not parts:
            return None
        assembler = get_format(row.format).assembler()
        with suppress(Exception):  # what cannot be understood ends what can be shown
            for line in "".join(part.content for part in parts[1:]).split("\n")[:-1]:
                assembler.feed(loads(line))
        return assembler.partial

    return handle.transactions.read(read)
