"""Statements on responses in progress."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Delete, Select, Update, and_, bindparam, delete, func, insert, select, update

from threadkeep.db.dialects import from_now, seconds
from threadkeep.db.driver import Statement
from threadkeep.db.queries.conversations import of_conversation
from threadkeep.db.tables import responses, stream_parts

NEW: Final = "new_"  # before the names of parameters that are values of a new row


def is_lost() -> ColumnElement[bool]:
    """Whether a response is in progress by its row, and its lease is over: nobody records it any more."""
    return and_(responses.c.open_branch.is_not(None), responses.c.lease_until <= from_now())


@cache
def stream_insert() -> Statement:
    """Inserts a response in progress. Parameters: its row, and `lease`, the seconds after which its lease is to end."""
    values: dict[str, Any] = {column.name: bindparam(NEW + column.name) for column in responses.columns}
    return Statement(insert(responses).values(values | {"lease_until": from_now(seconds("lease"))}))


@cache
def open_response_of() -> Select[Any]:
    """The response that is in progress on a branch, and the time by which its lease runs."""
    table = responses.c
    columns = (table.number, table.lease_until, from_now().label("now"))
    return select(*columns).where(*of_conversation(responses, open_branch="branch"))


@cache
def last_ended() -> Select[Any]:
    """Where the newest response of a branch that has ended begins, where it ends, and why it is incomplete."""
    table = responses.c
    ended = select(table.from_position, table.to_position, table.incomplete_details)
    ended = ended.where(*of_conversation(responses, branch="branch"), table.open_branch.is_(None))
    return ended.order_by(table.number.desc()).limit(1)


@cache
def broken_off_at() -> Select[Any]:
    """The responses that begin at some positions and were not completed."""
    table = responses.c
    where = [table.from_position.in_(bindparam("positions", expanding=True)), table.status != "completed"]
    return select(table.from_position).where(*of_conversation(responses), *where)


@cache
def open_streams_of() -> Select[Any]:
    """The responses in progress of a conversation, with the first part of each, which says what was noted of it."""
    table, parts = responses.c, stream_parts.c
    columns = (table.number, table.branch, table.lease_until, from_now().label("now"), parts.content)
    names = ("tenant_id", "conversation_id", "number")
    notes = [*(parts[name] == table[name] for name in names), parts.part == 0]
    return select(*columns).where(*of_conversation(responses), table.open_branch.is_not(None), *notes)


@cache
def stream_by_token() -> Select[Any]:
    """The response in progress of whoever holds this token."""
    table = responses.c
    where = [*of_conversation(responses), table.lease_token == bindparam("token"), table.open_branch.is_not(None)]
    return select(table.number, table.branch, table.created_at).where(*where)


@cache
def stream_of(*, is_locked: bool = False) -> Select[Any]:
    """What finalizing a streamed response needs of its row; `is_locked`: nobody else changes it until the end."""
    table = responses.c
    columns = (
        table.format, table.input_to, table.from_position, table.tool_set_hash, table.lease_until, table.lease_token,
        table.open_branch, table.cancel_requested_at, from_now().label("now"),
    )  # fmt: skip
    statement = select(*columns).where(*of_conversation(responses, number="number"))
    return statement.with_for_update() if is_locked else statement


@cache
def lease_renewal(*, cancelled: bool) -> Statement:
    """Extends a lease, for its holder; unless `cancelled`, not that of a response that was asked to stop."""
    renewed = update(responses).where(*_held(), responses.c.open_branch.is_not(None))
    if not cancelled:
        renewed = renewed.where(responses.c.cancel_requested_at.is_(None))
    return Statement(renewed.values(lease_until=from_now(seconds("lease"))))


@cache
def cancel_request(*, numbered: bool) -> Statement:
    """Asks a response to stop that is being recorded: the one of that `number`, or the one on that `branch`."""
    table = responses.c
    which = {"number": "number"} if numbered else {"open_branch": "branch"}
    recorded = [table.open_branch.is_not(None), table.lease_until > from_now()]
    asked = update(responses).where(*of_conversation(responses, **which), *recorded)
    return Statement(asked.values(cancel_requested_at=func.coalesce(table.cancel_requested_at, from_now())))


@cache
def lost_streams_of() -> Select[Any]:
    """The responses in progress of a conversation whose lease is over."""
    return select(responses.c.number, responses.c.branch).where(*of_conversation(responses), is_lost())


@cache
def ended() -> Update:
    """Finalizes a response in progress, for the holder of its lease; values come with the execution."""
    return update(responses).where(*_held())


def _held() -> list[ColumnElement[bool]]:
    return [*of_conversation(responses, number="response"), responses.c.lease_token == bindparam("token")]


@cache
def parts_of() -> Select[Any]:
    """The parts of a response in progress, and the time to the first token, from the one that it came with on."""
    table = stream_parts.c
    return (
        select(table.content, table.first_token_ms)
        .where(*of_conversation(stream_parts, number="number"))
        .order_by(table.part)
    )


@cache
def parts_after() -> Select[Any]:
    """The parts of a response in progress after one that is known."""
    table = stream_parts.c
    where = [*of_conversation(stream_parts, number="number"), table.part > bindparam("part")]
    return select(table.part, table.content).where(*where).order_by(table.part)


@cache
def parts_removal() -> Delete:
    """Removes the parts of a response whose items are written."""
    return delete(stream_parts).where(*of_conversation(stream_parts, number="number"))


@cache
def unfinished_of() -> Select[Any]:
    """The responses in progress of a conversation."""
    table = responses.c
    columns = (table.number, table.format, table.tool_set_hash, table.lease_token)
    return select(*columns).where(*of_conversation(responses), table.open_branch.is_not(None)).with_for_update()
