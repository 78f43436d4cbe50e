"""That a user was erased, for what began before and is written later: there is no conversation that would be missing.

A row of the tenant's idempotency keys says so, with a hash of the user's id, for as long as a call may wait in a spool.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, delete, or_, select, update

from threadkeep.db import base, models
from threadkeep.domain.jsontext import dumps
from threadkeep.store.work import refs
from threadkeep.store.work.idempotency import INSERT_APPEND

ERASED: Final = "erased"  # what such rows say was done
KEPT: Final = timedelta(days=30)


def note_erasure(connection: Connection, tenant: int, user: str, now: datetime) -> None:
    """Say that a user is erased, and forget erasures of long ago."""
    table, (key, digest) = models.appends.c, _key_of(user)
    wide = [table.tenant_id == tenant, table.conversation_id == refs.TENANT_WIDE]
    is_old = table.key.like(f"{ERASED}:%") & (table.created_at < now - KEPT)
    connection.execute(delete(models.appends).where(*wide, or_(table.key == key, is_old)))
    row = {"tenant_id": tenant, "conversation_id": refs.TENANT_WIDE, "key": key, "request_hash": digest}
    INSERT_APPEND.execute(connection, {**row, "outcome": dumps({"kind": ERASED}).decode(), "created_at": now})


def is_erased(connection: Connection, scope: refs.Scope, since: datetime) -> bool:
    """Whether the user of a scope was erased since a time; other scopes have none."""
    if scope.user is None:
        return False
    table, (key, digest) = models.appends.c, _key_of(scope.user)
    found = select(table.key).where(
        table.tenant_id == scope.tenant, table.conversation_id == refs.TENANT_WIDE, table.key == key,
        table.request_hash == digest, table.created_at >= since,
    )  # fmt: skip
    return connection.execute(found).first() is not None


def forget_user(connection: Connection, ref: refs.ConversationRef, since: datetime) -> None:
    """Clear what the ledger has of a conversation but figures, if its user was erased since a time."""
    if is_erased(connection, ref.scope, since):
        table = models.usage_records
        cleared = base.columns_holding(table, "user", "content")
        connection.execute(update(table).where(*ref.rows_of(table.c)).values({one.name: None for one in cleared}))


def _key_of(user: str) -> tuple[str, bytes]:
    digest = sha256(user.encode()).digest()
    return f"{ERASED}:{digest.hex()}", digest
