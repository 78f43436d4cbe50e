"""Asking the recorder of a response in progress to stop, from any process."""

from __future__ import annotations

from sqlalchemy import Connection

from threadkeep.db.queries.streams import cancel_request, lost_streams_of
from threadkeep.errors import NotFound
from threadkeep.store.handle import Handle
from threadkeep.store.lineage import get_row
from threadkeep.store.positions import INCOMPLETE
from threadkeep.store.retries import StreamBlocksWrite
from threadkeep.store.validation import whole_number


def cancel_response(handle: Handle, number: int | None) -> bool:
    """Ask for the end of a response in progress; see `Conversation.cancel_response`.

    One whose recorder is gone is ended instead.
    """
    ref = handle.ref
    wanted = None if number is None else whole_number("number", number)
    parameters = ref.parameters(branch=ref.branch) if wanted is None else ref.parameters(number=wanted)

    def write(connection: Connection) -> bool:
        row = get_row(connection, ref)
        if wanted is not None and not 0 <= wanted < row.next_response:
            raise NotFound(f"{ref.public_id} has no response {wanted}.", hint="responses() lists the responses it has.")
        if cancel_request(numbered=wanted is not None).execute(connection, parameters):
            return True
        for lost in connection.execute(lost_streams_of(), ref.parameters()):
            if lost.number == wanted or (wanted is None and lost.branch == ref.branch):
                raise StreamBlocksWrite(ref.on(lost.branch), lost.number, INCOMPLETE)
        return False

    return handle.transactions.write(write, is_repeatable=True)
