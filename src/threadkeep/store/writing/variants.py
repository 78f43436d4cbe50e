"""Variants of messages and answers, on branches of their own; and compaction, which changes no row either."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.queries.items import facts_at, first_output, first_position, forks_after, last_question
from threadkeep.domain import response, running, stored
from threadkeep.domain.items import Compaction, item_from, item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.written import message_of
from threadkeep.errors import InvalidItem, InvalidOption, shown
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.messages import parts as messages
from threadkeep.formats.shared.pairing import between_turns
from threadkeep.formats.shared.views import KEEPS_USERS, UNDONE, standing
from threadkeep.store.reading.history import reopen_conversation
from threadkeep.store.work import idempotency, item_rows, positions, validation
from threadkeep.store.work import refs as lineages
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import BranchRef, lock_lineage, position_of
from threadkeep.store.writing import importing, updates
from threadkeep.store.writing.appending import AppendResult, NewItems, write_items

_ASIDE: Final = frozenset({"compaction", UNDONE})  # types of items that are no part of an answer …
_ASKING: Final = frozenset({"user", "system", "developer"})  # … and roles of messages that are none

# Writes a branch, from a connection, the lineage of the old one, and the time; returns its number
Write = Callable[[Connection, lineages.Lineage, datetime], int]


# Looking


def siblings(handle: Handle, item: int | str) -> running.Siblings:
    """The variants at the place of an item; see `Conversation.siblings`."""
    ref, wanted = handle.ref, validation.item_argument("position", item)

    def read(connection: Connection) -> running.Siblings:
        row = lineages.get_row(connection, ref)
        lineage = lineages.get_lineage(connection, ref, row)
        position, facts = _get_item(connection, ref, lineage, wanted)
        start = position
        if facts.turn is not None and lineage.includes(ref.branch, facts.turn, facts.branch):
            start = facts.turn
        before = positions.position_before(connection, ref, lineage, start)
        ranges = lineage.ranges(ref.branch, -1, lineage.head)
        trunk = next((branch for branch, after, upto in ranges if after < before <= upto), 0)  # 0: of the beginning
        found = _Followers(connection, ref, before, trunk)
        found.add(ref.branch, facts.branch, start)
        if found.trunk != ref.branch:
            found.look_at(found.trunk, lineages.get_lineage(connection, ref.on(found.trunk), row))
        is_shortened = {"is_shortened": row.lineage is not None, "gap": f"%[{lineages.REMOVED},%"}
        for branch in connection.execute(forks_after(), ref.parameters(position=before, **is_shortened)):
            found.look_at(branch.number, lineages.lineage_from(branch), branch.first)
        variants = found.variants()
        return running.Siblings(variants, [variant.position for variant in variants].index(start))

    return handle.transactions.read_any(read)


def _get_item(connection: Connection, ref: BranchRef, lineage: lineages.Lineage, item: int | str) -> tuple[int, Any]:
    """The position of an item of a branch, and what is known of it without reading it."""
    position = position_of(connection, ref, lineage, item)
    facts = connection.execute(facts_at(), ref.parameters(position=position)).one_or_none()
    if facts is None or not lineage.includes(ref.branch, position, facts.branch):
        raise lineages.position_not_found(ref, position, lineage.head)
    return position, facts


class _Followers:
    """The items that follow the same one, which is stored on the branch `trunk`."""

    def __init__(self, connection: Connection, ref: BranchRef, before: int, trunk: int) -> None:
        self._connection, self._ref, self._before, self.trunk = connection, ref, before, trunk
        self._stored: dict[int, int] = {}  # position -> the branch on which it is stored
        self._branches: dict[int, set[int]] = {}  # -> those that have it

    def add(self, branch: int, stored_on: int, position: int) -> None:
        """Note what follows on a branch."""
        self._stored[position] = stored_on
        self._branches.setdefault(position, set()).add(branch)

    def look_at(self, number: int, lineage: lineages.Lineage, first: int | None = None) -> None:
        """Find what follows on a branch; `first` is the first of its own items."""
        if self._before >= 0 and not lineage.includes(number, self._before, self.trunk):
            return  # it was removed from it
        for branch, after, upto in lineage.ranges(number, self._before, lineage.head):
            if branch != number or first is None or first <= after:
                parameters = self._ref.parameters(branch=branch, after=after, upto=upto)
                found = self._connection.execute(first_position(), parameters).scalar()
            else:
                found = first if first <= upto else None
            if found is not None:
                self.add(number, branch, found)
                return

    def variants(self) -> list[running.Variant]:
        """Each with the branch on which it is stored, or else the first that has it."""
        places = sorted(self._stored.items())
        return [
            running.Variant(branch if branch in self._branches[position] else min(self._branches[position]), position)
            for position, branch in places
        ]


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
        position, facts = _get_item(connection, ref, lineage, wanted)
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
    """A branch without an answer; see `Conversation.regenerate`."""
    ref, wanted = handle.ref, None if item is None else validation.item_argument("position", item)
    once = idempotency.IdempotencyKey.of(key, "regenerate", [wanted])

    def write(connection: Connection, lineage: lineages.Lineage, now: datetime) -> int:
        position = lineage.head if wanted is None else _get_item(connection, ref, lineage, wanted)[0]
        answer = _answer_at(connection, ref, lineage, position)
        number = positions.branch_before(connection, ref, lineage, answer, now, positions.NOTHING).branch
        idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, once, now, kind="regenerate", branch=number)
        return number

    conversation, outcome = _branched(handle, once, write)
    return conversation, outcome is not None


def _answer_at(connection: Connection, ref: BranchRef, lineage: lineages.Lineage, position: int) -> int:
    """Where the answer begins that a position belongs to: behind the last message of the user up to there."""
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
