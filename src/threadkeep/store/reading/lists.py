"""Lists of conversations: pages in any order, as handles or as summaries with a preview and unread marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db import backends, driver, models
from threadkeep.db.queries import conversations
from threadkeep.db.queries import lists as queries
from threadkeep.domain import ids, jsontext, searching, stored
from threadkeep.domain.stored import Page, Seen
from threadkeep.errors import InvalidOption, NotFound
from threadkeep.store.reading.history import state_of
from threadkeep.store.work import caches, erasures, states, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import ConversationState, Lineage, Scope, lineage_from, root_lineage
from threadkeep.store.work.transactions import Transactions

MAX_SUMMARIES: Final = 100  # on a page
_ORDERS: Final = (queries.ACTIVITY, queries.CREATED, queries.TITLE)
CONFIG_HASH = conversations.CONVERSATION_READER.index("config_hash")
TOOL_SET_HASH = conversations.CONVERSATION_READER.index("tool_set_hash")
ACTIVE_BRANCH = conversations.CONVERSATION_READER.index("active_branch")


class Wanted(NamedTuple):
    """Which conversations are listed, in which order, and which page."""

    query: queries.ListQuery
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
            order = "asc" if order_by == queries.TITLE else "desc"
        is_descending = validation.one_of("order", order, ("asc", "desc")) == "desc"
        labels = validation.label_filter(wanted["labels"])
        decode = validation.title_cursor if order_by == queries.TITLE else validation.conversation_cursor
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
        query = queries.ListQuery(
            order_by, is_descending, parameters["user"] is not None, status is not None, len(labels), after is not None,
            reads=reader is not None, unread=reader is not None,
            since="since" in more, until="until" in more, calls=calls,
        )  # fmt: skip
        parameters |= more
        return cls(query, {name: value for name, value in parameters.items() if value is not None}, limit)

    def rows(self, connection: Connection) -> tuple[Sequence[driver.Row], str | None]:
        """The rows of the page, and where the next one begins."""
        query = self.query
        if query.labels and not query.calls:
            *counts, most = queries.label_counts(query).fetch_all(connection, self.parameters)[0]
            if not min(counts):
                return (), None
            if min(counts) < most:
                query = query._replace(start=counts.index(min(counts)))
        rows = queries.conversation_page(query).fetch_all(connection, self.parameters)
        if len(rows) <= self.limit:
            return rows, None
        last = rows[self.limit - 1]
        key = conversations.CONVERSATION_READER.read(connection, [last])[0]
        if self.query.order_by == queries.TITLE:
            return rows[: self.limit], validation.title_after(last[-1], key.id)
        at = key.created_at if self.query.order_by == queries.CREATED else key.last_activity_at
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
    transactions: Transactions, scope: Scope, configs: caches.ConfigCache, arguments: Mapping[str, Any]
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
        for row, record in zip(rows, conversations.CONVERSATION_READER.read(connection, rows), strict=True):
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
        records = queries.SUMMARY_READER.read(connection, rows)
        previews = previews_of(connection, scope, records)
        return Page([_summary(record, previews.get(record.id), reader) for record in records], following)

    return transactions.read_any(read)


def _summary(row: driver.LazyRow, preview: str | None, reader: str | None) -> stored.ConversationSummary:
    public_id = ids.public_id_text(bytes(row.public_id))
    texts = {
        name: jsontext.loads_stored(getattr(row, name) or "{}", "conversations", f"public_id {public_id}")
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


# ---------------------------------------------------------------------------------------------------------------------
# Previews: the beginning of the newest text that was said in a conversation, read from the rows near its end

# How many positions before the end of a branch are looked at, and how many where there is no text among these
REACHES: Final = (64, 1_024)
MAX_RANGES: Final = 4  # of a conversation: parts of forks, and between removed items


def previews_of(
    connection: Connection, scope: Scope, rows: Sequence[driver.LazyRow], reaches: Sequence[int] = REACHES
) -> dict[int, str]:
    """Previews of the active branches of conversations, by key; in a statement for branches, and one a reach."""
    lineages = _lineages(connection, scope, rows)
    rows = [row for row in rows if row.id in lineages]  # not those deleted, with their branches, since they were read
    found: dict[int, str] = {}
    added: dict[int, str] = {}  # what programs say, for where nothing else is said
    for reach in reaches:
        ranges = [
            (row.id, *one) for row in rows if row.id not in found
            for one in _last_ranges(lineages[row.id], row.active_branch, reach)
        ]  # fmt: skip
        if ranges:
            for key, json in connection.execute(queries.newest_messages(scope.tenant, ranges)):
                if key not in found:
                    if words := searching.words_in(json, queries.JSON_LENGTH):
                        found[key] = searching.beginning_of(words)
                    elif text := searching.text_in("message", json, queries.JSON_LENGTH):
                        added.setdefault(key, searching.beginning_of(text))
        rows = [row for row in rows if row.id not in found and row.next_position > reach]
    return {**added, **found}


def _lineages(connection: Connection, scope: Scope, rows: Sequence[driver.LazyRow]) -> Mapping[int, Lineage]:
    """The lineages of the active branches, by the keys of the conversations."""
    forks = [(row.id, row.active_branch) for row in rows if row.active_branch]
    found = {row.id: root_lineage(row) for row in rows if not row.active_branch}
    if forks:
        for branch in connection.execute(queries.branches_at(scope.tenant, forks)):
            found[branch.conversation_id] = lineage_from(branch)
    return found


def _last_ranges(lineage: Lineage, branch: int, reach: int) -> Iterator[tuple[int, int, int]]:
    """The last positions of a branch, as (branch, after, up to), the newest first."""
    for number, after, upto in list(reversed(lineage.ranges(branch, -1, lineage.head)))[:MAX_RANGES]:
        low = max(after, upto - reach)
        yield number, low, upto
        reach -= upto - low
        if reach <= 0:
            return


# ---------------------------------------------------------------------------------------------------------------------
# How far users have read conversations


def mark_seen(handle: Handle, user_id: str | None, position: int | None, *, move_back: bool) -> Seen:
    """Note that a user has read up to a position; see `Conversation.mark_seen`."""
    ref, reader = handle.ref, _reader(handle, user_id)
    wanted = None if position is None else validation.whole_number("position", position, validation.MAX_POSITION)
    if wanted is not None and wanted < -1:
        raise jsontext.mismatch(InvalidOption, "a position, or -1 for nothing", position, "position")

    def write(connection: Connection) -> Seen:
        now = datetime.now(UTC)
        states.lock_conversation(connection, ref)
        last, before, seen_at = _read(connection, handle, reader)
        place = last if wanted is None else min(wanted, last)
        if before is not None and place < before and not move_back:
            return Seen(reader, before, seen_at)
        row = ref.columns(user_id=reader, position=place, seen_at=now)
        connection.execute(
            backends.backend_of(connection).insert_or_replace(models.conversation_reads, "position", "seen_at"), row
        )
        erasures.check_users(connection, ref.scope, [reader] if ref.scope.user is None else ())
        return Seen(reader, place, now)

    return handle.transactions.write(write, is_repeatable=True)


def find_seen(handle: Handle, user_id: str | None) -> Seen | None:
    """How far a user has read; see `Conversation.seen`."""
    reader = _reader(handle, user_id)
    _, position, seen_at = handle.transactions.read_any(lambda connection: _read(connection, handle, reader))
    return None if position is None else Seen(reader, position, seen_at)


def _reader(handle: Handle, user_id: object) -> str:
    """Who reads: the given user, or else the store's, or the conversation's."""
    owner = handle.ref.scope.user
    if user_id is not None:
        reader = validation.identifier("user_id", user_id)
        if owner is not None and reader != owner:
            raise validation.other_user(owner, reader)
        return reader
    known: str | None = owner or handle.cache.conversation.row.user_id
    if known is None:
        hint = "Say who has read it: this conversation has no user."
        raise InvalidOption("is missing.", argument="user_id", hint=hint)
    return known


def _read(connection: Connection, handle: Handle, reader: str) -> tuple[int, int | None, datetime]:
    """The last position of the conversation, and the mark of the reader."""
    ref, scope = handle.ref, handle.ref.scope
    statement = queries.seen_by(scoped=scope.user is not None)
    row = connection.execute(statement, scope.parameters(key=ref.key, reader=reader)).one_or_none()
    if row is None:
        raise ref.not_found()
    return row.next_position - 1, row.position, row.seen_at
