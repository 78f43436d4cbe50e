"""Statements that keep the index of the search: every database has its own kind."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, bindparam, func, select

from threadkeep.db.base import SEARCH_INDEX as INDEX
from threadkeep.db.queries.conversations import DELETED, of_conversation, of_tenant
from threadkeep.db.tables import conversations, items, search_documents
from threadkeep.db.types import escaped
from threadkeep.domain.searching import JSON_LIMIT, TITLE_POSITION, Vocabulary, respelled, words_of

WORD_LIMIT: Final = 64  # characters of a word, for indexes that take no longer ones
_PLACES: Final = 100  # conversations that a search waits for
# SQLite's index is a table of its own. It stores no text, so a deletion has to state the words to remove.
CREATE_INDEX: Final = sa.text(
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {INDEX} "
    "USING fts5(words, scope, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')"
)
DROP_INDEX: Final = sa.text(f"DROP TABLE IF EXISTS {INDEX}")
# For an index that is too damaged to be opened: without its entry, the tables of FTS5 are plain tables.
FORGET_INDEX: Final = [
    sa.text("PRAGMA writable_schema=ON"),
    sa.text(f"DELETE FROM sqlite_master WHERE type = 'table' AND name = '{INDEX}'"),  # noqa: S608 - a constant
    sa.text("PRAGMA writable_schema=RESET"),
    *(sa.text(f"DROP TABLE IF EXISTS {INDEX}_{part}") for part in ("data", "idx", "config")),
]
HAS_INDEX: Final = sa.text(f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{INDEX}'")  # noqa: S608 - a constant
# What a document is found in, as words of their own: the tenant, the conversation, the type, and the user, who may
# become another one, so that the document keeps whose it was. The search has conditions on all of them, too.
_SCOPE: Final = (
    "'t' || tenant_id || ' c' || conversation_id || CASE type WHEN 'message' THEN '' ELSE ' y' || hex(type) END"
    " || coalesce(' ' || scope, '')"
)
_INDEXED: Final = f"id, coalesce(words, text), {_SCOPE} FROM {search_documents.name}"
_IDS: Final[sa.BindParameter[Any]] = bindparam("ids", expanding=True)
_BY_ID: Final = "WHERE tenant_id = :tenant AND id IN :ids"
INDEX_DOCUMENTS: Final = sa.text(f"INSERT INTO {INDEX} (rowid, words, scope) SELECT {_INDEXED} {_BY_ID}").bindparams(
    _IDS
)
UNINDEX_DOCUMENTS: Final = sa.text(
    f"INSERT INTO {INDEX} ({INDEX}, rowid, words, scope) SELECT 'delete', {_INDEXED} {_BY_ID}"
).bindparams(_IDS)
MERGE_INDEX: Final = sa.text(f"INSERT INTO {INDEX} ({INDEX}) VALUES ('optimize')")  # noqa: S608 - a constant
# How many documents of a conversation are not found by its word
NOT_INDEXED: Final = sa.text(
    f"SELECT count(*) FROM {search_documents.name} WHERE tenant_id = :tenant AND conversation_id = :key "  # noqa: S608 - constants
    f"AND id NOT IN (SELECT rowid FROM {INDEX} WHERE {INDEX} MATCH 'scope : c' || :key)"
)
INDEX_ALL: Final = sa.text(f"INSERT INTO {INDEX} (rowid, words, scope) SELECT {_INDEXED}")


# PostgreSQL: how often words are in the documents, and how many conversations users have
UPDATE_STATISTICS: Final = sa.text(f"ANALYZE (SKIP_LOCKED) {search_documents.name}, {conversations.name}")


def unindexing(where: Sequence[ColumnElement[bool]]) -> sa.Insert:
    """Removes documents that meet some conditions from SQLite's index."""
    documents = search_documents.c
    words = func.coalesce(documents.words, documents.text)
    scope: ColumnElement[str] = sa.literal_column(_SCOPE)
    index = sa.table(INDEX, *(sa.column(name) for name in (INDEX, "rowid", "words", "scope")))
    return sa.insert(index).from_select(
        [INDEX, "rowid", "words", "scope"],
        select(sa.literal_column("'delete'"), documents.id, words, scope).where(*where),
    )


def user_token(tenant: int, user: str) -> str:
    """The word of a user in the scope of documents."""
    return "u" + blake2b(f"{tenant} {escaped(user)}".encode(), digest_size=8).hexdigest()


def type_token(type_: str) -> str | None:
    """The word of a type; messages, which nearly all are, have none."""
    return None if type_ == "message" else f"y{escaped(type_).encode().hex()}"


def indexed_words(dialect: str, source: str, vocabulary: Vocabulary | None = None) -> str | None:
    """The words of a text as the column `words` of that database takes them; `vocabulary` is for many texts."""
    if dialect == "sqlite":
        return respelled(source, vocabulary)
    words = words_of(source, vocabulary)
    if dialect == "postgresql":  # in the notation of TSVECTOR, each with its position
        return " ".join(f"{word[:WORD_LIMIT]}:{number}" for number, word in enumerate(words, 1))
    return " ".join(map(mysql_word, words))


class _Known(dict[int, str]):
    """Letters and digits for MySQL's parser: those that are newer than Unicode 3.2 are replaced by their codes."""

    def __missing__(self, code: int) -> str:
        is_known = unicodedata.ucd_3_2_0.category(chr(code))[0] in "LN"
        self[code] = text = chr(code) if is_known and code <= _BASIC else f"z{code:05x}"
        return text


_BASIC: Final = 0xFFFF
_KNOWN: Final = _Known()


def mysql_letters(word: str) -> str:
    """A word in letters that MySQL knows."""
    return (word if word.isascii() else word.translate(_KNOWN))[:WORD_LIMIT]


def mysql_word(word: str) -> str:
    """A word padded so that MySQL neither takes it for a stop word nor finds it too short (MyISAM: four letters)."""
    return mysql_letters(word).ljust(3, "_") + "_"


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
def any_unindexed() -> Select[Any]:
    """One such conversation, without a lock."""
    return select(conversations.c.id).where(*_is_unindexed()).limit(1)


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
def unindexed_items(*, current: bool) -> Select[Any]:
    """Items of some conversations that are not indexed, with the beginning of their JSON texts.

    `lowest` is the first such position of any: without it, PostgreSQL reads a long conversation from its beginning.
    `current` reads what is committed now, also where the transaction sees an earlier state (MySQL under a host's
    REPEATABLE READ): the conversations are read like that, because they are locked.
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
    return statement.with_for_update(read=True) if current else statement


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
def indexed_conversations() -> Select[Any]:
    """Conversations of a tenant of which something is indexed, by their keys."""
    talks = conversations.c
    is_indexed = sa.or_(talks.search_from.is_(None), talks.search_from > 0)
    where = [*of_tenant(conversations), talks.id > bindparam("after"), talks.status != DELETED, is_indexed]
    return select(talks.id).where(*where).order_by(talks.id).limit(bindparam("limit"))


@cache
def newest_document() -> Select[Any]:
    """The highest key of a document of a tenant."""
    return select(func.max(search_documents.c.id)).where(*of_tenant(search_documents))


@cache
def documents_up_to() -> Select[Any]:
    """Documents of a tenant, by their keys."""
    key = search_documents.c.id
    where = [*of_tenant(search_documents), key > bindparam("after"), key <= bindparam("newest")]
    return select(key).where(*where).order_by(key).limit(bindparam("limit"))


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
