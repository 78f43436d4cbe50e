"""Statements that remove items from a conversation, and what belongs to them.

Statements that read all that a conversation, or a tenant, has: for exports, copies and checks.

They leave planners no choice but the primary key, of which they know the beginning. A planner without statistics takes
other indexes for as good, of which it knows the tenant alone, and reads the rows of all conversations for each of them:

* those that have a column in the order that is asked for, also by DISTINCT;
* those with a condition such as `config_hash IS NOT NULL`, if a statement has it, too;
* those that have all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from threadkeep.db import base, functions, models
from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.models import appends, branches, conversations, item_blobs, response_bodies, responses
from threadkeep.db.queries.conversations import DELETED, of_conversation, of_tenant

# Items of a branch after a position and up to another
Range = tuple[int, int, int]


@cache
def lineages_of() -> sa.Select[Any]:
    """The lineages of all forked branches as they are now, for work that holds the lock of the conversation."""
    statement = sa.select(branches.c.number, branches.c.lineage, branches.c.head_position).where(
        *of_conversation(branches)
    )
    return functions.as_committed(statement)


@cache
def lineage_change() -> sa.Update:
    """Changes what a forked branch is made of, and where it ends."""
    values: dict[str, Any] = {"lineage": sa.bindparam("new_lineage"), "head_position": sa.bindparam("new_head")}
    return sa.update(branches).where(*of_conversation(branches, number="on_branch")).values(values)


def within(table: sa.Table, ranges: Sequence[Range]) -> list[sa.ColumnElement[bool]]:
    """Conditions for rows of a conversation that have the branches and positions of items in these ranges.

    The bounds of all of them come first: each row between these is compared with each range.
    """
    column = table.c
    lowest, highest = min((one[1] for one in ranges), default=-1), max((one[2] for one in ranges), default=-1)
    found = [
        sa.and_(column.branch == branch, column.position > after, column.position <= upto)
        for branch, after, upto in ranges
    ]
    return [*of_conversation(table), column.position > lowest, column.position <= highest, sa.or_(sa.false(), *found)]


def media_between(after: int, upto: int) -> sa.Select[Any]:
    """The hashes of the media of items after one position and up to another."""
    position = item_blobs.c.position
    where = [*of_conversation(item_blobs), position > after, position <= upto]
    return sa.select(item_blobs.c.hash).where(*where).distinct()


def media_links_removal() -> sa.Delete:
    """Removes the places of media in the text of an item."""
    return sa.delete(item_blobs).where(*of_conversation(item_blobs, position="position"))


def _overlapping() -> list[sa.ColumnElement[bool]]:
    """Conditions for the responses that have items from one position up to another."""
    table = responses.c
    return [
        *of_conversation(responses),
        table.from_position <= table.to_position,
        table.from_position <= sa.bindparam("upto"),
        table.to_position >= sa.bindparam("first"),
    ]


@cache
def ranges_between() -> sa.Select[Any]:
    """The responses that have items between two positions: their numbers, and where their ranges begin and end."""
    columns = (responses.c.number, responses.c.from_position, responses.c.to_position)
    return functions.as_committed(sa.select(*columns).where(*_overlapping()))


@cache
def positions_between() -> sa.Select[Any]:
    """The positions of items from one up to another, in order."""
    position = models.items.c.position
    where = [*of_conversation(models.items), position >= sa.bindparam("first"), position <= sa.bindparam("upto")]
    return functions.as_committed(sa.select(position).where(*where).order_by(position))


@cache
def bodies_removal() -> sa.Delete:
    """Removes the raw bodies of some responses."""
    return sa.delete(response_bodies).where(*of_conversation(response_bodies), _are_these(response_bodies))


@cache
def bodies_rest_removal() -> sa.Update:
    """Removes what the rows of some responses have of their bodies."""
    statement = sa.update(responses).where(*of_conversation(responses), _are_these(responses))
    return statement.values(provider_data=None, error=None)


def _are_these(table: sa.Table) -> sa.ColumnElement[bool]:
    return table.c.number.in_(sa.bindparam("numbers", expanding=True))


@cache
def response_at() -> sa.Select[Any]:
    """The response that an item came in."""
    table = responses.c
    columns = (table.number, table.error, table.incomplete_details)
    return sa.select(*columns).where(*_overlapping()).order_by(table.number.desc()).limit(1)


@cache
def reasons_change() -> sa.Update:
    """Replaces why calls with one id were denied, which is what their outputs say."""
    calls = sa.select(models.items.c.position).where(*of_conversation(models.items, call_hash="hash"))
    decided = models.approvals
    where = [*of_conversation(decided), decided.c.reason.is_not(None), decided.c.position.in_(calls)]
    return sa.update(decided).where(*where).values(reason=sa.bindparam("redacted"))


@cache
def outcomes_of() -> sa.Select[Any]:
    """What was done in a conversation under idempotency keys."""
    return sa.select(appends.c.key, appends.c.outcome).where(*of_tenant(appends, conversation_id="key"))


@cache
def creations_of() -> sa.Select[Any]:
    """The idempotency key of a tenant under which a conversation was created.

    Its outcome has the digits of the public id: in another database than that, the key may stand for something else.
    """
    own = sa.select(conversations.c.creation_key).where(*of_tenant(conversations, id="key")).scalar_subquery()
    has_id = appends.c.outcome.like(sa.bindparam("pattern", type_=sa.String))
    return sa.select(appends.c.key).where(
        *of_tenant(appends, conversation_id="everywhere"), appends.c.key == own, has_id
    )


def hashes_removal(keys: Sequence[str]) -> sa.Update:
    """Forgets what was asked for under some idempotency keys."""
    where = [*of_tenant(appends, conversation_id="conversation"), appends.c.key.in_(keys)]
    return sa.update(appends).where(*where).values(request_hash=sa.bindparam("forgotten"))


# ---------------------------------------------------------------------------------------------------------------------
# Whether rows that are named by a hash of their content are used by others


def is_referred_to(hash_: sa.Column[Any], *references: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """A condition for rows of a table: one of these columns has their hash, in a row of the same tenant.

    Each row takes a look into the indexes of references; for EXISTS, PostgreSQL would read all rows that have any.
    """
    tenant = hash_.table.c.tenant_id
    users = (
        sa.select(reference).where(reference.table.c.tenant_id == tenant, reference == hash_).limit(1).scalar_subquery()
        for reference in references
    )
    return sa.or_(*(user.is_not(None) for user in users))


AFTER: Final = "after_"  # before the names of parameters: what the last row of a page has


@cache
def reader_of(table: sa.Table) -> RowReader:
    """Reads whole rows."""
    return RowReader(base.written_columns(table))


def order_of(table: sa.Table) -> list[Any]:
    """The columns of its key that distinguish the rows of a conversation, or of a tenant."""
    return [column for column in table.primary_key.columns if column.name not in {"tenant_id", "conversation_id"}]


@cache
def conversation_beside(parts: tuple[sa.Table, ...]) -> Statement:
    """The row of a conversation that is not deleted, and for each of these tables 1 if it has rows there."""
    one: sa.ColumnElement[int] = sa.literal_column("1")
    has = [_page(sa.select(one), part, most=one).scalar_subquery() for part in parts]
    where = [*of_tenant(conversations, id="key"), conversations.c.status != DELETED]
    return Statement(sa.select(*base.written_columns(conversations), *has).where(*where))


@cache
def hashes_of(columns: tuple[tuple[sa.Table, str], ...]) -> Statement:
    """The hashes in some columns of a conversation, each with the number of its column; NULL where there is none."""
    return Statement(
        sa.union(*(
            sa.select(sa.literal_column(str(number)), table.c[name]).where(
                *(of_tenant(table, id="key") if table is conversations else of_conversation(table))
            )
            for number, (table, name) in enumerate(columns)
        ))
    )  # fmt: skip


@cache
def named_by_hash(table: sa.Table) -> sa.Select[Any]:
    """The rows of a tenant with some hashes."""
    return sa.select(table).where(*of_tenant(table), table.c.hash.in_(sa.bindparam("hashes", expanding=True)))


@cache
def page_of(table: sa.Table, *, whole: bool, goes_on: bool) -> Statement:
    """A page of the rows of a conversation, or of a `whole` tenant, behind the last one if it `goes_on`."""
    return Statement(_page(sa.select(*base.written_columns(table)), table, whole=whole, goes_on=goes_on))


@cache
def sizes_of(table: sa.Table, *, goes_on: bool) -> Statement:
    """How many bytes the bodies of such a page have; no database reads a body for it but MariaDB."""
    return Statement(_page(sa.select(sa.func.length(table.c.body)), table, goes_on=goes_on))


def _page(
    statement: sa.Select[Any],
    table: sa.Table,
    *,
    whole: bool = False,
    goes_on: bool = False,
    most: sa.ColumnElement[Any] | None = None,
) -> sa.Select[Any]:
    order = order_of(table)
    where = of_tenant(table) if whole else of_conversation(table)
    sorting = order
    if not whole and _has_rival(table):
        key: sa.BindParameter[int] = sa.bindparam("key", type_=table.c.conversation_id.type)
        where = [*of_tenant(table), table.c.conversation_id.between(key, key)]
        sorting = [table.c.conversation_id, *order]
    if goes_on:
        where.append(_after(order))
    return statement.where(*where).order_by(*sorting).limit(sa.bindparam("limit") if most is None else most)


def _has_rival(table: sa.Table) -> bool:
    """Whether another index than the primary key has all columns, or the order of the rows, but not the conversation.

    Bounds of the conversation, and an order that begins with it, leave only the primary key.
    """
    names, first = {column.name for column in table.columns}, order_of(table)[0].name
    indexes = [index.columns.keys() for index in table.indexes]
    return any(names <= set(index) or index[1:2] == [first] for index in indexes)


def _after(order: Sequence[Any]) -> sa.ColumnElement[bool]:
    """The condition for keys behind the last one; the first column bounds it, for an index."""
    last = [sa.bindparam(AFTER + column.name, type_=column.type) for column in order]
    steps = [
        sa.and_(*(order[at] == last[at] for at in range(number)), order[number] > last[number])
        for number in range(len(order))
    ]
    return sa.and_(order[0] >= last[0], sa.or_(*steps))
