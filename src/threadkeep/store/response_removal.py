"""Deleting a response: it is not found any more, while its items stay in the conversation."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, case, delete, select, update

from threadkeep.db.tables import response_bodies, responses
from threadkeep.domain.ids import public_id_bytes
from threadkeep.errors import ResponseInProgress
from threadkeep.store.changes.rows import record_change
from threadkeep.store.history import BROKEN_OFF_TEXT
from threadkeep.store.lineage import find_row
from threadkeep.store.refs import ConversationRef, Scope, conversation_not_found
from threadkeep.store.response_lookup import locate_response, lost_response
from threadkeep.store.states import lock_conversation
from threadkeep.store.transactions import Transactions


def delete_response(transactions: Transactions, scope: Scope, wanted: object) -> None:
    """Delete a response; see `Store.delete_response`."""

    def write(connection: Connection) -> None:
        _, public_id = locate_response(connection, scope, wanted)
        row = find_row(connection, scope, "public_id", public_id_bytes(public_id))
        if row is None:
            raise conversation_not_found(public_id)
        ref = ConversationRef(scope, row.id, public_id)
        lock_conversation(connection, ref)
        found, _ = locate_response(connection, scope, wanted)  # again: another process may have been faster
        number = found["number"]
        if found["is_lost"]:
            raise lost_response(ref, found)
        _check_ended(connection, ref, number)
        bodies, table = response_bodies.c, responses.c
        connection.execute(delete(response_bodies).where(*ref.rows_of(bodies), bodies.number == number))
        is_broken_off = table.incomplete_details == BROKEN_OFF_TEXT  # by which requests know that its provider has none
        cleared = {
            "provider_data": None,
            "error": None,
            "incomplete_details": case((is_broken_off, table.incomplete_details), else_=None),
        }
        change = update(responses).where(*ref.rows_of(table), table.number == number)
        connection.execute(change.values(deleted_at=datetime.now(UTC), **cleared))
        record_change(connection, ref)

    transactions.write(write)


def _check_ended(connection: Connection, ref: ConversationRef, number: int) -> None:
    table = responses.c
    statement = select(table.open_branch).where(*ref.rows_of(table), table.number == number)
    branch = connection.execute(statement).scalar()
    if branch is not None:
        raise ResponseInProgress(number, branch, 1.0)
