"""Statements that read all that a conversation, or a tenant, has: for exports, copies and checks.

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

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    union,
)

from threadkeep.db.base import written_columns
from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.queries.conversations import DELETED, of_conversation, of_tenant
from threadkeep.db.tables import conversations

AFTER: Final = "after_"  # before the names of parameters: what the last row of a page has


@cache
def reader_of(table: Table) -> RowReader:
    """Reads whole rows."""
    return RowReader(written_columns(table))


def order_of(table: Table) -> list[Any]:
    """The columns of its key by which the rows of a conversation, or of a tenant, are told apart."""
    return [column for column in table.primary_key.columns if column.name not in {"tenant_id", "conversation_id"}]


@cache
def conversation_beside(parts: tuple[Table, ...]) -> Statement:
    """The row of a conversation that is not deleted, and for each of these tables 1 if it has rows there."""
    one: ColumnElement[int] = literal_column("1")
    has = [_page(select(one), part, most=one).scalar_subquery() for part in parts]
    where = [*of_tenant(conversations, id="key"), conversations.c.status != DELETED]
    return Statement(select(*written_columns(conversations), *has).where(*where))


@cache
def hashes_of(columns: tuple[tuple[Table, str], ...]) -> Statement:
    """The hashes in some columns of a conversation, each with the number of its column; NULL where there is none."""
    return Statement(
        union(*(
            select(literal_column(str(number)), table.c[name]).where(
                *(of_tenant(table, id="key") if table is conversations else of_conversation(table))
            )
            for number, (table, name) in enumerate(columns)
        ))
    )  # fmt: skip


@cache
def named_by_hash(table: Table) -> Select[Any]:
    """The rows of a tenant with some hashes."""
    return select(table).where(*of_tenant(table), table.c.hash.in_(bindparam("hashes", expanding=True)))


@cache
def page_of(table: Table, *, whole: bool, goes_on: bool) -> Statement:
    """A page of the rows of a conversation, or of a `whole` tenant, behind the last one if it `goes_on`."""
    return Statement(_page(select(*written_columns(table)), table, whole=whole, goes_on=goes_on))


@cache
def sizes_of(table: Table, *, goes_on: bool) -> Statement:
    """How many bytes the bodies of such a page have; no database reads a body for it but MariaDB."""
    return Statement(_page(select(func.length(table.c.body)), table, goes_on=goes_on))


def _page(
    statement: Select[Any],
    table: Table,
    *,
    whole: bool = False,
    goes_on: bool = False,
    most: ColumnElement[Any] | None = None,
) -> Select[Any]:
    order = order_of(table)
    where = of_tenant(table) if whole else of_conversation(table)
    sorting = order
    if not whole and _has_rival(table):
        key: BindParameter[int] = bindparam("key", type_=table.c.conversation_id.type)
        where = [*of_tenant(table), table.c.conversation_id.between(key, key)]
        sorting = [table.c.conversation_id, *order]
    if goes_on:
        where.append(_after(order))
    return statement.where(*where).order_by(*sorting).limit(bindparam("limit") if most is None else most)


def _has_rival(table: Table) -> bool:
    """Whether another index than the primary key has all columns, or the order of the rows, but not the conversation.

    Bounds of the conversation, and an order that begins with it, leave only the primary key.
    """
    names, first = {column.name for column in table.columns}, order_of(table)[0].name
    indexes = [index.columns.keys() for index in table.indexes]
    return any(names <= set(index) or index[1:2] == [first] for index in indexes)


def _after(order: Sequence[Any]) -> ColumnElement[bool]:
    """The condition for keys behind the last one; the first column bounds it, for an index."""
    last = [bindparam(AFTER + column.name, type_=column.type) for column in order]
    steps = [
        and_(*(order[at] == last[at] for at in range(number)), order[number] > last[number])
        for number in range(len(order))
    ]
    return and_(order[0] >= last[0], or_(*steps))
