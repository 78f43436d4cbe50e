"""The search of a store, step by step, for both of its faces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from itertools import repeat
from typing import Final, TypedDict

from threadkeep.db.queries.search import Question
from threadkeep.domain.ids import public_id_bytes
from threadkeep.domain.objects import shown
from threadkeep.domain.searching import QUESTION_LIMIT, terms_of
from threadkeep.domain.stored import Page, SearchResult
from threadkeep.errors import InvalidOption
from threadkeep.store.actions.searching import BATCH, Found, Seen, begin_anew, has_news, make_index, search, see_batch
from threadkeep.store.place import Scope, optional_identifier
from threadkeep.store.plans import Plan, Steps, complain
from threadkeep.store.requests import listing_of

SEEN_BEFORE_A_QUESTION: Final = 20_000 // BATCH  # batches


class Wanted(TypedDict):
    """Where is looked, see `Store.search`."""

    user_id: str | None
    labels: Mapping[str, str] | None
    status: str | None
    conversation_id: str | None
    type: str | None
    role: str | None
    since: date | None
    until: date | None
    after: str | None
    limit: int


def question_of(text: object, wanted: Wanted) -> Question:
    """A question.

    Raises:
        InvalidOption: there is nothing to look for, or a filter or page cannot be used.
        NotFound: `conversation_id` is not the id of any conversation.
    """
    terms = terms_of(text) if isinstance(text, str) else []
    if all(term.is_excluded for term in terms):
        raise InvalidOption(f"There is no word to search for in {shown(text)}.")
    count = sum(len(term.words) for term in terms)
    if count > QUESTION_LIMIT:
        raise InvalidOption(f"There are {count:,} words to search for; at most {QUESTION_LIMIT} can be. Ask for fewer.")
    listing = listing_of(wanted["user_id"], wanted["labels"], wanted["status"], None, wanted["limit"])
    place, after = wanted["conversation_id"], wanted["after"]
    return Question(
        terms=terms,
        user=listing.user_id,
        labels=listing.labels,
        status=listing.status,
        conversation=None if place is None else public_id_bytes(place),
        type=optional_identifier("type", wanted["type"]),
        role=optional_identifier("role", wanted["role"]),
        since=_moment("since", wanted["since"]),
        until=_moment("until", wanted["until"]),
        after=None if after is None else _page_key(after),
        limit=listing.limit,
    )


def searching(scope: Scope, text: object, wanted: Wanted, *, is_host: bool) -> Steps[Page[SearchResult]]:
    """Answer a question, after having seen what is new; what cannot be seen is not found, and that is all.

    In a host's transaction nothing new is looked at: that would lock conversations until the host commits.
    """
    question, limit = question_of(text, wanted), wanted["limit"]
    try:
        if not is_host and (yield Plan(has_news, (scope.tenant,))):
            yield from _seeing(scope, SEEN_BEFORE_A_QUESTION)
    except Exception as error:  # noqa: BLE001 - also a database that only reads answers
        complain(error)
    found: list[Found] = yield Plan(search, (scope, replace(question, limit=limit + 1)))
    page = Page.of(found, limit, lambda one: f"{one.score}.{one.key}")
    return Page([one.result for one in page], page.next)


def reindexing(scope: Scope, *, anew: bool) -> Steps[int]:
    """See everything that is new, or everything anew; returns how many documents were made.

    Raises:
        InvalidOption: the store is for one user.
    """
    if scope.is_scoped:
        raise InvalidOption(f"The index is of all users, and this store is for {scope.user!r} only.")
    if anew:
        yield Plan(begin_anew, (scope.tenant,), is_write=True, is_keyed=True)
    else:
        yield Plan(make_index, is_write=True, is_keyed=True)
    return (yield from _seeing(scope))


def _seeing(scope: Scope, batches: int | None = None) -> Steps[int]:
    """See what is new, all of it or so many batches; returns how many documents were made."""
    count = 0
    for _ in range(batches) if batches is not None else repeat(None):
        seen: Seen = yield Plan(see_batch, (scope.tenant,), is_write=True, is_keyed=True)
        if not seen.conversations:
            break
        count += seen.documents
    return count


def _page_key(name: object) -> tuple[int, int]:
    try:
        score, key = str(name).split(".")
        found = int(score), int(key)
    except ValueError as error:
        raise InvalidOption(f"after={name!r} is not the `next` of a page.") from error
    if not all(0 <= number < 2**63 for number in found):
        raise InvalidOption(f"after={name!r} is not the `next` of a page.")
    return found


def _moment(name: str, value: object) -> datetime | None:
    """A time; of a date, its beginning in UTC."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidOption(f"{name} is a datetime without a time zone: {value!r}. Give an aware one, or a date.")
        try:
            return value.astimezone(UTC)
        except OverflowError as error:  # the first and last hours of the calendar
            raise InvalidOption(f"{name} is a time that cannot be told in UTC: {value!r}.") from error
    if not isinstance(value, date):
        raise InvalidOption(f"{name} is a date or an aware datetime, not {value!r}.")
    return datetime.combine(value, time(tzinfo=UTC))
