"""Statements of lists of conversations: pages in any order, how far users have read, and the newest messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, bindparam, func, select

from threadkeep.db import functions, models, types
from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.queries import conversations
from threadkeep.domain.searching import PROGRAM

ACTIVITY, CREATED, TITLE = "activity", "created", "title"
TITLE_LENGTH: Final = 60  # characters that titles are ordered by
JSON_LENGTH: Final = 10_240  # characters of an item's JSON text that are read for a preview
NEWEST: Final = 3  # messages of a conversation that are read for it
# Conversations with a label that are sorted for a page; where more have it, it is looked up for one after the other
MAX_LABELLED: Final = 1_000
# The newest calls in the ledger whose conversations are listed, where calls are asked for
MAX_CALLS: Final = 1_000

# What of a conversation's row is sorted by
_KEYS: Final = {
    ACTIVITY: models.conversations.c.last_activity_at,
    CREATED: models.conversations.c.created_at,
    TITLE: func.lower(
        func.substr(func.coalesce(models.conversations.c.title, sa.literal_column("''")), 1, TITLE_LENGTH),
        type_=types.BigText,
    ),
}
_READ: Final = models.conversation_reads.c["position", "seen_at"]
SUMMARY_READER: Final = RowReader((*conversations.CONVERSATION_COLUMNS, *_READ))


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
    start: int | None = None  # the number of the label whose conversations are sorted; None: in order, from an index
    since: bool = False  # last active at or after this
    until: bool = False  # last active before this
    calls: tuple[str, ...] = ()  # what is asked of calls in the ledger: some of "model", "status" and "day"


@lru_cache(maxsize=256)
def conversation_page(query: ListQuery) -> Statement:
    """A page of conversations: their columns, with `reads` the position and time of reading, and what is sorted by.

    Parameters: tenant, limit; user; status; key_0, value_0 …; reader; after_key, after_id; since, until; called_model,
    called_status, called_from and called_to. Planners are left no choice:
    they would join labels and marks of everybody before they sort.
    """
    if query.statuses or query.start is not None or query.calls:
        page = _ordered(_found(query), query, models.conversations.c.id)
    else:  # no index has two statuses in order, but each of them
        parts = [
            _ordered(_found(query, status), query, models.conversations.c.id)
            for status in (conversations.ACTIVE, conversations.ARCHIVED)
        ]
        both = sa.union_all(*(select(part.subquery(f"part_{number}")) for number, part in enumerate(parts)))
        found = both.subquery("found")
        page = _ordered(select(found), query, found.c.id, found.c.sorted_by)
    if not query.reads:
        return Statement(page)
    # With how far its conversations have been read, which is looked up for each of them
    rows = page.subquery("page")
    columns = [rows.c[column.name] for column in conversations.CONVERSATION_COLUMNS]
    is_read = _is_read_by(rows, _reader(rows, query))
    columns += [select(column).where(*is_read).scalar_subquery().label(column.name) for column in _READ]
    return Statement(_ordered(select(*columns, rows.c.sorted_by), query, rows.c.id, rows.c.sorted_by))


def _found(query: ListQuery, status: str | None = None) -> Select[Any]:
    """The conversations of a list with a status, by default the parameter's, in no order."""
    table, key = models.conversations.c, _KEYS[query.order_by]
    where = conversations.of_tenant(models.conversations, **({"user_id": "user"} if query.user else {}))
    if query.statuses or status is not None:
        where.append(table.status == (bindparam("status") if status is None else status))
    else:
        where.append(sa.or_(table.status == conversations.ACTIVE, table.status == conversations.ARCHIVED))
    where += [_has_label(number) for number in range(query.labels) if number != query.start]
    if query.after:
        where.append(_is_behind(key, is_descending=query.is_descending))
    if query.unread:
        reads = models.conversation_reads.c
        position = select(reads.position).where(
            *_is_read_by(models.conversations, _reader(models.conversations, query))
        )
        where.append(conversations.tested(table.next_position - 1 > func.coalesce(position.scalar_subquery(), -1)))
    # Conditions for the time of the last activity
    column = models.conversations.c.last_activity_at
    since: Any = bindparam("since", type_=column.type)
    until: Any = bindparam("until", type_=column.type)
    where += [*([column >= since] if query.since else []), *([column < until] if query.until else [])]
    statement = select(*conversations.CONVERSATION_COLUMNS, key.label("sorted_by")).where(*where)
    if query.calls:
        called = _called(query).subquery("called")
        return statement.select_from(called.join(models.conversations, table.id == called.c.conversation_id))
    if query.start is None:
        return statement
    # with a limit it is not merged into the rest, and looked at first
    started = _labelled(query.start).limit(MAX_LABELLED).subquery("started")
    return statement.select_from(started.join(models.conversations, table.id == started.c.conversation_id))


def _called(query: ListQuery) -> Select[Any]:
    """The conversations of the newest calls that are asked for."""
    table = models.usage_records.c
    where = conversations.of_tenant(
        models.usage_records, **{name: f"called_{name}" for name in query.calls if name != "day"}
    )
    if "day" in query.calls:
        first: Any = bindparam("called_from", type_=table.day.type)
        where += [table.day >= first, table.day <= bindparam("called_to", type_=table.day.type)]
    if query.user:
        where.append(table.user_id == bindparam("user"))
    newest = select(table.conversation_id).where(*where).order_by(table.day.desc()).limit(MAX_CALLS).subquery("newest")
    return select(newest.c.conversation_id).distinct()


def _labelled(number: int) -> Select[Any]:
    return conversations.with_label(bindparam("tenant"), bindparam(f"key_{number}"), bindparam(f"value_{number}"))


def _has_label(number: int) -> ColumnElement[bool]:
    """The label of a number, looked up for each conversation."""
    label = models.conversation_labels.c
    of_it = [label.tenant_id == models.conversations.c.tenant_id, label.conversation_id == models.conversations.c.id]
    found = select(label.value).where(*of_it, label.key == bindparam(f"key_{number}"))
    return conversations.tested(found.scalar_subquery() == bindparam(f"value_{number}", type_=label.value.type))


def _ordered(statement: Select[Any], query: ListQuery, id: Any, key: Any = None) -> Select[Any]:
    """As many as the page has."""
    keys = (_KEYS[query.order_by] if key is None else key, id)
    return statement.order_by(*(column.desc() if query.is_descending else column for column in keys)).limit(
        bindparam("limit")
    )


@lru_cache(maxsize=256)
def label_counts(query: ListQuery) -> Statement:
    """How many conversations have each label of a list, and last how many its user has; MAX_LABELLED at most.

    Parameters as for the page; without a user the last number is MAX_LABELLED.
    """
    counts: list[Any] = [_count(_labelled(number)) for number in range(query.labels)]
    of_user = select(models.conversations.c.id).where(*conversations.of_tenant(models.conversations, user_id="user"))
    counts.append(_count(of_user) if query.user else sa.literal_column(str(MAX_LABELLED)))
    return Statement(select(*counts))


def _count(found: Select[Any]) -> ColumnElement[int]:
    rows = found.limit(MAX_LABELLED).subquery()
    return select(func.count()).select_from(rows).scalar_subquery()


def _is_behind(key: ColumnElement[Any], *, is_descending: bool) -> ColumnElement[bool]:
    last: Any = bindparam("after_key", type_=key.type)
    last_id: Any = bindparam("after_id", type_=sa.BigInteger)
    number = models.conversations.c.id
    if is_descending:
        return sa.and_(key <= last, sa.or_(key < last, number < last_id))
    return sa.and_(key >= last, sa.or_(key > last, number > last_id))


def _reader(source: Any, query: ListQuery) -> Any:
    return source.c.user_id if query.own else bindparam("reader", type_=models.conversation_reads.c.user_id.type)


def _is_read_by(source: Any, reader: Any) -> list[ColumnElement[bool]]:
    table, reads = source.c, models.conversation_reads.c
    return [reads.tenant_id == bindparam("tenant"), reads.conversation_id == table.id, reads.user_id == reader]


@cache
def seen_by(*, scoped: bool) -> Select[Any]:
    """How many positions a conversation has, and how far the parameter `reader` has read it, as is committed now."""
    reader = bindparam("reader", type_=models.conversation_reads.c.user_id.type)
    joined = models.conversations.outerjoin(
        models.conversation_reads, sa.and_(*_is_read_by(models.conversations, reader))
    )
    found = (
        select(models.conversations.c.next_position, *_READ)
        .select_from(joined)
        .where(*conversations.itself(scoped=scoped))
    )
    return functions.as_committed(found)


def branches_at(tenant: int, places: Sequence[tuple[int, int]]) -> Select[Any]:
    """Forked branches, by conversation and number."""
    table = models.branches.c
    return select(models.branches).where(
        table.tenant_id == tenant, sa.tuple_(table.conversation_id, table.number).in_(places)
    )


def newest_messages(tenant: int, ranges: Sequence[tuple[int, int, int, int]]) -> Select[Any]:
    """The newest messages of users and models, but of no program, in ranges (conversation, branch, after, up to).

    Each is the beginning of its JSON text. The tenant is in the ranges only, else SQLite reads all of its items.
    """
    table = models.items.c
    json = func.substr(func.coalesce(table.payload, table.rest), 1, JSON_LENGTH)
    within = [
        sa.and_(
            table.tenant_id == tenant, table.conversation_id == key, table.branch == branch, table.position > after,
            table.position <= upto,
        )
        for key, branch, after, upto in ranges
    ]  # fmt: skip
    place: Any = func.row_number().over(partition_by=table.conversation_id, order_by=table.position.desc())
    by_program = func.coalesce(table.author_id, "").startswith(PROGRAM, autoescape=True)
    said = sa.and_(table.role.in_(("user", "assistant")), sa.not_(by_program))
    found = (
        select(table.conversation_id, table.position, json.label("json"), place.label("place"))
        .where(table.type == "message", said, sa.or_(*within))
        .subquery("found")
    )
    newest = select(found.c.conversation_id, found.c.json).where(found.c.place <= NEWEST)
    return newest.order_by(found.c.conversation_id, found.c.position.desc())
