"""Statements on conversations, their options, tools, labels and branches."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    update,
)

from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.tables import branches, configs, conversation_labels, conversations, tool_definitions, tool_sets

ACTIVE: Final = "active"
ARCHIVED: Final = "archived"
DELETED: Final = "deleted"

# What a handle reads of its conversation.
CONVERSATION_COLUMNS: Final = (
    conversations.c.id,
    conversations.c.public_id,
    conversations.c.external_id,
    conversations.c.user_id,
    conversations.c.title,
    conversations.c.labels,
    conversations.c.status,
    conversations.c.config_hash,
    conversations.c.tool_set_hash,
    conversations.c.active_branch,
    conversations.c.next_position,
    conversations.c.next_response,
    conversations.c.next_branch,
    conversations.c.head_position,
    conversations.c.revision,
    conversations.c.created_at,
    conversations.c.last_activity_at,
)

# What an append needs to know of it after the reservation.
COUNTER_COLUMNS: Final = (
    conversations.c.next_position,
    conversations.c.next_response,
    conversations.c.next_branch,
    conversations.c.revision,
    conversations.c.user_id,
    conversations.c.config_hash,
    conversations.c.tool_set_hash,
)

# The first position that the search index lacks, also for a new title.
_SEARCH_FROM: Final = func.coalesce(conversations.c.search_from, conversations.c.next_position)

CONVERSATION_READER: Final = RowReader(CONVERSATION_COLUMNS)
COUNTER_READER: Final = RowReader(COUNTER_COLUMNS)


@cache
def conversation_by(column: str, *, scoped: bool, locked: bool = False) -> Statement:
    """One conversation by `id`, `public_id` or `external_id`; parameters: tenant, value and (scoped) user.

    `locked`: it is neither changed nor hidden before the end of the transaction.
    """
    value = bindparam("value", type_=conversations.c[column].type)
    where = [conversations.c.tenant_id == bindparam("tenant"), conversations.c[column] == value]
    statement = select(*CONVERSATION_COLUMNS).where(*where, *visible(scoped=scoped))
    return Statement(statement.with_for_update(read=True) if locked else statement)


@cache
def owner_of() -> Select[Any]:
    """The user of a conversation, even of a deleted one."""
    table = conversations.c
    return select(table.user_id).where(table.tenant_id == bindparam("tenant"), table.id == bindparam("key"))


@cache
def reservation(
    *, root: bool, scoped: bool, expected: bool, returning: bool, free: bool = False, streams: bool = False
) -> Statement:
    """The UPDATE that starts every append, response and fork: it reserves numbers and locks the conversation.

    Parameters: tenant, key, items, responses, branches, now; user where scoped, head where expected. `root` moves the
    head of branch 0; it is assigned first, because MySQL shows later assignments the new values of earlier ones.
    `free` does not match a conversation with a response in progress; `streams` adds the parameter of that name to their
    number.
    """
    table = conversations
    where = [table.c.tenant_id == bindparam("tenant"), table.c.id == bindparam("key"), *visible(scoped=scoped)]
    if expected:
        where.append(table.c.head_position == bindparam("head"))
    if free:
        where.append(table.c.streams.is_(None))
    values: list[tuple[Any, Any]] = [
        (table.c.next_position, table.c.next_position + bindparam("items")),
        (table.c.next_response, table.c.next_response + bindparam("responses")),
        (table.c.next_branch, table.c.next_branch + bindparam("branches")),
        (table.c.last_activity_at, bindparam("now", type_=table.c.last_activity_at.type)),
    ]
    if streams:
        zero: ColumnElement[int] = literal_column("0", Integer)
        count = func.coalesce(table.c.streams, zero) + bindparam("streams")
        values.append((table.c.streams, func.nullif(count, zero)))
    values.insert(0, (table.c.search_from, _SEARCH_FROM))
    if root:
        values.insert(0, (table.c.head_position, table.c.next_position + bindparam("items") - 1))
    statement = update(table).where(*where).ordered_values(*values)
    return Statement(statement.returning(*COUNTER_COLUMNS) if returning else statement)


@cache
def conversation_update(*columns: str, scoped: bool, returning: bool) -> Statement:
    """An UPDATE that is not an append: sets the columns, and the revision grows."""
    table = conversations
    where = [table.c.tenant_id == bindparam("tenant"), table.c.id == bindparam("key"), *visible(scoped=scoped)]
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
    if "title" in columns:
        values["search_from"] = _SEARCH_FROM
    statement = update(table).where(*where).values(revision=table.c.revision + 1, **values)
    return Statement(statement.returning(*CONVERSATION_COLUMNS) if returning else statement)


@cache
def counters_of(*, scoped: bool) -> Statement:
    """What the reservation returns, for databases without RETURNING."""
    where = [conversations.c.tenant_id == bindparam("tenant"), conversations.c.id == bindparam("key")]
    return Statement(select(*COUNTER_COLUMNS).where(*where, *visible(scoped=scoped)))


@cache
def conversation_page(*, user: bool, statuses: bool, labels: int, after: bool) -> Statement:
    """A page of conversations, newest activity first.

    Parameters: tenant, limit; user; status; key_0, value_0 …; after_at, after_id. The condition for a page is written
    so that all three databases start in the middle of the index.
    """
    table = conversations
    where = [table.c.tenant_id == bindparam("tenant")]
    if user:
        where.append(table.c.user_id == bindparam("user"))
    where.append(
        table.c.status == bindparam("status") if statuses else or_(table.c.status == ACTIVE, table.c.status == ARCHIVED)
    )
    where += [
        table.c.id.in_(with_label(bindparam("tenant"), bindparam(f"key_{number}"), bindparam(f"value_{number}")))
        for number in range(labels)
    ]
    if after:
        at, key = table.c.last_activity_at, table.c.id
        where.append(and_(at <= bindparam("after_at"), or_(at < bindparam("after_at"), key < bindparam("after_id"))))
    order = (table.c.last_activity_at.desc(), table.c.id.desc())
    return Statement(select(*CONVERSATION_COLUMNS).where(*where).order_by(*order).limit(bindparam("limit")))


@cache
def config_of() -> Select[Any]:
    """The options of a hash."""
    return select(configs.c.config).where(
        configs.c.tenant_id == bindparam("tenant"), configs.c.hash == bindparam("hash")
    )


@cache
def configs_of() -> Select[Any]:
    """The options of several hashes."""
    return select(configs.c.hash, configs.c.config).where(
        configs.c.tenant_id == bindparam("tenant"), configs.c.hash.in_(bindparam("hashes", expanding=True))
    )


@cache
def tool_set_of() -> Select[Any]:
    """The definitions of a tool set."""
    return select(tool_sets.c.definitions).where(
        tool_sets.c.tenant_id == bindparam("tenant"), tool_sets.c.hash == bindparam("hash")
    )


@cache
def tool_definitions_of() -> Select[Any]:
    """The tools of several hashes."""
    return select(tool_definitions.c.hash, tool_definitions.c.definition).where(
        tool_definitions.c.tenant_id == bindparam("tenant"),
        tool_definitions.c.hash.in_(bindparam("hashes", expanding=True)),
    )


@cache
def locked_definitions() -> Select[Any]:
    """The hashes that exist, locked so that their rows stay until the end of the transaction."""
    table = tool_definitions.c
    where = [table.tenant_id == bindparam("tenant"), table.hash.in_(bindparam("hashes", expanding=True))]
    return select(table.hash).where(*where).order_by(table.hash).with_for_update(read=True, key_share=True)


@cache
def branch_of() -> Select[Any]:
    """A forked branch by its number."""
    return select(branches).where(
        branches.c.tenant_id == bindparam("tenant"),
        branches.c.conversation_id == bindparam("key"),
        branches.c.number == bindparam("number"),
    )


@cache
def branches_of() -> Select[Any]:
    """A page of forked branches."""
    return (
        select(branches)
        .where(
            branches.c.tenant_id == bindparam("tenant"),
            branches.c.conversation_id == bindparam("key"),
            branches.c.number > bindparam("after"),
        )
        .order_by(branches.c.number)
        .limit(bindparam("limit"))
    )


@cache
def branch_head(*, expected: bool) -> Statement:
    """Move the head of a forked branch to `last` when `count` items were added; where expected, only from `head`."""
    where = [
        branches.c.tenant_id == bindparam("tenant"),
        branches.c.conversation_id == bindparam("key"),
        branches.c.number == bindparam("branch"),
    ]
    if expected:
        where.append(branches.c.head_position == bindparam("head"))
    moved = case(
        (bindparam("count", type_=Integer) > 0, bindparam("last", type_=BigInteger)), else_=branches.c.head_position
    )
    return Statement(update(branches).where(*where).values(head_position=moved))


def with_label(tenant: Any, key: Any, value: Any) -> Select[Any]:
    """The conversations with one label."""
    label = conversation_labels.c
    return select(label.conversation_id).where(label.tenant_id == tenant, label.key == key, label.value == value)


def visible(*, scoped: bool) -> list[ColumnElement[bool]]:
    """Conditions that hide deleted conversations, and from a scoped store those of other users."""
    where = [conversations.c.status != DELETED]
    if scoped:
        where.append(conversations.c.user_id == bindparam("user"))
    return where
