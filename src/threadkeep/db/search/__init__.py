"""Full-text search: each database has its own kind of index, and its own language for what is searched for.

Documents are rows of `search_documents`. Servers index a column of these; SQLite's index is a table of its own.

Only so many documents are ranked, the newest that match (candidates): what a question costs does not grow with how many
there are. A page of results is of a window of candidates, and behind the last page of one comes the next one, of older
documents. All conditions apply to the candidates, so that no match is lost.

A statement is built once for questions of one shape; what is searched for is in its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, lru_cache
from importlib import import_module
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select

from threadkeep.db.backends import NAMES, Connected
from threadkeep.db.driver import LazyRow, RowReader, Statement
from threadkeep.db.models import conversations, search_documents
from threadkeep.db.queries.conversations import ACTIVE, DELETED, narrowed, of_tenant
from threadkeep.domain import printing
from threadkeep.domain.ids import MAX_KEY

if TYPE_CHECKING:
    from threadkeep.domain.searching import Term, Vocabulary

LOG: Final = getLogger("threadkeep.search")
REBUILD_HINT: Final = "Rebuild it with store.reindex(rebuild=True) or `threadkeep reindex --rebuild`."


class FewDocuments(NamedTuple):
    """The key of the newest match, and whether all matches are candidates."""

    newest: int
    is_whole: bool


class SearchIndex:
    """The index of a kind of database; what is here is for an index that a server keeps of the table.

    Attributes:
        reads_near: whether the documents of a question that is limited to some conversations, if these are few, are
            read one by one, without the index.
        seeks_conversations: whether the conversations of documents are looked up one by one: to read all takes longer.
    """

    reads_near = seeks_conversations = False

    # What is indexed

    def words(self, text: str, vocabulary: Vocabulary | None = None) -> str | None:
        """The words of a text as the column `words` takes them; `vocabulary` is for many texts."""
        raise NotImplementedError

    def scope(self, tenant: int, user: str | None) -> str | None:
        """The word of a user in documents, where the index has one; elsewhere, a search starts at conversations."""
        del tenant, user
        return None

    def add(self, connection: Connection, tenant: int, ids: Sequence[int]) -> None:
        """Let documents be found."""

    def remove(self, connection: Connection, tenant: int, ids: Sequence[int]) -> None:
        """Let documents not be found any more, before their rows are changed or removed."""

    def remove_where(
        self, connection: Connection, where: Sequence[ColumnElement[bool]], parameters: Mapping[str, Any]
    ) -> None:
        """The same with documents that meet some conditions."""

    def merge(self, connection: Connection) -> None:
        """Let nothing be left in the index of documents that were removed."""

    def merge_all(self, connection: Connection) -> bool:
        """The same in many transactions; return False if the index is broken, and has to be rebuilt."""
        del connection
        return True

    def make(self, connection: Connection) -> None:
        """Make the index of all documents, unless it exists; SchemaError where it cannot be made."""

    def remake(self, connection: Connection) -> None:
        """Make the index, which all tenants share, again of the documents that there are."""

    def count_missing(self, connection: Connection, tenant: int, key: int) -> int:
        """How many documents of a conversation the index does not have."""
        del connection, tenant, key
        return 0

    def update_statistics(self, connection: Connection) -> None:
        """Let the server count what it plans searches by."""

    # What is searched for

    def prepare(self, connection: Connection) -> None:
        """Give a connection what its searches need."""

    def planned_for_values(self, connection: Connection) -> AbstractContextManager[None]:
        """Let the statements of this block be planned for their values."""
        del connection
        return nullcontext()

    def terms(self, query: SearchQuery) -> tuple[tuple[int, bool, bool], ...]:
        """What a statement depends on: of each term, how many words, whether it is a prefix, and whether excluded."""
        del query
        return ()

    def parameters(
        self, tenant: int, query: SearchQuery, conversations: Sequence[int], *, is_near: bool
    ) -> dict[str, Any]:
        """The parameters for what is searched for, in the language of the index."""
        raise NotImplementedError

    def matching(self, shape: Shape) -> Matching:
        """Which documents match."""
        raise NotImplementedError

    def few_documents(
        self, connection: Connection, query: SearchQuery, shape: Shape, parameters: Mapping[str, Any]
    ) -> FewDocuments | None:
        """Return what is known of the matches if the index counts words sooner than they are counted in the texts.

        Scores are the same. None: not so, because there are too many documents, or the query has too many terms.
        """
        del connection, query, shape, parameters
        return None

    def rank(self, value: Any) -> Any:
        """The score of a candidate, from the value that `matching` has of it."""
        return value


@cache
def index_named(name: str) -> SearchIndex:
    """The index of a backend, by its name."""
    found: SearchIndex = import_module(f"{__name__}.{name}").INDEX
    return found


def search_of(connected: Connected) -> SearchIndex:
    """The index of the database of a connection or an engine; its module is loaded when it is needed."""
    return index_named(NAMES[connected.dialect.name])


def reason_of(error: Exception) -> str:
    """Return the message of a driver, without the statement, its values, and passwords."""
    return str(printing.redact(str(getattr(error, "orig", None) or error)))


def log_broken_index(error: Exception) -> None:
    """Log why documents that were removed are still in the index, and what to do."""
    LOG.warning("The search index does not forget documents: %s. %s", reason_of(error), REBUILD_HINT)


# What is asked

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

    def read(self, connection: Connection, parameters: Mapping[str, Any]) -> Sequence[LazyRow]:
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
