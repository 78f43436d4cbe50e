"""Calls of functions and their outputs, counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, case, func, literal_column, or_, select

from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED, of_tenant, visible
from threadkeep.db.tables import conversations, items

CALLS: Final = ("function_call", "custom_tool_call")
OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
FAILURES: Final = ("failed", "incomplete", "error")  # status of an output -> the call has failed

Among: TypeAlias = Literal["newest", "oldest"]
"""Which conversations are looked at: those that were active last, or those that were active first after `since`."""


@cache
def tool_usage(
    dialect: str, *, scoped: bool, since: bool, until: bool, of_user: bool, limited: bool, among: Among | None = None
) -> Select[Any]:
    """Calls by the name of the function: their number, how many have no output, and how many failed.

    An output belongs to the nearest earlier call with its id; where another call with that id is between them on the
    same branch, to that one. Those of one response with the same id are answered in order. Parameters: tenant; user
    where scoped; the bounds and `user_id` where they are used; `conversations`, how many are looked at, where they are
    `among` some.
    """
    calls = _calls(since=since, scoped=scoped, of_user=of_user, among=among)
    comes_first = or_(calls.c.next_call.is_(None), calls.c.next_output < 2 * calls.c.next_call)
    is_answered = and_(calls.c.next_output.is_not(None), comes_first)
    # `next_output` is twice the position, and one more for an output that failed
    has_failed = and_(is_answered, calls.c.next_output % 2 == 1)
    conditions = [
        conversations.c.tenant_id == bindparam("tenant"),
        conversations.c.id == calls.c.conversation_id,
        *visible(scoped=scoped),
        calls.c.type.in_(CALLS),
    ]
    if until:
        conditions.append(calls.c.created_at < bindparam("until"))
    if of_user:
        conditions.append(conversations.c.user_id == bindparam("user_id"))
    figures = (
        func.count().label("calls"),
        func.count(case((is_answered, None), else_=1)).label("unanswered"),
        func.count(case((has_failed, 1))).label("failed"),
    )
    statement: Select[Any] = select(calls.c.name, *figures).where(*conditions).group_by(calls.c.name)
    name = calls.c.name.collate("C") if dialect == "postgresql" else calls.c.name
    statement = statement.order_by(literal_column("calls").desc(), calls.c.name.is_(None), name)
    return statement.limit(bindparam("limit", type_=Integer)) if limited else statement


def _calls(*, since: bool, scoped: bool, of_user: bool, among: Among | None) -> Any:
    """Calls and outputs, each with the next output of its id, and the next call of its id on its branch.

    Those of a user are found by the user's conversations: else those of all users would be sorted first.
    """
    columns = items.c
    where = [columns.tenant_id == bindparam("tenant"), columns.call_hash.is_not(None), columns.branch >= 0]
    where.append(columns.type.in_([*CALLS, *OUTPUTS]))
    users = [name for name, is_asked in (("user", scoped), ("user_id", of_user)) if is_asked]
    if among is not None:
        where.append(columns.conversation_id.in_(_some_conversations(users, among, since=since)))
    for name in users if among is None else ():
        of_one = of_tenant(conversations, user_id=name)
        where.append(columns.conversation_id.in_(select(conversations.c.id).where(*of_one)))
    if since:  # outputs come after their calls
        where.append(columns.created_at >= bindparam("since"))
    return _with_next(_numbered(where))


def _numbered(where: Sequence[ColumnElement[bool]]) -> Any:
    """The calls and outputs; `number`: of the outputs of an id, which of them it is, or would answer the call."""
    columns = items.c
    is_call = columns.type.in_(CALLS)
    same = [columns.conversation_id, columns.call_hash]
    turn = func.coalesce(columns.turn, -1 - columns.position)  # what was not received together stands alone
    in_turn = func.row_number().over(partition_by=[*same, turn, is_call], order_by=columns.position)
    outputs = func.count(case((~is_call, 1))).over(partition_by=same, order_by=columns.position, rows=(None, 0))
    chosen = (*same, columns.branch, columns.position, columns.type, columns.name, columns.status, columns.created_at)
    figures = (in_turn.label("in_turn"), (outputs + case((is_call, in_turn), else_=0)).label("number"))
    return select(*chosen, *figures).where(*where).subquery("numbered")


def _with_next(numbered: Any) -> Any:
    row = numbered.c
    is_call = row.type.in_(CALLS)
    output = 2 * row.position + case((row.status.in_(FAILURES), 1), else_=0)
    same = [row.conversation_id, row.call_hash]
    ahead: dict[str, Any] = {"order_by": row.position, "rows": (1, None)}
    next_output = func.min(case((~is_call, output))).over(partition_by=[*same, row.number], **ahead)
    first_call = case((and_(is_call, row.in_turn == 1), row.position))
    next_call = func.min(first_call).over(partition_by=[*same, row.branch], **ahead)
    chosen = (row.conversation_id, row.type, row.name, row.created_at)
    return select(*chosen, next_output.label("next_output"), next_call.label("next_call")).subquery("calls")


def _some_conversations(users: list[str], among: Among, *, since: bool) -> Select[Any]:
    """Ids of so many `conversations` that were active; those of each status in the order of an index."""
    moment, key = conversations.c.last_activity_at, conversations.c.id
    where = [*of_tenant(conversations), *(conversations.c.user_id == bindparam(name) for name in users)]
    if since:
        where.append(moment >= bindparam("since"))
    most = bindparam("conversations", type_=Integer)

    def first(statement: Select[Any], *columns: ColumnElement[Any]) -> Any:
        order = [column.desc() if among == "newest" else column for column in columns]
        return select(statement.order_by(*order).limit(most).subquery())

    parts = [
        first(select(key, moment).where(*where, conversations.c.status == status), moment, key)
        for status in (ACTIVE, ARCHIVED)
    ]
    both = sa.union_all(*parts).subquery()
    found = first(select(both), both.c.last_activity_at, both.c.id).subquery()
    return select(found.c.id)
