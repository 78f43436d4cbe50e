"""Statements of lists of conversations: pages in any order, how far users have read, and the newest messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, bindparam, func, select

from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.queries.conversations import (
    ACTIVE,
    ARCHIVED,
    CONVERSATION_COLUMNS,
    itself,
    of_tenant,
    with_label,
)
from threadkeep.db.tables import branches, conversation_reads, conversations, items
from threadkeep.db.types import MYSQL, BigText

ACTIVITY, CREATED, TITLE = "activity", "created", "title"
TITLE_LENGTH: Final = 60  # characters that titles are ordered by
JSON_LENGTH: Final = 10_240  # characters of an item's JSON text that are read for a preview
NEWEST: Final = 3  # messages of a conversation that are read for it

# What of a conversation's row is sorted by
_KEYS: Final = {
    ACTIVITY: conversations.c.last_activity_at,
    CREATED: conversations.c.created_at,
    TITLE: func.lower(
        func.substr(func.coalesce(conversations.c.title, sa.literal_column("''")), 1, TITLE_LENGTH), type_=BigText
    ),
}
_READ: Final = conversation_reads.c["position", "seen_at"]
SUMMARY_READER: Final = RowReader((*CONVERSATION_COLUMNS, *_READ))


class ListQuery(NamedTuple):
    """What kind of list it is, apart from values."""

    order_by: str = ACTIVITY
    is_descending: bool = True
    user: bool = False
    statuses: bool = True
    labels: int = 0
    after: bool = False
    reads: bool = False  # with how far has been read: by the parameter `reader` or, with `own`, the conversation's user
    own: bool = False
    unread: bool = False  # only conversations to which something was appended since


@cache
def conversation_page(query: ListQuery) -> Statement:
    """A page of conversations: their columns, with `reads` the position and time of reading, and what is sorted by.

    Parameters: tenant, limit; user; status; key_0, value_0 …; reader; after_key, after_id. The condition for a page is
    written so that all three databases start in the middle of an index, where there is one.
    """
    table, key = conversations.c, _KEYS[query.order_by]
    where = of_tenant(conversations, **({"user_id": "user"} if query.user else {}))
    if query.statuses:
        where.append(table.status == bindparam("status"))
    else:
        where.append(sa.or_(table.status == ACTIVE, table.status == ARCHIVED))
    where += [
        table.id.in_(with_label(bindparam("tenant"), bindparam(f"key_{number}"), bindparam(f"value_{number}")))
        for number in range(query.labels)
    ]
    if query.after:
        where.append(_is_behind(key, is_descending=query.is_descending))
    columns = [*CONVERSATION_COLUMNS, *(_READ if query.reads else ())]
    source: Any = conversations
    if query.reads:
        reader = table.user_id if query.own else bindparam("reader", type_=conversation_reads.c.user_id.type)
        source = conversations.outerjoin(conversation_reads, _is_read_by(reader))
    if query.unread:
        where.append(table.next_position - 1 > func.coalesce(conversation_reads.c.position, -1))
    order = [column.desc() if query.is_descending else column.asc() for column in (key, table.id)]
    statement = select(*columns, key.label("sorted_by")).select_from(source).where(*where).order_by(*order)
    return Statement(statement.limit(bindparam("limit")))


def _is_behind(key: ColumnElement[Any], *, is_descending: bool) -> ColumnElement[bool]:
    last: Any = bindparam("after_key", type_=key.type)
    last_id: Any = bindparam("after_id", type_=sa.BigInteger)
    number = conversations.c.id
    if is_descending:
        return sa.and_(key <= last, sa.or_(key < last, number < last_id))
    return sa.and_(key >= last, sa.or_(key > last, number > last_id))


def _is_read_by(reader: Any) -> ColumnElement[bool]:
    table, reads = conversations.c, conversation_reads.c
    of_it = [reads.tenant_id == table.tenant_id, reads.conversation_id == table.id]
    return sa.and_(*of_it, reads.user_id == reader)


@cache
def seen_by(dialect: str, *, scoped: bool) -> Select[Any]:
    """How many positions a conversation has, and how far the parameter `reader` has read it, as is committed now."""
    reader = bindparam("reader", type_=conversation_reads.c.user_id.type)
    joined = conversations.outerjoin(conversation_reads, _is_read_by(reader))
    found = select(conversations.c.next_position, *_READ).select_from(joined).where(*itself(scoped=scoped))
    return found.with_for_update(read=True) if dialect in MYSQL else found


def branches_at(tenant: int, places: Sequence[tuple[int, int]]) -> Select[Any]:
    """Forked branches, by conversation and number."""
    table = branches.c
    return select(branches).where(table.tenant_id == tenant, sa.tuple_(table.conversation_id, table.number).in_(places))


def newest_messages(tenant: int, ranges: Sequence[tuple[int, int, int, int]]) -> Select[Any]:
    """The newest messages of users and models in ranges (conversation, branch, after, up to) of positions.

    Each is the beginning of its JSON text. The tenant is in the ranges only, else SQLite reads all of its items.
    """
    table = items.c
    json = func.substr(func.coalesce(table.payload, table.rest), 1, JSON_LENGTH)
    within = [
        sa.and_(
            table.tenant_id == tenant, table.conversation_id == key, table.branch == branch, table.position > after,
            table.position <= upto,
        )
        for key, branch, after, upto in ranges
    ]  # fmt: skip
    place: Any = func.row_number().over(partition_by=table.conversation_id, order_by=table.position.desc())
    said = table.role.in_(("user", "assistant"))
    found = (
        select(table.conversation_id, table.position, json.label("json"), place.label("place"))
        .where(table.type == "message", said, sa.or_(*within))
        .subquery("found")
    )
    newest = select(found.c.conversation_id, found.c.json).where(found.c.place <= NEWEST)
    return newest.order_by(found.c.conversation_id, found.c.position.desc())
