"""Statements on what was done under idempotency keys."""

from __future__ import annotations

from functools import cache

from sqlalchemy import Update, bindparam, select, update

from threadkeep.db.driver import Statement
from threadkeep.db.tables import appends


@cache
def append_of() -> Statement:
    """What was done under a key."""
    return Statement(
        select(appends.c.request_hash, appends.c.outcome).where(
            appends.c.tenant_id == bindparam("tenant"),
            appends.c.conversation_id == bindparam("conversation"),
            appends.c.key == bindparam("name"),
        )
    )


@cache
def new_outcome() -> Update:
    """Replaces the outcome of a key."""
    return (
        update(appends)
        .where(
            appends.c.tenant_id == bindparam("tenant"),
            appends.c.conversation_id == bindparam("conversation"),
            appends.c.key == bindparam("name"),
        )
        .values(outcome=bindparam("new_outcome"))
    )
