"""Removing items from a branch: the newest one, any one, or all of them.

The lineage of the branch gets a gap. Rows that no other branch reads are deleted, or kept where no branch finds them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, case, delete, select, update

from threadkeep.db.base import columns_holding
from threadkeep.db.models import items, responses, search_documents
from threadkeep.db.queries import removal
from threadkeep.db.queries import removal as queries
from threadkeep.domain import ids, jsontext
from threadkeep.domain.items import REMOVED as REMOVED_TEXT
from threadkeep.domain.items import item_from_object, without_content
from threadkeep.domain.stored import StoredItem
from threadkeep.errors import InvalidOption, ResponseInProgress
from threadkeep.store.changes.feed import record_change
from threadkeep.store.media.collecting import LostMedia, remove_lost
from threadkeep.store.reading.history import BROKEN_OFF_TEXT
from threadkeep.store.reading.items import read_item
from threadkeep.store.reading.responses import locate_response, lost_response
from threadkeep.store.search.index import forget_documents
from threadkeep.store.work import positions, refs, states, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.idempotency import IdempotencyKey, keep_outcome
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.writing.updates import update_row

_RANGES: Final = 100  # of items in one statement
_NUMBERS: Final = 1_000  # of responses in one


class Shortened(NamedTuple):
    """Where a branch ends after a removal, and the revision of the conversation then; -1: it was done before."""

    head: int = -1
    revision: int = -1
    item: StoredItem | None = None
    media: LostMedia | None = None  # of which items were removed


def pop(handle: Handle, options: positions.AppendOptions) -> StoredItem | None:
    """Remove the newest item; see `Conversation.pop`."""
    check, key = positions.head_check(options), positions.idempotency_key(options, "pop", None)
    if check.on_conflict == "branch":
        hint = "Fork the conversation, and remove the item from the fork."
        raise InvalidOption("cannot be 'branch' for a removal.", argument="on_conflict", hint=hint)

    def write(connection: Connection) -> Shortened:
        branch = LockedBranch(connection, handle.ref, check, key)
        position = branch.lineage.head
        item = None if position < 0 else read_item(connection, handle.ref, position, is_latest=True)
        if item is not None:
            branch.remove(item, purge=True)
        branch.keep_outcome(key, kind="popped", item=None if item is None else _place_of(item))
        return Shortened(branch.lineage.head, branch.revision, item, branch.media)

    return _run(handle, key, write)


def remove_item(handle: Handle, position: object, purge: object, key: str | None) -> None:
    """Remove an item; see `Conversation.remove_item`."""
    should_purge, place = is_chosen("purge", purge), validation.item_argument("position", position)
    once = IdempotencyKey.of(key, "remove_item", [handle.ref.branch, place, should_purge])

    def write(connection: Connection) -> Shortened:
        branch = LockedBranch(connection, handle.ref, positions.NO_CHECK, once)
        found = refs.position_of(connection, handle.ref, branch.lineage, place)
        item = read_item(connection, handle.ref, found, "reference", is_latest=True)
        if item is None or not branch.lineage.includes(handle.ref.branch, found, item.branch):
            raise refs.position_not_found(handle.ref, found, branch.lineage.head)
        branch.remove(item, purge=should_purge)
        branch.keep_outcome(once, kind="removed")
        return Shortened(branch.lineage.head, branch.revision, media=branch.media)

    _run(handle, once, write)


def clear(handle: Handle, purge: object, key: str | None) -> None:
    """Remove all items; see `Conversation.clear`."""
    should_purge = is_chosen("purge", purge)
    once = IdempotencyKey.of(key, "clear", [handle.ref.branch, should_purge])

    def write(connection: Connection) -> Shortened:
        branch = LockedBranch(connection, handle.ref, positions.NO_CHECK, once)
        branch.clear(purge=should_purge)
        branch.keep_outcome(once, kind="cleared")
        return Shortened(branch.lineage.head, branch.revision, media=branch.media)

    _run(handle, once, write)


def _run(handle: Handle, key: IdempotencyKey | None, write: Any) -> StoredItem | None:
    result: Shortened = handle.transactions.write(write, is_repeatable=key is not None)
    if result.revision >= 0:
        handle.cache.shorten(result.head, result.revision)
    if result.media is not None:
        remove_lost(handle.transactions, handle.ref.scope, result.media)
    handle.after_write()
    return result.item


def is_chosen(argument: str, value: object) -> bool:
    """Return a value that is True or False."""
    if not isinstance(value, bool):
        raise jsontext.mismatch(InvalidOption, "True or False", value, argument)
    return value


# Replays


def _place_of(item: StoredItem) -> jsontext.JsonObject:
    """What is kept of an item that was removed: nothing of its content."""
    value = without_content(item.item.to_object(), REMOVED_TEXT, call_id=getattr(item.item, "call_id", None))
    return {"id": item.id, "position": item.position, "branch": item.branch, "turn": item.turn, "item": value}


def _replayed(ref: refs.BranchRef, outcome: jsontext.JsonObject) -> Shortened:
    kept = outcome.get("item")
    if kept is None:
        return Shortened()
    item = item_from_object(kept["item"])
    place = kept["id"], kept["position"], kept["branch"], kept["turn"]
    return Shortened(item=StoredItem(*place, item, replayed=True, conversation_id=ref.public_id))


# The branch


class LockedBranch:
    """A branch of a locked conversation, with the lineages of all other branches."""

    def __init__(
        self, connection: Connection, ref: refs.BranchRef, check: positions.HeadCheck, key: IdempotencyKey | None
    ) -> None:
        self._connection, self._ref, self._now = connection, ref, datetime.now(UTC)
        positions.reserve_once(
            connection, ref, check, self._now, positions.NOTHING, key, lambda outcome: _replayed(ref, outcome)
        )
        row = refs.get_row(connection, ref, is_locked=True)
        self._next_position, self._next_response, self.revision = row.next_position, row.next_response, row.revision
        self._lineages = {0: refs.root_lineage(row)}
        self.media = LostMedia()
        if row.next_branch > 1:
            others = connection.execute(queries.lineages_of(), ref.parameters())
            self._lineages |= {other.number: refs.lineage_from(other) for other in others}

    @property
    def lineage(self) -> refs.Lineage:
        """What the branch is made of."""
        return self._lineages[self._ref.branch]

    def keep_outcome(self, key: IdempotencyKey | None, **outcome: Any) -> None:
        """Keep what was done under an idempotency key."""
        keep_outcome(self._connection, self._ref.scope.tenant, self._ref.key, key, self._now, **outcome)

    def remove(self, item: StoredItem, *, purge: bool) -> None:
        """Remove an item of the branch."""
        position, head = item.position, self.lineage.head
        before = position - 1
        if position == head:
            head = before = positions.position_before(self._connection, self._ref, self.lineage, position)
        self._shorten(before, position, head)
        self._release([(item.branch, position - 1, position)], purge=purge, is_answer=item.turn is not None)

    def clear(self, *, purge: bool) -> None:
        """Remove all items of the branch."""
        spans = self.lineage.spans(self._ref.branch, -1, self.lineage.head)
        if not spans:
            return
        self._shorten(-1, self._next_position - 1, -1)
        self._release([span[:3] for span in spans], purge=purge)

    def _shorten(self, before: int, position: int, head: int) -> None:
        """Write the lineage without the positions behind `before` and up to another, and the new head."""
        parts = self.lineage.without(self._ref.branch, before, position, self._next_response)
        self._lineages[self._ref.branch] = refs.Lineage(parts, head)
        values = {"lineage": refs.lineage_text(parts), "head_position": head}
        if self._ref.branch:
            parameters = self._ref.parameters(on_branch=self._ref.branch, new_lineage=values["lineage"], new_head=head)
            self._connection.execute(queries.lineage_change(), parameters)
            values = {}
        self.revision = update_row(self._connection, self._ref, values).revision

    def _release(self, ranges: Sequence[removal.Range], *, purge: bool, is_answer: bool = True) -> None:
        """Delete the items in these ranges that no branch reads any more; without `purge`, hide their rows.

        `is_answer`: some of them may have come in responses.
        """
        # What all branches read, by the branch that items are stored on
        read: dict[int, list[tuple[int, int]]] = {}
        for number, lineage in self._lineages.items():
            for branch, after, upto in lineage.ranges(number, -1, lineage.head):
                read.setdefault(branch, []).append((after, upto))
        unread = list(_outside(ranges, {branch: sorted(some) for branch, some in read.items()}))
        for start in range(0, len(unread), _RANGES):
            batch = unread[start : start + _RANGES]
            forget_documents(self._connection, self._ref, *queries.within(search_documents, batch))
            are_unread = queries.within(items, batch)
            if purge:
                first, last = min(one[1] for one in batch) + 1, max(one[2] for one in batch)
                connection, parameters = self._connection, self._ref.parameters()
                hashes = set(connection.execute(queries.media_between(first - 1, last), parameters).scalars())
                connection.execute(delete(items).where(*are_unread), parameters)
                if hashes:
                    self.media.collect(connection, self._ref.scope.tenant, hashes)
                if is_answer:
                    self._remove_lost_bodies(first, last)
            else:
                statement = update(items).where(*are_unread).values(branch=refs.REMOVED)
                self._connection.execute(statement, self._ref.parameters())

    def _remove_lost_bodies(self, first: int, last: int) -> None:
        """Remove the bodies of responses between two positions of which no item is left."""
        parameters = self._ref.parameters(first=first, upto=last)
        found = self._connection.execute(queries.ranges_between(), parameters).all()
        if not found:
            return
        begin, end = min(one.from_position for one in found), max(one.to_position for one in found)
        parameters = self._ref.parameters(first=begin, upto=end)
        left = self._connection.execute(queries.positions_between(), parameters).scalars().all()
        lost = [
            one.number
            for one in found
            if (index := bisect_left(left, one.from_position)) == len(left) or left[index] > one.to_position
        ]
        for start in range(0, len(lost), _NUMBERS):
            parameters = self._ref.parameters(numbers=lost[start : start + _NUMBERS])
            self._connection.execute(queries.bodies_removal(), parameters)
            self._connection.execute(queries.bodies_rest_removal(), parameters)


def _outside(ranges: Iterable[removal.Range], read: dict[int, list[tuple[int, int]]]) -> Iterator[removal.Range]:
    """What is left of ranges without others, which are sorted, by branch."""
    for branch, after, upto in ranges:
        start = after
        for low, high in read.get(branch, ()):
            if low >= upto:
                break
            if low > start:
                yield branch, start, low
            start = max(start, high)
        if start < upto:
            yield branch, start, upto


# ---------------------------------------------------------------------------------------------------------------------
# Deleting a response: it is not found any more, while its items stay in the conversation


def delete_response(transactions: Transactions, scope: refs.Scope, wanted: object) -> None:
    """Delete a response; see `Store.delete_response`."""

    def write(connection: Connection) -> None:
        _, public_id = locate_response(connection, scope, wanted)
        row = refs.find_row(connection, scope, "public_id", ids.public_id_bytes(public_id))
        if row is None:
            raise refs.conversation_not_found(public_id)
        ref = refs.ConversationRef(scope, row.id, public_id)
        states.lock_conversation(connection, ref)
        found, _ = locate_response(connection, scope, wanted)  # again: another process may have been faster
        number = found["number"]
        if found["is_lost"]:
            raise lost_response(ref, found)
        table = responses.c
        is_response = [*ref.rows_of(table), table.number == number]
        branch = connection.execute(select(table.open_branch).where(*is_response)).scalar()
        if branch is not None:
            raise ResponseInProgress(number, branch, 1.0)
        connection.execute(queries.bodies_removal(), ref.parameters(numbers=[number]))
        is_broken_off = table.incomplete_details == BROKEN_OFF_TEXT  # by which requests know that its provider has none
        cleared: dict[str, Any] = dict.fromkeys(column.name for column in columns_holding(responses, "content"))
        cleared["incomplete_details"] = case((is_broken_off, table.incomplete_details), else_=None)
        change = update(responses).where(*is_response)
        connection.execute(change.values(deleted_at=datetime.now(UTC), **cleared))
        record_change(connection, ref)

    transactions.write(write)
