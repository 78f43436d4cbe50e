"""Variants of messages and answers, on branches of their own; and compaction, which changes no row either."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.queries.items import first_output, last_question
from threadkeep.domain import response, stored
from threadkeep.domain.items import Compaction, item_from, item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.written import message_of
from threadkeep.errors import InvalidItem, InvalidOption, shown
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.messages import parts as messages
from threadkeep.formats.shared.pairing import between_turns
from threadkeep.formats.shared.views import KEEPS_USERS, UNDONE, standing
from threadkeep.store.reading.history import reopen_conversation
from threadkeep.store.reading.siblings import item_facts
from threadkeep.store.work import idempotency, item_rows, positions, validation
from threadkeep.store.work import refs as lineages
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import BranchRef, lock_lineage
from threadkeep.store.writing import importing, updates
from threadkeep.store.writing.appending import AppendResult, NewItems, write_items

_ASIDE: Final = frozenset({"compaction", UNDONE})  # types of items that are no part of an answer …
_ASKING: Final = frozenset({"user", "system", "developer"})  # … and roles of messages that are none

# Writes a branch, from a connection, the lineage of the old one, and the time; returns its number
Write = Callable[[Connection, lineages.Lineage, datetime], int]


# Making


def edit(
    handle: Handle, item: int | str, content: Any, author_id: str | None, key: str | None
) -> tuple[lineages.ConversationState, int | None]:
    """A branch with another message in the place of a user's; see `Conversation.edit`.

    The second value is the position of the message if an earlier call with the same key had made it.
    """
    ref, wanted, author = (
        handle.ref,
        validation.item_argument("position", item),
        validation.optional_identifier("author_id", author_id),
    )
    message = message_of("user", content)
    new = NewItems([message], [item_rows.encode_item(message.to_object(), author_id=author)])
    # whichever branch it is called on: a repeated call may find the new one active
    once = idempotency.IdempotencyKey.of(key, "edit", [wanted, message.to_object(), author])

    def write(connection: Connection, lineage: lineages.Lineage, now: datetime) -> int:
        position, facts = item_facts(connection, ref, lineage, wanted)
        if facts.type != "message" or facts.role != "user":
            kind = f"a message of the {facts.role}" if facts.role else f"of the type {facts.type!r}"
            problem = f"must be a user message's: item {position} is {kind}."
            hint = "regenerate() replaces an answer, and fork(before=...) makes a branch before any item."
            raise InvalidOption(problem, argument="position", hint=hint)
        reservation = positions.branch_before(connection, ref, lineage, position, now, positions.Counts(items=1))
        new.insert(connection, ref, reservation, once, now)
        return reservation.branch

    conversation, outcome = _branched(handle, once, write, new.records)
    return conversation, None if outcome is None else outcome["first"]


def regenerate(handle: Handle, item: int | str | None, key: str | None) -> tuple[lineages.ConversationState, bool]:
    """A branch without an answer, or this one where it has none; see `Conversation.regenerate`."""
    ref, wanted = handle.ref, None if item is None else validation.item_argument("position", item)
    once = idempotency.IdempotencyKey.of(key, "regenerate", [wanted])

    def write(connection: Connection, lineage: lineages.Lineage, now: datetime) -> int:
        position = lineage.head if wanted is None else item_facts(connection, ref, lineage, wanted)[0]
        answer, number = _answer_at(connection, ref, lineage, position), ref.branch
        if answer is not None:
            number = positions.branch_before(connection, ref, lineage, answer, now, positions.NOTHING).branch
        idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, once, now, kind="regenerate", branch=number)
        return number

    conversation, outcome = _branched(handle, once, write)
    return conversation, outcome is not None


def _answer_at(connection: Connection, ref: BranchRef, lineage: lineages.Lineage, position: int) -> int | None:
    """Where the answer begins that a position belongs to: behind the last message of the user up to there.

    None if nothing has answered that message yet.
    """
    question = -1
    for branch, after, upto in reversed(lineage.ranges(ref.branch, -1, position)):
        parameters = ref.parameters(branch=branch, after=after, upto=upto)
        found: int | None = connection.execute(last_question(), parameters).scalar()
        if found is not None:
            question = found
            break
    for branch, after, upto in lineage.ranges(ref.branch, question, lineage.head):
        parameters = ref.parameters(branch=branch, after=after, upto=upto)
        first: int | None = connection.execute(first_output(_ASIDE, _ASKING), parameters).scalar()
        if first is not None:
            return first
    if question >= 0:
        return None
    raise InvalidOption("There is no answer to generate again.", hint="Render the conversation, and ask the model.")


def _branched(
    handle: Handle, key: idempotency.IdempotencyKey | None, write: Write, records: Sequence[item_rows.ItemRecord] = ()
) -> tuple[lineages.ConversationState, JsonObject | None]:
    """The conversation on a branch that is made by `write`, and is the active one from then on.

    The second value is what was kept if an earlier call with the same key had made it.
    """
    ref, configs = handle.ref, handle.resources.configs

    def run(connection: Connection) -> tuple[lineages.ConversationState, JsonObject | None]:
        def opened(number: int) -> lineages.ConversationState:
            return reopen_conversation(connection, ref, configs, number)

        idempotency.idempotent(connection, ref, key, lambda outcome: (opened(outcome["branch"]), outcome))
        lineage = lineages.lock_lineage(connection, ref)
        number = write(connection, lineage, datetime.now(UTC))
        updates.update_row(connection, ref, {"active_branch": number})
        return opened(number), None

    result = write_items(handle.transactions, ref.scope, records, run, is_repeatable=key is not None)
    handle.after_write()
    return result


def compact(
    handle: Handle,
    upto: int | None,
    summary: object,
    item: object,
    options: positions.AppendOptions,
    *,
    keeps_users: bool = False,
) -> stored.StoredItem:
    """Replace earlier items with a summary or a provider's compaction item; see `Conversation.compact`.

    `keeps_users`: requests still have what the user said in them.
    """
    position = None if upto is None else validation.whole_number("upto", upto, validation.MAX_POSITION)
    compaction = _compaction_item(summary, item) | ({KEEPS_USERS: True} if keeps_users else {})
    return _append(handle, "compact", compaction, position, options)


def undo_compaction(handle: Handle, options: positions.AppendOptions) -> stored.StoredItem:
    """Undo the last compaction; see `Conversation.undo_compaction`."""
    return _append(handle, "undo_compaction", None, None, options)


def _append(
    handle: Handle, method: str, item: JsonObject | None, upto: int | None, options: positions.AppendOptions
) -> stored.StoredItem:
    """Append a compaction (`upto` None: of everything) or, without an item, the undoing of the last one."""
    ref, check = handle.ref, positions.head_check(options)
    key = positions.idempotency_key(options, method, {"item": item, "upto": upto})

    def write(connection: Connection) -> tuple[AppendResult, NewItems]:
        def decode(outcome: JsonObject) -> tuple[AppendResult, NewItems]:
            result = AppendResult.of_outcome(outcome)
            found = item_rows.read_entries(connection, ref, [(result.branch, result.first - 1, result.first)])
            value = found[0].item() if found else item or {"type": UNDONE}  # it was removed since
            return result, NewItems([item_from_object(value)], [item_rows.encode_item(value)])

        now = check.at or datetime.now(UTC)
        reservation = positions.reserve_once(connection, ref, check, now, positions.Counts(items=1), key, decode)
        branch = ref.on(reservation.branch)
        before = replace(lock_lineage(connection, branch), head=reservation.first - 1)
        entries = item_rows.read_branch(connection, branch, before, -1, is_latest=True)
        value = _undo_item(entries) if item is None else {**item, "upto": _last_covered(entries, upto)}
        # Who made a compaction that only its provider can read, where the conversation names that
        asked = response.asked_of(handle.cache.conversation.settings)
        is_opaque = value["type"] == "compaction" and "summary" not in value
        new = NewItems(
            [item_from_object(value)],
            [item_rows.encode_item(value, maker=asked.text if is_opaque and asked.provider is not None else None)],
        )
        return new.insert(connection, ref, reservation, key, now), new

    result, new = handle.transactions.write(write, is_repeatable=key is not None)
    new.take_in(handle, result)
    return new.stored(ref, result)[0]


def _compaction_item(summary: object, item: object) -> JsonObject:
    """Return the item of a compaction: a summary, or a provider's item."""
    if (summary is None) is (item is None):
        raise InvalidOption("Give either summary= (text) or item= (a provider's compaction item).")
    if summary is not None:
        if not isinstance(summary, str) or not summary.strip():
            raise InvalidOption(f"must be text that is not blank, not {shown(summary)}.", argument="summary")
        return {"type": "compaction", "summary": summary}
    given: Any = item if isinstance(item, Compaction) else importing.provider_json(item)
    if isinstance(given, Mapping) and given.get("type") == "compaction" and isinstance(given.get("content"), str):
        # Anthropic's compaction block as an item
        compaction = messages.compaction_of(dict(given))
        if compaction is None:
            raise InvalidItem("is a block without content: the compaction failed.", argument="item")
        return compaction
    typed = item_from(given)
    if not isinstance(typed, Compaction):
        raise InvalidItem(f"must be an item of type compaction, not of type {typed.type!r}.", argument="item")
    compaction = {"origin": "open_responses", **typed.to_object()}
    return compaction if compaction.get("summary") is not None else {**compaction, KEEPS_USERS: True}


def _last_covered(entries: Sequence[ItemEntry], upto: int | None) -> int:
    """Return the last compacted position; turns are not split, and neither are calls and their outputs."""
    covered = between_turns(entries, upto)
    if covered is None:
        where = "" if upto is None else f" up to position {upto}"
        raise InvalidOption(f"There is nothing to compact{where}: no turn and its tool outputs end there or before.")
    return covered


def _undo_item(entries: Sequence[ItemEntry]) -> JsonObject:
    compactions = standing([entry for entry in entries if entry.type in {"compaction", UNDONE}])
    if not compactions:
        raise InvalidOption("There is no compaction to undo.")
    return {"type": UNDONE, "compaction": max(compactions)}
