"""Searching: what is searched for and where, and a page of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from threadkeep.db import backends, refusals
from threadkeep.db import search as matches
from threadkeep.db.driver import LazyRow
from threadkeep.db.queries.search import any_unindexed, unindexed_places
from threadkeep.db.search import (
    REBUILD_HINT,
    SCORE_PARTS,
    FewDocuments,
    PageStart,
    SearchQuery,
    Shape,
    reason_of,
    search_of,
)
from threadkeep.domain import ids, items, searching
from threadkeep.domain.stored import ConversationMatch, Page, SearchResult
from threadkeep.errors import InvalidOption, SchemaError, shown
from threadkeep.store.search.index import BATCH_SIZE, index_new, log_index_failure
from threadkeep.store.work import connections, refs, validation
from threadkeep.store.work.transactions import Transactions

ROLES: Final = ("user", "assistant", "system", "developer")
BATCHES_BEFORE_SEARCH: Final = 20_000 // BATCH_SIZE
PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.15)  # seconds; how long a search waits for what others have locked
CANDIDATES: Final = 2_000  # documents that are ranked together, the newest that match
STATEMENTS: Final = 5  # that fill a page, where most of what is found was on pages before
NEAR: Final = 20_000  # documents that are read one by one sooner than an index is used, see `SearchIndex.reads_near`
AT_ONCE: Final = 100  # conversations whose matches are counted by a statement

# A statement, for a shape of questions
Statement = Callable[[Shape], matches.PageStatement]


def search(transactions: Transactions, scope: refs.Scope, query: SearchQuery) -> Page[SearchResult]:
    """A page of results; see `Store.search`."""
    page = _page(transactions, scope, query, matches.matching_documents)
    return Page([_result_of(found.row, query) for found in page], page.next)


def search_conversations(transactions: Transactions, scope: refs.Scope, query: SearchQuery) -> Page[ConversationMatch]:
    """A page of conversations; see `Store.search_conversations`."""
    page = _page(transactions, scope, query, matches.matching_conversations)
    matching = []
    for found in page:
        best = _result_of(found.row, query)
        newest_at = found.newest_at or best.created_at
        match = ConversationMatch(best.conversation_id, best.title, best.user_id, best, found.hits, newest_at)
        matching.append(match)
    return Page(matching, page.next)


def _page(transactions: Transactions, scope: refs.Scope, query: SearchQuery, statement: Statement) -> Page[RankedRow]:
    """A page of what was found, after having indexed what is new; what cannot be indexed is not found, and that is all.

    In a host's transaction nothing new is indexed: that would lock conversations until the host commits.
    """
    if scope.user is not None:
        if query.user not in {None, scope.user}:
            return Page([])
        query = replace(query, user=scope.user)
    if transactions.commits_itself:
        try:
            _index_news(transactions, scope.tenant, query)
        except Exception as error:  # noqa: BLE001 - a database that can only be read can be searched, too
            log_index_failure(error)
    page = transactions.read_any(lambda connection: matching_page(connection, scope, query, statement))
    if not page.items:  # words of their own have roles and types, too, but not these
        if query.role:
            validation.refuse_misspelt("role", query.role, ROLES)
        if query.type:
            validation.refuse_misspelt("type", query.type, (*items.ITEMS, searching.TITLE))
    return page


def _index_news(transactions: Transactions, tenant: int, query: SearchQuery) -> None:
    """Index what is new. What is searched, but locked, is soon free as a rule: another search is indexing it."""
    news = any_unindexed()
    if not transactions.read(lambda connection: news.fetch_all(connection, {"tenant": tenant})):
        return
    index_new(transactions, tenant, BATCHES_BEFORE_SEARCH)
    left = _unindexed_places(transactions, tenant, query)
    for pause in PAUSES:
        if not left:
            return
        connections.sleep(pause)
        index_new(transactions, tenant, 1)
        left &= _unindexed_places(transactions, tenant, query)


def _unindexed_places(transactions: Transactions, tenant: int, query: SearchQuery) -> set[tuple[int, int]]:
    """Which of the conversations that are searched are not indexed, and up to where they are."""
    given = {"user": query.user, "conversation": query.conversation}
    values = {"tenant": tenant} | {name: value for name, value in given.items() if value is not None}
    statement = unindexed_places(of_user="user" in values, of_conversation="conversation" in values)

    def read(connection: Connection) -> set[tuple[int, int]]:
        if not backends.backend_of(connection).is_server:  # one writes after the other
            return set()
        return {(row.id, row.search_from) for row in connection.execute(statement, values)}

    return transactions.read(read)


def search_query(
    text: object, *, user_id: str | None, labels: Mapping[str, str] | None, status: str | None,
    conversation_id: str | None, type: str | None, role: str | None, since: date | None, until: date | None,
    after: str | None, limit: int, model: str | None = None,
) -> SearchQuery:  # fmt: skip
    """The query of a text and filters; see `Store.search`. `model`: only conversations in which it was called."""
    terms = _checked_terms(text if isinstance(text, str) else "")
    if all(term.is_excluded for term in terms):
        raise InvalidOption(f"has no word to search for: {shown(text)}.", argument="text")
    return SearchQuery(
        terms=terms,
        user=validation.optional_identifier("user_id", user_id),
        labels=validation.label_filter(labels),
        status=validation.status_filter(status),
        conversation=None if conversation_id is None else ids.public_id_bytes(conversation_id),
        model=model,
        type=validation.optional_identifier("type", type),
        role=validation.optional_identifier("role", role),
        since=_moment("since", since),
        until=_moment("until", until),
        after=PageStart(*(validation.search_cursor(after) or ())),
        limit=validation.page_size(limit),
    )


def _checked_terms(text: str) -> list[searching.Term]:
    """The terms of a text; the cost of a search grows with what it asks for, so that is limited."""
    size = len(text.encode("utf-8", "surrogatepass"))
    terms = searching.terms_of(text) if size <= searching.QUERY_BYTES else []
    words, prefixes = sum(len(term.words) for term in terms), sum(term.is_prefix for term in terms)
    for count, limit, what in (
        (size, searching.QUERY_BYTES, "bytes"),
        (words, searching.QUERY_LIMIT, "words to search for"),
        (prefixes, searching.PREFIX_LIMIT, "beginnings of words to search for"),
    ):
        if count > limit:
            problem = f"has {count:,} {what}; at most {limit:,} are allowed."
            raise InvalidOption(problem, argument="text", hint="Search for fewer.")
    return terms


def _moment(argument: str, value: date | None) -> datetime | None:
    """A bound in UTC; of a date, its beginning."""
    bound = validation.date_or_moment(argument, value)
    if bound is None:
        return None
    if not isinstance(bound, datetime):
        return datetime.combine(bound, time(tzinfo=UTC))
    try:
        return bound.astimezone(UTC)
    except OverflowError as error:  # the first and last hours of the calendar
        raise InvalidOption(f"cannot be converted to UTC: {value!r}.", argument=argument) from error


def matching_page(
    connection: Connection, scope: refs.Scope, query: SearchQuery, statement: Statement = matches.matching_documents
) -> Page[RankedRow]:
    """What matches, best first; SchemaError when the index is missing or broken."""
    try:
        with search_of(connection).planned_for_values(connection):
            return Search(connection, scope.tenant, query, statement).page()
    except SQLAlchemyError as error:
        if isinstance(error, DBAPIError) and (error.connection_invalidated or refusals.is_transient(error)):
            raise  # it is repeated
        raise SchemaError(f"The search index cannot be read: {reason_of(error)}.", hint=REBUILD_HINT) from error


class RankedRow(NamedTuple):
    """A result, and the place behind it; of a conversation, the number of all its matches and the newest time."""

    row: LazyRow
    place: PageStart
    hits: int = 0
    newest_at: datetime | None = None


class Search:
    """The statements of one question."""

    def __init__(self, connection: Connection, tenant: int, query: SearchQuery, statement: Statement) -> None:
        self._connection, self._tenant, self._query, self._statement = connection, tenant, query, statement
        self._index, self._is_near = search_of(connection), False
        self._few: FewDocuments | None = None
        self._index.prepare(connection)
        if self._index.reads_near and Shape.of(self._index, query).is_limited():
            shape, values = self._shape_and_values(query, most=NEAR + 1)
            self._is_near = connection.execute(matches.nearby_documents(shape), values).scalar_one() <= NEAR

    def page(self) -> Page[RankedRow]:
        """A page; behind the last result of a window comes the next window, of older documents."""
        limit, place = self._query.limit, self._query.after
        found: list[RankedRow] = []
        self._few = few = self._few_documents()
        if few is not None and few.is_whole:
            place = place.in_window(0, few.newest)
        for _ in range(STATEMENTS):
            wanted = limit + 1 - len(found)
            rows = self._rows(place, wanted)
            if rows and not place.bottom and not (few and few.is_whole):
                is_full = rows[0].candidates >= CANDIDATES
                place = place.in_window(rows[0].bottom if is_full else 0, rows[0].top)
            found += self._found(rows, place)
            if len(found) > limit:
                return Page(found[:limit], found[limit - 1].place.text())
            if len(rows) == wanted:
                place = place.behind(rows[-1].score, rows[-1].id)
            elif place.bottom:
                place = place.next_window()
            else:
                return Page(found)
        return Page(found, place.text())

    def _few_documents(self) -> FewDocuments | None:
        """What is known of the matches where there are few documents, in the page's window or all that are older."""
        query = self._query
        few = self._index.few_documents(self._connection, query, *self._shape_and_values(query, candidates=CANDIDATES))
        return few._replace(is_whole=False) if few is not None and query.after.bottom else few

    def _rows(self, place: PageStart, limit: int) -> Sequence[LazyRow]:
        query = replace(self._query, after=place, limit=limit)
        shape, values = self._shape_and_values(query, candidates=CANDIDATES)
        return self._statement(shape).read(self._connection, values)

    def _found(self, rows: Sequence[LazyRow], place: PageStart) -> list[RankedRow]:
        """The results of rows, without conversations that were found in the windows before."""
        places = [place.behind(row.score, row.id) for row in rows]
        if self._statement is not matches.matching_conversations:
            return [RankedRow(row, behind) for row, behind in zip(rows, places, strict=True)]
        if not place.bottom and place.seen == place.top:  # all matches are in this window
            return [RankedRow(row, behind, row.hits, row.newest_at) for row, behind in zip(rows, places, strict=True)]
        counts = {count.conversation_id: count for count in self._counts([row.conversation_id for row in rows], place)}
        found = [(row, behind, counts[row.conversation_id]) for row, behind in zip(rows, places, strict=True)]
        return [
            RankedRow(row, behind, count.hits, count.newest_at)
            for row, behind, count in found
            if count.newest_key is None or count.newest_key <= place.top
        ]

    def _counts(self, keys: Sequence[int], place: PageStart) -> Iterator[Row[Any]]:
        """The matches of conversations, of which only some are in the window."""
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            shape, values = self._shape_and_values(self._query, some, seen=place.seen)
            yield from self._connection.execute(matches.matches_by_conversation(shape), values)

    def _shape_and_values(
        self, query: SearchQuery, keys: Sequence[int] = (), **parameters: Any
    ) -> tuple[Shape, dict[str, Any]]:
        """What a statement depends on, and its parameters."""
        is_near = self._is_near or (bool(keys) and self._index.reads_near)
        shape = Shape.of(self._index, query, is_near=is_near, few=self._few)
        values = matches.parameters_of(self._index, self._tenant, query, keys, is_near=is_near)
        return shape, {**values, **parameters}


def _result_of(row: LazyRow, query: SearchQuery) -> SearchResult:
    snippet, marks = searching.snippet_of(row.text, query.terms)
    is_title = row.position == searching.TITLE_POSITION
    return SearchResult(
        conversation_id=ids.public_id_text(bytes(row.public_id)),
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
