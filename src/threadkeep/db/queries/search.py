"""Statements on the documents of the search, and on what has none yet; what finds these is in `db.search`."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, bindparam, func, select

from threadkeep.db.driver import Statement
from threadkeep.db.functions import as_committed
from threadkeep.db.models import conversations, items, search_documents
from threadkeep.db.queries.conversations import DELETED, of_conversation, of_tenant
from threadkeep.domain.searching import JSON_LIMIT, TITLE_POSITION

_PLACES: Final = 100  # conversations that a search waits for


def _belongs_to_conversation(table: sa.Table) -> ColumnElement[bool]:
    """The condition of a join."""
    return sa.and_(table.c.tenant_id == conversations.c.tenant_id, table.c.conversation_id == conversations.c.id)


@cache
def unindexed_conversations() -> Select[Any]:
    """Conversations that are not indexed to their ends, locked; those that others have locked are skipped."""
    talks = conversations.c
    columns = talks["id", "title", "user_id", "created_at", "search_from"]
    found = select(*columns).where(*_is_unindexed())
    return found.order_by(talks.search_from, talks.id).limit(bindparam("limit")).with_for_update(skip_locked=True)


@cache
def any_unindexed() -> Statement:
    """One such conversation, without a lock."""
    return Statement(select(conversations.c.id).where(*_is_unindexed()).limit(1))


@cache
def unindexed_places(*, of_user: bool, of_conversation: bool) -> Select[Any]:
    """Up to where conversations of a tenant, a user, or one conversation are indexed, unless to their ends; no lock."""
    talks, where = conversations.c, _is_unindexed()
    where += [talks.user_id == bindparam("user")] if of_user else []
    where += [talks.public_id == bindparam("conversation")] if of_conversation else []
    return select(talks.id, talks.search_from).where(*where).order_by(talks.search_from, talks.id).limit(_PLACES)


def _is_unindexed() -> list[ColumnElement[bool]]:
    return [*of_tenant(conversations), conversations.c.search_from >= 0, conversations.c.status != DELETED]


def _among_keys() -> list[ColumnElement[bool]]:
    return [*of_tenant(conversations), conversations.c.id.in_(bindparam("keys", expanding=True))]


@cache
def unindexed_items() -> Select[Any]:
    """Items of some conversations that are not indexed, with the beginning of their JSON texts.

    `lowest` is the first such position of any: without it, PostgreSQL reads a long conversation from its beginning.
    They are read as committed, like the conversations, which are locked.
    """
    talks, rows = conversations.c, items.c
    joined = conversations.join(items, _belongs_to_conversation(items))
    json = func.substr(func.coalesce(rows.payload, rows.rest), 1, JSON_LIMIT).label("json")
    statement = (
        select(rows.conversation_id, rows.position, rows.branch, rows.type, rows.role, rows.created_at, json)
        .select_from(joined)
        .where(*_among_keys(), rows.position >= talks.search_from, rows.position >= bindparam("lowest"))
        .where(rows.branch >= 0)
        .order_by(talks.id, rows.position)
        .limit(bindparam("limit"))
    )
    return as_committed(statement)


@cache
def existing_documents() -> Select[Any]:
    """Documents of some conversations: titles, and items that are not marked as indexed (mostly none).

    Of the conversation `last`, those up to the position `highest`.
    """
    talks, documents = conversations.c, search_documents.c
    joined = conversations.join(search_documents, _belongs_to_conversation(search_documents))
    is_title = documents.position == TITLE_POSITION
    is_near = sa.or_(documents.conversation_id != bindparam("last"), documents.position <= bindparam("highest"))
    is_new = sa.or_(is_title, sa.and_(documents.position >= talks.search_from, is_near))
    title = sa.case((is_title, documents.text)).label("title")
    columns = documents["conversation_id", "position", "id", "scope"]
    return select(*columns, title).select_from(joined).where(*_among_keys(), is_new)


@cache
def rescoping() -> sa.Update:
    """Note another user in documents."""
    is_moved = search_documents.c.id.in_(bindparam("ids", expanding=True))
    where = [*of_tenant(search_documents), is_moved]
    return (
        sa.update(search_documents)
        .where(*where)
        .values(scope=bindparam("user_scope", type_=search_documents.c.scope.type))
    )


@cache
def index_progress() -> sa.Update:
    """Mark how far some conversations are indexed; NULL: to their ends."""
    return sa.update(conversations).where(*_among_keys()).values(search_from=bindparam("next", type_=sa.BigInteger))


@cache
def newest_document() -> Select[Any]:
    """The highest key of a document of a tenant."""
    return select(func.max(search_documents.c.id)).where(*of_tenant(search_documents))


@cache
def conversations_of_documents() -> Select[Any]:
    """The conversations that some documents belong to."""
    documents = search_documents.c
    where = [*of_tenant(search_documents), documents.id.in_(bindparam("ids", expanding=True))]
    return select(documents.conversation_id).where(*where).distinct()


@cache
def documents_of(*, conversation: bool) -> Select[Any]:
    """Some documents of a tenant, or of one of its conversations."""
    where = (of_conversation if conversation else of_tenant)(search_documents)
    return select(search_documents.c.id).where(*where).limit(bindparam("limit"))


@cache
def documents_removal() -> sa.Delete:
    """Remove documents by their ids."""
    is_removed = search_documents.c.id.in_(bindparam("ids", expanding=True))
    return sa.delete(search_documents).where(*of_tenant(search_documents), is_removed)
