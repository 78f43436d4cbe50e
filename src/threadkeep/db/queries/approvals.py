"""Statements on decisions about calls."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, select

from threadkeep.db.queries.conversations import of_conversation
from threadkeep.db.tables import approvals


@cache
def approvals_of() -> Select[Any]:
    """The decisions about calls at some positions."""
    table = approvals.c
    where = [*of_conversation(approvals), table.position.in_(bindparam("positions", expanding=True))]
    return select(table.position, table.decision, table.reason, table.decided_by, table.created_at).where(*where)
