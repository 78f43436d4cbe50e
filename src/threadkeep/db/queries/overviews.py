"""Statements of overviews: what the ledger says of many conversations, or of the calls behind some items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, and_, bindparam, func, select

from threadkeep.db import models
from threadkeep.db.driver import Statement
from threadkeep.db.functions import byte_size
from threadkeep.db.models import blobs, conversations, item_blobs, items, responses, usage_records
from threadkeep.db.queries.conversations import DELETED, of_conversation, with_label
from threadkeep.db.queries.items import between, in_ranges, revision_of
from threadkeep.db.queries.responses import LISTED, is_lost

FAILED: Final = "failed"
MAX_SUMMED: Final = 100_000  # calls that are looked at for a list of the most expensive
# The columns of a call in the ledger
CALL: Final = (
    "response", "occurred_at", "provider", "model", "format", "status", "latency_ms", "first_token_ms", "input_tokens",
    "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens", "cost_nano", "error",
)  # fmt: skip
# The columns of a response
RESPONSE: Final = (
    "number", "branch", "format", "model", "status", "finish_reason", "provider_response_id", "input_to",
    "from_position", "to_position", "error", "incomplete_details", "created_at", "open_branch", "is_lost",
)  # fmt: skip


def keys_of(tenant: int, public_ids: Sequence[bytes]) -> Select[Any]:
    """The keys of conversations, by their public ids."""
    table = conversations.c
    return select(table.id, table.public_id).where(table.tenant_id == tenant, table.public_id.in_(public_ids))


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


def annotations_of(tenant: int, key: int, user: str | None, positions: Sequence[int]) -> Select[Any]:
    """Feedback and labels of items of a conversation: position, name, text, rating, time, and whether it is a label.

    `user`: only the feedback of this user.
    """
    said, labels = models.item_feedback.c, models.item_labels.c
    given = [said.tenant_id == tenant, said.conversation_id == key, said.position.in_(positions)]
    if user is not None:
        given.append(said.user_id == user)
    feedback = select(
        said.position,
        said.user_id.label("name"),
        said.comment.label("text"),
        said.rating,
        said.updated_at,
        sa.literal_column("0", sa.Integer).label("is_label"),
    ).where(*given)
    named = select(
        labels.position,
        labels.key,
        labels.value,
        sa.null().label("rating"),
        sa.null().label("updated_at"),
        sa.literal_column("1", sa.Integer).label("is_label"),
    ).where(labels.tenant_id == tenant, labels.conversation_id == key, labels.position.in_(positions))
    both = sa.union_all(feedback, named).subquery("annotations")
    return select(both).order_by(both.c.position, both.c.name)


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
