"""The search: seeing what is new, answering questions, and forgetting.

Appends only note in the row of their conversation where the search goes on (`search_from`); they write no documents. So
nothing that is wrong with the search can fail an append, and many items are seen in one transaction: by the store that
appended them, every now and then, and before every question.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, delete, insert
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from threadkeep.db.dialects import is_mysql, is_transient, planned_for_values
from threadkeep.db.queries.search import (
    CREATE_INDEX,
    DROP_INDEX,
    FORGET_INDEX,
    HAS_INDEX,
    INDEX_ALL,
    INDEX_DOCUMENTS,
    SCORE_PARTS,
    UNINDEX_DOCUMENTS,
    Question,
    documents_gone,
    documents_of,
    documents_there,
    found_documents,
    indexed_words,
    is_unsearched,
    search_anew,
    searched,
    unsearched,
    unsearched_items,
)
from threadkeep.db.tables import search_documents
from threadkeep.domain.ids import new_key, public_id_text
from threadkeep.domain.searching import TITLE, TITLE_POSITION, bounded, text_in
from threadkeep.domain.snippets import snippet_of
from threadkeep.domain.stored import SearchResult
from threadkeep.errors import SchemaError
from threadkeep.store.place import Scope

LOG: Final = logging.getLogger("threadkeep.search")
BATCH: Final = 500  # items or documents in one transaction
CONVERSATIONS: Final = 100  # in one transaction

REINDEX: Final = "`threadkeep reindex --rebuild` or store.reindex(rebuild=True) makes it anew."


def reason_of(error: Exception) -> str:
    """What a driver says, without the statement and its values."""
    return str(getattr(error, "orig", None) or error)


def has_news(connection: Connection, tenant: int) -> bool:
    """Whether there is anything that the search has not seen."""
    return connection.execute(is_unsearched(), {"tenant": tenant}).first() is not None


class Seen(NamedTuple):
    """How many conversations were looked at (none: the search has seen everything), and documents made."""

    conversations: int
    documents: int


def see_batch(connection: Connection, tenant: int, limit: int = BATCH) -> Seen:
    """Make documents of items and titles that the search has not seen."""
    talks = {talk.id: talk for talk in connection.execute(unsearched(), {"tenant": tenant, "limit": CONVERSATIONS})}
    if not talks:
        return Seen(0, 0)
    keys = sorted(talks)
    parameters = {"tenant": tenant, "keys": keys}
    statement = unsearched_items(current=is_mysql(connection.dialect))
    lowest = min(talk.search_from for talk in talks.values())
    items = connection.execute(statement, {**parameters, "lowest": lowest, "limit": limit}).all()
    if len(items) == limit:  # the last one may have more, those behind it were not reached
        keys = [key for key in keys if key <= items[-1].conversation_id]
        parameters["keys"] = keys
    there = {
        (found.conversation_id, found.position): found for found in connection.execute(documents_there(), parameters)
    }
    documents = [_document(item, text_in(item.type, _text(item.json))) for item in items if _is_new(there, item)]
    documents += _titles(connection, tenant, [talks[key] for key in keys], there)
    documents = [document for document in documents if document["text"]]
    _add(connection, tenant, documents)
    rest = {items[-1].conversation_id: items[-1].position + 1} if len(items) == limit else {}
    whole = [key for key in keys if key not in rest]
    if whole:
        connection.execute(searched(), {"tenant": tenant, "keys": whole, "next": None})
    for key, position in rest.items():
        connection.execute(searched(), {"tenant": tenant, "keys": [key], "next": position})
    return Seen(len(keys), len(documents))


def _text(json: Any) -> str:
    return json.decode() if isinstance(json, bytes) else json


def _is_new(there: dict[tuple[int, int], Any], item: Row[Any]) -> bool:
    return (item.conversation_id, item.position) not in there


def _document(item: Row[Any], text: str) -> dict[str, Any]:
    return {
        "conversation_id": item.conversation_id,
        "position": item.position,
        "branch": item.branch,
        "type": item.type,
        "role": item.role,
        "created_at": item.created_at,
        "text": text,
    }


def _titles(
    connection: Connection, tenant: int, talks: Sequence[Row[Any]], there: dict[tuple[int, int], Any]
) -> list[dict[str, Any]]:
    """The documents of titles that are new; those of former titles are removed."""
    made, former = [], []
    for talk in talks:
        found = there.get((talk.id, TITLE_POSITION))
        text = bounded(talk.title or "")
        if found is not None and found.text == text:
            continue
        if found is not None:
            former.append(found.id)
        made.append(
            {
                "conversation_id": talk.id, "position": TITLE_POSITION, "branch": 0, "type": TITLE, "role": None,
                "created_at": talk.created_at, "text": text,
            }
        )  # fmt: skip
    _remove(connection, tenant, former)
    return made


def _add(connection: Connection, tenant: int, documents: Sequence[dict[str, Any]]) -> None:
    if not documents:
        return
    dialect = connection.dialect.name
    rows = [
        {**document, "tenant_id": tenant, "id": new_key(), "words": indexed_words(dialect, document["text"])}
        for document in documents
    ]
    connection.execute(insert(search_documents), rows)
    if dialect == "sqlite":
        connection.execute(INDEX_DOCUMENTS, {"tenant": tenant, "ids": [row["id"] for row in rows]})


def forget_batch(connection: Connection, tenant: int, key: int | None = None, limit: int = BATCH) -> int:
    """Remove documents of a conversation, or of all; returns how many."""
    parameters = {"tenant": tenant, "limit": limit} | ({} if key is None else {"key": key})
    ids = list(connection.execute(documents_of(conversation=key is not None), parameters).scalars())
    _remove(connection, tenant, ids)
    return len(ids)


def _remove(connection: Connection, tenant: int, ids: Sequence[int]) -> None:
    """Remove documents, also when the index is broken: then it only has to be made anew."""
    if not ids:
        return
    parameters = {"tenant": tenant, "ids": list(ids)}
    if connection.dialect.name == "sqlite":
        try:
            connection.execute(UNINDEX_DOCUMENTS, parameters)
        except SQLAlchemyError as error:
            LOG.warning("The search index does not forget documents: %s. %s", reason_of(error), REINDEX)
    connection.execute(documents_gone(), parameters)


def begin_anew(connection: Connection, tenant: int) -> None:
    """Forget everything of a tenant, to be seen again; SQLite's index, which all tenants share, is made anew."""
    connection.execute(search_anew(), {"tenant": tenant})  # first: it waits for whoever is seeing something
    connection.execute(delete(search_documents).where(search_documents.c.tenant_id == tenant))
    if connection.dialect.name == "sqlite":
        _drop_index(connection)
        make_index(connection)


def _drop_index(connection: Connection) -> None:
    try:
        connection.execute(DROP_INDEX)
    except SQLAlchemyError:
        for statement in FORGET_INDEX:
            connection.execute(statement)


def make_index(connection: Connection) -> None:
    """Make sure that SQLite's index is there; others are indexes of their table.

    Raises:
        SchemaError: this SQLite cannot make it.
    """
    if connection.dialect.name == "sqlite" and connection.execute(HAS_INDEX).first() is None:
        try:
            connection.execute(CREATE_INDEX)
        except OperationalError as error:
            if "no such module" not in reason_of(error):
                raise
            raise SchemaError("This Python's SQLite is built without FTS5, which the search needs.") from error
        connection.execute(INDEX_ALL)


class Found(NamedTuple):
    """What was found, and the key that the next page goes on behind."""

    result: SearchResult
    score: int
    key: int


def search(connection: Connection, scope: Scope, question: Question) -> list[Found]:
    """A page of what was found.

    Raises:
        SchemaError: the index is missing or broken.
    """
    statement = found_documents(connection.dialect.name, scope.tenant, scope.user, question)
    try:
        with planned_for_values(connection):
            rows = connection.execute(statement).all()
    except SQLAlchemyError as error:
        if isinstance(error, DBAPIError) and (error.connection_invalidated or is_transient(error)):
            raise  # it is asked again
        raise SchemaError(f"The search index cannot be asked: {reason_of(error)}. {REINDEX}") from error
    return [Found(_result(row, question), row.score, row.id) for row in rows]


def _result(row: Row[Any], question: Question) -> SearchResult:
    snippet, marks = snippet_of(row.text, question.terms)
    is_title = row.position == TITLE_POSITION
    return SearchResult(
        conversation_id=public_id_text(bytes(row.public_id)),
        position=None if is_title else row.position,
        branch=None if is_title else row.branch,
        type=row.type,
        role=row.role,
        title=row.title,
        user_id=row.user_id,
        snippet=snippet,
        marks=marks,
        score=row.score / SCORE_PARTS,
        created_at=row.created_at,
    )
