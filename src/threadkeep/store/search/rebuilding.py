"""Indexing everything that is new, or everything again, in small transactions.

To index everything again, all conversations are marked as not indexed, and the documents that there were are removed.
If that is interrupted, searches find less until the marked conversations are indexed, which each search goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError

from threadkeep.db.queries import search as queries
from threadkeep.store.batches import Batches
from threadkeep.store.handle import StoreResources
from threadkeep.store.pacing import Done, Pace
from threadkeep.store.refs import Scope
from threadkeep.store.search.index import index_new, make_index, remake_index, update_statistics
from threadkeep.store.transactions import Transactions

_FIRST: Final = -1  # is before all keys


def reindex(transactions: Transactions, scope: Scope, resources: StoreResources, *, rebuild: bool) -> int:
    """Index everything that is new, or with `rebuild` everything; returns how many documents were made."""
    scope.check_all_users("The search index is that of all users", "reindex()")
    transactions.write(make_index, is_repeatable=True)
    if rebuild:
        _clear(transactions, Batches(transactions, scope.tenant, resources), scope.tenant)
    count = index_new(transactions, scope.tenant)
    if transactions.commits_itself:  # a host's transaction would keep others from it until it ends
        transactions.write(update_statistics, is_repeatable=True)
    return count


def _clear(transactions: Transactions, batches: Batches, tenant: int) -> None:
    newest = transactions.read(lambda connection: _newest_document(connection, tenant))
    batches.change_behind(_find_indexed, _forget, "conversations", after=_FIRST)
    if newest is not None:
        documents = partial(_find_documents, newest=newest)
        try:
            batches.change_behind(documents, _remove, "documents", after=_FIRST)
        except DatabaseError as error:
            if isinstance(error, OperationalError):  # a lock, and the like
                raise
            # Newer releases of FTS5 find at the COMMIT that the index is broken.
            batches.change_behind(documents, partial(_remove, from_index=False), "documents", after=_FIRST)
    transactions.write(remake_index, is_repeatable=True)


def _newest_document(connection: Connection, tenant: int) -> int | None:
    newest: int | None = connection.execute(queries.newest_document(), {"tenant": tenant}).scalar()
    return newest


def _find_indexed(connection: Connection, tenant: int, limit: int, after: int) -> Sequence[int]:
    """Find conversations of which something is indexed."""
    parameters = {"tenant": tenant, "after": after, "limit": limit}
    return connection.execute(queries.indexed_conversations(), parameters).scalars().all()


def _forget(connection: Connection, tenant: int, pace: Pace, keys: Sequence[int]) -> Done:
    """Mark conversations as not indexed."""

    def mark(some: Sequence[int]) -> int:
        return connection.execute(queries.index_progress(), {"tenant": tenant, "keys": some, "next": 0}).rowcount

    return pace.change(keys, mark)


def _find_documents(connection: Connection, tenant: int, limit: int, after: int, newest: int) -> Sequence[int]:
    """Find documents that there were: those that others make meanwhile may stay."""
    parameters = {"tenant": tenant, "after": after, "newest": newest, "limit": limit}
    return connection.execute(queries.documents_up_to(), parameters).scalars().all()


def _remove(connection: Connection, tenant: int, pace: Pace, keys: Sequence[int], *, from_index: bool = True) -> Done:
    """Remove documents; somebody may have taken their conversations for indexed meanwhile.

    Also from SQLite's index, where that can be read: nothing stays in it if the rebuild does not get to its end.
    """

    def remove(some: Sequence[int]) -> int:
        which = {"tenant": tenant, "ids": some}
        keys = sorted(connection.execute(queries.conversations_of_documents(), which).scalars())
        connection.execute(queries.index_progress(), {"tenant": tenant, "keys": keys, "next": 0})
        if from_index and connection.dialect.name == "sqlite":
            with suppress(SQLAlchemyError):  # it is broken
                connection.execute(queries.UNINDEX_DOCUMENTS, which)
        return connection.execute(queries.documents_removal(), which).rowcount

    return pace.change(keys, remove)
