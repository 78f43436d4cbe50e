"""Statements on what was done under idempotency keys."""

from __future__ import annotations

from functools import cache

from sqlalchemy import ColumnElement, Update, bindparam, select, update

from threadkeep.db.driver import Statement
from threadkeep.db.queries.conversations import of_tenant
from threadkeep.db.tables import appends


@cache
def append_of() -> Statement:
    """What was done under a key."""
    return Statement(select(appends.c.request_hash, appends.c.outcome).where(*_of_key()))


@cache
def new_outcome() -> Update:
    """Replaces the outcome of a key."""
    return update(appends).where(*_of_key()).values(outcome=bindparam("new_outcome"))


def _of_key() -> list[ColumnElement[bool]]:
    return of_tenant(appends, conversation_id="conversation", key="name")
