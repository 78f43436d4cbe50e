"""Statements on stored responses: one of them, by number or by the provider's id.

Calls of functions and their outputs, counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final, Literal, TypeAlias

import sqlalchemy as sa

from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.driver.inserting import Insertion
from threadkeep.db.functions import bytewise, from_now, milliseconds_between, now, seconds, smallest_first
from threadkeep.db.models import approvals, conversations, items, responses, stream_parts
from threadkeep.db.queries import usage
from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED, narrowed, of_conversation, of_tenant, visible

MOST_HASHES: Final = 100  # of responses that one statement looks for
NEW: Final = "new_"  # before the names of parameters that are values of a response


def is_lost() -> sa.ColumnElement[bool]:
    """Whether a response is in progress by its row, and its lease is over: its recorder is gone."""
    return sa.and_(responses.c.open_branch.is_not(None), responses.c.lease_until <= now())


# A row of a response in progress, with `lease`: the seconds after which its lease is to end
STARTED: Final = Insertion(responses, made=("lease_until", lambda name: from_now(seconds(name)), "lease"))


@cache
def counted_among(column: sa.Column[Any]) -> Statement:
    """Which of the values `value_0`, `value_1`, … a column has in rows of the tenant; those not given are NULL."""
    values = [sa.bindparam(f"value_{number}", type_=column.type) for number in range(MOST_HASHES)]
    return Statement(sa.select(column).where(*of_tenant(column.table), column.in_(values)))


@cache
def open_response_of() -> sa.Select[Any]:
    """The response that is in progress on a branch, the time by which its lease runs, and whether that is over."""
    table = responses.c
    columns = (table.number, table.branch, table.lease_until, now().label("now"), is_lost().label("is_lost"))
    return sa.select(*columns).where(*of_conversation(responses, open_branch="branch"))


@cache
def last_ended() -> sa.Select[Any]:
    """Where the newest response of a branch that has ended begins, where it ends, and why it is incomplete."""
    table = responses.c
    ended = sa.select(table.from_position, table.to_position, table.incomplete_details)
    ended = ended.where(*of_conversation(responses, branch="branch"), table.open_branch.is_(None))
    return ended.order_by(table.number.desc()).limit(1)


@cache
def response_after(*, newest: bool = False) -> sa.Select[Any]:
    """The first response of a branch after a number, or the newest one."""
    number = responses.c.number
    found = sa.select(number).where(*of_conversation(responses, branch="branch"), number > sa.bindparam("number"))
    return found.order_by(number.desc() if newest else number).limit(1)


@cache
def broken_off_at() -> sa.Select[Any]:
    """The responses that begin at some positions and were not completed."""
    table = responses.c
    where = [table.from_position.in_(sa.bindparam("positions", expanding=True)), table.status != "completed"]
    return sa.select(table.from_position).where(*of_conversation(responses), *where)


@cache
def open_streams_of() -> sa.Select[Any]:
    """The responses in progress of a conversation, with the first part of each, which says what was noted of it."""
    table, parts = responses.c, stream_parts.c
    columns = (table.number, table.branch, table.lease_until, now().label("now"), parts.content)
    names = ("tenant_id", "conversation_id", "number")
    notes = [*(parts[name] == table[name] for name in names), parts.part == 0]
    return sa.select(*columns).where(*of_conversation(responses), table.open_branch.is_not(None), *notes)


@cache
def stream_by_token() -> sa.Select[Any]:
    """The response in progress with this token."""
    table = responses.c
    where = [*of_conversation(responses), table.lease_token == sa.bindparam("token"), table.open_branch.is_not(None)]
    return sa.select(table.number, table.branch, table.created_at).where(*where)


@cache
def stream_of(*, is_locked: bool = False) -> sa.Select[Any]:
    """What finalizing a streamed response needs of its row; `is_locked`: locks it until the end."""
    table = responses.c
    columns = (
        table.format, table.input_to, table.from_position, table.tool_set_hash, table.lease_until, table.lease_token,
        table.open_branch, table.cancel_requested_at, now().label("now"),
    )  # fmt: skip
    statement = sa.select(*columns).where(*of_conversation(responses, number="number"))
    return statement.with_for_update() if is_locked else statement


_AT_END: Final = tuple(
    responses.c[name]
    for name in ("format", "input_to", "from_position", "tool_set_hash", "lease_token", "open_branch", "created_at")
)
STREAM_READER: Final = RowReader(_AT_END)


@cache
def stream_at_end() -> Statement:
    """What its recorder needs of the row of a streamed response at its end; `STREAM_READER` reads it."""
    return Statement(sa.select(*_AT_END).where(*of_conversation(responses, number="number")))


@cache
def lease_renewal(*, cancelled: bool) -> Statement:
    """Extends a lease, for its holder; unless `cancelled`, not if the response was asked to stop."""
    renewed = sa.update(responses).where(*_held(), responses.c.open_branch.is_not(None))
    if not cancelled:
        renewed = renewed.where(responses.c.cancel_requested_at.is_(None))
    return Statement(renewed.values(lease_until=from_now(seconds("lease"))))


@cache
def cancel_request(*, numbered: bool) -> Statement:
    """Asks a response to stop that is being recorded: the one of that `number`, or the one on that `branch`."""
    table = responses.c
    which = {"number": "number"} if numbered else {"open_branch": "branch"}
    recorded = [table.open_branch.is_not(None), table.lease_until > now()]
    asked = sa.update(responses).where(*of_conversation(responses, **which), *recorded)
    return Statement(asked.values(cancel_requested_at=sa.func.coalesce(table.cancel_requested_at, now())))


@cache
def lost_streams_of() -> sa.Select[Any]:
    """The responses in progress of a conversation whose lease is over."""
    return sa.select(responses.c.number, responses.c.branch).where(*of_conversation(responses), is_lost())


@lru_cache
def ended(*names: str, returning: bool = False) -> Statement:
    """Finalizes a response in progress, for the holder of its lease. Parameters: its columns of these names, too.

    `returning`: if it is still in progress; `STREAM_READER` reads what it returns.
    """
    update = sa.update(responses).where(*_held()).values({name: sa.bindparam(NEW + name) for name in names})
    if not returning:
        return Statement(update)
    return Statement(update.where(responses.c.open_branch.is_not(None)).returning(*_AT_END))


def end_of_stream(conversation: sa.FromClause, *names: str) -> Any:
    """The same with the numbers that its conversation, which is given as the row of a reservation, has taken.

    Parameters: `items`, too: how many it has. Returns what the rows of its end are made of.
    """
    table, following = responses.c, conversation.c.next_position
    places = {"from_position": following - sa.bindparam("items", type_=sa.BigInteger), "to_position": following - 1}
    held = [*_held(), table.open_branch.is_not(None), table.number < conversation.c.next_response]
    ending = sa.update(responses).where(*held).values({name: sa.bindparam(NEW + name) for name in names} | places)
    return ending.returning(
        table.conversation_id, table.number, table.input_to, table.from_position, table.tool_set_hash
    )


def _held() -> list[sa.ColumnElement[bool]]:
    return [*of_conversation(responses, number="response"), responses.c.lease_token == sa.bindparam("token")]


@cache
def parts_of() -> sa.Select[Any]:
    """The parts of a response in progress, and the time to the first token, from the one that it came with on."""
    table = stream_parts.c
    return (
        sa.select(table.content, table.first_token_ms)
        .where(*of_conversation(stream_parts, number="number"))
        .order_by(table.part)
    )


@cache
def parts_after() -> sa.Select[Any]:
    """The parts of a response in progress after one that is known."""
    table = stream_parts.c
    where = [*of_conversation(stream_parts, number="number"), table.part > sa.bindparam("part")]
    return sa.select(table.part, table.content).where(*where).order_by(table.part)


def removal_of_parts(number: sa.ColumnElement[int]) -> sa.Delete:
    """Removes the parts of a response whose items are written."""
    return sa.delete(stream_parts).where(*of_conversation(stream_parts), stream_parts.c.number == number)


@cache
def parts_removal() -> Statement:
    """The statement of that."""
    return Statement(removal_of_parts(sa.bindparam("number")))


@cache
def unfinished_of() -> sa.Select[Any]:
    """The responses in progress of a conversation."""
    table = responses.c
    columns = (table.number, table.format, table.tool_set_hash, table.lease_token)
    return sa.select(*columns).where(*of_conversation(responses), table.open_branch.is_not(None)).with_for_update()


# ---------------------------------------------------------------------------------------------------------------------
# Statements on stored responses: one of them, by number or by the provider's id

# The columns of a StoredResponse; what it was rendered with comes with them, and whether its recorder is gone
STORED: Final = (
    "number", "branch", "format", "model", "status", "finish_reason", "provider_response_id", "input_to",
    "from_position", "to_position", "view", "created_at", "error",
)  # fmt: skip
_EXISTS: Final = responses.c.deleted_at.is_(None)
LISTED: Final = (*(responses.c[name] for name in STORED), is_lost().label("is_lost"))
_COLUMNS: Final = (*LISTED, *(responses.c[name] for name in ("conversation_id", "config_hash", "tool_set_hash")))


@cache
def response_at() -> sa.Select[Any]:
    """A response of a conversation by its number."""
    return sa.select(*_COLUMNS).where(*of_conversation(responses, number="number"), _EXISTS)


@cache
def response_with_id() -> sa.Select[Any]:
    """The newest response of a conversation with the provider's id of this hash."""
    found = sa.select(*_COLUMNS).where(*of_conversation(responses, response_hash="hash"), _EXISTS)
    return found.order_by(responses.c.number.desc()).limit(1)


@cache
def newest_with_id(*, scoped: bool) -> sa.Select[Any]:
    """The newest one in all visible conversations, with the conversation's public id."""
    table, talks = responses.c, conversations.c
    joined = responses.join(
        conversations, sa.and_(talks.tenant_id == table.tenant_id, talks.id == table.conversation_id)
    )
    where = [*of_tenant(responses, response_hash="hash"), *visible(scoped=scoped), _EXISTS]
    found = sa.select(*_COLUMNS, talks.public_id).select_from(joined).where(*where)
    return found.order_by(table.conversation_id.desc(), table.number.desc()).limit(1)


@cache
def response_page() -> sa.Select[Any]:
    """A page of the responses of a conversation, oldest first."""
    table = responses.c
    found = sa.select(*LISTED).where(*of_conversation(responses), _EXISTS, table.number > sa.bindparam("after"))
    return found.order_by(table.number).limit(sa.bindparam("limit"))


CALLS: Final = ("function_call", "custom_tool_call")
OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
# status of an output -> the call has failed; it is "incomplete" where a person denied the call, or a run was stopped
FAILURES: Final = ("failed", "error")

Among: TypeAlias = Literal["newest", "oldest"]
"""Which conversations are looked at: those that were active last, or those that were active first after `since`."""


@cache
def tool_usage(
    *, scoped: bool, since: bool, until: bool, of_user: bool, limited: bool, among: Among | None = None,
    by: str | None = None, offsets: tuple[int, ...] = (0,), durations: bool = False, labels: int = 0,
    of_model: bool = False,
) -> sa.Select[Any]:  # fmt: skip
    """Calls by the name of the function: their number, how many have no output, and how many failed.

    With `by`, they are counted for each day, week or month, in order; see `usage.time_keys` for `offsets`. With
    `durations`, rows of a name, the time, a duration and how often it occurs, in place of these: how long calls that
    have an output waited for it.

    An output belongs to the nearest earlier call with its id; where another call with that id is between them on the
    same branch, to that one. Calls of one response with the same id are answered in order. Parameters: tenant; user
    where scoped; the bounds and `user_id` where they are used; `conversations`, how many are looked at, where they are
    `among` some; those of `narrowed`.
    """
    narrow = narrowed(labels, of_model=of_model)
    calls = _calls(since=since, scoped=scoped, of_user=of_user, among=among, narrow=narrow)
    comes_first = sa.or_(calls.c.next_call.is_(None), calls.c.next_output < 2 * calls.c.next_call)
    is_answered = sa.and_(calls.c.next_output.is_not(None), comes_first)
    # `next_output` is twice the position, and one more for an output that failed
    has_failed = sa.and_(is_answered, calls.c.next_output % 2 == 1)
    conditions = [
        conversations.c.tenant_id == sa.bindparam("tenant"),
        conversations.c.id == calls.c.conversation_id,
        *visible(scoped=scoped),
        calls.c.type.in_(CALLS),
        *narrow,
    ]
    if until:
        conditions.append(calls.c.occurred_at < sa.bindparam("until"))
    if of_user:
        conditions.append(conversations.c.user_id == sa.bindparam("user_id"))
    period = [] if by is None else [usage.time_keys(by, offsets, calls)[0].label("period")]
    keys = [calls.c.name, *period]
    if durations:
        output = items.alias("outputs")
        is_its = [output.c[name] == calls.c[name] for name in ("tenant_id", "conversation_id")]
        is_its.append(output.c.position == calls.c.next_output // 2)
        waited = milliseconds_between(calls.c.occurred_at, output.c.created_at).label("waited")
        found = (
            sa.select(*keys, waited).join(output, sa.and_(*is_its)).where(*conditions, is_answered).subquery("found")
        )
        columns = [*found.c][:-1]
        counted = sa.select(*columns, usage.rounded(found.c.waited), sa.func.count(), sa.null())
        return counted.group_by(*columns, sa.literal_column("duration"))
    figures = (
        sa.func.count().label("calls"),
        sa.func.count(sa.case((is_answered, None), else_=1)).label("unanswered"),
        sa.func.count(sa.case((has_failed, 1))).label("failed"),
    )
    times: list[Any] = [sa.literal_column("period")] if period else []
    statement: sa.Select[Any] = sa.select(*keys, *figures).where(*conditions).group_by(calls.c.name, *times)
    statement = statement.order_by(*times, sa.literal_column("calls").desc(), smallest_first(bytewise(calls.c.name)))
    return statement.limit(sa.bindparam("limit", type_=sa.Integer)) if limited else statement


def _calls(
    *, since: bool, scoped: bool, of_user: bool, among: Among | None, narrow: list[sa.ColumnElement[bool]]
) -> Any:
    """Calls and outputs, each with the next output of its id, and the next call of its id on its branch.

    A user's calls are found by the user's conversations: otherwise all users' calls would be sorted first.
    """
    columns = items.c
    where = [columns.tenant_id == sa.bindparam("tenant"), columns.call_hash.is_not(None), columns.branch >= 0]
    where.append(columns.type.in_([*CALLS, *OUTPUTS]))
    users = [name for name, is_asked in (("user", scoped), ("user_id", of_user)) if is_asked]
    if among is not None:
        where.append(columns.conversation_id.in_(_some_conversations(users, among, narrow, since=since)))
    for name in users if among is None else ():
        of_one = of_tenant(conversations, user_id=name)
        where.append(columns.conversation_id.in_(sa.select(conversations.c.id).where(*of_one)))
    if since:  # outputs come after their calls
        where.append(columns.created_at >= sa.bindparam("since"))
    row = _numbered(where).c
    is_call = row.type.in_(CALLS)
    output = 2 * row.position + sa.case((row.status.in_(FAILURES), 1), else_=0)
    same = [row.conversation_id, row.call_hash]
    ahead: dict[str, Any] = {"order_by": row.position, "rows": (1, None)}
    next_output = sa.func.min(sa.case((~is_call, output))).over(partition_by=[*same, row.number], **ahead)
    first_call = sa.case((sa.and_(is_call, row.in_turn == 1), row.position))
    next_call = sa.func.min(first_call).over(partition_by=[*same, row.branch], **ahead)
    chosen = (row.tenant_id, row.conversation_id, row.type, row.name, row.created_at.label("occurred_at"))
    return sa.select(*chosen, next_output.label("next_output"), next_call.label("next_call")).subquery("calls")


def _numbered(where: Sequence[sa.ColumnElement[bool]]) -> Any:
    """The calls and outputs; `number`: of the outputs of an id, which of them it is, or would answer the call."""
    columns = items.c
    is_call = columns.type.in_(CALLS)
    same = [columns.conversation_id, columns.call_hash]
    turn = sa.func.coalesce(columns.turn, -1 - columns.position)  # what was not received together stands alone
    in_turn = sa.func.row_number().over(partition_by=[*same, turn, is_call], order_by=columns.position)
    outputs = sa.func.count(sa.case((~is_call, 1))).over(partition_by=same, order_by=columns.position, rows=(None, 0))
    chosen = (
        columns.tenant_id,
        *same,
        columns.branch,
        columns.position,
        columns.type,
        columns.name,
        columns.status,
        columns.created_at,
    )
    figures = (in_turn.label("in_turn"), (outputs + sa.case((is_call, in_turn), else_=0)).label("number"))
    return sa.select(*chosen, *figures).where(*where).subquery("numbered")


def _some_conversations(
    users: list[str], among: Among, narrow: list[sa.ColumnElement[bool]], *, since: bool
) -> sa.Select[Any]:
    """Ids of so many `conversations` that were active; for each status in the order of an index."""
    moment, key = conversations.c.last_activity_at, conversations.c.id
    where = [*of_tenant(conversations), *(conversations.c.user_id == sa.bindparam(name) for name in users), *narrow]
    if since:
        where.append(moment >= sa.bindparam("since"))
    most = sa.bindparam("conversations", type_=sa.Integer)

    def first(statement: sa.Select[Any], *columns: sa.ColumnElement[Any]) -> Any:
        order = [column.desc() if among == "newest" else column for column in columns]
        return sa.select(statement.order_by(*order).limit(most).subquery())

    parts = [
        first(sa.select(key, moment).where(*where, conversations.c.status == status), moment, key)
        for status in (ACTIVE, ARCHIVED)
    ]
    both = sa.union_all(*parts).subquery()
    found = first(sa.select(both), both.c.last_activity_at, both.c.id).subquery()
    return sa.select(found.c.id)


# ---------------------------------------------------------------------------------------------------------------------
# Statements on decisions about calls


@cache
def approvals_of(*, is_whole: bool = False) -> sa.Select[Any]:
    """The decisions about calls at some positions, or about all of a conversation."""
    table = approvals.c
    where = [*of_conversation(approvals)]
    if not is_whole:
        where.append(table.position.in_(sa.bindparam("positions", expanding=True)))
    return sa.select(table.position, table.decision, table.reason, table.decided_by, table.created_at).where(*where)
