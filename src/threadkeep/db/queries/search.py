"""Statements of the search: every database has its own kind of index, and its own language for queries."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, bindparam, func, select
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import TSQUERY

from threadkeep.db.base import PREFIX
from threadkeep.db.queries.conversations import ACTIVE, DELETED, of_conversation, of_tenant, with_label
from threadkeep.db.tables import conversations, items, search_documents
from threadkeep.domain.searching import JSON_LIMIT, TITLE_POSITION, Term, respelled, words_of

WORD_LIMIT: Final = 64  # characters of a word, for indexes that take no longer ones
# Scores are whole numbers of these parts, so that equal ones stay equal on the next page
SCORE_PARTS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to search for, in which documents, and which page of the result."""

    terms: Sequence[Term]
    user: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    status: str | None = ACTIVE  # None: active and archived
    conversation: bytes | None = None  # its public id
    type: str | None = None
    role: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: tuple[int, int] | None = None  # score and id of the last document of the page before
    limit: int = 20


# SQLite's index is a table of its own. It stores no text, so a deletion has to state the words to remove.
INDEX: Final = f"{PREFIX}search_index"
CREATE_INDEX: Final = sa.text(
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {INDEX} "
    "USING fts5(words, content='', tokenize='unicode61 remove_diacritics 2')"
)
DROP_INDEX: Final = sa.text(f"DROP TABLE IF EXISTS {INDEX}")
# For an index that is too damaged to be opened: without its entry, the tables of FTS5 are plain tables.
FORGET_INDEX: Final = [
    sa.text("PRAGMA writable_schema=ON"),
    sa.text(f"DELETE FROM sqlite_master WHERE type = 'table' AND name = '{INDEX}'"),  # noqa: S608 - a constant
    sa.text("PRAGMA writable_schema=RESET"),
    *(sa.text(f"DROP TABLE IF EXISTS {INDEX}_{part}") for part in ("data", "idx", "docsize", "config")),
]
HAS_INDEX: Final = sa.text(f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{INDEX}'")  # noqa: S608 - a constant
_DOCUMENTS: Final = f"FROM {search_documents.name} WHERE tenant_id = :tenant AND id IN :ids"
_IDS: Final[sa.BindParameter[Any]] = bindparam("ids", expanding=True)
INDEX_DOCUMENTS: Final = sa.text(
    f"INSERT INTO {INDEX} (rowid, words) SELECT id, coalesce(words, text) {_DOCUMENTS}"
).bindparams(_IDS)
UNINDEX_DOCUMENTS: Final = sa.text(
    f"INSERT INTO {INDEX} ({INDEX}, rowid, words) SELECT 'delete', id, coalesce(words, text) {_DOCUMENTS}"
).bindparams(_IDS)
MERGE_INDEX: Final = sa.text(f"INSERT INTO {INDEX} ({INDEX}) VALUES ('optimize')")  # noqa: S608 - a constant
INDEX_ALL: Final = sa.text(
    f"INSERT INTO {INDEX} (rowid, words) SELECT id, coalesce(words, text) FROM {search_documents.name}"  # noqa: S608 - constants
)


def unindexing(where: Sequence[ColumnElement[bool]]) -> sa.Insert:
    """Removes documents that meet some conditions from SQLite's index."""
    documents = search_documents.c
    words = func.coalesce(documents.words, documents.text)
    index = sa.table(INDEX, sa.column(INDEX), sa.column("rowid", sa.BigInteger), sa.column("words"))
    return sa.insert(index).from_select(
        [INDEX, "rowid", "words"], select(sa.literal_column("'delete'"), documents.id, words).where(*where)
    )


def indexed_words(dialect: str, source: str) -> str | None:
    """The words of a text as the column `words` of that database takes them."""
    if dialect == "sqlite":
        return respelled(source)
    if dialect == "postgresql":  # in the notation of TSVECTOR, each with its position
        return " ".join(f"{word[:WORD_LIMIT]}:{number}" for number, word in enumerate(words_of(source), 1))
    return " ".join(map(_mysql_word, words_of(source)))


class _Known(dict[int, str]):
    """Letters and digits for MySQL's parser: those that are newer than Unicode 3.2 are replaced by their codes."""

    def __missing__(self, code: int) -> str:
        is_known = unicodedata.ucd_3_2_0.category(chr(code))[0] in "LN"
        self[code] = text = chr(code) if is_known and code <= _BASIC else f"z{code:05x}"
        return text


_BASIC: Final = 0xFFFF
_KNOWN: Final = _Known()


def _mysql_letters(word: str) -> str:
    return (word if word.isascii() else word.translate(_KNOWN))[:WORD_LIMIT]


def _mysql_word(word: str) -> str:
    """A word padded so that MySQL neither takes it for a stop word nor finds it too short (MyISAM: four letters)."""
    return _mysql_letters(word).ljust(3, "_") + "_"


def _fts5(terms: Sequence[Term]) -> str:
    """A query in the language of FTS5."""
    wanted, excluded = (
        [f'"{" ".join(term.words)}"' + (" *" if term.is_prefix else "") for term in some] for some in _parted(terms)
    )
    query = f"({' AND '.join(wanted)})"
    return f"{query} NOT ({' OR '.join(excluded)})" if excluded else query


def _tsquery(terms: Sequence[Term]) -> str:
    """A query in the notation of TSQUERY."""
    wanted, excluded = (
        [" <-> ".join(word[:WORD_LIMIT] for word in term.words) + (":*" if term.is_prefix else "") for term in some]
        for some in _parted(terms)
    )
    return " & ".join([*(f"({term})" for term in wanted), *(f"!({term})" for term in excluded)])


def _boolean(term: Term) -> str:
    """A term in boolean mode. MariaDB fails on brackets and on quotes around one word; phrases have whole words."""
    words = [_mysql_word(word) for word in term.words]
    beginning = [f"+{_mysql_letters(term.words[-1])}*"] if term.is_prefix else []
    phrase = words[:-1] if term.is_prefix else words
    complete = [f'+"{" ".join(phrase)}"'] if len(phrase) > 1 else [f"+{word}" for word in phrase]
    return " ".join([*complete, *beginning])


def _parted(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """The terms that must match, and those that must not."""
    return [term for term in terms if not term.is_excluded], [term for term in terms if term.is_excluded]


def matching_documents(dialect: str, tenant: int, scope_user: str | None, query: SearchQuery) -> Select[Any]:
    """A page of documents, best first, then the newest; with some columns of their conversations."""
    ranked = _ranked(dialect, tenant, scope_user, query).subquery("ranked")
    page = select(ranked)
    if query.after is not None:
        score, key = query.after
        page = page.where(ranked.c.score <= score, sa.or_(ranked.c.score < score, ranked.c.id < key))
    best = page.order_by(ranked.c.score.desc(), ranked.c.id.desc()).limit(query.limit).subquery("best")
    documents, talks = search_documents.c, conversations.c
    return (
        select(
            best.c.score, documents.id, documents.position, documents.branch, documents.type, documents.role,
            documents.created_at, documents.text, talks.public_id, talks.title, talks.user_id,
        )
        .select_from(best)
        .join(search_documents, sa.and_(documents.tenant_id == tenant, documents.id == best.c.id))
        .join(conversations, sa.and_(talks.tenant_id == tenant, talks.id == documents.conversation_id))
        .order_by(best.c.score.desc(), best.c.id.desc())
    )  # fmt: skip


def matching_conversations(dialect: str, tenant: int, scope_user: str | None, query: SearchQuery) -> Select[Any]:
    """A page of conversations, those with the best document first: that document, their number, and the newest time."""
    documents, talks = search_documents.c, conversations.c
    found = _ranked(dialect, tenant, scope_user, query)
    ranked = found.add_columns(documents.conversation_id, documents.created_at).subquery("ranked")
    of_one: Any = ranked.c.conversation_id
    place = func.row_number().over(partition_by=of_one, order_by=(ranked.c.score.desc(), ranked.c.id.desc()))
    hits, newest = func.count().over(partition_by=of_one), func.max(ranked.c.created_at).over(partition_by=of_one)
    columns = (ranked.c.score, ranked.c.id, place.label("place"), hits.label("hits"), newest.label("newest_at"))
    grouped = select(*columns).subquery("grouped")
    page = select(grouped).where(grouped.c.place == 1)
    if query.after is not None:
        score, key = query.after
        page = page.where(grouped.c.score <= score, sa.or_(grouped.c.score < score, grouped.c.id < key))
    best = page.order_by(grouped.c.score.desc(), grouped.c.id.desc()).limit(query.limit).subquery("best")
    return (
        select(
            best.c.score, best.c.hits, best.c.newest_at, documents.id, documents.position, documents.branch,
            documents.type, documents.role, documents.created_at, documents.text, talks.public_id, talks.title,
            talks.user_id,
        )
        .select_from(best)
        .join(search_documents, sa.and_(documents.tenant_id == tenant, documents.id == best.c.id))
        .join(conversations, sa.and_(talks.tenant_id == tenant, talks.id == documents.conversation_id))
        .order_by(best.c.score.desc(), best.c.id.desc())
    )  # fmt: skip


def _ranked(dialect: str, tenant: int, scope_user: str | None, query: SearchQuery) -> Select[Any]:
    """All documents that match, with their scores."""
    documents, talks = search_documents.c, conversations.c
    source, match, score = _MATCHES.get(dialect, _mysql_match)(query.terms)
    source = source.join(conversations, _belongs_to_conversation(search_documents))
    where = [documents.tenant_id == tenant, match, talks.status != DELETED, *_filters(tenant, query)]
    if scope_user is not None:
        where.append(talks.user_id == scope_user)
    parts = sa.cast(func.round(score * SCORE_PARTS), sa.BigInteger).label("score")
    return select(documents.id, parts).select_from(source).where(*where)


def _belongs_to_conversation(table: sa.Table) -> ColumnElement[bool]:
    """The condition of a join."""
    return sa.and_(table.c.tenant_id == conversations.c.tenant_id, table.c.conversation_id == conversations.c.id)


# the tables, the condition, and the score
Match = tuple[sa.FromClause, ColumnElement[bool], ColumnElement[Any]]


def _fts5_match(terms: Sequence[Term]) -> Match:
    name: ColumnElement[Any] = sa.literal_column(INDEX)
    index = sa.table(INDEX, sa.column("rowid", sa.BigInteger))
    source = index.join(search_documents, search_documents.c.id == index.c.rowid)
    return source, name.op("MATCH", is_comparison=True)(sa.literal(_fts5(terms))), -func.bm25(name)


def _tsvector_match(terms: Sequence[Term]) -> Match:
    words, query = search_documents.c.words, sa.cast(sa.literal(_tsquery(terms)), TSQUERY)
    wanted, _ = _parted(terms)  # ts_rank has no score for excluded terms
    rank = sa.cast(func.ts_rank(words, sa.cast(sa.literal(_tsquery(wanted)), TSQUERY), _BY_LENGTH), sa.Double)
    return search_documents, words.op("@@", is_comparison=True)(query), rank


def _mysql_match(terms: Sequence[Term]) -> Match:
    """Excluded terms have conditions of their own: MariaDB ignores a minus beside a phrase."""
    words = search_documents.c.words
    wanted, excluded = _parted(terms)
    score = mysql.match(words, against=" ".join(map(_boolean, wanted))).in_boolean_mode()
    others = [
        sa.not_(sa.and_(mysql.match(words, against=_boolean(term)).in_boolean_mode(), *_side_by_side([term])))
        for term in excluded
    ]
    return search_documents, sa.and_(score, *_side_by_side(wanted), *others), score


def _side_by_side(terms: Sequence[Term]) -> list[ColumnElement[bool]]:
    """Phrases whose last word is a prefix: MySQL has none, so they are looked for in the matching documents."""
    texts = [
        " ".join(["", *map(_mysql_word, term.words[:-1]), _mysql_letters(term.words[-1])])
        for term in terms
        if term.is_prefix and len(term.words) > 1
    ]
    return [func.locate(phrase, func.concat(" ", search_documents.c.words)) > 0 for phrase in texts]


_BY_LENGTH: Final = 1  # ts_rank divides by 1 + the logarithm of the number of words
_MATCHES: Final = {"sqlite": _fts5_match, "postgresql": _tsvector_match}


def _filters(tenant: int, query: SearchQuery) -> list[ColumnElement[bool]]:
    documents, talks = search_documents.c, conversations.c
    wanted: list[tuple[Any, Any]] = [
        (talks.user_id, query.user), (talks.status, query.status), (talks.public_id, query.conversation),
        (documents.type, query.type), (documents.role, query.role),
    ]  # fmt: skip
    where: list[ColumnElement[bool]] = [column == value for column, value in wanted if value is not None]
    if query.since is not None:
        where.append(documents.created_at >= query.since)
    if query.until is not None:
        where.append(documents.created_at < query.until)
    return where + [talks.id.in_(with_label(tenant, name, value)) for name, value in query.labels.items()]


@cache
def unindexed_conversations() -> Select[Any]:
    """Conversations that are not indexed to their ends, locked; those that others have locked are skipped."""
    talks = conversations.c
    found = select(talks.id, talks.title, talks.created_at, talks.search_from).where(*_is_unindexed())
    return found.order_by(talks.search_from, talks.id).limit(bindparam("limit")).with_for_update(skip_locked=True)


@cache
def any_unindexed() -> Select[Any]:
    """One such conversation, without a lock."""
    return select(conversations.c.id).where(*_is_unindexed()).limit(1)


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
    """Documents of some conversations: titles, and items that are not marked as indexed (mostly none)."""
    talks, documents = conversations.c, search_documents.c
    joined = conversations.join(search_documents, _belongs_to_conversation(search_documents))
    is_new = sa.or_(documents.position == TITLE_POSITION, documents.position >= talks.search_from)
    columns = (documents.conversation_id, documents.position, documents.id, documents.text)
    return select(*columns).select_from(joined).where(*_among_keys(), is_new)


@cache
def index_progress() -> sa.Update:
    """Mark how far some conversations are indexed; NULL: to their ends."""
    return sa.update(conversations).where(*_among_keys()).values(search_from=bindparam("next", type_=sa.BigInteger))


@cache
def index_reset() -> sa.Update:
    """Mark all conversations of a tenant as not indexed."""
    where = [*of_tenant(conversations), conversations.c.status != DELETED]
    return sa.update(conversations).where(*where).values(search_from=0)


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
