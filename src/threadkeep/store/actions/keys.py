"""Idempotency keys: what was done under a key is done once."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from threadkeep.db.prepared import insertion
from threadkeep.db.queries.keys import append_of, new_outcome
from threadkeep.db.tables import appends
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.errors import IdempotencyConflict
from threadkeep.store.attempts import Raced
from threadkeep.store.place import Once

INSERT_APPEND: Final = insertion(appends)


def outcome_of(connection: Connection, tenant: int, conversation: int, once: Once | None) -> JsonObject | None:
    """What was done under a key; None when it is new (or there is none).

    Raises:
        IdempotencyConflict: the key was used with other content.
    """
    if once is None:
        return None
    parameters = {"tenant": tenant, "conversation": conversation, "name": once.key}
    rows = append_of().rows(connection, parameters)
    if not rows:
        return None
    request_hash, text = rows[0]
    if bytes(request_hash) != once.request_hash:
        raise IdempotencyConflict(once.key)
    outcome: JsonObject = loads(text)
    return outcome


def record(
    connection: Connection, tenant: int, conversation: int, once: Once | None, now: datetime, **outcome: Any
) -> None:
    """Keep what was done under a key.

    Raises:
        Raced: somebody else did something under it at the same time; the use case begins anew and finds it.
    """
    if once is None:
        return
    row = {
        "tenant_id": tenant,
        "conversation_id": conversation,
        "key": once.key,
        "request_hash": once.request_hash,
        "outcome": dumps(outcome).decode(),
        "created_at": now,
    }
    try:
        INSERT_APPEND.execute(connection, row)
    except IntegrityError as error:
        raise Raced from error


def replace(connection: Connection, tenant: int, conversation: int, once: Once, **outcome: Any) -> None:
    """Keep something else under a key: a refused answer was stored after all."""
    parameters = {"tenant": tenant, "conversation": conversation, "name": once.key}
    connection.execute(new_outcome(), {**parameters, "new_outcome": dumps(outcome).decode()})
