"""Searching: what is searched for and where, and a page of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any, Final

from sqlalchemy import Connection, Row, Select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from threadkeep.db.dialects import is_transient, planned_for_values
from threadkeep.db.queries.search import (
    SCORE_PARTS,
    SearchQuery,
    any_unindexed,
    matching_conversations,
    matching_documents,
)
from threadkeep.domain import searching
from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.domain.items import ITEMS
from threadkeep.domain.objects import shown
from threadkeep.domain.stored import ConversationMatch, Page, SearchResult
from threadkeep.errors import InvalidOption, SchemaError
from threadkeep.store import validation
from threadkeep.store.lists import status_filter
from threadkeep.store.refs import Scope
from threadkeep.store.search.index import BATCH_SIZE, REBUILD_HINT, index_new, log_index_failure, reason_of
from threadkeep.store.transactions import Transactions

ROLES: Final = ("user", "assistant", "system", "developer")
TYPES: Final = (*ITEMS, searching.TITLE)
BATCHES_BEFORE_SEARCH: Final = 20_000 // BATCH_SIZE


# A statement of matches, from the dialect, the tenant, its user, and the query
Statement = Callable[[str, int, str | None, SearchQuery], Select[Any]]


def search(transactions: Transactions, scope: Scope, query: SearchQuery) -> Page[SearchResult]:
    """A page of results; see `Store.search`."""
    page = _page(transactions, scope, query, matching_documents)
    return Page([_result_of(row, query) for row in page], page.next)


def search_conversations(transactions: Transactions, scope: Scope, query: SearchQuery) -> Page[ConversationMatch]:
    """A page of conversations; see `Store.search_conversations`."""
    page = _page(transactions, scope, query, matching_conversations)
    return Page([_match_of(row, query) for row in page], page.next)


def _page(transactions: Transactions, scope: Scope, query: SearchQuery, statement: Statement) -> Page[Row[Any]]:
    """A page of rows, after having indexed what is new; what cannot be indexed is not found, and that is all.

    In a host's transaction nothing new is indexed: that would lock conversations until the host commits.
    """
    if transactions.keeps_history:
        try:
            news = any_unindexed()
            if transactions.read(lambda connection: connection.execute(news, {"tenant": scope.tenant}).first()):
                index_new(transactions, scope.tenant, BATCHES_BEFORE_SEARCH)
        except Exception as error:  # noqa: BLE001 - a database that can only be read can be searched, too
            log_index_failure(error)
    with_next = replace(query, limit=query.limit + 1)
    rows = transactions.read(lambda connection: matching_rows(connection, scope, with_next, statement))
    if not rows:  # words of their own have roles and types, too, but not these
        validation.refuse_misspelt("role", query.role or "", ROLES)
        validation.refuse_misspelt("type", query.type or "", TYPES)
    return Page.of(rows, query.limit, lambda row: f"{row.score}.{row.id}")


def search_query(
    text: object, *, user_id: str | None, labels: Mapping[str, str] | None, status: str | None,
    conversation_id: str | None, type: str | None, role: str | None, since: date | None, until: date | None,
    after: str | None, limit: int,
) -> SearchQuery:  # fmt: skip
    """The query of a text and filters; see `Store.search`."""
    terms = _checked_terms(text if isinstance(text, str) else "")
    if all(term.is_excluded for term in terms):
        raise InvalidOption(f"has no word to search for: {shown(text)}.", argument="text")
    return SearchQuery(
        terms=terms,
        user=validation.optional_identifier("user_id", user_id),
        labels=validation.label_texts(labels),
        status=status_filter(status),
        conversation=None if conversation_id is None else public_id_bytes(conversation_id),
        type=validation.optional_identifier("type", type),
        role=validation.optional_identifier("role", role),
        since=_moment("since", since),
        until=_moment("until", until),
        after=validation.search_cursor(after),
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


def matching_rows(
    connection: Connection, scope: Scope, query: SearchQuery, statement: Statement = matching_documents
) -> Sequence[Row[Any]]:
    """What matches, best first; SchemaError when the index is missing or broken."""
    matches = statement(connection.dialect.name, scope.tenant, scope.user, query)
    try:
        with planned_for_values(connection):
            return connection.execute(matches).all()
    except SQLAlchemyError as error:
        if isinstance(error, DBAPIError) and (error.connection_invalidated or is_transient(error)):
            raise  # it is repeated
        raise SchemaError(f"The search index cannot be read: {reason_of(error)}.", hint=REBUILD_HINT) from error


def _result_of(row: Row[Any], query: SearchQuery) -> SearchResult:
    snippet, marks = searching.snippet_of(row.text, query.terms)
    is_title = row.position == searching.TITLE_POSITION
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


def _match_of(row: Row[Any], query: SearchQuery) -> ConversationMatch:
    best = _result_of(row, query)
    return ConversationMatch(best.conversation_id, best.title, best.user_id, best, row.hits, row.newest_at)
