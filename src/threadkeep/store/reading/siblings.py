"""Variants: which items follow the same one on the branches of a conversation, and which branch shows each of them.

All branches are read at once, however many places are asked about. As long as nothing was removed from a branch, what
follows an item is what its own branch goes on with, and the first own items of the branches that fork off there.
Otherwise, the places of all items are read, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from threadkeep.db.driver import LazyRow
from threadkeep.db.queries.items import facts_at, forks, places
from threadkeep.domain import running, stored
from threadkeep.store.work import positions, refs, validation
from threadkeep.store.work.handle import Handle


def siblings(handle: Handle, item: int | str) -> running.Siblings:
    """The variants at the place of an item; see `Conversation.siblings`."""
    ref, wanted = handle.ref, validation.item_argument("position", item)

    def read(connection: Connection) -> running.Siblings:
        row = refs.get_row(connection, ref)
        lineage = refs.get_lineage(connection, ref, row)
        position, facts = item_facts(connection, ref, lineage, wanted)
        start = _start(lineage, ref.branch, position, facts.turn)
        branches = Branches(connection, ref, row)
        return branches.siblings(start, branches.before(connection, start))

    return handle.transactions.read_any(read)


def item_facts(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, item: int | str
) -> tuple[int, Any]:  # fmt: skip
    """The position of an item of a branch, and what is known of it without reading it; NotFound."""
    position = refs.position_of(connection, ref, lineage, item)
    facts = connection.execute(facts_at(), ref.parameters(position=position)).one_or_none()
    if facts is None or not lineage.includes(ref.branch, position, facts.branch):
        raise refs.position_not_found(ref, position, lineage.head)
    return position, facts


def _start(lineage: refs.Lineage, branch: int, position: int, turn: int | None) -> int:
    """Where the answer begins that an item belongs to."""
    if turn is None or not lineage.includes(branch, turn, lineage.branch_at(branch, position)):
        return position
    return turn


class Branches:
    """The branches of a conversation."""

    def __init__(self, connection: Connection, ref: refs.BranchRef, row: LazyRow) -> None:
        self._ref = ref
        self._lineages = {0: refs.root_lineage(row)}
        self._firsts: dict[int, dict[int, int]] = defaultdict(dict)  # where branches fork off -> item -> its branch
        self._others: dict[int, int] = {}  # … -> what else follows there
        for branch in connection.execute(forks(), ref.parameters()) if row.next_branch > 1 else ():
            self._lineages[branch.number] = refs.lineage_from(branch)
            if branch.first is not None and branch.first <= branch.head_position:
                self._firsts[branch.fork_position][branch.first] = branch.number
            if branch.other is not None:
                self._others[branch.fork_position] = branch.other
        parts = (part for lineage in self._lineages.values() for part in lineage.parts)
        self._places: dict[int, list[int]] | None = None  # branch -> positions of its own items
        if len(self._lineages) > 1 and any(part.branch == refs.REMOVED for part in parts):
            self._places = defaultdict(list)
            for branch, position in connection.execute(places(), ref.parameters()):
                self._places[branch].append(position)

    @property
    def lineage(self) -> refs.Lineage:
        """That of the branch that is looked at; NotFound where there is none."""
        if self._ref.branch not in self._lineages:
            raise refs.branch_not_found(self._ref)
        return self._lineages[self._ref.branch]

    def with_siblings(self, connection: Connection, page: Sequence[stored.StoredItem]) -> list[stored.StoredItem]:
        """Items of the branch that follow each other, in any direction, with the variants at their places."""
        places: dict[int, running.Siblings] = {}  # by where they start
        found: dict[int, running.Siblings] = {}
        last: int | None = None  # the position of the item before
        for item in sorted(page, key=lambda one: one.position):
            start = _start(self.lineage, self._ref.branch, item.position, item.turn)
            if start not in places:
                is_known = last is not None and start == item.position
                before = last if is_known else self.before(connection, start)
                places[start] = self.siblings(start, -1 if before is None else before)
            found[item.position], last = places[start], item.position
        return [replace(item, siblings=found[item.position]) for item in page]

    def before(self, connection: Connection, start: int) -> int:
        """The position of the item of the branch before another one, -1 for none."""
        if self._places is None:
            return positions.position_before(connection, self._ref, self.lineage, start)
        for branch, after, upto in reversed(self.lineage.ranges(self._ref.branch, -1, start - 1)):
            own = self._places.get(branch, [])
            index = bisect_right(own, upto)
            if index and own[index - 1] > after:
                return own[index - 1]
        return -1

    def siblings(self, start: int, before: int) -> running.Siblings:
        """The variants of an item of the branch, which follow the one at `before`, or begin a conversation (-1)."""
        lineage, branch = self.lineage, self._ref.branch
        trunk = lineage.branch_at(branch, before) if before >= 0 else 0
        found = {start: lineage.branch_at(branch, start)}
        places = self._places
        found |= self._followers(before, trunk) if places is None else dict(self._looked_up(places, before, trunk))
        variants = [self._variant(position, found[position]) for position in sorted(found)]
        return running.Siblings(variants, [variant.position for variant in variants].index(start))

    def _followers(self, before: int, trunk: int) -> dict[int, int]:
        """The items that follow one, each with the branch on which it is stored."""
        found = dict(self._firsts.get(before, {}))
        if before in self._others and self._others[before] <= self._lineages[trunk].head:
            found[self._others[before]] = trunk
        return found

    def _looked_up(
        self, places: Mapping[int, Sequence[int]], before: int, trunk: int
    ) -> Iterator[tuple[int, int]]:  # fmt: skip
        """The same where items were removed: what follows on each branch that has the item before."""
        for number, lineage in self._lineages.items():
            if before >= 0 and not lineage.includes(number, before, trunk):
                continue
            for branch, after, upto in lineage.ranges(number, before, lineage.head):
                own = places.get(branch, [])
                index = bisect_right(own, after)
                if index < len(own) and own[index] <= upto:
                    yield own[index], branch
                    break

    def _variant(self, position: int, stored_on: int) -> running.Variant:
        """A variant, on the branch on which it is stored, or else the first that has it; and the newest below it."""
        having = [number for number, lineage in self._lineages.items() if lineage.includes(number, position, stored_on)]
        newest = max(having, key=lambda number: (self._lineages[number].head, number == stored_on, -number))
        return running.Variant(stored_on if stored_on in having else min(having), position, newest)
