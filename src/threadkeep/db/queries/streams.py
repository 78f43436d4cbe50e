"""Statements on responses in progress."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Delete, Select, Update, bindparam, delete, select, update

from threadkeep.db.prepared import Prepared
from threadkeep.db.tables import responses, stream_parts


def _of(table: Any) -> list[ColumnElement[bool]]:
    return [table.c.tenant_id == bindparam("tenant"), table.c.conversation_id == bindparam("key")]


@cache
def open_response_of() -> Select[Any]:
    """The response that is in progress on a branch."""
    table = responses.c
    return select(table.number, table.lease_until).where(*_of(responses), table.open_branch == bindparam("branch"))


@cache
def stream_of() -> Select[Any]:
    """What is known of a response that was streamed."""
    table = responses.c
    columns = (
        table.format, table.input_to, table.from_position, table.tool_set_hash, table.lease_until, table.lease_token,
        table.open_branch,
    )  # fmt: skip
    return select(*columns).where(*_of(responses), table.number == bindparam("number"))


@cache
def lease_renewal() -> Prepared:
    """Moves the end of a lease, of whoever holds it."""
    table = responses.c
    where = [
        *_of(responses), table.number == bindparam("response"), table.lease_token == bindparam("token"),
        table.open_branch.is_not(None),
    ]  # fmt: skip
    until = bindparam("until", type_=table.lease_until.type)
    return Prepared(update(responses).where(*where).values(lease_until=until))


@cache
def ended() -> Update:
    """Makes a response in progress one that has ended, by whoever holds its lease; values come with the execution."""
    table = responses.c
    where = [*_of(responses), table.number == bindparam("response"), table.lease_token == bindparam("token")]
    return update(responses).where(*where)


@cache
def parts_of() -> Select[Any]:
    """What has come of a response in progress."""
    table = stream_parts.c
    where = [*_of(stream_parts), table.number == bindparam("number")]
    return select(table.content).where(*where).order_by(table.part)


@cache
def parts_removal() -> Delete:
    """Removes what had come of a response whose items are written."""
    return delete(stream_parts).where(*_of(stream_parts), stream_parts.c.number == bindparam("number"))


@cache
def unfinished_of() -> Select[Any]:
    """The responses in progress of a conversation."""
    table = responses.c
    columns = (table.number, table.format, table.tool_set_hash, table.lease_token)
    return select(*columns).where(*_of(responses), table.open_branch.is_not(None)).with_for_update()
