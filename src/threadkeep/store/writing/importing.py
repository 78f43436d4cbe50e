"""Importing: conversations from sessions and from requests of providers, and turns of providers appended to them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice, zip_longest
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.domain import content, rendering, response, stored, written
from threadkeep.domain import items as item_objects
from threadkeep.domain.formats import Format, OpenCall, get_format
from threadkeep.domain.jsontext import MAX_DEPTH, JsonObject, body_object, dumped
from threadkeep.domain.options import settings_with
from threadkeep.domain.running import StoredTurn
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, InvalidOption, shown
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.shared.pairing import paired
from threadkeep.store.reading.history import read_history, reopen_conversation
from threadkeep.store.reading.rendering import detach_with_times
from threadkeep.store.usage.ledger import CallInfo
from threadkeep.store.work import pacing, positions, refs, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.idempotency import IdempotencyKey
from threadkeep.store.work.item_rows import author_of, encode_item, turn_offsets
from threadkeep.store.work.positions import IDLE, AppendOptions, Counts, HeadCheck
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.writing import conversations, responses
from threadkeep.store.writing.appending import AppendResult, NewItems, TurnItems, read_appended, write_items

# ---------------------------------------------------------------------------------------------------------------------
# Importing: conversations from sessions and from requests of providers, and turns of providers appended to them

BATCH_SIZE: Final = 50  # conversations in one transaction
TRIES: Final = 3  # how often what continues a history is found out before the conversation is locked


def provider_json(value: Any) -> Any:
    """A request or its turns as JSON values: given as such, as JSON text, or as objects of an SDK.

    SDK objects become JSON wherever they stand, and bytes become base64, as they are sent.
    """
    return body_object(value) if isinstance(value, str | bytes | bytearray) else _plain(value)


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise CannotParse(f"The request is nested deeper than {MAX_DEPTH} levels.")
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    json = dumped(value)
    return value if json is value else _plain(json, depth)


# Conversations


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to be saved by `save_many`, with what the application knows of that conversation.

    Attributes:
        session: the session.
        user_id, title, labels, external_id, properties: as in `create_conversation`; None: as given to `save_many`.
        created_at: when the conversation was created at its source; aware.
        items_created_at: when each of its items was created; aware.
    """

    session: Session
    user_id: str | None = None
    title: str | None = None
    labels: Mapping[str, str] | None = None
    external_id: str | None = None
    properties: Mapping[str, str] | None = None
    created_at: datetime | None = None
    items_created_at: Sequence[datetime] | None = None

    def info(self, common: conversations.ConversationInfo) -> conversations.ConversationInfo:
        """What is known of this conversation, and of all."""
        own: Any = {name: value for name in _INFO if (value := getattr(self, name)) is not None}
        return {**common, **own}


_INFO: Final = tuple(conversations.ConversationInfo.__annotations__)


def request_session(
    payload: Any, format: str, model: str | None, stream: bool | None, options: Mapping[str, Any]
) -> Session:
    """The session of a provider's request, with `options` set over the request's."""
    session = get_format(format).parse_request(provider_json(payload), model=model, stream=stream)
    settings_with({}, {"model": model, "stream": stream})  # what cannot be used is refused
    if options:
        session.update(**options)
        session.attribute(response.asked_of(session.settings).answering(None))
    return session


def save_sessions(
    transactions: Transactions,
    scope: refs.Scope,
    sessions: Iterable[Session | NewSession],
    info: conversations.ConversationInfo,
    key: str | None,
) -> list[str]:
    """Create conversations of many sessions; see `Store.save_many`. Returns their ids."""
    ids, upkeep = [], pacing.Upkeep(transactions)
    for number, batch in enumerate(in_batches(sessions)):
        pairs = [(one.session, one.info(info)) if isinstance(one, NewSession) else (one, info) for one in batch]
        new = [conversations.new_conversation(session, own, scope) for session, own in pairs]
        batch_key = None
        if key is not None:
            content = [[session.to_dict(), *one.described()] for (session, _), one in zip(pairs, new, strict=True)]
            batch_key = IdempotencyKey.of(
                f"{validation.identifier('idempotency_key', key)}#{number}", "save_many", content
            )
        ids += conversations.create_conversations(transactions, scope, new, batch_key)
        upkeep.add(sum(len(one.records) for one in new))
    return ids


def in_batches(
    sessions: Iterable[Session | NewSession], size: int = BATCH_SIZE
) -> Iterator[list[Session | NewSession]]:
    """Sessions in lists of at most `size`."""
    if not isinstance(sessions, Iterable):
        raise InvalidOption(f"must be an iterable of Session, not {shown(sessions)}.", argument="sessions")
    rest = iter(sessions)
    while batch := list(islice(rest, size)):
        yield batch


def copied_conversation(
    handle: Handle,
    kept: conversations.ConversationInfo,
    info: conversations.ConversationInfo,
    scope: refs.Scope,
    key: str | None,
) -> conversations.Creation:
    """A copy of a conversation, with what is `kept` of it and the times of its items, unless `info` has others.

    The key is for the original's id, because the original may have grown since.
    """
    session, items_created_at = detach_with_times(handle)
    described = conversations.known_conversation(info, scope, len(session.items)).described()
    once = IdempotencyKey.of(key, "copy_conversation", [handle.ref.public_id, *described])
    new = conversations.new_conversation(session, {**kept, **info}, scope)
    times = new.times if new.times.items else conversations.SourceTimes(new.times.created_at, items_created_at)
    return replace(new, times=times, key=once)


# Turns


def new_items(
    items: Sequence[item_objects.Item], turns: Sequence[int | None], makers: Sequence[str | None] = ()
) -> NewItems:
    """Items that are going to be appended, with the numbers of the turns that they came in, and their makers."""
    records = [
        encode_item(item.to_object(), author_id=author_of(item), maker=maker, given=item_objects.given_of(item))
        for item, maker in zip_longest(items, makers)
    ]
    return NewItems(items, records, turn_offsets(turns))


@dataclass(frozen=True, slots=True)
class Continuation:
    """What continues a history, on which branch; `outcome` is kept of it under the idempotency key.

    `fork_at`: it is on a branch that is forked off at that position first, with the number `new_branch`.
    """

    ref: refs.BranchRef
    new: NewItems
    outcome: JsonObject = field(default_factory=dict)
    fork_at: int | None = None
    new_branch: int | None = None


# Says what continues a history, from a connection, the branch, its entries, and `is_latest=` as in `read_history`
Continue = Callable[..., Continuation]


class PlanOutdated(Exception):
    """Ends a transaction that was to append what was made of an earlier state of the conversation."""


class Plan(NamedTuple):
    """What continues a history as it was at a revision, below a position."""

    found: Continuation
    revision: int
    next_position: int


def append_to_history(
    handle: Handle, options: AppendOptions, key: IdempotencyKey | None, continue_: Continue, *, is_planned: bool = False
) -> tuple[list[stored.StoredItem], AppendResult, JsonObject]:
    """Append what `continue_` makes of the history of a branch; returns it with what is kept of it under the key.

    What is new depends on the history. `is_planned`: so it is found out before the conversation is locked, and anew if
    something has changed by then. Otherwise, and after some tries, the conversation is locked first.
    """
    check = positions.head_check(options)
    is_planned = is_planned or handle.resources.blobs is not None  # media are put there before the lock is taken
    for _ in range(TRIES if is_planned and handle.transactions.commits_itself else 0):
        with suppress(PlanOutdated):
            return _append(handle, check, key, continue_, _plan(handle, continue_))
    return _append(handle, check, key, continue_)


def _plan(handle: Handle, continue_: Continue) -> Plan:
    handle.read_snapshot(is_current=True)
    conversation, entries, next_position = handle.cache.history()
    found = handle.transactions.read(lambda connection: continue_(connection, handle.ref, entries, is_latest=False))
    return Plan(found, conversation.row.revision, next_position)


def _append(
    handle: Handle, check: HeadCheck, key: IdempotencyKey | None, continue_: Continue, plan: Plan | None = None
) -> tuple[list[stored.StoredItem], AppendResult, JsonObject]:
    """Append what was planned, else what continues the history now."""

    def write(connection: Connection) -> tuple[list[stored.StoredItem], AppendResult, JsonObject, NewItems]:
        def replay(outcome: JsonObject) -> tuple[list[stored.StoredItem], AppendResult, JsonObject, NewItems]:
            result = AppendResult.of_outcome(outcome)
            return read_appended(connection, handle.ref, result), result, outcome, NewItems((), ())

        now = check.at or datetime.now(UTC)
        locked = positions.reserve_once(connection, handle.ref, check, now, IDLE, key, replay)
        ref = handle.ref.on(locked.branch)
        if plan is None:
            # The items of the branch, now that the conversation is locked
            (conversation, known, since), configs = handle.cache.history(), handle.resources.configs
            if ref.branch != conversation.branch:
                conversation = reopen_conversation(connection, ref, configs, ref.branch)
                since = 0
            page = read_history(connection, ref, configs, conversation, since, is_latest=True)
            found = continue_(connection, ref, [*known, *page.entries] if page.since else page.entries, is_latest=True)
        elif (ref, locked.revision, locked.first) == (handle.ref, plan.revision, plan.next_position):
            found = plan.found
        else:
            raise PlanOutdated
        ref = found.ref
        if found.fork_at is not None:
            ref = ref.on(positions.fork(connection, ref, found.fork_at, now, is_dated=check.at is not None))
            if plan is not None and ref.branch != found.new_branch:
                raise PlanOutdated
        reservation = positions.reserve(
            connection,
            ref,
            HeadCheck(at=check.at),
            now,
            Counts(items=len(found.new.items), is_idle=not found.new.items),
        )
        result = found.new.insert(connection, ref, reservation, key, now, **found.outcome)
        return found.new.stored(ref, result), result, found.outcome, found.new

    records = () if plan is None else plan.found.new.records
    items, result, outcome, new = write_items(
        handle.transactions, handle.ref.scope, records, write, is_repeatable=key is not None
    )
    new.take_in(handle, result)
    return items, result, outcome


def add_input(handle: Handle, turns: Any, format: str, options: AppendOptions) -> list[stored.StoredItem]:
    """Append a provider's turns; see `Conversation.add_input`."""
    wire = get_format(format)
    if isinstance(turns, str | bytes):
        wire.parse_turns(turns)  # says how turns look
    value = provider_json(turns)
    wire.parse_turns(value)  # what is not a turn is refused before anything is begun
    key = positions.idempotency_key(options, "add_input", {"turns": value, "format": format})

    def continue_(_: Connection, ref: refs.BranchRef, entries: Sequence[ItemEntry], *, is_latest: bool) -> Continuation:
        del is_latest
        calls = open_calls(entries)
        parsed = resolve_calls(wire.parse_turns(value, calls), entries, calls)
        items = [item for turn in parsed for item in turn]
        return Continuation(ref, new_items(items, [number for number, turn in enumerate(parsed) for _ in turn]))

    return append_to_history(handle, options, key, continue_)[0]


def open_calls(entries: Sequence[ItemEntry]) -> list[OpenCall]:
    """The calls of a history that have no output yet, in order."""
    pairing = paired(entries)
    late = {call.position for call in pairing.late.values()}
    unanswered = (call for call in pairing.unanswered.values() if call.position not in late)
    return [
        OpenCall(call.call_id, str(call.item().get("name") or "")) for call in unanswered if call.call_id is not None
    ]


def resolve_calls(
    turns: Sequence[Sequence[item_objects.Item]], entries: Sequence[ItemEntry], calls: Sequence[OpenCall]
) -> Sequence[Sequence[item_objects.Item]]:
    """Turns whose outputs name calls of the history: clients rename calls whose ids a host had used before.

    Outputs that belong to no call answer the open calls, in order, if there are as many of both.
    """
    items = [item for turn in turns for item in turn]
    known = {entry.call_id for entry in entries} | {
        item.call_id for item in items if isinstance(item, item_objects.FunctionCall)
    }
    outputs = [item for item in items if isinstance(item, item_objects.FunctionCallOutput)]
    unknown = [output for output in outputs if output.call_id not in known]
    answered = {output.call_id for output in outputs}
    open_ids = [call.call_id for call in calls if call.call_id not in answered]
    if not unknown or len(unknown) != len(open_ids):
        return turns
    call_ids = {id(output): call_id for output, call_id in zip(unknown, open_ids, strict=True)}
    return [
        [
            item_objects.with_given_of(
                item, item_objects.item_from_object({**item.to_object(), "call_id": call_ids[id(item)]})
            )
            if id(item) in call_ids
            else item
            for item in turn
        ]
        for turn in turns
    ]


# ---------------------------------------------------------------------------------------------------------------------
# A whole turn in one transaction: what is asked, and the provider's response to it


def add_turn(
    handle: Handle,
    input: Any,
    body: Any,
    format: str,
    rendered: rendering.Rendered | None,
    options: AppendOptions,
    call: CallInfo,
) -> StoredTurn:
    """Append what was asked, and the response; see `Conversation.add_turn`."""
    ref, turn = handle.ref, _turn_input(handle, get_format(format), input)
    response, result = responses.add_answer(handle, body, format, rendered, options, call, turn)
    asked = result.input
    if asked is None:
        return StoredTurn([], response)
    if asked.is_replayed:
        return StoredTurn(handle.transactions.read(lambda connection: read_appended(connection, ref, asked)), response)
    return StoredTurn(turn.items.stored(ref, asked), response)


def _turn_input(handle: Handle, wire: Format, given: Any) -> TurnItems:
    """The items of an input: text or content of a message, items, or turns in the provider's format."""
    elements = given if isinstance(given, list | tuple) else [given]
    if elements and all(map(_is_turn, elements)):
        return _provider_turns(handle, wire, given)
    items: Sequence[item_objects.Item]
    if isinstance(given, list | tuple) and item_objects.are_items(given):
        items = written.written_items(given, "input")
    elif isinstance(given, item_objects.Item) or (isinstance(given, Mapping) and item_objects.are_items([given])):
        items = written.written_items([given], "input")
    else:
        items = [written.message_of("user", given)]
    objects = [item.to_object() for item in items]
    pairs = zip(items, objects, strict=True)
    new = NewItems(items, [encode_item(value, author_id=author_of(item)) for item, value in pairs])
    return TurnItems(new, {"items": objects})


def _is_turn(value: object) -> bool:
    """Whether it looks like a message of a provider's API, or an object of its SDK."""
    if isinstance(value, Mapping):
        return "type" not in value and ("role" in value or "parts" in value)
    return not isinstance(value, content.TypedObject) and callable(getattr(value, "model_dump", None))


def _provider_turns(handle: Handle, wire: Format, given: Any) -> TurnItems:
    """Turns as items; outputs that do not name their call answer the open calls."""
    value = provider_json(given)
    parsed: Sequence[Sequence[item_objects.Item]] = wire.parse_turns(value)
    if any(isinstance(item, item_objects.FunctionCallOutput) for turn in parsed for item in turn):
        entries = handle.read_snapshot(is_current=True).entries
        calls = open_calls(entries)
        parsed = resolve_calls(wire.parse_turns(value, calls), entries, calls)
    items = [item for turn in parsed for item in turn]
    numbers = [number for number, turn in enumerate(parsed) for _ in turn]
    return TurnItems(new_items(items, numbers), {"turns": value})
