"""Idempotency keys: what was written under a key is written once, and a repeated call returns the first result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from threadkeep.db import models
from threadkeep.db.driver.inserting import insert_statement
from threadkeep.db.queries.conversations import append_of, new_outcome
from threadkeep.domain.jsontext import JsonObject, canonical, dumps, loads_stored
from threadkeep.errors import IdempotencyConflict
from threadkeep.store.work import connections, refs, validation

if TYPE_CHECKING:
    from threadkeep.store.work.handle import Handle

INSERT_APPEND: Final = insert_statement(models.appends)
FORGOTTEN: Final = bytes(32)  # in place of the hash of content that was redacted


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An idempotency key, with the hash of what is written under it.

    `without_states`: the same without the states of an append, which stands for it when these refuse a response.
    """

    key: str
    request_hash: bytes
    without_states: bytes | None = None

    @classmethod
    def of(cls, key: str | None, method: str, arguments: Any) -> IdempotencyKey | None:
        """The key of a call, with the hash of its method and arguments; None for none."""
        if key is None:
            return None
        return cls(validation.identifier("idempotency_key", key), sha256(canonical([method, arguments])).digest())


def idempotent(
    connection: Connection, ref: refs.ConversationRef, key: IdempotencyKey | None, decode: Callable[[JsonObject], Any]
) -> None:
    """End the transaction where the key was used before: with what `decode` makes of what was kept then."""
    outcome = find_outcome(connection, ref.scope.tenant, ref.key, key)
    if outcome is not None:
        raise connections.Replay(decode(outcome))


def find_outcome(
    connection: Connection, tenant: int, conversation: int, key: IdempotencyKey | None, *, is_user: bool = False
) -> JsonObject | None:
    """What was kept under a key, IdempotencyConflict if for other content; None when it is new (or there is none).

    `is_user`: a user asks about a key that is shared with the others of the tenant.
    """
    if key is None:
        return None
    parameters = {"tenant": tenant, "conversation": conversation, "name": key.key}
    rows = append_of().fetch_all(connection, parameters)
    if not rows:
        return None
    request_hash, text = bytes(rows[0][0]), rows[0][1]
    if request_hash not in {key.request_hash, key.without_states}:
        raise IdempotencyConflict(key.key, is_redacted=request_hash == FORGOTTEN, is_shared=is_user)
    outcome: JsonObject = loads_stored(text, "appends", f"key {key.key!r}")
    return outcome


def check_repeated(connection: Connection, ref: refs.ConversationRef, key: IdempotencyKey, now: datetime) -> bool:
    """Return whether the same was asked for under a key before; the first time, keep what it was.

    Raises:
        IdempotencyConflict: something else was.
    """
    if find_outcome(connection, ref.scope.tenant, ref.key, key) is not None:
        return True
    keep_outcome(connection, ref.scope.tenant, ref.key, key, now, kind="request")
    return False


def is_used(connection: Connection, ref: refs.ConversationRef, key: str) -> bool:
    """Whether anything was written under a key."""
    parameters = {"tenant": ref.scope.tenant, "conversation": ref.key, "name": key}
    return bool(append_of().fetch_all(connection, parameters))


def keep_outcome(
    connection: Connection, tenant: int, conversation: int, key: IdempotencyKey | None, now: datetime, **outcome: Any
) -> None:
    """Keep what was done under a key; LostRace when another writer did something under it at the same time."""
    if key is None:
        return
    row = {
        "tenant_id": tenant,
        "conversation_id": conversation,
        "key": key.key,
        "request_hash": key.request_hash,
        "outcome": dumps(outcome).decode(),
        "created_at": now,
    }
    try:
        INSERT_APPEND.execute(connection, row)
    except IntegrityError as error:
        raise connections.LostRace from error


def replace_outcome(
    connection: Connection, tenant: int, conversation: int, key: IdempotencyKey, **outcome: Any
) -> None:
    """Replace the result of a key: a refused response was stored after all, maybe with other states."""
    parameters = {"tenant": tenant, "conversation": conversation, "name": key.key}
    values = {"new_outcome": dumps(outcome).decode(), "new_hash": key.request_hash}
    connection.execute(new_outcome(), {**parameters, **values})


def check_request(handle: Handle, key: str, content: Any) -> bool:
    """Return whether a request with this content had the key in this conversation before.

    Raises:
        IdempotencyConflict: one with other content had it.
    """
    once = IdempotencyKey.of(key, "request", content)
    if once is None:
        return False
    now = datetime.now(UTC)
    return handle.transactions.write(lambda connection: check_repeated(connection, handle.ref, once, now))
