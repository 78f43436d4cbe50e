"""Indexing everything that is new, or everything again, in small transactions.

To index everything again, all conversations are marked as not indexed, and the documents that there were are removed.
If that is interrupted, searches find less until the marked conversations are indexed, which each search goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection, and_, or_
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError

from threadkeep.db.models import conversations, search_documents
from threadkeep.db.queries import search as queries
from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.search import search_of
from threadkeep.store.removing.batches import Batches
from threadkeep.store.removing.rules import Rows
from threadkeep.store.search.index import index_new
from threadkeep.store.work import refs
from threadkeep.store.work.caches import StoreResources
from threadkeep.store.work.pacing import Done, Pace
from threadkeep.store.work.transactions import Transactions


def reindex(transactions: Transactions, scope: refs.Scope, resources: StoreResources, *, rebuild: bool) -> int:
    """Index everything that is new, or with `rebuild` everything; returns how many documents were made."""
    scope.check_all_users("The search index covers all users", "reindex()")
    transactions.write(lambda connection: search_of(connection).make(connection), is_repeatable=True)
    if rebuild:
        _clear(transactions, Batches(transactions, scope.tenant, resources), scope.tenant)
    count = index_new(transactions, scope.tenant)
    if transactions.commits_itself:  # a host's transaction would keep others from it until it ends
        transactions.write(lambda connection: search_of(connection).update_statistics(connection), is_repeatable=True)
    return count


def _clear(transactions: Transactions, batches: Batches, tenant: int) -> None:
    """Mark conversations as not indexed, and remove the documents that existed at the start; newer ones may stay."""
    key, talks = search_documents.c.id, conversations.c
    newest = transactions.read(
        lambda connection: connection.execute(queries.newest_document(), {"tenant": tenant}).scalar()
    )
    is_indexed = or_(talks.search_from.is_(None), talks.search_from > 0)
    indexed = Rows(conversations, and_(talks.status != DELETED, is_indexed), is_indexed=False)
    batches.change_behind(indexed.find, _forget, "conversations")
    if newest is not None:
        documents = Rows(search_documents, key <= newest, is_indexed=False)
        try:
            batches.change_behind(documents.find, _remove, "documents")
        except DatabaseError as error:
            if isinstance(error, OperationalError):  # a lock, and the like
                raise
            # Newer releases of FTS5 find at the COMMIT that the index is broken.
            batches.change_behind(documents.find, partial(_remove, from_index=False), "documents")
    transactions.write(lambda connection: search_of(connection).remake(connection), is_repeatable=True)


def _forget(connection: Connection, tenant: int, pace: Pace, keys: Sequence[int]) -> Done:

    def mark(some: Sequence[int]) -> int:
        return connection.execute(queries.index_progress(), {"tenant": tenant, "keys": some, "next": 0}).rowcount

    return pace.change(keys, mark)


def _remove(connection: Connection, tenant: int, pace: Pace, keys: Sequence[int], *, from_index: bool = True) -> Done:
    """Remove documents; another process may have taken their conversations for indexed.

    Also from an index of its own, where that can be read: nothing stays in it if the rebuild does not get to its end.
    """

    def remove(some: Sequence[int]) -> int:
        which = {"tenant": tenant, "ids": some}
        keys = sorted(connection.execute(queries.conversations_of_documents(), which).scalars())
        connection.execute(queries.index_progress(), {"tenant": tenant, "keys": keys, "next": 0})
        if from_index:
            with suppress(SQLAlchemyError):  # it is broken
                search_of(connection).remove(connection, tenant, some)
        return connection.execute(queries.documents_removal(), which).rowcount

    return pace.change(keys, remove)
