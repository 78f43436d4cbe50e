"""Lists of conversations: pages in any order, as handles or as summaries with a preview and unread marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.driver import LazyRow, Row
from threadkeep.db.queries.conversations import CONVERSATION_READER
from threadkeep.db.queries.lists import (
    ACTIVITY,
    CREATED,
    SUMMARY_READER,
    TITLE,
    ListQuery,
    conversation_page,
    label_counts,
)
from threadkeep.db.types import UtcDateTime
from threadkeep.domain import stored
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.jsontext import loads_stored
from threadkeep.domain.pages import Page
from threadkeep.errors import NotFound
from threadkeep.store import previews as preview_texts
from threadkeep.store import validation
from threadkeep.store.config_cache import ConfigCache
from threadkeep.store.finding import state_of
from threadkeep.store.lineage import ConversationState
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions

MAX_SUMMARIES: Final = 100  # on a page
_ORDERS: Final = (ACTIVITY, CREATED, TITLE)
_MOMENT: Final = UtcDateTime()
CONFIG_HASH = CONVERSATION_READER.index("config_hash")
TOOL_SET_HASH = CONVERSATION_READER.index("tool_set_hash")
ACTIVE_BRANCH = CONVERSATION_READER.index("active_branch")


class Wanted(NamedTuple):
    """Which conversations are listed, in which order, and which page."""

    query: ListQuery
    parameters: Mapping[str, Any]
    limit: int

    @classmethod
    def of(cls, scope: Scope, wanted: Mapping[str, Any], most: int = validation.MAX_PAGE) -> Wanted | None:
        """The arguments of `Store.list_conversations` by name; None where nothing can match."""
        status = validation.status_filter(wanted["status"])
        limit = validation.page_size(wanted["limit"], most=most)
        user, reader = (validation.optional_identifier(name, wanted[name]) for name in ("user_id", "unread_by"))
        order_by = validation.one_of("order_by", wanted["order_by"], _ORDERS)
        order = wanted["order"]
        if order is None:
            order = "asc" if order_by == TITLE else "desc"
        is_descending = validation.one_of("order", order, ("asc", "desc")) == "desc"
        labels = validation.label_filter(wanted["labels"])
        decode = validation.title_cursor if order_by == TITLE else validation.conversation_cursor
        after: tuple[str | datetime, int] | None = decode(wanted["after"])
        if scope.user is not None and reader not in {None, scope.user}:
            raise validation.other_user(scope.user, reader, "unread_by")
        if scope.user is not None and user not in {None, scope.user}:
            return None
        parameters: dict[str, Any] = {"status": status, "user": user, "reader": reader}
        parameters |= scope.parameters(limit=limit + 1)
        if after is not None:
            parameters["after_key"], parameters["after_id"] = after
        for number, (name, value) in enumerate(sorted(labels.items())):
            parameters[f"key_{number}"], parameters[f"value_{number}"] = name, value
        calls, more = _asked(wanted)
        query = ListQuery(
            order_by, is_descending, parameters["user"] is not None, status is not None, len(labels), after is not None,
            reads=reader is not None, unread=reader is not None,
            since="since" in more, until="until" in more, calls=calls,
        )  # fmt: skip
        parameters |= more
        return cls(query, {name: value for name, value in parameters.items() if value is not None}, limit)

    def rows(self, connection: Connection) -> tuple[Sequence[Row], str | None]:
        """The rows of the page, and where the next one begins."""
        query = self.query
        if query.labels and not query.calls:
            *counts, most = label_counts(query).fetch_all(connection, self.parameters)[0]
            if min(counts) < most:
                query = query._replace(start=counts.index(min(counts)))
        rows = conversation_page(query).fetch_all(connection, self.parameters)
        if len(rows) <= self.limit:
            return rows, None
        last = rows[self.limit - 1]
        key = CONVERSATION_READER.read(connection.dialect, [last])[0]
        if self.query.order_by == TITLE:
            return rows[: self.limit], validation.title_after(last[-1], key.id)
        at = key.created_at if self.query.order_by == CREATED else key.last_activity_at
        return rows[: self.limit], validation.cursor_after(at, key.id)


def _asked(wanted: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """What is asked of calls, and the parameters of that and of the time of the last activity."""
    parameters = {name: wanted[name] for name in ("since", "until") if wanted.get(name) is not None}
    calls: Mapping[str, Any] = wanted.get("calls", {})
    for name, value in calls.items():
        if name == "day":
            parameters["called_from"], parameters["called_to"] = value
        else:
            parameters[f"called_{name}"] = value
    return tuple(sorted(calls)), parameters


def list_conversations(
    transactions: Transactions, scope: Scope, configs: ConfigCache, arguments: Mapping[str, Any]
) -> Page[ConversationState]:
    """A page of conversations; see `Store.list_conversations`, whose arguments are given by name."""
    wanted = Wanted.of(scope, arguments)
    if wanted is None:
        return Page([])

    def read(connection: Connection) -> Page[ConversationState]:
        """Options and tools that are not known are read in a few statements."""
        rows, following = wanted.rows(connection)
        settings = configs.settings_by_hash(connection, scope.tenant, {row[CONFIG_HASH] for row in rows})
        states = []
        for row, record in zip(rows, CONVERSATION_READER.read(connection.dialect, rows), strict=True):
            if row[TOOL_SET_HASH] is None and not row[ACTIVE_BRANCH]:
                states.append(ConversationState(scope, record, settings[row[CONFIG_HASH]], [], 0))
            else:
                with suppress(NotFound):  # deleted, with its branches, since its row was read
                    states.append(state_of(connection, scope, record, configs))
        return Page(states, following)

    return transactions.read_any(read)


def list_summaries(
    transactions: Transactions, scope: Scope, arguments: Mapping[str, Any]
) -> Page[stored.ConversationSummary]:
    """A page of summaries; see `Store.list_summaries`, whose arguments are given by name."""
    reader = validation.optional_identifier("seen_by", arguments["seen_by"])
    if scope.user is not None and reader not in {None, scope.user}:
        raise validation.other_user(scope.user, reader, "seen_by")
    wanted = Wanted.of(scope, arguments, MAX_SUMMARIES)
    if wanted is None:
        return Page([])
    reader = wanted.parameters.get("reader", reader or scope.user)
    query = wanted.query._replace(reads=True, own=reader is None)
    parameters = wanted.parameters if reader is None else {**wanted.parameters, "reader": reader}
    page = wanted._replace(query=query, parameters=parameters)

    def read(connection: Connection) -> Page[stored.ConversationSummary]:
        rows, following = page.rows(connection)
        records = SUMMARY_READER.read(connection.dialect, rows)
        previews = preview_texts.previews_of(connection, scope, records)
        return Page([_summary(record, previews.get(record.id), reader) for record in records], following)

    return transactions.read_any(read)


def _summary(row: LazyRow, preview: str | None, reader: str | None) -> stored.ConversationSummary:
    public_id = public_id_text(bytes(row.public_id))
    texts = {
        name: loads_stored(getattr(row, name) or "{}", "conversations", f"public_id {public_id}")
        for name in ("labels", "properties")
    }
    is_known = reader is not None or row.user_id is not None
    seen = -1 if row.position is None else row.position
    return stored.ConversationSummary(
        id=public_id,
        external_id=row.external_id,
        user_id=row.user_id,
        title=row.title,
        **texts,
        status=row.status,
        created_at=row.created_at,
        last_activity_at=row.last_activity_at,
        preview=preview,
        item_count=row.next_position,
        response_count=row.next_response,
        branch_count=row.next_branch,
        seen_at=row.seen_at,
        is_unread=row.next_position - 1 > seen if is_known else None,
    )
