"""Statements on conversations, their options, tools, labels, branches and idempotency keys."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, Table, bindparam, select

from threadkeep.db import functions, models
from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.models import branches, configs, conversation_labels, conversations, tool_definitions, tool_sets

ACTIVE: Final = "active"
ARCHIVED: Final = "archived"
DELETED: Final = "deleted"

# What a handle reads of its conversation.
CONVERSATION_COLUMNS: Final = tuple(conversations.c[
    "id", "public_id", "external_id", "user_id", "title", "labels", "properties", "status", "config_hash",
    "tool_set_hash", "active_branch", "next_position", "next_response", "next_branch", "head_position", "lineage",
    "revision", "created_at", "last_activity_at",
])  # fmt: skip

# What an append needs to know of it after the reservation.
COUNTER_COLUMNS: Final = tuple(conversations.c[
    "next_position", "next_response", "next_branch", "revision", "user_id", "config_hash", "tool_set_hash",
])  # fmt: skip

# The first position that the search index lacks, also for a new title.
_SEARCH_FROM: Final = sa.func.coalesce(conversations.c.search_from, conversations.c.next_position)

CONVERSATION_READER: Final = RowReader(CONVERSATION_COLUMNS)
COUNTER_READER: Final = RowReader(COUNTER_COLUMNS)


def of_tenant(table: Table, **equal: str) -> list[ColumnElement[bool]]:
    """Conditions for rows of the parameter `tenant`, whose columns `equal` the parameters of these names."""
    return [table.c[column] == bindparam(name) for column, name in {"tenant_id": "tenant", **equal}.items()]


def of_conversation(table: Table, **equal: str) -> list[ColumnElement[bool]]:
    """The same for rows that belong to the conversation `key`."""
    return of_tenant(table, conversation_id="key", **equal)


def itself(*, scoped: bool) -> list[ColumnElement[bool]]:
    """Conditions for the conversation `key`, where it is visible."""
    return [*of_tenant(conversations, id="key"), *visible(scoped=scoped)]


@cache
def conversation_by(column: str, *, scoped: bool, locked: bool = False) -> Statement:
    """One conversation by `id`, `public_id` or `external_id`; parameters: tenant, value and (scoped) user.

    `locked`: it is neither changed nor hidden before the end of the transaction, nor read so by others. Two that share
    a lock, and then change the row, would wait for each other.
    """
    value = bindparam("value", type_=conversations.c[column].type)
    where = [*of_tenant(conversations), conversations.c[column] == value, *visible(scoped=scoped)]
    statement = select(*CONVERSATION_COLUMNS).where(*where)
    return Statement(statement.with_for_update(key_share=True) if locked else statement)


@cache
def owner_of() -> Select[Any]:
    """The user of a conversation, even of a deleted one."""
    return select(conversations.c.user_id).where(*of_tenant(conversations, id="key"))


@cache
def reservation(
    *,
    root: bool,
    scoped: bool,
    expected: bool,
    returning: bool,
    free: bool = False,
    streams: bool = False,
    dated: bool = False,
) -> Statement:
    """The statement of a `reservation_update`, which returns the counters where the database can do that."""
    update = reservation_update(root=root, scoped=scoped, expected=expected, free=free, streams=streams, dated=dated)
    return Statement(update.returning(*COUNTER_COLUMNS) if returning else update)


def reservation_update(
    *, root: bool, scoped: bool, expected: bool, free: bool = False, streams: bool = False, dated: bool = False
) -> sa.Update:
    """The UPDATE that starts every append, response and fork: it reserves numbers and locks the conversation.

    Parameters: tenant, key, items, responses, branches, now; user where scoped, head where expected. `root` moves the
    head of branch 0; it is assigned first, because MySQL shows later assignments the new values of earlier ones.
    `free` does not match a conversation with a response in progress; `streams` adds the parameter of that name to their
    number. `dated`: the last activity does not move back.
    """
    table, where = conversations.c, itself(scoped=scoped)
    if expected:
        where.append(table.head_position == bindparam("head"))
    if free:
        where.append(table.streams.is_(None))
    now: Any = bindparam("now", type_=table.last_activity_at.type)
    values: list[tuple[Any, Any]] = [
        (table.search_from, _SEARCH_FROM),
        (table.next_position, table.next_position + bindparam("items")),
        (table.next_response, table.next_response + bindparam("responses")),
        (table.next_branch, table.next_branch + bindparam("branches")),
        (
            table.last_activity_at,
            sa.case((table.last_activity_at > now, table.last_activity_at), else_=now) if dated else now,
        ),
    ]
    if root:
        values.insert(0, (table.head_position, table.next_position + bindparam("items") - 1))
    if streams:
        zero: ColumnElement[int] = sa.literal_column("0", sa.Integer)
        count = sa.func.coalesce(table.streams, zero) + bindparam("streams")
        values.append((table.streams, sa.func.nullif(count, zero)))
    return sa.update(conversations).where(*where).ordered_values(*values)


@cache
def conversation_update(*columns: str, scoped: bool, returning: bool) -> Statement:
    """An UPDATE that is not an append: sets the columns, and the revision grows."""
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
    if "title" in columns and "search_from" not in columns:
        values["search_from"] = _SEARCH_FROM
    values["revision"] = conversations.c.revision + 1
    statement = sa.update(conversations).where(*itself(scoped=scoped)).values(values)
    return Statement(statement.returning(*CONVERSATION_COLUMNS) if returning else statement)


@cache
def counters_of(*, scoped: bool) -> Statement:
    """What the reservation returns, for databases without RETURNING."""
    return Statement(select(*COUNTER_COLUMNS).where(*itself(scoped=scoped)))


@cache
def config_of() -> Select[Any]:
    """The options of a hash."""
    return select(configs.c.config).where(*of_tenant(configs, hash="hash"))


@cache
def configs_of() -> Select[Any]:
    """The options of several hashes."""
    return select(configs.c.hash, configs.c.config).where(*_of_hashes(configs))


@cache
def tool_set_of() -> Select[Any]:
    """The definitions of a tool set."""
    return select(tool_sets.c.definitions).where(*of_tenant(tool_sets, hash="hash"))


@cache
def tool_definitions_of() -> Select[Any]:
    """The tools of several hashes."""
    table = tool_definitions.c
    return select(table.hash, table.definition).where(*_of_hashes(tool_definitions))


@cache
def locked_definitions() -> Select[Any]:
    """The hashes that exist, locked so that their rows stay until the end of the transaction.

    Each with `unused_at`.
    """
    key = tool_definitions.c.hash
    found = select(key, tool_definitions.c.unused_at).where(*_of_hashes(tool_definitions))
    return found.order_by(key).with_for_update(read=True, key_share=True)


def _of_hashes(table: Table) -> list[ColumnElement[bool]]:
    return [*of_tenant(table), table.c.hash.in_(bindparam("hashes", expanding=True))]


@cache
def branch_of(*, latest: bool = False) -> Select[Any]:
    """A forked branch by its number; `latest`: see `as_committed`."""
    statement = select(branches).where(*of_conversation(branches, number="number"))
    return functions.as_committed(statement) if latest else statement


@cache
def branches_of() -> Select[Any]:
    """A page of forked branches."""
    found = select(branches).where(*of_conversation(branches), branches.c.number > bindparam("after"))
    return found.order_by(branches.c.number).limit(bindparam("limit"))


@cache
def unused_branch() -> Select[Any]:
    """The first branch that was forked off another one at a position and has no items, nor a response in progress."""
    found, running = branches.c, models.responses.c
    in_progress = sa.exists().where(*of_conversation(models.responses), running.open_branch == found.number)
    place = found.parent == bindparam("parent"), found.fork_position == bindparam("at")
    is_unused = found.head_position == found.fork_position, ~in_progress
    return select(found.number).where(*of_conversation(branches), *place, *is_unused).order_by(found.number).limit(1)


@cache
def branch_head(*, expected: bool) -> Statement:
    """Move the head of a forked branch to `last` when `count` items were added; where expected, only from `head`."""
    head = branches.c.head_position
    where = of_conversation(branches, number="branch", **({"head_position": "head"} if expected else {}))
    last = bindparam("last", type_=sa.BigInteger)
    moved = sa.case((bindparam("count", type_=sa.Integer) > 0, last), else_=head)
    return Statement(sa.update(branches).where(*where).values(head_position=moved))


@cache
def graft_end() -> Statement:
    """Sets where a conversation ends after a graft; its active branch and title stay where none is given."""
    row = conversations.c
    given = {name: bindparam(name, type_=row[name].type) for name in ("active_branch", "title")}
    kept = {name: sa.func.coalesce(value, row[name]) for name, value in given.items()}
    ends = {"head_position": bindparam("head"), "next_branch": bindparam("next_branch"), "revision": row.revision + 1}
    return Statement(sa.update(conversations).where(*of_tenant(conversations, id="key")).values({**ends, **kept}))


@cache
def append_of() -> Statement:
    """What was done under an idempotency key."""
    return Statement(select(models.appends.c.request_hash, models.appends.c.outcome).where(*_of_key()))


@cache
def new_outcome() -> sa.Update:
    """Replaces the outcome of a key, and the hash of what was written under it."""
    values: dict[str, Any] = {"outcome": bindparam("new_outcome"), "request_hash": bindparam("new_hash")}
    return sa.update(models.appends).where(*_of_key()).values(values)


def _of_key() -> list[ColumnElement[bool]]:
    return of_tenant(models.appends, conversation_id="conversation", key="name")


def with_label(tenant: Any, key: Any, value: Any) -> Select[Any]:
    """The conversations with one label."""
    label = conversation_labels.c
    return select(label.conversation_id).where(label.tenant_id == tenant, label.key == key, label.value == value)


def narrowed(labels: int, *, of_model: bool = False) -> list[ColumnElement[bool]]:
    """Conditions that each conversation is tested for: labels (key_0, value_0 …), and a call of the model `model`."""
    label, calls = conversation_labels.c, models.usage_records.c
    own = [label.tenant_id == conversations.c.tenant_id, label.conversation_id == conversations.c.id]
    pairs = [(label.key == bindparam(f"key_{number}"), f"value_{number}") for number in range(labels)]
    found = [
        select(label.key).where(*own, key, label.value == bindparam(value)).correlate(conversations).exists()
        for key, value in pairs
    ]
    if of_model:
        of_it = [calls.tenant_id == conversations.c.tenant_id, calls.conversation_id == conversations.c.id]
        called = select(calls.model).where(*of_it, calls.model == bindparam("model"))
        found.append(called.correlate(conversations).exists())
    return [*found]


def tested(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """A condition for which no index is used, and that PostgreSQL expects most rows to meet.

    If it expects few to meet one, it reads and sorts all of them.
    """
    return sa.case((condition, sa.literal_column("1")), else_=sa.literal_column("0")) != sa.literal_column("0")


def visible(*, scoped: bool) -> list[ColumnElement[bool]]:
    """Conditions that hide deleted conversations, and from a scoped store other users' conversations."""
    where = [conversations.c.status != DELETED]
    if scoped:
        where.append(conversations.c.user_id == bindparam("user"))
    return where
