"""Statements that search: every database has its own kind of index, and its own language for what is searched for.

Only so many documents are ranked, the newest that match (candidates): what a question costs does not grow with how many
there are. A page of results is of a window of candidates, and behind the last page of one comes the next one, of older
documents. Conditions are those of the candidates, so that none of them is lost.

A statement is built once for questions of one shape; what is searched for is in its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, bindparam, func, select

from threadkeep.db.base import SEARCH_INDEX as INDEX
from threadkeep.db.dialects import constructs_of
from threadkeep.db.queries.conversations import ACTIVE, DELETED, of_tenant
from threadkeep.db.queries.search import WORD_LIMIT, mysql_letters, mysql_word, type_token, user_token
from threadkeep.db.tables import conversation_labels, conversations, search_documents
from threadkeep.db.types import TsQuery
from threadkeep.domain import ranking
from threadkeep.domain.ids import MAX_KEY
from threadkeep.domain.searching import Term

# Scores are whole numbers of these parts, so that equal ones stay equal on the next page
SCORE_PARTS: Final = 1_000_000_000
SCORE: Final = "threadkeep_score"  # SQLite: the function that a connection is given, `ranking.score_of`
_BY_LENGTH: Final = 1  # ts_rank divides by 1 + the logarithm of the number of words


class Place(NamedTuple):
    """Where a page begins: behind a score and id, in the window of documents with ids from `bottom` to `top`."""

    score: int = MAX_KEY
    key: int = MAX_KEY
    bottom: int = 0  # 0: that of the last candidate, which is not known yet
    top: int = MAX_KEY
    seen: int = MAX_KEY  # the top of the first window

    def in_window(self, bottom: int, top: int) -> Place:
        """The same, in a window that is known now."""
        return self._replace(bottom=bottom, top=top, seen=top if self.seen == MAX_KEY else self.seen)

    def next_window(self) -> Place:
        """The beginning of the next window."""
        return Place(top=self.bottom - 1, seen=self.seen)

    def behind(self, score: int, key: int) -> Place:
        """The place behind a document of the same window."""
        return self._replace(score=score, key=key)

    def text(self) -> str:
        """The name of the page."""
        is_first = not self.bottom and self.top == MAX_KEY  # with everything that there is
        return ".".join(map(str, self[:2] if is_first else self))


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
    after: Place = field(default_factory=Place)
    limit: int = 20

    def filters(self) -> dict[str, Any]:
        """The conditions that it has, by name."""
        found = {name: getattr(self, name) for name in (*_OF_TALKS, *_OF_DOCUMENTS)}
        return {name: value for name, value in found.items() if value is not None}


class Shape(NamedTuple):
    """What kind of question it is, apart from values."""

    dialect: str
    filters: frozenset[str]
    labels: int
    terms: tuple[tuple[int, bool, bool], ...] = ()  # MySQL: of each, how many words, a prefix?, excluded?
    is_near: bool = False  # MySQL: what is there is read conversation by conversation, without the index

    @classmethod
    def of(cls, dialect: str, query: SearchQuery, *, is_near: bool = False) -> Shape:
        """The shape of a query."""
        terms = () if dialect in _MATCHES else [(len(it.words), it.is_prefix, it.is_excluded) for it in query.terms]
        return cls(dialect, frozenset(query.filters()), len(query.labels), tuple(terms), is_near)

    def is_limited(self) -> bool:
        """Whether a question is limited to some conversations."""
        return self.labels > 0 or bool(self.filters & {"user", "conversation"})


_DOCUMENTS, _TALKS = search_documents.c, conversations.c
_OF_TALKS: Final = {
    "user": _TALKS.user_id == bindparam("user"),
    "status": _TALKS.status == bindparam("status"),
    "conversation": _TALKS.public_id == bindparam("conversation"),
}
_OF_DOCUMENTS: Final = {
    "type": _DOCUMENTS.type == bindparam("type"),
    "role": _DOCUMENTS.role == bindparam("role"),
    "since": _DOCUMENTS.created_at >= bindparam("since"),
    "until": _DOCUMENTS.created_at < bindparam("until"),
}
_BELONGS: Final = sa.and_(_DOCUMENTS.tenant_id == _TALKS.tenant_id, _DOCUMENTS.conversation_id == _TALKS.id)
_SHOWN: Final = (
    *_DOCUMENTS["id", "position", "branch", "type", "role", "created_at", "text"],
    *_TALKS["public_id", "title", "user_id"],
)


def parameters_of(
    dialect: str, tenant: int, query: SearchQuery, conversations: Sequence[int] = (), *, is_near: bool = False
) -> dict[str, Any]:
    """The parameters of a statement that are the question's."""
    found: dict[str, Any] = {"tenant": tenant, "limit": query.limit, "keys": list(conversations), **query.filters()}
    for number, (name, value) in enumerate(sorted(query.labels.items())):
        found |= {f"key_{number}": name, f"value_{number}": value}
    place = query.after
    found |= {"score": place.score, "after": place.key, "bottom": place.bottom, "top": place.top}
    if dialect == "sqlite":
        return found | {"match": _fts5(tenant, query, conversations), "wanted": ranking.question_of(query.terms)}
    wanted, _ = _parted(query.terms)
    if dialect == "postgresql":
        return found | {"match": _tsquery(query.terms), "wanted": _tsquery(wanted)}  # excluded terms have no score
    terms = list(enumerate(query.terms))
    if is_near:
        return found | {f"term_{number}": _side_by_side(term, "  ") for number, term in terms}
    excluded = {f"term_{number}": _boolean(term) for number, term in terms if term.is_excluded}
    phrases = {f"phrase_{number}": _side_by_side(term) for number, term in terms if _is_open_phrase(term)}
    return found | excluded | phrases | {"match": " ".join(map(_boolean, wanted))}


# Languages


def _fts5(tenant: int, query: SearchQuery, conversations: Sequence[int]) -> str:
    """A query in the language of FTS5. It ends in what it is searched in, for a condition that comes behind it."""
    wanted, excluded = (
        [f'"{" ".join(term.words)}"' + (" *" if term.is_prefix else "") for term in some]
        for some in _parted(query.terms)
    )
    words = f"({' AND '.join(wanted)})" + (f" NOT ({' OR '.join(excluded)})" if excluded else "")
    scope = [f"t{tenant}"]
    if query.user is not None:
        scope.append(user_token(tenant, query.user))
    if query.type is not None and (token := type_token(query.type)):
        scope.append(token)
    inside = " AND ".join(scope)
    if conversations:
        inside += f" AND ({' OR '.join(f'c{key}' for key in conversations)})"
    return f"{{words}} : ({words}) AND {{scope}} : ({inside})"


def _tsquery(terms: Sequence[Term]) -> str:
    """A query in the notation of TSQUERY."""
    wanted, excluded = (
        [" <-> ".join(word[:WORD_LIMIT] for word in term.words) + (":*" if term.is_prefix else "") for term in some]
        for some in _parted(terms)
    )
    return " & ".join([*(f"({term})" for term in wanted), *(f"!({term})" for term in excluded)])


def _boolean(term: Term) -> str:
    """A term in boolean mode. MariaDB fails on brackets and on quotes around one word; phrases have whole words."""
    words = [mysql_word(word) for word in term.words]
    beginning = [f"+{mysql_letters(term.words[-1])}*"] if term.is_prefix else []
    phrase = words[:-1] if term.is_prefix else words
    complete = [f'+"{" ".join(phrase)}"'] if len(phrase) > 1 else [f"+{word}" for word in phrase]
    return " ".join([*complete, *beginning])


def _is_open_phrase(term: Term) -> bool:
    """Whether it is a phrase whose last word is a prefix: MySQL has none, so it is looked for in what matches."""
    return term.is_prefix and len(term.words) > 1


def _side_by_side(term: Term, blanks: str = " ") -> str:
    """A term as it stands in the words of a text."""
    words = [*map(mysql_word, term.words)]
    if term.is_prefix:
        words[-1] = mysql_letters(term.words[-1])
    return f" {blanks.join(words)}" + ("" if term.is_prefix else " ")


def _parted(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """The terms that must match, and those that must not."""
    return [term for term in terms if not term.is_excluded], [term for term in terms if term.is_excluded]


# Statements


@lru_cache(maxsize=256)
def matching_documents(shape: Shape) -> Select[Any]:
    """A page of documents, best first, then the newest; with some columns of their conversations.

    Parameters: those of `parameters_of`, and how many `candidates` there may be. Each row says how many there are, and
    the id of the last one.
    """
    ranked = _ranked(shape)
    page = select(ranked, *_window(ranked)).subquery("page")
    return _shown(_page_of(page), "candidates", "bottom", "top")


@lru_cache(maxsize=256)
def matching_conversations(shape: Shape) -> Select[Any]:
    """A page of conversations, those with the best document first: that document, their number, and the newest time."""
    ranked = _ranked(shape)
    of_one: Any = ranked.c.conversation_id
    place = func.row_number().over(partition_by=of_one, order_by=(ranked.c.score.desc(), ranked.c.id.desc()))
    hits, newest = func.count().over(partition_by=of_one), func.max(ranked.c.created_at).over(partition_by=of_one)
    columns = (place.label("place"), hits.label("hits"), newest.label("newest_at"))
    grouped = select(ranked, *columns, *_window(ranked)).subquery("grouped")
    best = select(grouped).where(grouped.c.place == 1).subquery("firsts")
    return _shown(_page_of(best), "hits", "newest_at", "conversation_id", "candidates", "bottom", "top")


@lru_cache(maxsize=256)
def matches_by_conversation(shape: Shape) -> Select[Any]:
    """All matches in the conversations `keys`: their number, the newest time, and the newest id up to `seen`."""
    source, where, key, _ = _matching(shape)
    of_one = _DOCUMENTS.conversation_id
    newest = func.max(sa.case((key <= bindparam("seen", type_=sa.BigInteger), key))).label("newest_key")
    columns: Any = (of_one, func.count().label("hits"), func.max(_DOCUMENTS.created_at).label("newest_at"), newest)
    found = select(*columns).select_from(source).group_by(of_one)
    return found.where(*where, of_one.in_(bindparam("keys", expanding=True)))


@lru_cache(maxsize=256)
def nearby_documents(shape: Shape) -> Select[Any]:
    """How many documents there are where a question is limited to some conversations, up to `most`."""
    where = [*of_tenant(conversations), *_of_talks(shape)]
    found = select(_DOCUMENTS.id).select_from(conversations.join(search_documents, _BELONGS)).where(*where)
    return select(func.count()).select_from(found.limit(bindparam("most")).subquery("nearby"))


def _window(ranked: sa.Subquery) -> list[ColumnElement[Any]]:
    """How many candidates there are, and the lowest and highest of their ids."""
    bottom, top = func.min(ranked.c.id).over(), func.max(ranked.c.id).over()
    return [func.count().over().label("candidates"), bottom.label("bottom"), top.label("top")]


def _page_of(ranked: sa.Subquery) -> sa.Subquery:
    score, key = bindparam("score", type_=sa.BigInteger), bindparam("after", type_=sa.BigInteger)
    is_behind = sa.and_(ranked.c.score <= score, sa.or_(ranked.c.score < score, ranked.c.id < key))
    page = select(ranked).where(is_behind).order_by(ranked.c.score.desc(), ranked.c.id.desc())
    return page.limit(bindparam("limit")).subquery("best")


def _shown(best: sa.Subquery, *others: str) -> Select[Any]:
    is_found = sa.and_(_DOCUMENTS.tenant_id == bindparam("tenant"), _DOCUMENTS.id == best.c.id)
    source = best.join(search_documents, is_found).join(conversations, _BELONGS)
    found = select(best.c.score, *(best.c[name] for name in others), *_SHOWN).select_from(source)
    return found.order_by(best.c.score.desc(), best.c.id.desc())


def _ranked(shape: Shape) -> sa.Subquery:
    """The newest documents that match, with their scores."""
    source, where, key, score = _matching(shape)
    window = [key <= bindparam("top", type_=sa.BigInteger), key >= bindparam("bottom", type_=sa.BigInteger)]
    columns: Any = (key.label("id"), _DOCUMENTS.conversation_id, _DOCUMENTS.created_at, score.label("rank"))
    newest = select(*columns).select_from(source).where(*where, *window).order_by(key.desc())
    if shape.is_near:  # it begins with the conversations
        newest = newest.prefix_with("STRAIGHT_JOIN")
    candidates = newest.limit(bindparam("candidates")).subquery("candidates")
    rank: Any = candidates.c.rank
    if shape.dialect == "postgresql":  # of the candidates only: it would be that of all matches before they are sorted
        rank = sa.cast(func.ts_rank(rank, sa.cast(bindparam("wanted"), TsQuery()), _BY_LENGTH), sa.Double)
    parts = sa.cast(func.round(rank * SCORE_PARTS), sa.BigInteger).label("score")
    kept: Any = candidates.c["id", "conversation_id", "created_at"]
    return select(*kept, parts).subquery("ranked")


# The tables, the conditions, the id of a document, and the score or what it is made of
Matching = tuple[sa.FromClause, list[ColumnElement[bool]], ColumnElement[int], ColumnElement[Any]]


def _matching(shape: Shape) -> Matching:
    source, matches, key, score = _MATCHES.get(shape.dialect, _mysql_match)(shape)
    where = [_DOCUMENTS.tenant_id == bindparam("tenant"), *matches]
    where += [condition for name, condition in _OF_DOCUMENTS.items() if name in shape.filters]
    if shape.dialect == "postgresql" and not shape.is_limited():
        # Looked up one by one: to read all conversations takes longer
        this: Any = select(sa.literal_column("1")).where(_BELONGS, *_of_talks(shape)).correlate(search_documents)
        return source.join(this.offset(0).lateral("talk"), sa.true()), where, key, score
    joined = conversations.join(source, _BELONGS) if shape.is_near else source.join(conversations, _BELONGS)
    return joined, [*where, *_of_talks(shape)], key, score


def _of_talks(shape: Shape) -> list[ColumnElement[bool]]:
    """The conditions of conversations."""
    wanted = [condition for name, condition in _OF_TALKS.items() if name in shape.filters]
    return [_TALKS.status != DELETED, *wanted, *_with_labels(shape)]


def _with_labels(shape: Shape) -> list[ColumnElement[bool]]:
    """Looked up for one conversation after the other: there may be many with a label."""
    found: list[ColumnElement[bool]] = []
    for number in range(shape.labels):
        label = conversation_labels.alias(f"label_{number}")
        equal = [label.c.tenant_id == _TALKS.tenant_id, label.c.conversation_id == _TALKS.id]
        pair = [label.c.key == bindparam(f"key_{number}"), label.c.value == bindparam(f"value_{number}")]
        found.append(select(label.c.key).where(*equal, *pair).correlate(conversations).exists())
    return found


def _fts5_match(shape: Shape) -> Matching:
    """The index comes first, newest documents first, so that nothing is sorted: a plus keeps others from leading."""
    name: ColumnElement[Any] = sa.literal_column(INDEX)
    index = sa.table(INDEX, sa.column("rowid", sa.BigInteger))
    source = index.join(search_documents, _DOCUMENTS.id == sa.literal_column(f"+{INDEX}.rowid", sa.BigInteger))
    match: ColumnElement[Any] = bindparam("match", type_=sa.Text)
    if "conversation" in shape.filters:
        this = select(sa.cast(_TALKS.id, sa.Text)).where(*of_tenant(conversations), _OF_TALKS["conversation"])
        match = match.concat(" AND {scope} : c").concat(func.coalesce(this.correlate(None).scalar_subquery(), "0"))
    words = func.coalesce(_DOCUMENTS.words, _DOCUMENTS.text)
    score: ColumnElement[Any] = sa.Function(SCORE, words, bindparam("wanted"), type_=sa.Double)
    return source, [name.op("MATCH", is_comparison=True)(match)], index.c.rowid, score


def _tsvector_match(shape: Shape) -> Matching:  # noqa: ARG001 - all questions are of one kind
    words, query = _DOCUMENTS.words, sa.cast(bindparam("match"), TsQuery())
    return search_documents, [words.op("@@", is_comparison=True)(query)], _DOCUMENTS.id, words


def _mysql_match(shape: Shape) -> Matching:
    """Excluded terms have conditions of their own: MariaDB ignores a minus beside a phrase."""
    if shape.is_near:
        return _near_match(shape)
    words, match = _DOCUMENTS.words, constructs_of("mysql").match
    score: Any = match(words, against=bindparam("match")).in_boolean_mode()
    where: list[ColumnElement[bool]] = [score]
    for number, (count, is_prefix, is_excluded) in enumerate(shape.terms):
        found: list[ColumnElement[bool]] = []
        if is_excluded:
            found.append(match(words, against=bindparam(f"term_{number}")).in_boolean_mode())
        if is_prefix and count > 1:
            found.append(func.locate(bindparam(f"phrase_{number}"), func.concat(" ", words)) > 0)
        if found:
            where.append(sa.not_(sa.and_(*found)) if is_excluded else sa.and_(*found))
    return search_documents, where, _DOCUMENTS.id, score


def _near_match(shape: Shape) -> Matching:
    """The same without the index, for few documents: each word stands between two blanks of its own."""
    words = func.concat(" ", func.replace(_DOCUMENTS.words, " ", "  "), " ")
    terms = [(bindparam(f"term_{number}", type_=sa.Text), kind[-1]) for number, kind in enumerate(shape.terms)]
    where = [
        (func.locate(term, words) == 0) if excluded else (func.locate(term, words) > 0) for term, excluded in terms
    ]
    length = func.char_length
    counts = [
        (length(words) - length(func.replace(words, term, ""))) / length(term)
        for term, excluded in terms
        if not excluded
    ]
    per_length = ranking.REPEATS * (
        1 - ranking.BY_LENGTH + ranking.BY_LENGTH * length(_DOCUMENTS.text) / ranking.LENGTH
    )
    score = sum(
        (count * (1 + ranking.REPEATS) / (count + per_length) for count in counts), start=sa.literal_column("0")
    )
    return search_documents, where, _DOCUMENTS.id, score


_MATCHES: Final = {"sqlite": _fts5_match, "postgresql": _tsvector_match}
