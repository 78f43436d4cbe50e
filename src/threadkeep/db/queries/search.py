"""Statements on the documents of the search, and on what has none yet; what indexes these is in `db.search`.

Statements that search, whatever the index of the database is and what it is asked in (`db.search`).

Only so many documents are ranked, the newest that match (candidates): what a question costs does not grow with how many
there are. A page of results is of a window of candidates, and behind the last page of one comes the next one, of older
documents. All conditions apply to the candidates, so that no match is lost.

A statement is built once for questions of one shape; what is searched for is in its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, bindparam, func, select

from threadkeep.db.driver import LazyRow, RowReader, Statement
from threadkeep.db.functions import as_committed
from threadkeep.db.models import conversations, items, search_documents
from threadkeep.db.queries.conversations import ACTIVE, DELETED, narrowed, of_conversation, of_tenant
from threadkeep.domain.ids import MAX_KEY
from threadkeep.domain.searching import JSON_LIMIT, TITLE_POSITION, Term

if TYPE_CHECKING:
    from threadkeep.db.search import FewDocuments, SearchIndex


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


# Scores are whole numbers of these parts, so that equal ones stay equal on the next page
SCORE_PARTS: Final = 1_000_000_000


class PageStart(NamedTuple):
    """Where a page begins: behind a score and id, in the window of documents with ids from `bottom` to `top`."""

    score: int = MAX_KEY
    key: int = MAX_KEY
    bottom: int = 0  # 0: that of the last candidate, which is not known, or is the last match
    top: int = MAX_KEY
    seen: int = MAX_KEY  # the top of the first window

    def in_window(self, bottom: int, top: int) -> PageStart:
        """The same, in a window that is known now."""
        return self._replace(bottom=bottom, top=top, seen=top if self.seen == MAX_KEY else self.seen)

    def next_window(self) -> PageStart:
        """The beginning of the next window."""
        return PageStart(top=self.bottom - 1, seen=self.seen)

    def behind(self, score: int, key: int) -> PageStart:
        """The place behind a document of the same window."""
        return self._replace(score=score, key=key)

    def text(self) -> str:
        """The name of the page."""
        return ".".join(map(str, self))


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to search for, in which documents, and which page of the result."""

    terms: Sequence[Term]
    user: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    status: str | None = ACTIVE  # None: active and archived
    conversation: bytes | None = None  # its public id
    model: str | None = None  # that was called in the conversation
    type: str | None = None
    role: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: PageStart = field(default_factory=PageStart)
    limit: int = 20

    def filters(self) -> dict[str, Any]:
        """The conditions that it has, by name."""
        found = {name: getattr(self, name) for name in (*OF_TALKS, "model", *_OF_DOCUMENTS)}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of question it is, apart from values."""

    index: SearchIndex
    filters: frozenset[str]
    labels: int
    terms: tuple[tuple[int, bool, bool], ...] = ()  # see `SearchIndex.terms`
    is_near: bool = False  # what is there is read conversation by conversation, without the index
    is_counted: bool = False  # the index counts the words, see `SearchIndex.few_documents`
    is_whole: bool = False  # all that matches is ranked
    is_continued: bool = False  # behind a result of such a ranking

    @classmethod
    def of(
        cls, index: SearchIndex, query: SearchQuery, *, is_near: bool = False, few: FewDocuments | None = None
    ) -> Shape:
        """The shape of a query."""
        is_whole = few is not None and few.is_whole
        return cls(
            index, frozenset(query.filters()), len(query.labels), index.terms(query), is_near,
            is_counted=few is not None, is_whole=is_whole, is_continued=is_whole and query.after.score < MAX_KEY,
        )  # fmt: skip

    def is_limited(self) -> bool:
        """Whether a question is limited to some conversations."""
        return self.labels > 0 or bool(self.filters & {"user", "conversation"})


DOCUMENTS, TALKS = search_documents.c, conversations.c
OF_TALKS: Final = {
    "user": TALKS.user_id == bindparam("user"),
    "status": TALKS.status == bindparam("status"),
    "conversation": TALKS.public_id == bindparam("conversation"),
}
_OF_DOCUMENTS: Final = {
    "type": DOCUMENTS.type == bindparam("type"),
    "role": DOCUMENTS.role == bindparam("role"),
    "since": DOCUMENTS.created_at >= bindparam("since"),
    "until": DOCUMENTS.created_at < bindparam("until"),
}
_BELONGS: Final = sa.and_(DOCUMENTS.tenant_id == TALKS.tenant_id, DOCUMENTS.conversation_id == TALKS.id)
_SHOWN: Final = (
    *DOCUMENTS["id", "position", "branch", "type", "role", "created_at", "text"],
    *TALKS["public_id", "title", "user_id"],
)


def parameters_of(
    index: SearchIndex, tenant: int, query: SearchQuery, conversations: Sequence[int] = (), *, is_near: bool = False
) -> dict[str, Any]:
    """The parameters of a statement that are the question's."""
    found: dict[str, Any] = {"tenant": tenant, "limit": query.limit, "keys": list(conversations), **query.filters()}
    for number, (name, value) in enumerate(sorted(query.labels.items())):
        found |= {f"key_{number}": name, f"value_{number}": value}
    place = query.after
    found |= {"score": place.score, "after": place.key, "bottom": place.bottom, "top": place.top}
    return found | index.parameters(tenant, query, conversations, is_near=is_near)


def parted(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """The terms that must match, and those that must not."""
    return [term for term in terms if not term.is_excluded], [term for term in terms if term.is_excluded]


# Statements


class PageStatement(Statement):
    """A statement for a page, and what reads its rows."""

    def __init__(self, statement: Select[Any]) -> None:
        super().__init__(statement)
        columns: Any = tuple(statement.selected_columns)
        self._reader = RowReader(columns)

    def read(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> Sequence[LazyRow]:
        """Its rows, with their columns as attributes."""
        return self._reader.read(connection, self.fetch_all(connection, parameters))


@lru_cache(maxsize=256)
def matching_documents(shape: Shape) -> PageStatement:
    """A page of documents, best first, then the newest; with some columns of their conversations.

    Parameters: as of `parameters_of`, and how many `candidates` there may be. Each row says how many there are, and the
    id of the last one.
    """
    ranked = _ranked(shape)
    if shape.is_whole:
        return _shown(_page_of(ranked, shape))
    page = select(ranked, *_window(ranked)).subquery("page")
    return _shown(_page_of(page, shape), "candidates", "bottom", "top")


@lru_cache(maxsize=256)
def matching_conversations(shape: Shape) -> PageStatement:
    """A page of conversations, those with the best document first: that document, their number, and the newest time."""
    ranked = _ranked(shape)
    of_one: Any = ranked.c.conversation_id
    place = func.row_number().over(partition_by=of_one, order_by=(ranked.c.score.desc(), ranked.c.id.desc()))
    hits, newest = func.count().over(partition_by=of_one), func.max(ranked.c.created_at).over(partition_by=of_one)
    columns = (place.label("place"), hits.label("hits"), newest.label("newest_at"))
    window = () if shape.is_whole else _window(ranked)
    grouped = select(ranked, *columns, *window).subquery("grouped")
    best = select(grouped).where(grouped.c.place == 1).subquery("firsts")
    others = ("hits", "newest_at", "conversation_id", *(column.name for column in window))
    return _shown(_page_of(best, shape), *others)


@lru_cache(maxsize=256)
def matches_by_conversation(shape: Shape) -> Select[Any]:
    """All matches in the conversations `keys`: their number, the newest time, and the newest id up to `seen`."""
    source, where, key, _ = _matching(shape)
    of_one = DOCUMENTS.conversation_id
    newest = func.max(sa.case((key <= bindparam("seen", type_=sa.BigInteger), key))).label("newest_key")
    columns: Any = (of_one, func.count().label("hits"), func.max(DOCUMENTS.created_at).label("newest_at"), newest)
    found = select(*columns).select_from(source).group_by(of_one)
    return found.where(*where, of_one.in_(bindparam("keys", expanding=True)))


@lru_cache(maxsize=256)
def nearby_documents(shape: Shape) -> Select[Any]:
    """How many documents there are where a question is limited to some conversations, up to `most`."""
    where = [*of_tenant(conversations), *_of_talks(shape)]
    found = select(DOCUMENTS.id).select_from(conversations.join(search_documents, _BELONGS)).where(*where)
    return select(func.count()).select_from(found.limit(bindparam("most")).subquery("nearby"))


def _window(ranked: sa.Subquery) -> list[sa.Label[Any]]:
    """How many candidates there are, and the lowest and highest of their ids."""
    bottom, top = func.min(ranked.c.id).over(), func.max(ranked.c.id).over()
    return [func.count().over().label("candidates"), bottom.label("bottom"), top.label("top")]


def _page_of(ranked: sa.Subquery, shape: Shape) -> sa.Subquery:
    page = select(ranked).order_by(ranked.c.score.desc(), ranked.c.id.desc()).limit(bindparam("limit"))
    if shape.is_continued or not shape.is_whole:
        score, key = bindparam("score", type_=sa.BigInteger), bindparam("after", type_=sa.BigInteger)
        page = page.where(ranked.c.score <= score, sa.or_(ranked.c.score < score, ranked.c.id < key))
    return page.subquery("best")


def _shown(best: sa.Subquery, *others: str) -> PageStatement:
    is_found = sa.and_(DOCUMENTS.tenant_id == bindparam("tenant"), DOCUMENTS.id == best.c.id)
    source = best.join(search_documents, is_found).join(conversations, _BELONGS)
    found = select(best.c.score, *(best.c[name] for name in others), *_SHOWN).select_from(source)
    return PageStatement(found.order_by(best.c.score.desc(), best.c.id.desc()))


def _ranked(shape: Shape) -> sa.Subquery:
    """The newest documents that match, with their scores."""
    source, where, key, score = _matching(shape)
    window = [key <= bindparam("top", type_=sa.BigInteger), key >= bindparam("bottom", type_=sa.BigInteger)]
    columns: Any = (key.label("id"), DOCUMENTS.conversation_id, DOCUMENTS.created_at, score.label("rank"))
    newest = select(*columns).select_from(source).where(*where, *window)
    if shape.is_near:  # it begins with the conversations
        newest = newest.prefix_with("STRAIGHT_JOIN")
    if not shape.is_whole:
        newest = newest.order_by(key.desc()).limit(bindparam("candidates"))
    candidates = newest.subquery("candidates")
    rank = shape.index.rank(candidates.c.rank)
    parts = sa.cast(func.round(rank * SCORE_PARTS), sa.BigInteger).label("score")
    kept: Any = candidates.c["id", "conversation_id", "created_at"]
    return select(*kept, parts).subquery("ranked")


# The tables, the conditions, the id of a document, and the score or what it is made of
Matching = tuple[sa.FromClause, list[ColumnElement[bool]], ColumnElement[int], ColumnElement[Any]]


def _matching(shape: Shape) -> Matching:
    source, matches, key, score = shape.index.matching(shape)
    where = [DOCUMENTS.tenant_id == bindparam("tenant"), *matches]
    where += [condition for name, condition in _OF_DOCUMENTS.items() if name in shape.filters]
    if shape.index.seeks_conversations and not shape.is_limited():
        this: Any = select(sa.literal_column("1")).where(_BELONGS, *_of_talks(shape)).correlate(search_documents)
        return source.join(this.offset(0).lateral("talk"), sa.true()), where, key, score
    joined = conversations.join(source, _BELONGS) if shape.is_near else source.join(conversations, _BELONGS)
    return joined, [*where, *_of_talks(shape)], key, score


def _of_talks(shape: Shape) -> list[ColumnElement[bool]]:
    """The conditions of conversations."""
    wanted = [condition for name, condition in OF_TALKS.items() if name in shape.filters]
    # Looked up for one conversation after the other: there may be many with a label
    return [TALKS.status != DELETED, *wanted, *narrowed(shape.labels, of_model="model" in shape.filters)]
