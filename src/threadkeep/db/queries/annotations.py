"""Statements on what an application keeps beside conversations and items."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Select, bindparam, select

from threadkeep.db.driver import Statement
from threadkeep.db.queries.conversations import itself, of_conversation
from threadkeep.db.tables import conversation_states, conversations
from threadkeep.db.types import MYSQL

_STATE: Final = conversation_states.c["name", "value", "version", "updated_at"]


@cache
def conversation_lock(*, scoped: bool) -> Statement:
    """Makes the other writers of a conversation wait, and changes nothing; no row where it is not visible."""
    revision = conversations.c.revision
    return Statement(sa.update(conversations).where(*itself(scoped=scoped)).values(revision=revision))


@cache
def states_of(*, scoped: bool, named: bool) -> Select[Any]:
    """The states of a conversation, or the one called `name`; one row of NULLs without any, none if it is not visible.

    Deleted states are left out.
    """
    table = conversation_states.c
    of_it = [table.tenant_id == conversations.c.tenant_id, table.conversation_id == conversations.c.id]
    if named:
        of_it.append(table.name == bindparam("name"))
    joined = conversations.outerjoin(conversation_states, sa.and_(*of_it, table.value.is_not(None)))
    return select(*_STATE).select_from(joined).where(*itself(scoped=scoped)).order_by(table.name)


@cache
def state_versions_of(dialect: str) -> Select[Any]:
    """The versions of a locked conversation's states, deleted ones too; on MySQL as they are committed now."""
    table = conversation_states.c
    columns = table.name, table.version, table.value.is_not(None).label("exists"), table.updated_at
    found = select(*columns).where(*of_conversation(conversation_states))
    return found.with_for_update(read=True) if dialect in MYSQL else found


@cache
def state_removal() -> sa.Delete:
    """Removes the rows of deleted states."""
    name = conversation_states.c.name.in_(bindparam("names", expanding=True))
    return sa.delete(conversation_states).where(*of_conversation(conversation_states), name)
