"""Statements of overviews: what the ledger says of many conversations, or of the calls behind some items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, and_, bindparam, func, select

from threadkeep.db import models
from threadkeep.db.driver import Statement
from threadkeep.db.functions import byte_size, days_between, integer_sum
from threadkeep.db.models import (
    blobs,
    conversations,
    item_blobs,
    items,
    responses,
    usage_daily,
    usage_days,
    usage_records,
)
from threadkeep.db.queries.conversations import DELETED, of_conversation, with_label
from threadkeep.db.queries.items import between, in_ranges, revision_of
from threadkeep.db.queries.responses import LISTED, is_lost
from threadkeep.domain import call_kinds

FAILED: Final = "failed"
_CALLS: Final = [kind.call for kind in call_kinds.KINDS if kind.name in ("function", "custom")]
_OUTPUTS: Final = [kind.output for kind in call_kinds.KINDS if kind.name in ("function", "custom")]
MAX_SUMMED: Final = 100_000  # calls that are looked at for a list of the most expensive
# The columns of a call in the ledger
CALL: Final = (
    "response", "occurred_at", "provider", "model", "format", "status", "latency_ms", "first_token_ms", "input_tokens",
    "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens", "cost_nano", "error",
)  # fmt: skip
# The columns of a response
RESPONSE: Final = (
    "number", "branch", "format", "model", "status", "finish_reason", "provider_response_id", "input_to",
    "from_position", "to_position", "error", "incomplete_details", "created_at", "config_hash", "open_branch",
    "is_lost",
)  # fmt: skip


def marks_of(tenant: int, public_ids: Sequence[bytes], user: str | None) -> Select[Any]:
    """How many marks of each kind conversations have on their active branches: id, public id, kind, and their number.

    Each conversation has a row of the kind "", too. `user`: only the feedback of this user.
    """
    table = conversations.c
    found = select(*_MARKED).where(table.tenant_id == tenant, table.public_id.in_(public_ids)).cte("found")
    marks = _marks(found, user)
    return select(found.c.id, found.c.public_id, marks.c.kind, func.count().label("count")).select_from(
        found.join(marks, marks.c.conversation_id == found.c.id)
    ).group_by(found.c.id, found.c.public_id, marks.c.kind)  # fmt: skip


MARKS: Final = ("waiting", "denied", "approved", "down", "up", "comment")
MAX_TAIL: Final = 256  # last positions among which calls without an output and a decision are looked for
_MARKED: Final = conversations.c["tenant_id", "id", "public_id", "active_branch", "next_position"]


def _marks(found: Any, user: str | None) -> Any:
    """Rows of conversation, kind (one of MARKS, or "") and position, of conversations that were found.

    Each table is joined by the whole beginning of its key: SQLite would begin with all rows of the tenant, also where
    an index of these has all columns.
    """
    said, decided, calls = models.item_feedback.c, models.approvals.c, items.alias("calls").c
    kind = sa.case((said.rating > 0, "up"), (said.rating < 0, "down"), else_="comment")
    rated = select(said.conversation_id, kind.label("kind"), said.position).join(found, _is_in(said, found))
    rated = rated.where(said.updated_at.is_not(None))  # which the index of ratings has not
    if user is not None:
        rated = rated.where(said.user_id == user)
    decisions = select(decided.conversation_id, decided.decision, decided.position).join(found, _is_in(decided, found))
    waiting = select(calls.conversation_id, sa.literal("waiting"), calls.position).join(found, _is_in(calls, found))
    waiting = waiting.where(
        calls.branch == found.c.active_branch,
        calls.position >= found.c.next_position - MAX_TAIL,
        calls.type.in_(_CALLS),
        ~_is_behind(calls, "outputs", lambda later: and_(later.type.in_(_OUTPUTS), later.call_hash == calls.call_hash)),
        ~_is_behind(calls, "seen_by", lambda later: and_(later.branch == calls.branch, later.seen >= calls.position)),
        ~select(decided.position).where(*_of_call(decided, calls), decided.position == calls.position).exists(),
    )
    each = select(found.c.id, sa.literal(""), sa.literal(-1))
    return sa.union_all(rated, decisions, waiting, each).subquery("marks")


def _is_in(table: Any, found: Any) -> ColumnElement[bool]:
    return and_(table.tenant_id == found.c.tenant_id, table.conversation_id == found.c.id)


def _of_call(table: Any, call: Any) -> list[ColumnElement[bool]]:
    return [table.tenant_id == call.tenant_id, table.conversation_id == call.conversation_id]


def _is_behind(call: Any, name: str, condition: Callable[[Any], ColumnElement[bool]]) -> Any:
    """Whether an item like that comes after a call."""
    later = items.alias(name).c
    return (
        select(later.position).where(*_of_call(later, call), later.position > call.position, condition(later)).exists()
    )


def sums_of(tenant: int, keys: Sequence[int]) -> Select[Any]:
    """Sums of conversations by model: key, model, calls, failed calls, tokens, and the cost in nano-USD.

    A join with the conversations would have SQLite read the whole ledger.
    """
    calls = usage_records.c
    failed = func.sum(sa.case((calls.status == FAILED, 1), else_=0))
    figures = [func.count().label("calls"), failed.label("failed")]
    figures += [func.sum(calls[name]).label(name) for name in ("total_tokens", "cost_nano")]
    found = select(calls.conversation_id, calls.model, *figures)
    return found.where(calls.tenant_id == tenant, calls.conversation_id.in_(keys)).group_by(
        calls.conversation_id, calls.model
    )


class TopQuery(NamedTuple):
    """Filters for the calls to sum: days (UTC), a user, values of columns, and labels of conversations."""

    tenant: int
    user: str | None
    first: date
    last: date
    filters: Mapping[str, Any]
    limit: int

    def conditions(self) -> list[ColumnElement[bool]]:
        """The conditions for the calls."""
        table, filters = usage_records.c, dict(self.filters)
        labels: Mapping[str, str] = filters.pop("labels", {})
        where = [table.tenant_id == self.tenant, table.day >= self.first, table.day <= self.last]
        where += [table[name] == value for name, value in filters.items()]
        talks = conversations.c
        for pair in labels.items():
            labelled = with_label(self.tenant, *pair)
            is_shown = [talks.id == labelled.selected_columns.conversation_id, talks.status != DELETED]
            found = labelled.join(conversations, and_(talks.tenant_id == self.tenant, *is_shown))
            where.append(table.conversation_id.in_(found))
        return where if self.user is None else [*where, table.user_id == self.user]


def top(query: TopQuery, column: str) -> Select[Any]:
    """The users or conversations that cost most: what they are, calls, tokens, and the cost in nano-USD.

    Of so many calls, the newest ones count. The limit also keeps databases from grouping by an index of all days.
    """
    table = usage_records.c
    columns = (table[column].label("key"), table.total_tokens, table.cost_nano)
    newest = select(*columns).where(*query.conditions()).order_by(table.day.desc()).limit(MAX_SUMMED).subquery("newest")
    calls = newest.c
    figures = [func.sum(calls[name]).label(name) for name in ("total_tokens", "cost_nano")]
    found = select(calls.key, func.count().label("calls"), *figures).group_by(calls.key)
    return found.order_by(func.coalesce(func.sum(calls.cost_nano), 0).desc(), calls.key).limit(query.limit)


def active_of(query: TopQuery) -> Select[Any]:
    """How many conversations and users called models: day, conversations and users; the day is NULL for all days.

    Of so many calls, the newest ones count.
    """
    table = usage_records.c
    columns = table["day", "conversation_id", "user_id"]
    newest = select(*columns).where(*query.conditions()).order_by(table.day.desc()).limit(MAX_SUMMED).cte("newest")
    counted = {"conversations": newest.c.conversation_id, "users": newest.c.user_id}
    counts = [func.count(column.distinct()).label(name) for name, column in counted.items()]
    by_day = select(newest.c.day, *counts).group_by(newest.c.day)
    both = sa.union_all(by_day, select(sa.null(), *counts)).subquery("active")
    return select(both)


_SUMS: Final = ("attempts", "total_tokens", "cost_nano", "latency_ms", "latencies")


def tenants_of(first: date, last: date, limit: int) -> Select[Any]:
    """What the tenants used whose calls cost most in some days: name, sums, and failed calls."""
    used, tenants = _used(first, last).subquery("used"), models.tenants.c
    sums = _sums_of_used(used.c)
    found = select(tenants.name, *sums).join_from(models.tenants, used, tenants.id == used.c.tenant_id)
    cost = func.coalesce(func.sum(used.c.cost_nano), 0)
    return found.group_by(tenants.id, tenants.name).order_by(cost.desc(), tenants.name).limit(limit)


def tenant_days(first: date, last: date) -> Select[Any]:
    """What all tenants used in some days: day, sums, failed calls, and how many tenants used anything."""
    used = _used(first, last).subquery("used")
    tenants = func.count(used.c.tenant_id.distinct()).label("tenants")
    return select(used.c.day, *_sums_of_used(used.c), tenants).group_by(used.c.day).order_by(used.c.day)


def _sums_of_used(columns: Any) -> list[Any]:
    return [integer_sum(columns[name]).label(name) for name in (*_SUMS, "failed")]


def _used(first: date, last: date) -> Any:
    """Rows of sums, with tenant and day, of all tenants: of days that are rolled up, and from the ledger of the others.

    Mostly all days of a tenant between the first and the last one are rolled up. If not, all are read from its ledger.
    """
    days, daily, calls = usage_days.c, usage_daily.c, usage_records.c
    start, end = func.min(days.day), func.max(days.day)
    span = (
        select(days.tenant_id, start.label("first"), end.label("last"))
        .where(days.filled_at.is_not(None), days.day >= first, days.day <= last)
        .group_by(days.tenant_id)
        .having(func.count() == days_between(start, end) + sa.literal_column("1"))
        .cte("span")
    )
    figures = [daily[name] for name in _SUMS]
    failed = sa.case((daily.status == FAILED, daily.attempts), else_=0).label("failed")
    rolled_up = select(daily.tenant_id, daily.day, *figures, failed).join(
        span, and_(daily.tenant_id == span.c.tenant_id, daily.day >= span.c.first, daily.day <= span.c.last)
    )
    counted = [integer_sum(calls[name]).label(name) for name in ("total_tokens", "cost_nano", "latency_ms")]
    failures = func.sum(sa.case((calls.status == FAILED, 1), else_=0)).label("failed")
    sums = [func.count().label("attempts"), *counted, func.count(calls.latency_ms).label("latencies"), failures]

    def of_ledger(source: Any, tenant: Any, after: Any, before: Any) -> Select[Any]:
        within = and_(calls.tenant_id == tenant, calls.day >= after, calls.day <= before)
        found = select(tenant.label("tenant_id"), calls.day, *sums).join_from(source, usage_records, within)
        return found.group_by(tenant, calls.day)

    tenant = models.tenants.c.id
    others = of_ledger(models.tenants, tenant, first, last).where(tenant.not_in(select(span.c.tenant_id)))
    before = of_ledger(span, span.c.tenant_id, first, span.c.first).where(calls.day < span.c.first)
    after = of_ledger(span, span.c.tenant_id, span.c.last, last).where(calls.day > span.c.last)
    return sa.union_all(rolled_up, others, before, after)


_NAMES: Final = [
    conversations.c[name] for name in (
        "id", "public_id", "title", "user_id", "active_branch", "head_position", "next_position", "lineage",
    )
]  # fmt: skip


def opened_of(tenant: int, public_ids: Sequence[bytes]) -> Select[Any]:
    """What the previews of conversations that are not deleted need, by public ids."""
    table = conversations.c
    return select(*_NAMES).where(table.tenant_id == tenant, table.public_id.in_(public_ids), table.status != DELETED)


def top_conversations(query: TopQuery) -> Select[Any]:
    """The conversations that cost most, as `top`, with their titles and users, and what their previews need.

    All of that is NULL for those that are deleted.
    """
    found, table = top(query, "conversation_id").subquery("found"), conversations.c
    known = and_(table.tenant_id == query.tenant, table.id == found.c.key, table.status != DELETED)
    joined = found.outerjoin(conversations, known)
    order = (func.coalesce(found.c.cost_nano, 0).desc(), found.c.key)
    return select(*found.c, *_NAMES).select_from(joined).order_by(*order)


def annotations_of(
    tenant: int, key: int, branch: int, user: str | None, positions: Sequence[int], limit: int
) -> Select[Any]:
    """Feedback, labels and decisions about items of a conversation: position, kind, name, text, rating, and time.

    The kind is "feedback", "label", or the decision. Marks of the whole conversation have a branch, too, and nothing
    but position and kind: the last ones; calls without an output are those of that branch.
    `user`: only the feedback of this user.
    """
    said, labels, decided = models.item_feedback.c, models.item_labels.c, models.approvals.c
    table, marked, none = conversations.c, items.c, sa.cast(sa.null(), sa.Integer).label("branch")
    columns = [sa.literal(branch).label("active_branch") if one is table.active_branch else one for one in _MARKED]
    found = select(*columns).where(table.tenant_id == tenant, table.id == key).cte("found")
    names = ("name", "text", "rating", "updated_at")

    def rows(table: Any, kind: Any, *columns: Any) -> Select[Any]:
        named = [column.label(name) for name, column in zip(names, columns, strict=True)]
        about = select(table.position, kind.label("kind"), *named, none).join(found, _is_in(table, found))
        return about.where(table.position.in_(positions))

    feedback = rows(said, sa.literal("feedback"), said.user_id, said.comment, said.rating, said.updated_at)
    if user is not None:
        feedback = feedback.where(said.user_id == user)
    named = rows(labels, sa.literal("label"), labels.key, labels.value, sa.null(), sa.null())
    decisions = rows(decided, decided.decision, decided.decided_by, decided.reason, sa.null(), decided.created_at)
    marks = _marks(found, user)
    is_of = marked.tenant_id == tenant, marked.conversation_id == key, marked.position == marks.c.position
    placed = select(marks.c.position, marks.c.kind, marked.branch).select_from(marks.join(items, and_(*is_of)))
    last = placed.order_by(marks.c.position.desc()).limit(limit).subquery("last_marks")
    nothing = [sa.null() for _ in range(4)]
    parts: list[Any] = [feedback, named, decisions, select(last.c.position, last.c.kind, *nothing, last.c.branch)]
    all_rows = sa.union_all(*parts).subquery("annotations")
    return select(all_rows).order_by(all_rows.c.position, all_rows.c.name)


class CallWindow(NamedTuple):
    """Positions of a conversation, and the time of calls that gave no response; None for any time."""

    first: int
    last: int
    since: datetime | None
    until: datetime | None


def calls_of(tenant: int, key: int, window: CallWindow, limit: int) -> Select[Any]:
    """Responses of a conversation with their calls, and calls of some time that gave none, in the order of time.

    The responses are those whose items overlap the positions, and those without items that were asked for there.
    """
    table, calls = responses.c, usage_records.c
    is_empty = table.to_position < table.from_position
    asked = sa.and_(is_empty, table.input_to >= (window.first or -1), table.input_to <= window.last)
    within = sa.or_(sa.and_(table.from_position <= window.last, table.to_position >= window.first), asked)
    of_it = sa.and_(
        calls.tenant_id == table.tenant_id, calls.conversation_id == table.conversation_id,
        calls.response == table.number,
    )  # fmt: skip
    columns = [table[name].label(f"response_{name}") for name in RESPONSE if name != "is_lost"]
    columns.append(is_lost().label("response_is_lost"))
    called = [calls[name].label(f"call_{name}") for name in CALL]
    answered = (
        select(*columns, *called)
        .select_from(responses.outerjoin(usage_records, of_it))
        .where(table.tenant_id == tenant, table.conversation_id == key, within)
    )
    alone = [calls.tenant_id == tenant, calls.conversation_id == key, calls.response.is_(None)]
    if window.since is not None:
        alone.append(calls.occurred_at >= window.since)
    if window.until is not None:
        alone.append(calls.occurred_at < window.until)
    none = [sa.null().label(column.name) for column in columns]
    both = sa.union_all(answered, select(*none, *called).where(*alone)).subquery("calls")
    at = func.coalesce(both.c.call_occurred_at, both.c.response_created_at)
    return select(both).order_by(at, both.c.response_number).limit(limit)


def responses_upto(tenant: int, key: int, number: int, limit: int) -> Select[Any]:
    """A response of a conversation, and those before it, the newest first."""
    table = responses.c
    where = [table.tenant_id == tenant, table.conversation_id == key, table.number <= number]
    return select(*LISTED).where(*where).order_by(table.number.desc()).limit(limit)


def open_response(tenant: int, key: int, branch: int) -> Select[Any]:
    """The number of the response in progress on a branch, unless its recorder is gone."""
    table = responses.c
    where = [table.tenant_id == tenant, table.conversation_id == key, table.open_branch == branch, ~is_lost()]
    return select(table.number).where(*where).limit(1)


# ---------------------------------------------------------------------------------------------------------------------
# Statements on how much a conversation holds

_TEXTS: Final = (items.c.payload, items.c.rest)


@cache
def sizes_of() -> Statement:
    """The bytes of all items of a conversation, and of their media, each as often as it is in an item."""
    return _sizes([items.c.branch >= 0])


@lru_cache(maxsize=256)
def sizes_in(ranges: int) -> Statement:
    """The same for some ranges. Parameters as of `in_ranges`."""
    return _sizes([in_ranges(ranges)])


def _sizes(which: list[ColumnElement[bool]]) -> Statement:
    texts = [func.coalesce(func.sum(byte_size(column)), 0) for column in _TEXTS]
    is_item = (items.c.tenant_id == item_blobs.c.tenant_id) & (items.c.position == item_blobs.c.position)
    is_item &= items.c.conversation_id == item_blobs.c.conversation_id
    is_blob = (blobs.c.tenant_id == item_blobs.c.tenant_id) & (blobs.c.hash == item_blobs.c.hash)
    media = select(func.coalesce(func.sum(blobs.c.size), 0)).select_from(
        item_blobs.join(items, is_item).join(blobs, is_blob)
    )
    return Statement(
        select(
            select(texts[0] + texts[1]).where(*of_conversation(items), *which).scalar_subquery().label("texts"),
            media.where(*of_conversation(item_blobs), *which).scalar_subquery().label("media"),
        )
    )


@cache
def page_sizes_of(*, descending: bool, scoped: bool) -> Statement:
    """The sizes of a page of one branch's items, as `stored_items_of` reads it: position, bytes of texts and of media.

    Also the first position of an item with the same id; NULL for an item without one. The last column is the revision.
    """
    is_blob = (blobs.c.tenant_id == item_blobs.c.tenant_id) & (blobs.c.hash == item_blobs.c.hash)
    media = select(func.coalesce(func.sum(blobs.c.size), 0)).select_from(item_blobs.join(blobs, is_blob))
    media = media.where(*of_conversation(item_blobs), item_blobs.c.position == items.c.position)
    same = items.alias()
    is_same = [same.c.tenant_id == items.c.tenant_id, same.c.conversation_id == items.c.conversation_id]
    is_same += [same.c.item_hash == items.c.item_hash, same.c.branch >= 0]
    first = select(func.min(same.c.position)).where(*is_same)
    texts = [func.coalesce(byte_size(column), 0) for column in _TEXTS]
    chosen = select(
        items.c.position, (texts[0] + texts[1]).label("texts"), media.correlate(items).scalar_subquery().label("media"),
        first.correlate(items).scalar_subquery().label("first"), revision_of(scoped=scoped),
    ).where(*between(items, branch="branch"))  # fmt: skip
    order = items.c.position.desc() if descending else items.c.position
    return Statement(chosen.order_by(order).limit(bindparam("limit")))
