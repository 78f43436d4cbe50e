"""Conversations: creating, opening, finding and listing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypedDict

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from threadkeep.db import backends, models, refusals
from threadkeep.db.driver.inserting import Insertion, insert_many
from threadkeep.db.queries.conversations import ACTIVE, CONVERSATION_READER
from threadkeep.domain import items, jsontext, stored
from threadkeep.domain.ids import new_key, new_public_id, public_id_text
from threadkeep.domain.session import Session
from threadkeep.errors import SHARED, InvalidOption
from threadkeep.store.changes.feed import change_row
from threadkeep.store.reading.history import HistoryPage, has_server_state, open_conversation, state_of
from threadkeep.store.work import connections, erasures, item_rows, validation
from threadkeep.store.work.caches import (
    ConfigCache,
    HashedText,
    ToolTexts,
    settings_row,
    settings_text,
    store_settings,
    store_tools,
)
from threadkeep.store.work.idempotency import IdempotencyKey, find_outcome, keep_outcome
from threadkeep.store.work.positions import UnwrittenConversation
from threadkeep.store.work.refs import TENANT_WIDE, ConversationState, Scope
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.work.units import OwnTransactions
from threadkeep.store.writing.appending import write_items

CREATED_AT, ITEMS_CREATED_AT = "created_at", "items_created_at"
_SETTINGS: Final = Insertion(models.configs, is_missing=True)
_TEXTS: Final = ("payload", "rest", "given")  # columns of items


class SourceTimes(NamedTuple):
    """When a conversation was created, and each of its items; None: now."""

    created_at: datetime | None = None
    items: Sequence[datetime] = ()  # as many as there are items, or none

    @classmethod
    def of(cls, info: Mapping[str, Any], count: int) -> SourceTimes:
        """The times that are given with a conversation of so many items."""
        created_at, values = validation.past_moment(CREATED_AT, info.get(CREATED_AT)), info.get(ITEMS_CREATED_AT)
        if values is None:
            return cls(created_at)
        is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray | memoryview)
        if not is_list or any(value is None for value in values):
            raise jsontext.mismatch(InvalidOption, "a list of datetimes", values, ITEMS_CREATED_AT)
        if len(values) != count:
            hint = "Give one time for each item of the session."
            problem = f"has {len(values):,} times for {count:,} items."
            raise InvalidOption(problem, argument=ITEMS_CREATED_AT, hint=hint)
        items = [at for value in values if (at := validation.past_moment(ITEMS_CREATED_AT, value)) is not None]
        return cls(min(items, default=None) if created_at is None else created_at, items)

    def of_conversation(self, now: datetime) -> tuple[datetime, datetime]:
        """When the conversation was created, and when something was last appended to it."""
        created_at = now if self.created_at is None else self.created_at
        return created_at, max([created_at, *self.items])

    def content(self) -> list[Any]:
        """What an idempotency key is for."""
        if self.created_at is None:
            return []
        return [self.created_at.isoformat(), [at.isoformat() for at in self.items]]


NOW: Final = SourceTimes()


# ---------------------------------------------------------------------------------------------------------------------
# Conversations: creating, opening, finding and listing them


class ConversationInfo(TypedDict, total=False):
    """What the application knows of a conversation.

    `created_at` and `items_created_at` are for importers, when a conversation is created: when that was at its source,
    and when each of its items was created; aware datetimes. By default, items are as old as their conversation.
    """

    user_id: str | None
    title: str | None
    labels: Mapping[str, str] | None
    external_id: str | None
    properties: Mapping[str, str] | None
    created_at: datetime | None
    items_created_at: Sequence[datetime] | None


@dataclass(frozen=True, slots=True)
class Creation:
    """A conversation to be created, with what it begins with."""

    settings: jsontext.JsonObject
    tools: Sequence[jsontext.JsonObject] = ()
    records: Sequence[item_rows.ItemRecord] = ()
    turns: Sequence[int | None] = ()  # for each item; offsets from the first position
    user_id: str | None = None
    external_id: str | None = None
    title: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    times: SourceTimes = NOW
    key: IdempotencyKey | None = None

    def described(self) -> list[Any]:
        """Its metadata, for idempotency keys."""
        texts = [self.user_id, self.external_id, self.title]
        return [*texts, dict(self.labels), dict(self.properties), *self.times.content()]


# Creating


def new_conversation(
    session: Session, info: ConversationInfo, scope: Scope, key: str | None = None, method: str = "create_conversation"
) -> Creation:
    """A session as it is going to be stored."""
    if not isinstance(session, Session):
        hint = "Make one with Session(...) or Session.from_dict(...)."
        raise jsontext.mismatch(InvalidOption, "a Session", session, "session", hint)
    known = known_conversation(info, scope, len(session.items))
    settings = dict(session.settings)
    if session.response_boundary:
        settings["response_boundary"] = session.response_boundary
    if session.imported is not None:
        settings["imported"] = session.imported.to_dict()
    records = [
        item_rows.encode_item(
            item.to_object(), author_id=item_rows.author_of(item), maker=maker, given=items.given_of(item)
        )
        for item, maker in zip(session.items, session.makers, strict=True)
    ]
    turns = item_rows.turn_offsets(session.turns)
    new = replace(known, settings=settings, tools=session.tools, records=records, turns=turns)
    if key is None:
        return new
    return replace(new, key=IdempotencyKey.of(key, method, [session.to_dict(), *new.described()]))


def known_conversation(info: ConversationInfo, scope: Scope, items: int) -> Creation:
    """What is known of a new conversation of so many items, without its content."""
    user_id = validation.optional_identifier("user_id", info.get("user_id"))
    if scope.user is not None and user_id not in {None, scope.user}:
        raise validation.other_user(scope.user, user_id)
    return Creation(
        {},
        user_id=scope.user or user_id,
        external_id=validation.optional_identifier("external_id", info.get("external_id")),
        title=validation.title_text(info.get("title")),
        labels=validation.label_texts(info.get("labels")),
        properties=validation.property_texts(info.get("properties")),
        times=SourceTimes.of(info, items),
    )


def create_conversation(
    transactions: Transactions, scope: Scope, configs: ConfigCache, new: Creation
) -> tuple[ConversationState, bool]:
    """Create a conversation; the second value says whether an earlier call with the same key had created it."""

    def write(connection: Connection) -> tuple[ConversationState, bool]:
        outcome = find_outcome(connection, scope.tenant, TENANT_WIDE, new.key, is_user=scope.user is not None)
        if outcome is not None:
            public_id = bytes.fromhex(outcome["public_id"])
            raise connections.Replay((open_conversation(connection, scope, "public_id", public_id, configs), True))
        (row,) = insert_conversations(connection, scope, [new])
        return state_of(connection, scope, CONVERSATION_READER.written(row), configs), False

    def write_at_once(connection: Connection) -> tuple[ConversationState, bool] | None:
        unwritten = _unwritten(scope, new)
        if unwritten is None or not unwritten.is_statement:
            return None
        unwritten.write(connection)
        return _state_of_new(unwritten, configs), False

    unit = transactions if isinstance(transactions, OwnTransactions) else None
    unwritten = None if unit is None or not unit.puts_off else _unwritten(scope, new)
    if unit is None or unwritten is None:
        conversation, is_replayed = write_items(
            transactions, scope, new.records, write, is_repeatable=new.key is not None, at_once=write_at_once
        )
    else:
        unit.put_off(unwritten)
        conversation, is_replayed = _state_of_new(unwritten, configs), False
    if unit is not None and not is_replayed and not has_server_state(conversation):
        turns = new.turns or [None] * len(new.records)
        entries = [record.entry(at, turns[at], None) for at, record in enumerate(new.records)]
        unit.note_created(HistoryPage(conversation, entries, 0, len(entries), None))
    return conversation, is_replayed


def _unwritten(scope: Scope, new: Creation) -> UnwrittenConversation | None:
    """A plain conversation as rows that can be written with others; None where more is to be done."""
    names = new.key, new.external_id, new.labels, new.tools, new.times.created_at
    texts = [text for record in new.records for text in map(record.columns.get, _TEXTS)]
    settings = settings_text(new.settings)
    size = sum(map(len, filter(None, (settings.text, new.title, *new.properties.values(), *texts))))
    has_more = any(record.media or record.columns["author_id"] for record in new.records)
    if any(names) or has_more or size > backends.LARGE:
        return None
    now = datetime.now(UTC)
    row = _row_of(scope, new, settings, None, now, None)
    rows: list[Any] = [(_SETTINGS, [settings_row(scope.tenant, settings, now)]), (models.conversations, [row])]
    if new.records:
        rows.append((models.items, [*_item_rows_of(scope, new, row["id"], now)]))
    rows.append((models.changes, [_change_of(scope, row, now)]))
    return UnwrittenConversation(scope, settings, row, rows)


def _change_of(scope: Scope, row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The row that tells of a new conversation."""
    places = {"branch": 0, "from_position": 0, "to_position": row["head_position"]}
    return change_row(scope.tenant, row["id"], row["public_id"], stored.APPENDED, now, **places)


def _state_of_new(new: UnwrittenConversation, configs: ConfigCache) -> ConversationState:
    row, config = CONVERSATION_READER.written(new.row), configs.get_new(new.scope.tenant, new.settings)
    return ConversationState(new.scope, row, config.settings, config.tools, 0, None, config.format_cache)


def create_conversations(
    transactions: Transactions, scope: Scope, batch: Sequence[Creation], key: IdempotencyKey | None
) -> list[str]:
    """Create conversations in one transaction; returns the ids that users see."""

    def write(connection: Connection) -> list[str]:
        outcome = find_outcome(connection, scope.tenant, TENANT_WIDE, key, is_user=scope.user is not None)
        if outcome is not None:
            raise connections.Replay(outcome["ids"])
        ids = [public_id_text(row["public_id"]) for row in insert_conversations(connection, scope, batch, key)]
        keep_outcome(connection, scope.tenant, TENANT_WIDE, key, datetime.now(UTC), kind="conversations", ids=ids)
        return ids

    records = [record for new in batch for record in new.records]
    return write_items(transactions, scope, records, write, is_repeatable=key is not None)


def insert_conversations(
    connection: Connection, scope: Scope, batch: Sequence[Creation], key: IdempotencyKey | None = None
) -> list[dict[str, Any]]:
    """Create conversations in a few statements; returns their rows. `key`: under which the caller keeps them."""
    now = datetime.now(UTC)
    settings = [settings_text(new.settings) for new in batch]
    tools = [ToolTexts.of(new.tools) for new in batch]
    rows = [_row_of(scope, *one, now, key) for one in zip(batch, settings, tools, strict=True)]
    store_settings(connection, scope.tenant, settings, now)
    for new, row in zip(batch, rows, strict=True):
        keep_outcome(
            connection, scope.tenant, TENANT_WIDE, new.key, now, kind="conversation", public_id=row["public_id"].hex()
        )
    if known_tools := [texts for texts in tools if texts is not None]:
        store_tools(connection, scope.tenant, known_tools, now)
    backends.check_sizes(connection, rows, "a conversation", ("title", "labels"))
    created = list(zip(batch, rows, strict=True))
    items = [item for new, row in created for item in _item_rows_of(scope, new, row["id"], now)]
    new_changes = [_change_of(scope, row, now) for row in rows]
    records = [record for new in batch for record in new.records]
    before, behind = [(models.conversations, rows)], [(models.changes, new_changes)]
    try:
        item_rows.insert_item_rows(connection, items, records, now, before, behind)
    except IntegrityError as error:
        raise_if_taken(scope, rows, error)
        raise
    labels = [label for new, row in created for label in label_rows(scope.tenant, row["id"], new.labels)]
    if labels:
        insert_many(connection, models.conversation_labels, labels)
    erasures.check_users(connection, scope, [row["user_id"] for row in rows])
    return rows


def _row_of(
    scope: Scope, new: Creation, config: HashedText, tools: ToolTexts | None, now: datetime, key: IdempotencyKey | None
) -> dict[str, Any]:
    key = new.key or key
    count, (created_at, last_activity_at) = len(new.records), new.times.of_conversation(now)
    return {
        "tenant_id": scope.tenant,
        "id": new_key(),
        "public_id": new_public_id(),
        "external_id": new.external_id,
        "user_id": new.user_id,
        "title": new.title,
        "labels": texts_by_name(new.labels),
        "properties": texts_by_name(new.properties),
        "status": ACTIVE,
        "config_hash": config.hash,
        "tool_set_hash": None if tools is None else tools.set.hash,
        "active_branch": 0,
        "next_position": count,
        "next_response": 0,
        "next_branch": 1,
        "head_position": count - 1,
        "lineage": None,
        "revision": 0,
        "created_at": created_at,
        "last_activity_at": last_activity_at,
        "streams": None,
        "search_from": 0 if count or new.title is not None else None,
        "creation_key": None if key is None else key.key,
    }


def _item_rows_of(scope: Scope, new: Creation, key: int, now: datetime) -> Iterator[dict[str, Any]]:
    created_at, _ = new.times.of_conversation(now)
    location = {"tenant_id": scope.tenant, "conversation_id": key, "branch": 0, "seen": None, "created_at": created_at}
    turns = new.turns or [None] * len(new.records)
    for position, (record, turn) in enumerate(zip(new.records, turns, strict=True)):
        row = record.row(location, position, turn)
        if new.times.items:
            row["created_at"] = new.times.items[position]
        yield row


def texts_by_name(texts: Mapping[str, str]) -> str | None:
    """Labels or properties as the row of a conversation holds them."""
    return jsontext.dumps(dict(texts)).decode() if texts else None


def label_rows(tenant: int, conversation: int, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows that conversations are found by."""
    return [
        {"tenant_id": tenant, "conversation_id": conversation, "key": name, "value": value}
        for name, value in labels.items()
    ]


def raise_if_taken(scope: Scope, rows: Sequence[Mapping[str, Any]], error: IntegrityError) -> None:
    """Say which external_id is taken; a return means that the error is about something else.

    Options and tools may have been removed just now, which nothing else used: the use case is repeated then.
    """
    ids = [row["external_id"] for row in rows if row["external_id"] is not None]
    if ids and not refusals.is_unmet_reference(error):
        others = " (or one of the others of this batch)" if len(ids) > 1 else ""
        problem = f"Another conversation has the external_id {ids[0]!r}{others}."
        hint = "find_conversation(external_id=...) finds it."
        if scope.user is not None:
            hint = f"{hint[:-1]}, unless it is another user's. {SHARED}"
        raise InvalidOption(problem, hint=hint) from error
