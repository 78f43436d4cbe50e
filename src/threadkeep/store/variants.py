"""Branches as people see them: which variants there are of a message, and how another one is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.queries.items import facts_at, first_output, first_position, forks_after, last_question
from threadkeep.domain.items import message_of
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.running import Siblings, Variant
from threadkeep.errors import InvalidOption
from threadkeep.formats.shared.views import UNDONE
from threadkeep.store.appending import write_items
from threadkeep.store.finding import reopen_conversation
from threadkeep.store.handle import Handle
from threadkeep.store.idempotency import IdempotencyKey, idempotent, keep_outcome
from threadkeep.store.item_places import position_of
from threadkeep.store.item_rows import ItemRecord, encode_item
from threadkeep.store.items import NewItems
from threadkeep.store.lineage import (
    REMOVED,
    ConversationState,
    Lineage,
    get_lineage,
    get_row,
    lineage_from,
    lock_lineage,
    position_not_found,
)
from threadkeep.store.positions import NOTHING, Counts, branch_before, position_before
from threadkeep.store.refs import BranchRef
from threadkeep.store.updates import update_row
from threadkeep.store.validation import item_argument, optional_identifier

_ASIDE: Final = frozenset({"compaction", UNDONE})  # types of items that are no part of an answer …
_ASKING: Final = frozenset({"user", "system", "developer"})  # … and roles of messages that are none

# Writes a branch, from a connection, the lineage of the old one, and the time; returns its number
Write = Callable[[Connection, Lineage, datetime], int]


# Looking


def siblings(handle: Handle, item: int | str) -> Siblings:
    """The variants at the place of an item; see `Conversation.siblings`."""
    ref, wanted = handle.ref, item_argument("position", item)

    def read(connection: Connection) -> Siblings:
        row = get_row(connection, ref)
        lineage = get_lineage(connection, ref, row)
        position, facts = _get_item(connection, ref, lineage, wanted)
        start = position
        if facts.turn is not None and lineage.includes(ref.branch, facts.turn, facts.branch):
            start = facts.turn
        before = position_before(connection, ref, lineage, start)
        found = _Followers(connection, ref, before, _branch_of(lineage, ref, before))
        found.add(ref.branch, facts.branch, start)
        if found.trunk != ref.branch:
            found.look_at(found.trunk, get_lineage(connection, ref.on(found.trunk), row))
        is_shortened = {"is_shortened": row.lineage is not None, "gap": f"%[{REMOVED},%"}
        for branch in connection.execute(forks_after(), ref.parameters(position=before, **is_shortened)):
            found.look_at(branch.number, lineage_from(branch), branch.first)
        variants = found.variants()
        return Siblings(variants, [variant.position for variant in variants].index(start))

    return handle.transactions.read_any(read)


def _get_item(connection: Connection, ref: BranchRef, lineage: Lineage, item: int | str) -> tuple[int, Any]:
    """The position of an item of a branch, and what is known of it without reading it."""
    position = position_of(connection, ref, lineage, item)
    facts = connection.execute(facts_at(), ref.parameters(position=position)).one_or_none()
    if facts is None or not lineage.includes(ref.branch, position, facts.branch):
        raise position_not_found(ref, position, lineage.head)
    return position, facts


def _branch_of(lineage: Lineage, ref: BranchRef, position: int) -> int:
    """The branch on which a position of a lineage is stored; 0 for the beginning."""
    ranges = lineage.ranges(ref.branch, -1, lineage.head)
    return next((branch for branch, after, upto in ranges if after < position <= upto), 0)


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

    def look_at(self, number: int, lineage: Lineage, first: int | None = None) -> None:
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

    def variants(self) -> list[Variant]:
        """Each with the branch on which it is stored, or else the first that has it."""
        places = sorted(self._stored.items())
        return [
            Variant(branch if branch in self._branches[position] else min(self._branches[position]), position)
            for position, branch in places
        ]


# Making


def edit(
    handle: Handle, item: int | str, content: Any, author_id: str | None, key: str | None
) -> tuple[ConversationState, int | None]:
    """A branch with another message in the place of a user's; see `Conversation.edit`.

    The second value is the position of the message if an earlier call with the same key had made it.
    """
    ref, wanted, author = handle.ref, item_argument("position", item), optional_identifier("author_id", author_id)
    message = message_of("user", content)
    new = NewItems([message], [encode_item(message.to_object(), author_id=author)])
    # whichever branch it is called on: a repeated call may find the new one active
    once = IdempotencyKey.of(key, "edit", [wanted, message.to_object(), author])

    def write(connection: Connection, lineage: Lineage, now: datetime) -> int:
        position, facts = _get_item(connection, ref, lineage, wanted)
        if facts.type != "message" or facts.role != "user":
            kind = f"a message of the {facts.role}" if facts.role else f"of the type {facts.type!r}"
            problem = f"must be that of a message of the user: item {position} is {kind}."
            hint = "regenerate() replaces an answer, and fork(before=...) makes a branch before any item."
            raise InvalidOption(problem, argument="position", hint=hint)
        reservation = branch_before(connection, ref, lineage, position, now, Counts(items=1))
        new.insert(connection, ref, reservation, once, now)
        return reservation.branch

    conversation, outcome = _branched(handle, once, write, new.records)
    return conversation, None if outcome is None else outcome["first"]


def regenerate(handle: Handle, item: int | str | None, key: str | None) -> tuple[ConversationState, bool]:
    """A branch without an answer; see `Conversation.regenerate`."""
    ref, wanted = handle.ref, None if item is None else item_argument("position", item)
    once = IdempotencyKey.of(key, "regenerate", [wanted])

    def write(connection: Connection, lineage: Lineage, now: datetime) -> int:
        position = lineage.head if wanted is None else _get_item(connection, ref, lineage, wanted)[0]
        answer = _answer_at(connection, ref, lineage, position)
        number = branch_before(connection, ref, lineage, answer, now, NOTHING).branch
        keep_outcome(connection, ref.scope.tenant, ref.key, once, now, kind="regenerate", branch=number)
        return number

    conversation, outcome = _branched(handle, once, write)
    return conversation, outcome is not None


def _answer_at(connection: Connection, ref: BranchRef, lineage: Lineage, position: int) -> int:
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
    handle: Handle, key: IdempotencyKey | None, write: Write, records: Sequence[ItemRecord] = ()
) -> tuple[ConversationState, JsonObject | None]:
    """The conversation on a branch that is made by `write`, and is the active one from then on.

    The second value is what was kept if an earlier call with the same key had made it.
    """
    ref, configs = handle.ref, handle.resources.configs

    def run(connection: Connection) -> tuple[ConversationState, JsonObject | None]:
        def opened(number: int) -> ConversationState:
            return reopen_conversation(connection, ref, configs, number)

        idempotent(connection, ref, key, lambda outcome: (opened(outcome["branch"]), outcome))
        lineage = lock_lineage(connection, ref)
        number = write(connection, lineage, datetime.now(UTC))
        update_row(connection, ref, {"active_branch": number})
        return opened(number), None

    result = write_items(handle.transactions, ref.scope, records, run, is_repeatable=key is not None)
    handle.after_write()
    return result
