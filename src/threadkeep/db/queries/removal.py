"""Statements that remove items from a conversation, and what belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Delete, Select, Table, Update, and_, bindparam, delete, or_, select, update

from threadkeep.db.queries.conversations import of_conversation, of_tenant
from threadkeep.db.queries.items import latest_of
from threadkeep.db.tables import (
    appends,
    approvals,
    branches,
    conversations,
    item_blobs,
    items,
    response_bodies,
    responses,
)
from threadkeep.db.types import MYSQL

# Items of a branch after a position and up to another
Range = tuple[int, int, int]


@cache
def lineages_of(dialect: str) -> Select[Any]:
    """The lineages of all forked branches as they are now, for work that holds the lock of the conversation."""
    statement = select(branches.c.number, branches.c.lineage, branches.c.head_position).where(
        *of_conversation(branches)
    )
    return statement.with_for_update(read=True) if dialect in MYSQL else statement


@cache
def lineage_change() -> Update:
    """Changes what a forked branch is made of, and where it ends."""
    values: dict[str, Any] = {"lineage": bindparam("new_lineage"), "head_position": bindparam("new_head")}
    return update(branches).where(*of_conversation(branches, number="on_branch")).values(values)


def within(table: Table, ranges: Sequence[Range]) -> list[ColumnElement[bool]]:
    """Conditions for rows of a conversation that have the branches and positions of items in these ranges.

    The bounds of all of them come first: each row between these is compared with each range.
    """
    column = table.c
    lowest, highest = min((one[1] for one in ranges), default=-1), max((one[2] for one in ranges), default=-1)
    found = [
        and_(column.branch == branch, column.position > after, column.position <= upto)
        for branch, after, upto in ranges
    ]
    return [*of_conversation(table), column.position > lowest, column.position <= highest, or_(sa.false(), *found)]


def media_between(after: int, upto: int) -> Select[Any]:
    """The hashes of the media of items after one position and up to another."""
    position = item_blobs.c.position
    where = [*of_conversation(item_blobs), position > after, position <= upto]
    return select(item_blobs.c.hash).where(*where).distinct()


def media_links_removal() -> Delete:
    """Removes the places of media in the text of an item."""
    return delete(item_blobs).where(*of_conversation(item_blobs, position="position"))


def _overlapping() -> list[ColumnElement[bool]]:
    """Conditions for the responses that have items from one position up to another."""
    table = responses.c
    return [
        *of_conversation(responses),
        table.from_position <= table.to_position,
        table.from_position <= bindparam("upto"),
        table.to_position >= bindparam("first"),
    ]


@cache
def ranges_between(dialect: str) -> Select[Any]:
    """The responses that have items between two positions: their numbers, and where their ranges begin and end."""
    columns = (responses.c.number, responses.c.from_position, responses.c.to_position)
    return latest_of(select(*columns).where(*_overlapping()), dialect)


@cache
def positions_between(dialect: str) -> Select[Any]:
    """The positions of items from one up to another, in order."""
    position = items.c.position
    where = [*of_conversation(items), position >= bindparam("first"), position <= bindparam("upto")]
    return latest_of(select(position).where(*where).order_by(position), dialect)


@cache
def bodies_removal() -> Delete:
    """Removes the raw bodies of some responses."""
    return delete(response_bodies).where(*of_conversation(response_bodies), _are_these(response_bodies))


@cache
def bodies_rest_removal() -> Update:
    """Removes what the rows of some responses have of their bodies."""
    statement = update(responses).where(*of_conversation(responses), _are_these(responses))
    return statement.values(provider_data=None, error=None)


def _are_these(table: Table) -> ColumnElement[bool]:
    return table.c.number.in_(bindparam("numbers", expanding=True))


@cache
def response_at() -> Select[Any]:
    """The response that an item came in."""
    table = responses.c
    columns = (table.number, table.error, table.incomplete_details)
    return select(*columns).where(*_overlapping()).order_by(table.number.desc()).limit(1)


@cache
def reasons_change() -> Update:
    """Replaces why calls with one id were denied, which is what their outputs say."""
    calls = select(items.c.position).where(*of_conversation(items, call_hash="hash"))
    where = [*of_conversation(approvals), approvals.c.reason.is_not(None), approvals.c.position.in_(calls)]
    return update(approvals).where(*where).values(reason=bindparam("redacted"))


@cache
def body_removal() -> Delete:
    """Removes the raw body of a response."""
    return delete(response_bodies).where(*of_conversation(response_bodies, number="number"))


@cache
def outcomes_of() -> Select[Any]:
    """What was done in a conversation under idempotency keys."""
    return select(appends.c.key, appends.c.outcome).where(*of_tenant(appends, conversation_id="key"))


@cache
def creations_of() -> Select[Any]:
    """The idempotency key of a tenant under which a conversation was created.

    Its outcome has the digits of the public id: in another database than that, the key may stand for something else.
    """
    own = select(conversations.c.creation_key).where(*of_tenant(conversations, id="key")).scalar_subquery()
    has_id = appends.c.outcome.like(bindparam("pattern", type_=sa.String))
    return select(appends.c.key).where(*of_tenant(appends, conversation_id="everywhere"), appends.c.key == own, has_id)


def hashes_removal(keys: Sequence[str]) -> Update:
    """Forgets what was asked for under some idempotency keys."""
    where = [*of_tenant(appends, conversation_id="conversation"), appends.c.key.in_(keys)]
    return update(appends).where(*where).values(request_hash=bindparam("forgotten"))
