"""That a user was erased, for what began before and is written later: there is no conversation that would be missing.

A row of the tenant's idempotency keys says so, with a hash of the user's id, for as long as a call may wait in a spool.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, delete, or_, select, update

from threadkeep.db import base, models
from threadkeep.domain.jsontext import dumps
from threadkeep.errors import NotFound, shown
from threadkeep.store.work import refs
from threadkeep.store.work.idempotency import INSERT_APPEND

ERASED: Final = "erased"  # what such rows say was done
KEPT: Final = timedelta(days=30)


class UserErased(NotFound):
    """Something cannot be written that names a user who was erased after it was begun."""


def note_erasure(connection: Connection, tenant: int, user: str, now: datetime) -> None:
    """Say that a user is erased, and forget erasures of long ago."""
    table, (key, digest) = models.appends.c, _key_of(user)
    wide = [table.tenant_id == tenant, table.conversation_id == refs.TENANT_WIDE]
    is_old = table.key.like(f"{ERASED}:%") & (table.created_at < now - KEPT)
    connection.execute(delete(models.appends).where(*wide, or_(table.key == key, is_old)))
    row = {"tenant_id": tenant, "conversation_id": refs.TENANT_WIDE, "key": key, "request_hash": digest}
    INSERT_APPEND.execute(connection, {**row, "outcome": dumps({"kind": ERASED}).decode(), "created_at": now})


def check_users(connection: Connection, scope: refs.Scope, users: Iterable[str | None]) -> None:
    """Check that none of the users whom rows name that were just written was erased after their writing was begun.

    The transaction is rolled back otherwise. An erasure says first that it has begun: it removes the rows if they are
    committed by then.

    Raises:
        UserErased: one was.
    """
    named = [] if scope.since is None else sorted({user for user in users if user})
    if named and (erased := _erased(connection, scope, named)):
        user = next(user for user in named if _key_of(user)[0] in erased)
        raise UserErased(f"The user {shown(user)} was erased while this was being sent: nothing of it is stored.")


def forget_user(connection: Connection, ref: refs.ConversationRef) -> None:
    """Clear what the ledger has of a conversation but figures, if the user of its scope was erased since."""
    scope = ref.scope
    if scope.since is not None and scope.user is not None and _erased(connection, scope, [scope.user]):
        table = models.usage_records
        cleared = base.columns_holding(table, "user", "content")
        connection.execute(update(table).where(*ref.rows_of(table.c)).values({one.name: None for one in cleared}))


def _erased(connection: Connection, scope: refs.Scope, users: Iterable[str]) -> set[str]:
    """The keys of the users who were erased since."""
    table, keys = models.appends.c, [_key_of(user)[0] for user in users]
    erased = select(table.key).where(
        table.tenant_id == scope.tenant, table.conversation_id == refs.TENANT_WIDE, table.key.in_(keys),
        table.created_at >= scope.since,
    )  # fmt: skip
    return set(connection.execute(erased).scalars())


def _key_of(user: str) -> tuple[str, bytes]:
    digest = sha256(user.encode()).digest()
    return f"{ERASED}:{digest.hex()}", digest
