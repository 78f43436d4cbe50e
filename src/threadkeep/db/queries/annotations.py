"""Statements on application data of conversations and items."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, Table, bindparam, select

from threadkeep.db import driver, functions
from threadkeep.db.models import conversation_states, conversations, item_feedback, item_labels, items
from threadkeep.db.queries.conversations import itself, of_conversation, of_tenant, visible
from threadkeep.db.queries.items import STORED_COLUMNS

_FEEDBACK: Final = item_feedback.c["position", "user_id", "rating", "comment", "updated_at"]
_STATE: Final = conversation_states.c["name", "value", "version", "updated_at"]


@cache
def conversation_lock(*, scoped: bool) -> driver.Statement:
    """Makes the other writers of a conversation wait, and changes nothing; no row where it is not visible."""
    revision = conversations.c.revision
    return driver.Statement(sa.update(conversations).where(*itself(scoped=scoped)).values(revision=revision))


@cache
def states_of(*, scoped: bool, named: bool = False, is_later: bool = False) -> Select[Any]:
    """At most `limit` states of a conversation, by name; one row of NULLs without any, none if it is not visible.

    Only the one called `name`, or those after `after`; deleted states are left out.
    """
    table = conversation_states.c
    of_it = [table.tenant_id == conversations.c.tenant_id, table.conversation_id == conversations.c.id]
    if named:
        of_it.append(table.name == bindparam("name"))
    if is_later:
        of_it.append(table.name > bindparam("after"))
    joined = conversations.outerjoin(conversation_states, sa.and_(*of_it, table.value.is_not(None)))
    found = select(*_STATE).select_from(joined).where(*itself(scoped=scoped))
    return found.order_by(table.name).limit(bindparam("limit"))


@cache
def states_called() -> Select[Any]:
    """The states called `name` of some conversations; deleted ones are left out."""
    table = conversation_states.c
    in_conversations = table.conversation_id.in_(bindparam("keys", expanding=True))
    of_them = [*of_tenant(conversation_states), in_conversations, table.name == bindparam("name")]
    return select(table.conversation_id, *_STATE).where(*of_them, table.value.is_not(None))


@cache
def state_versions_of() -> Select[Any]:
    """The versions of a locked conversation's states, deleted ones too; on MySQL as they are committed now."""
    table = conversation_states.c
    columns = table.name, table.version, table.value.is_not(None).label("exists"), table.updated_at
    found = select(*columns).where(*of_conversation(conversation_states))
    return functions.as_committed(found)


@cache
def state_removal() -> sa.Delete:
    """Removes the rows of deleted states."""
    name = conversation_states.c.name.in_(bindparam("names", expanding=True))
    return sa.delete(conversation_states).where(*of_conversation(conversation_states), name)


@cache
def labels_at() -> Select[Any]:
    """The labels of items: those at some positions of some conversations."""
    table = item_labels.c
    columns = table.conversation_id, table.position, table.key, table.value
    return select(*columns).where(*_at(item_labels)).order_by(table.conversation_id, table.position, table.key)


@cache
def feedback_at(*, scoped: bool) -> Select[Any]:
    """The feedback on such items; `scoped`: of the parameter `user` alone."""
    table = item_feedback.c
    columns = table.conversation_id, *_FEEDBACK
    found = select(*columns).where(*_at(item_feedback), *_given_by(scoped=scoped))
    return found.order_by(table.conversation_id, table.position, table.user_id)


@cache
def feedback_of(*, scoped: bool) -> Select[Any]:
    """The feedback on all items of a conversation, after the branch of each item."""
    table = item_feedback.c
    joined = item_feedback.join(items, _of_item(item_feedback))
    found = select(items.c.branch, *_FEEDBACK).select_from(joined)
    found = found.where(*of_conversation(item_feedback), *_given_by(scoped=scoped))
    return found.order_by(table.position, table.user_id)


@cache
def annotation_removal(table: Table, *, given_by: bool = False) -> sa.Delete:
    """Removes the labels or the feedback of an item; `given_by`: only what `giver` gave."""
    where = of_conversation(table, position="position", **({"user_id": "giver"} if given_by else {}))
    return sa.delete(table).where(*where)


@lru_cache(maxsize=256)
def annotated_items(*, labels: int, rating: bool, owner: bool, scoped: bool, after: bool) -> driver.Statement:
    """A page of items with labels or a rating, newest conversations first.

    Its columns are a StoredItem's, and the key and public id of the conversation. Parameters: tenant, limit; key_0,
    value_0 …; rating; owner; user; after_key, after_position. It starts from the first label, or else from the rating,
    whose index has the order of the page.
    """
    first = item_labels if labels else item_feedback
    table = first.c
    of_it = (conversations.c.tenant_id == table.tenant_id) & (conversations.c.id == table.conversation_id)
    joined = first.join(items, _of_item(first)).join(conversations, of_it)
    where = [*of_tenant(first), *visible(scoped=scoped), items.c.branch >= 0]
    if labels:
        where += [table.key == bindparam("key_0"), table.value == bindparam("value_0")]
        where += [_has_label(first, number) for number in range(1, labels)]
    if rating:
        given = item_feedback.c
        value: Any = bindparam("rating")
        rated = [given.rating == value, *_given_by(scoped=scoped)]
        if labels:
            rated = [select(given.rating).where(*_same_item(first, item_feedback), *rated).exists()]
        elif not scoped:  # an item once to which several users gave the same rating
            other = item_feedback.alias()
            is_earlier = [other.c.rating == value, other.c.user_id < given.user_id]
            rated.append(~select(other.c.rating).where(*_same_item(item_feedback, other), *is_earlier).exists())
        where += rated
    if owner:
        where.append(conversations.c.user_id == bindparam("owner"))
    if after:
        key, position = table.conversation_id, table.position
        where += [
            key <= bindparam("after_key"),
            sa.or_(key < bindparam("after_key"), position < bindparam("after_position")),
        ]
    chosen = select(*STORED_COLUMNS, conversations.c.id, conversations.c.public_id)
    chosen = chosen.select_from(joined).where(*where).order_by(table.conversation_id.desc(), table.position.desc())
    return driver.Statement(chosen.limit(bindparam("limit")), text_as_bytes=True)


def _of_item(table: Table) -> ColumnElement[bool]:
    """The condition that an item is the one of a row."""
    names = ("tenant_id", "conversation_id", "position")
    return sa.and_(*(items.c[name] == table.c[name] for name in names))


def _same_item(table: Table, other: Any) -> list[ColumnElement[bool]]:
    return [other.c[name] == table.c[name] for name in ("tenant_id", "conversation_id", "position")]


def _has_label(first: Table, number: int) -> ColumnElement[bool]:
    other = item_labels.alias()
    is_it = [other.c.key == bindparam(f"key_{number}"), other.c.value == bindparam(f"value_{number}")]
    return select(other.c.key).where(*_same_item(first, other), *is_it).exists()


def _given_by(*, scoped: bool) -> list[ColumnElement[bool]]:
    return [item_feedback.c.user_id == bindparam("user")] if scoped else []


def _at(table: Table) -> list[ColumnElement[bool]]:
    in_conversations = table.c.conversation_id.in_(bindparam("keys", expanding=True))
    return [*of_tenant(table), in_conversations, table.c.position.in_(bindparam("positions", expanding=True))]
