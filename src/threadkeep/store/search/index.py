"""The search index: making documents of what is new, and removing them.

Appends write no documents, which could fail them, but only note in the row of their conversation where the index goes
on (`search_from`). Many items are indexed in one transaction, by the store that appended them and before every search.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Executable, Row, delete
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from threadkeep.db.dialects import is_mysql
from threadkeep.db.driver import insert_many
from threadkeep.db.fts_levels import lower_levels
from threadkeep.db.queries import search as queries
from threadkeep.db.tables import search_documents
from threadkeep.domain import redaction
from threadkeep.domain.ids import new_key
from threadkeep.domain.searching import TITLE, TITLE_POSITION, Vocabulary, bounded, text_in
from threadkeep.errors import SchemaError
from threadkeep.store.refs import ConversationRef
from threadkeep.store.transactions import Transactions
from threadkeep.store.upkeep import Upkeep

LOG: Final = logging.getLogger("threadkeep.search")
BATCH_SIZE: Final = 500  # items or documents in one transaction
CONVERSATIONS: Final = 100  # in one transaction

REBUILD_HINT: Final = "Rebuild it with store.reindex(rebuild=True) or `threadkeep reindex --rebuild`."

# The word of the user under which documents are found, by conversation
Scopes = Mapping[int, str | None]


def reason_of(error: Exception) -> str:
    """Return the message of a driver, without the statement, its values, and passwords."""
    return str(redaction.redact(str(getattr(error, "orig", None) or error)))


def log_index_failure(error: Exception) -> None:
    """Log why new items are not indexed; nothing else is wrong."""
    LOG.warning("The search index was not updated: %s", reason_of(error))


def log_broken_index(error: Exception) -> None:
    """Log why documents that were removed are still in the index, and what to do."""
    LOG.warning("The search index does not forget documents: %s. %s", reason_of(error), REBUILD_HINT)


def update_statistics(connection: Connection) -> None:
    """Tell PostgreSQL, which plans by them, without waiting for its autovacuum."""
    if connection.dialect.name == "postgresql":
        connection.execute(queries.UPDATE_STATISTICS)


def index_new(transactions: Transactions, tenant: int, batches: int | None = None) -> int:
    """Index what is new, all of it or so many batches; returns how many documents were made."""
    count, upkeep = 0, Upkeep(transactions)
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
    items = connection.execute(queries.unindexed_items(current=is_mysql(connection.dialect)), parameters).all()
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
    scopes = {key: scope_of(connection, tenant, row.user_id) for key, row in conversations.items()}
    _rescope(connection, tenant, existing.values(), scopes)
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
    """The documents of titles that are new; those of former titles are removed."""
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


def scope_of(connection: Connection, tenant: int, user: str | None) -> str | None:
    """The word of a user in documents on SQLite, whose index has it; others start at the conversations."""
    return queries.user_token(tenant, user) if user is not None and connection.dialect.name == "sqlite" else None


def _rescope(connection: Connection, tenant: int, existing: Iterable[Row[Any]], scopes: Scopes) -> None:
    """Give documents to the users that their conversations have now."""
    moved: dict[str | None, list[int]] = {}
    for row in existing:
        if row.scope != (scope := scopes[row.conversation_id]):
            moved.setdefault(scope, []).append(row.id)
    for scope, ids in moved.items():
        parameters = {"tenant": tenant, "ids": ids}
        connection.execute(queries.UNINDEX_DOCUMENTS, parameters)
        connection.execute(queries.rescoping(), {**parameters, "user_scope": scope})
        connection.execute(queries.INDEX_DOCUMENTS, parameters)


def _insert_documents(connection: Connection, tenant: int, documents: Sequence[dict[str, Any]], scopes: Scopes) -> None:
    if not documents:
        return
    dialect, vocabulary = connection.dialect.name, Vocabulary()
    rows = [
        {
            **document, "tenant_id": tenant, "id": new_key(),
            "words": queries.indexed_words(dialect, document["text"], vocabulary),
            "scope": scopes[document["conversation_id"]],
        }
        for document in documents
    ]  # fmt: skip
    insert_many(connection, search_documents, rows)
    if dialect == "sqlite":
        connection.execute(queries.INDEX_DOCUMENTS, {"tenant": tenant, "ids": [row["id"] for row in rows]})


def forget_batch(connection: Connection, tenant: int, key: int, limit: int = BATCH_SIZE) -> int:
    """Remove documents of a conversation; returns how many."""
    parameters = {"tenant": tenant, "key": key, "limit": limit}
    ids = list(connection.execute(queries.documents_of(conversation=True), parameters).scalars())
    return _delete_documents(connection, tenant, ids)


def _delete_documents(connection: Connection, tenant: int, ids: Sequence[int]) -> int:
    """Remove documents, also when the index is broken: then it only has to be rebuilt; returns how many there were."""
    if not ids:
        return 0
    parameters = {"tenant": tenant, "ids": list(ids)}
    if connection.dialect.name == "sqlite":
        _unindex(connection, queries.UNINDEX_DOCUMENTS, parameters)
    return connection.execute(queries.documents_removal(), parameters).rowcount


def forget_documents(connection: Connection, ref: ConversationRef, *where: ColumnElement[bool]) -> int:
    """Remove the documents of a conversation that meet some conditions; returns how many."""
    if connection.dialect.name == "sqlite":
        _unindex(connection, queries.unindexing(where), ref.parameters())
    return connection.execute(delete(search_documents).where(*where), ref.parameters()).rowcount


def merge_index(connection: Connection) -> None:
    """Rewrite SQLite's index, so that nothing is left in it of documents that were removed."""
    if connection.dialect.name == "sqlite" and _unindex(connection, queries.MERGE_INDEX, {}):
        lower_levels(connection.connection.driver_connection)


def _unindex(connection: Connection, statement: Executable, parameters: Mapping[str, Any]) -> bool:
    """Run a statement on SQLite's index; where that is broken, it only has to be rebuilt: False."""
    try:
        connection.execute(statement, parameters)
    except SQLAlchemyError as error:
        log_broken_index(error)
        return False
    return True


def remake_index(connection: Connection) -> None:
    """Make SQLite's index, which all tenants share, again of the documents that there are."""
    if connection.dialect.name == "sqlite":
        _drop_index(connection)
        make_index(connection)


def _drop_index(connection: Connection) -> None:
    try:
        connection.execute(queries.DROP_INDEX)
    except SQLAlchemyError:
        for statement in queries.FORGET_INDEX:
            connection.execute(statement)


def make_index(connection: Connection) -> None:
    """Make sure that SQLite's index exists, if it can; on other databases it is an index of the table."""
    if connection.dialect.name == "sqlite" and connection.execute(queries.HAS_INDEX).first() is None:
        try:
            connection.execute(queries.CREATE_INDEX)
        except OperationalError as error:
            if "no such module" not in reason_of(error):
                raise
            raise SchemaError("This Python's SQLite is built without FTS5, which the search needs.") from error
        connection.execute(queries.INDEX_ALL)
