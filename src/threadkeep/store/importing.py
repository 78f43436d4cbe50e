"""Importing: conversations from sessions and from requests of providers, and turns of providers appended to them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.domain.formats import OpenCall, get_format
from threadkeep.domain.items import FunctionCall, FunctionCallOutput, Item, item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import body_object, dumped, shown
from threadkeep.domain.session import Session
from threadkeep.domain.stored import StoredItem
from threadkeep.errors import InvalidOption
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.shared.pairing import paired
from threadkeep.store.config_cache import ConfigCache
from threadkeep.store.conversations import (
    ConversationInfo,
    create_conversation,
    create_conversations,
    new_conversation,
    open_conversation,
)
from threadkeep.store.handle import Handle
from threadkeep.store.history import read_history
from threadkeep.store.idempotency import IdempotencyKey, keep_outcome
from threadkeep.store.item_rows import ItemRecord, author_of, encode_item, insert_items, turn_offsets
from threadkeep.store.items import AppendResult, read_appended
from threadkeep.store.lineage import ConversationState
from threadkeep.store.positions import NO_CHECK, NOTHING, AppendOptions, Counts, head_check, reserve, reserve_once
from threadkeep.store.refs import BranchRef, Scope
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import identifier

BATCH_SIZE: Final = 50  # conversations in one transaction


def provider_json(value: Any) -> Any:
    """A request or its turns as JSON values: given as such, as JSON text, or as objects of an SDK.

    SDK objects become JSON wherever they stand, and bytes become base64, as they are sent.

    Raises:
        CannotParse: it is text that is not JSON.
    """
    return body_object(value) if isinstance(value, str | bytes | bytearray) else _plain(value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    json = dumped(value)
    return value if json is value else _plain(json)


# Conversations


def import_request(
    transactions: Transactions,
    scope: Scope,
    configs: ConfigCache,
    payload: Any,
    format: str,
    *,
    model: str | None,
    stream: bool | None,
    options: Mapping[str, Any],
    info: ConversationInfo,
    key: str | None,
) -> tuple[ConversationState, bool]:
    """Create a conversation of a provider's request; see `Store.import_request`. Result as `create_conversation`.

    Raises:
        UnknownFormat, CannotParse, InvalidOption, InvalidItem, IdempotencyConflict: nothing was written.
    """
    session = request_session(payload, format, model, stream, options)
    new = new_conversation(session, info, scope, key, "import_request")
    return create_conversation(transactions, scope, configs, new)


def request_session(
    payload: Any, format: str, model: str | None, stream: bool | None, options: Mapping[str, Any]
) -> Session:
    """The session of a provider's request, with `options` set over those of the request.

    Raises:
        UnknownFormat, CannotParse, InvalidOption: it is not a request, or an option cannot be used.
    """
    session = get_format(format).parse_request(provider_json(payload), model=model, stream=stream)
    if options:
        session.update(**options)
    return session


def save_session(
    transactions: Transactions,
    scope: Scope,
    configs: ConfigCache,
    session: Session,
    info: ConversationInfo,
    key: str | None,
) -> tuple[ConversationState, bool]:
    """Create a conversation of a detached session. Errors and result as `create_conversation`."""
    return create_conversation(transactions, scope, configs, new_conversation(session, info, scope, key))


def save_sessions(
    transactions: Transactions, scope: Scope, sessions: Iterable[Session], info: ConversationInfo, key: str | None
) -> list[str]:
    """Create conversations of many sessions; see `Store.save_many`. Returns their ids."""
    ids = []
    for number, batch in enumerate(in_batches(sessions)):
        new = [new_conversation(session, info, scope) for session in batch]
        batch_key = None
        if key is not None:
            content = [[session.to_dict() for session in batch], dict(info), scope.user]
            batch_key = IdempotencyKey.of(f"{identifier('idempotency_key', key)}#{number}", "save_many", content)
        ids += create_conversations(transactions, scope, new, batch_key)
    return ids


def in_batches(sessions: Iterable[Session], size: int = BATCH_SIZE) -> Iterator[list[Session]]:
    """Sessions in lists of at most `size`.

    Raises:
        InvalidOption: it is not an iterable.
    """
    if not isinstance(sessions, Iterable):
        raise InvalidOption(f"must be an iterable of Session, not {shown(sessions)}.", argument="sessions")
    batch: list[Session] = []
    for session in sessions:
        batch.append(session)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def copy_conversation(
    transactions: Transactions,
    scope: Scope,
    configs: ConfigCache,
    id: str,
    session: Session,
    info: ConversationInfo,
    key: str | None,
) -> tuple[ConversationState, bool]:
    """Create a copy of the conversation `id`, of which `session` is a detached copy; errors as `create_conversation`.

    The key is for the original's id, because the original may have grown since.
    """
    new = new_conversation(session, info, scope)
    content = [id, new.user_id, new.external_id, new.title, dict(new.labels)]
    new = replace(new, key=IdempotencyKey.of(key, "copy_conversation", content))
    return create_conversation(transactions, scope, configs, new)


# Turns


@dataclass(frozen=True, slots=True)
class NewItems:
    """Items that are going to be appended; `turns` are the offsets at which their wire turns begin."""

    items: Sequence[Item]
    records: Sequence[ItemRecord]
    turns: Sequence[int | None]

    @classmethod
    def of(cls, items: Sequence[Item], turns: Sequence[int | None]) -> NewItems:
        """Items, with the numbers of the turns that they came in.

        Raises:
            InvalidItem: one of them cannot be stored.
        """
        records = [encode_item(item.to_object(), author_id=author_of(item)) for item in items]
        return cls(items, records, turn_offsets(turns))

    def append(self, connection: Connection, ref: BranchRef, now: datetime) -> AppendResult:
        """Append them to a branch of a conversation that is locked."""
        reservation = reserve(connection, ref, NO_CHECK, now, Counts(items=len(self.records)))
        insert_items(connection, ref, self.records, reservation, now, turns=self.turns)
        return AppendResult(reservation.first, reservation.count, reservation.branch, reservation.revision, now)

    def stored(self, ref: BranchRef, result: AppendResult) -> list[StoredItem]:
        """What a caller gets of them."""
        return [
            StoredItem(
                id=ref.item_id(result.first + offset),
                position=result.first + offset,
                branch=result.branch,
                turn=None if turn is None else result.first + turn,
                item=item,
                created_at=result.at,
            )
            for offset, (item, turn) in enumerate(zip(self.items, self.turns, strict=True))
        ]

    def update_cache(self, handle: Handle, result: AppendResult) -> None:
        """Let the handle know what it appended, turn by turn."""
        if result.branch != handle.ref.branch:
            return
        for turn, group in groupby(range(len(self.records)), key=self.turns.__getitem__):
            offsets = list(group)
            records = self.records[offsets[0] : offsets[-1] + 1]
            first, start = result.first + offsets[0], None if turn is None else result.first + turn
            handle.cache.append(records, first, result.revision, turn=start)


NO_ITEMS: Final = NewItems((), (), ())


class HistorySnapshot(NamedTuple):
    """What a handle had read of its branch when a use case began: everything below `next_position`."""

    conversation: ConversationState
    entries: Sequence[Entry]
    next_position: int


def read_locked_history(
    connection: Connection, ref: BranchRef, configs: ConfigCache, snapshot: HistorySnapshot
) -> Sequence[Entry]:
    """The items of a branch of a conversation that is locked; only what the snapshot does not have is read."""
    conversation, entries, since = snapshot
    if ref.branch != conversation.branch:
        conversation, since = open_conversation(connection, ref.scope, "id", ref.key, configs, ref.branch), 0
    page = read_history(connection, ref, configs, conversation, since, is_latest=True)
    return [*entries, *page.entries] if page.since else page.entries


def add_input(handle: Handle, turns: Any, format: str, options: AppendOptions) -> list[StoredItem]:
    """Append a provider's turns; see `Conversation.add_input`.

    The conversation is locked before its history is read, because what the turns mean depends on it.
    """
    wire, value = get_format(format), provider_json(turns)
    wire.parse_turns(value)  # what is not a turn is refused before anything is begun
    check = head_check(options)
    key = None
    if options.get("idempotency_key") is not None:
        key = IdempotencyKey.of(options["idempotency_key"], "add_input", {"turns": value, "format": format})
    snapshot = HistorySnapshot(*handle.cache.history())

    def write(connection: Connection) -> tuple[list[StoredItem], NewItems, AppendResult]:
        now, replay = datetime.now(UTC), partial(_read_replayed, connection, handle.ref)
        reservation = reserve_once(connection, handle.ref, check, now, NOTHING, key, replay)
        ref = handle.ref.on(reservation.branch)
        entries = read_locked_history(connection, ref, handle.resources.configs, snapshot)
        calls = open_calls(entries)
        new = _new_items(resolve_calls(wire.parse_turns(value, calls), entries, calls))
        result = new.append(connection, ref, now)
        if key is not None:
            keep_outcome(
                connection, ref.scope.tenant, ref.key, key, now,
                kind="items", first=result.first, count=result.count, branch=result.branch,
            )  # fmt: skip
        return new.stored(ref, result), new, result

    items, new, result = handle.transactions.write(write, is_repeatable=key is not None)
    new.update_cache(handle, result)
    handle.after_write()
    return items


def _read_replayed(
    connection: Connection, ref: BranchRef, outcome: JsonObject
) -> tuple[list[StoredItem], NewItems, AppendResult]:
    result = AppendResult.of_outcome(outcome)
    return read_appended(connection, ref, result), NO_ITEMS, result


def _new_items(turns: Sequence[Sequence[Item]]) -> NewItems:
    items = [item for turn in turns for item in turn]
    return NewItems.of(items, [number for number, turn in enumerate(turns) for _ in turn])


def open_calls(entries: Sequence[Entry]) -> list[OpenCall]:
    """The calls of a history that have no output yet, in order."""
    pairing = paired(entries)
    late = {call.position for call in pairing.late.values()}
    unanswered = (call for call in pairing.unanswered.values() if call.position not in late)
    return [
        OpenCall(call.call_id, str(call.item().get("name") or "")) for call in unanswered if call.call_id is not None
    ]


def resolve_calls(
    turns: Sequence[Sequence[Item]], entries: Sequence[Entry], calls: Sequence[OpenCall]
) -> Sequence[Sequence[Item]]:
    """Turns whose outputs name calls of the history: clients rename calls whose ids a host had used before.

    Outputs that belong to no call are those of the open calls, in order, if there are as many of both.
    """
    items = [item for turn in turns for item in turn]
    known = {entry.call_id for entry in entries} | {item.call_id for item in items if isinstance(item, FunctionCall)}
    outputs = [item for item in items if isinstance(item, FunctionCallOutput)]
    unknown = [output for output in outputs if output.call_id not in known]
    answered = {output.call_id for output in outputs}
    open_ids = [call.call_id for call in calls if call.call_id not in answered]
    if not unknown or len(unknown) != len(open_ids):
        return turns
    call_ids = {id(output): call_id for output, call_id in zip(unknown, open_ids, strict=True)}
    return [
        [
            item_from_object({**item.to_object(), "call_id": call_ids[id(item)]}) if id(item) in call_ids else item
            for item in turn
        ]
        for turn in turns
    ]
