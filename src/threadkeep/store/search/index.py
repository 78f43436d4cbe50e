"""The search index: making documents of what is new, and removing them.

Appends write no documents, which could fail them, but only note in the row of their conversation where the index goes
on (`search_from`). Many items are indexed in one transaction, by the store that appended them and before every search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, delete
from sqlalchemy.exc import SQLAlchemyError

from threadkeep.db import models
from threadkeep.db.backends import backend_of
from threadkeep.db.driver.inserting import insert_many
from threadkeep.db.queries import search as queries
from threadkeep.db.search import LOG, log_broken_index, reason_of, search_of
from threadkeep.domain.ids import new_key
from threadkeep.domain.searching import TITLE, TITLE_POSITION, Vocabulary, bounded, text_in
from threadkeep.store.work import pacing, refs
from threadkeep.store.work.transactions import Transactions

BATCH_SIZE: Final = 500  # items or documents in one transaction
CONVERSATIONS: Final = 100  # in one transaction

# The word of the user under which documents are found, by conversation
Scopes = Mapping[int, str | None]


def log_index_failure(error: Exception) -> None:
    """Log why new items are not indexed; nothing else is wrong."""
    LOG.warning("The search index was not updated: %s", reason_of(error))


def index_new(transactions: Transactions, tenant: int, batches: int | None = None) -> int:
    """Index what is new, all of it or so many batches; returns how many documents were made."""
    count, upkeep = 0, pacing.Upkeep(transactions)
    for _ in repeat(None) if batches is None else range(batches):
        documents = transactions.write(lambda connection: index_batch(connection, tenant), is_repeatable=True)
        if documents is None:
            break
        count += documents
        upkeep.add(documents)
    return count


def index_batch(connection: Connection, tenant: int) -> int | None:
    """Make documents of items and titles that are not indexed yet; returns how many, None: everything is indexed."""
    parameters: dict[str, Any] = {"tenant": tenant, "limit": CONVERSATIONS}
    conversations = {row.id: row for row in connection.execute(queries.unindexed_conversations(), parameters)}
    if not conversations:
        return None
    keys = sorted(conversations)
    lowest = min(row.search_from for row in conversations.values())
    parameters = {"tenant": tenant, "keys": keys, "lowest": lowest, "limit": BATCH_SIZE}
    items = connection.execute(queries.unindexed_items(), parameters).all()
    is_cut = len(items) == BATCH_SIZE  # the last conversation may have more, those behind it were not reached
    if is_cut:
        keys = [key for key in keys if key <= items[-1].conversation_id]
    last = (keys[-1], items[-1].position) if is_cut else (0, 0)
    parameters = {"tenant": tenant, "keys": keys, "last": last[0], "highest": last[1]}
    rows = connection.execute(queries.existing_documents(), parameters)
    existing = {(row.conversation_id, row.position): row for row in rows}
    documents = [_document_of(item) for item in items if (item.conversation_id, item.position) not in existing]
    documents += _update_titles(connection, tenant, [conversations[key] for key in keys], existing)
    documents = [document for document in documents if document["text"]]
    scope_of = search_of(connection).scope
    scopes = {key: scope_of(tenant, row.user_id) for key, row in conversations.items()}
    # Give documents to the users that their conversations have now
    moved: dict[str | None, list[int]] = {}
    for row in existing.values():
        if row.scope != (scope := scopes[row.conversation_id]):
            moved.setdefault(scope, []).append(row.id)
    index = search_of(connection)
    for scope, ids in moved.items():
        index.remove(connection, tenant, ids)
        connection.execute(queries.rescoping(), {"tenant": tenant, "ids": ids, "user_scope": scope})
        index.add(connection, tenant, ids)
    _insert_documents(connection, tenant, documents, scopes)
    _mark_indexed(connection, tenant, keys[:-1] if is_cut else keys, None)
    if is_cut:
        _mark_indexed(connection, tenant, keys[-1:], items[-1].position + 1)
    return len(documents)


def _mark_indexed(connection: Connection, tenant: int, keys: Sequence[int], next_position: int | None) -> None:
    """Note that conversations are indexed up to a position (None: to their ends)."""
    if keys:
        connection.execute(queries.index_progress(), {"tenant": tenant, "keys": keys, "next": next_position})


def _document_of(item: Row[Any]) -> dict[str, Any]:
    values = dict(zip(item._fields, item, strict=True))
    json = values.pop("json")
    try:
        text = text_in(item.type, json.decode() if isinstance(json, bytes) else json)
    except Exception as error:  # noqa: BLE001 - a damaged row is not found, and stops nothing
        key = item.conversation_id, item.position
        LOG.warning("The row of threadkeep_items with conversation_id %s, position %s is not indexed: %r", *key, error)
        text = ""
    return {**values, "text": text}


def _update_titles(
    connection: Connection, tenant: int, conversations: Sequence[Row[Any]], existing: dict[tuple[int, int], Row[Any]]
) -> list[dict[str, Any]]:
    """The documents of titles that are new; documents of former titles are removed."""
    documents, outdated = [], []
    for row in conversations:
        document = existing.get((row.id, TITLE_POSITION))
        text = bounded(row.title or "")
        if document is not None and document.title == text:
            continue
        if document is not None:
            outdated.append(document.id)
            del existing[row.id, TITLE_POSITION]
        documents.append(
            {
                "conversation_id": row.id, "position": TITLE_POSITION, "branch": 0, "type": TITLE, "role": None,
                "created_at": row.created_at, "text": text,
            }
        )  # fmt: skip
    _delete_documents(connection, tenant, outdated)
    return documents


def _insert_documents(connection: Connection, tenant: int, documents: Sequence[dict[str, Any]], scopes: Scopes) -> None:
    if not documents:
        return
    index, vocabulary = search_of(connection), Vocabulary()
    rows = [
        {
            **document, "tenant_id": tenant, "id": new_key(),
            "words": index.words(document["text"], vocabulary),
            "scope": scopes[document["conversation_id"]],
        }
        for document in documents
    ]  # fmt: skip
    insert_many(connection, models.search_documents, rows)
    index.add(connection, tenant, [row["id"] for row in rows])


def forget_batch(connection: Connection, tenant: int, key: int, limit: int = BATCH_SIZE) -> int:
    """Remove documents of a conversation; returns how many."""
    parameters = {"tenant": tenant, "key": key, "limit": limit}
    ids = list(connection.execute(queries.documents_of(conversation=True), parameters).scalars())
    return _delete_documents(connection, tenant, ids)


def _delete_documents(connection: Connection, tenant: int, ids: Sequence[int]) -> int:
    """Remove documents, also when the index is broken: then it only has to be rebuilt; returns how many there were."""
    if not ids:
        return 0
    _try(search_of(connection).remove, connection, tenant, ids)
    return connection.execute(queries.documents_removal(), {"tenant": tenant, "ids": list(ids)}).rowcount


def forget_documents(connection: Connection, ref: refs.ConversationRef, *where: ColumnElement[bool]) -> int:
    """Remove the documents of a conversation that meet some conditions; returns how many."""
    _try(search_of(connection).remove_where, connection, where, ref.parameters())
    return connection.execute(delete(models.search_documents).where(*where), ref.parameters()).rowcount


def merge_index(connection: Connection) -> None:
    """Rewrite the index, where it is a table, so that nothing is left in it of documents that were removed."""
    _try(search_of(connection).merge, connection)


def _try(change: Callable[..., None], *args: Any) -> None:
    """Change the index; where that is broken, it only has to be rebuilt."""
    try:
        change(*args)
    except SQLAlchemyError as error:
        log_broken_index(error)


def catch_up(transactions: Transactions, tenant: int) -> None:
    """Index a batch; an index that cannot be updated is logged, for what was written is.

    In a new database, PostgreSQL would read all of a tenant again and again until it has counted the rows.
    """

    def work(connection: Connection) -> None:
        backend_of(connection).analyze_grown(connection)
        index_batch(connection, tenant)

    try:
        transactions.write(work, is_repeatable=True)
    except Exception as error:  # noqa: BLE001 - whatever it is
        log_index_failure(error)
