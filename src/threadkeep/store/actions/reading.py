"""Reading what is stored of a conversation beside its items: responses and their raw bodies."""

from __future__ import annotations

from sqlalchemy import Connection, select

from threadkeep.db.tables import response_bodies, responses
from threadkeep.domain.jsontext import loads
from threadkeep.domain.stored import StoredResponse
from threadkeep.errors import NotFound
from threadkeep.store.actions.entries import facts_at
from threadkeep.store.actions.responses import unpacked
from threadkeep.store.place import Place


def list_responses(connection: Connection, place: Place, after: int, limit: int) -> list[StoredResponse]:
    """A page of a conversation's responses on all branches, oldest first."""
    facts_at(connection, place)
    table = responses.c
    statement = (
        select(responses)
        .where(table.tenant_id == place.scope.tenant, table.conversation_id == place.key, table.number > after)
        .order_by(table.number)
        .limit(limit)
    )
    return [
        StoredResponse(
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
            view=None if row.view is None else loads(row.view),
            created_at=row.created_at,
        )
        for row in connection.execute(statement)
    ]


def body_of(connection: Connection, place: Place, number: int) -> bytes:
    """A provider's body as it came.

    Raises:
        NotFound: there is no such response, or its body has expired.
    """
    facts_at(connection, place)
    table = response_bodies.c
    statement = select(table.codec, table.body).where(
        table.tenant_id == place.scope.tenant, table.conversation_id == place.key, table.number == number
    )
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotFound(f"{place.public_id} has no raw body of response {number}: there is none, or it has expired.")
    return unpacked(row.codec, bytes(row.body))
