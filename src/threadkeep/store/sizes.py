"""How large the request is that the history of a conversation makes, without reading it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from threadkeep.db.driver import Row
from threadkeep.db.queries.sizes import sizes_in, sizes_of
from threadkeep.store.conversation import Conversation
from threadkeep.store.lineage import MAX_RANGES, get_lineage, get_row, range_parameters
from threadkeep.store.overviews import handle_of


def request_bytes(conversation: Conversation, most: int) -> int:
    """Return about how many bytes the items of this branch have in a request, with their media in base64.

    Where all branches together have at most `most`, it is those of all of them.
    """
    handle = handle_of(conversation)
    ref = handle.ref

    def read(connection: Connection) -> int:
        dialect = connection.dialect.name
        size = _in_request(sizes_of(dialect).fetch_all(connection, ref.parameters()))
        if size <= most:
            return size
        lineage, size = get_lineage(connection, ref, get_row(connection, ref)), 0
        ranges = lineage.ranges(ref.branch, -1, lineage.head)
        for first in range(0, len(ranges), MAX_RANGES):
            count, parameters = range_parameters(ranges[first : first + MAX_RANGES])
            rows = sizes_in(dialect, count).fetch_all(connection, parameters | ref.parameters())
            size += _in_request(rows)
        return size

    return handle.transactions.read(read)


def _in_request(rows: Sequence[Row]) -> int:
    [(texts, media)] = rows
    return int(texts) + int(media) * 4 // 3
