"""The rows of a graft: runs of items on the branches that they continue or begin, with their responses and usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select, update

from threadkeep.db import tables
from threadkeep.db.base import written_columns
from threadkeep.db.driver import insert_rows
from threadkeep.db.queries.conversations import branch_head, branches_of
from threadkeep.domain.changes import APPENDED
from threadkeep.domain.response import Response
from threadkeep.errors import Conflict
from threadkeep.store import positions
from threadkeep.store.changes.rows import change_row
from threadkeep.store.item_rows import ItemRecord, insert_item_rows, short_hash
from threadkeep.store.ledger import Attempt, attempt_columns
from threadkeep.store.lineage import Lineage, get_row, lineage_from, lineage_text, root_lineage
from threadkeep.store.positions import Counts, Reservation
from threadkeep.store.refs import BranchRef
from threadkeep.store.responses import response_columns
from threadkeep.store.rollups import invalidate
from threadkeep.store.validation import MAX_NUMBER

_BATCH: Final = 500  # ids in one statement
_NO_RESPONSE: Final = dict.fromkeys(column.name for column in written_columns(tables.responses))

Rows = list[dict[str, Any]]


class Spot(NamedTuple):
    """Where an item is stored; the beginning of a conversation is before the first position."""

    branch: int
    position: int


ROOT: Final = Spot(0, -1)


class NewSpot(NamedTuple):
    """An item of a graft: the number of its run, and its own in that."""

    run: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class NewAnswer:
    """A response that all items in a row came in which have this object; `attempt`: its row in the ledger, if any.

    `name` tells it from all other responses of the tenant, if it has no id.
    """

    response: Response
    format: str
    name: str
    attempt: Attempt | None = None


class NewItem(NamedTuple):
    """An item to be written; `turn` is the same object for those of one wire message."""

    record: ItemRecord
    created_at: datetime
    answer: NewAnswer | None = None
    turn: object = None


class Run(NamedTuple):
    """Items in a row, behind something that is stored, or behind an item of an earlier run."""

    after: Spot | NewSpot
    items: Sequence[NewItem]


class _NewAttempt(NamedTuple):
    """A row to be written into the ledger; `hash` is that of the id or name of the response of this number."""

    attempt: Attempt
    at: datetime
    number: int
    hash: bytes


_ANSWER: Final = attrgetter("answer")


@dataclass(slots=True)
class GraftRows:
    """Places runs in a conversation that the transaction has locked, and writes their rows.

    `heads` are the ends and lineages of its branches, which grow with what is placed.
    """

    connection: Connection
    ref: BranchRef
    taken: Reservation
    heads: dict[int, Lineage]
    spots: list[Spot] = field(default_factory=list)  # of the first item of each run
    attempts: int = 0  # rows of the ledger
    _new: Rows = field(default_factory=list)  # branches
    _items: Rows = field(default_factory=list)
    _responses: Rows = field(default_factory=list)
    _attempts: list[_NewAttempt] = field(default_factory=list)
    _moved: set[int] = field(default_factory=set)

    @classmethod
    def reserve(cls, connection: Connection, ref: BranchRef, runs: Sequence[Run], *, is_new: bool) -> GraftRows:
        """Lock the conversation, take the numbers for all runs, and read where its branches end.

        Raises:
            NotFound: it is gone.
            Conflict: a response is in progress.
        """
        answers = sum(1 for run in runs for answer, _ in groupby(run.items, _ANSWER) if answer is not None)
        counts = Counts(items=sum(len(run.items) for run in runs), responses=answers, is_dated=True)
        newest = max(item.created_at for run in runs for item in run.items)
        taken = positions.take(connection, ref, newest, counts)
        if taken is None:
            get_row(connection, ref)
            problem = f"A response of {ref.public_id} is in progress, so nothing can be imported into it."
            raise Conflict(problem, hint="Import it again when the response has ended.")
        taken.response -= max(answers - 1, 0)  # the first of them
        heads = {0: Lineage((), -1)} if is_new else _heads_of(connection, ref)
        return cls(connection, ref, taken, heads)

    def write(self, runs: Sequence[Run], now: datetime) -> None:
        """Place the runs, one after the other, and write what they are made of."""
        first, number = self.taken.first, self.taken.response
        for run in runs:
            spot = self._place(run, first)
            self.spots.append(spot)
            number = self._add_items(run, spot, number)
            first += len(run.items)
        records = [item.record for run in runs for item in run.items]
        self._write_attempts()
        ends = [spot.position + len(run.items) - 1 for spot, run in zip(self.spots, runs, strict=True)]
        changes = [self._change(spot, end, now) for spot, end in zip(self.spots, ends, strict=True)]
        insert_rows(self.connection, [(tables.branches, self._new)])
        others = [(tables.responses, self._responses), (tables.changes, changes)]
        insert_item_rows(self.connection, self._items, records, now, others)

    def move_heads(self, active: int | None, title: str | None) -> None:
        """Write where the branches end that were continued, which one is active, and a title that it gets."""
        for branch in sorted(self._moved):
            if 0 < branch < self.taken.next_branch:
                parameters = self.ref.parameters(branch=branch, count=1, last=self.heads[branch].head)
                branch_head(expected=False).execute(self.connection, parameters)
        row = tables.conversations.c
        values: dict[str, Any] = {
            "head_position": self.heads[0].head,
            "next_branch": self.taken.next_branch + len(self._new),
            "revision": row.revision + 1,
        }
        values |= {} if active is None else {"active_branch": active}
        values |= {} if title is None else {"title": title}
        where = [row.tenant_id == self.ref.scope.tenant, row.id == self.ref.key]
        self.connection.execute(update(tables.conversations).where(*where).values(values))

    def _place(self, run: Run, first: int) -> Spot:
        """Where a run goes: on the branch that ends where it continues, or else on a new one."""
        after, last = self.spot(run.after), first + len(run.items) - 1
        branch, lineage = after.branch, self.heads[after.branch]
        if lineage.head == after.position:
            self.heads[branch] = Lineage(lineage.parts, last)
            self._moved.add(branch)
            return Spot(branch, first)
        parts = lineage.upto(branch, after.position)
        number = self.taken.next_branch + len(self._new)
        if number > MAX_NUMBER:
            raise Conflict(f"{self.ref.public_id} has too many branches.")
        place = {"number": number, "parent": branch, "fork_position": after.position, "head_position": last}
        self._new.append(
            self.ref.columns(
                **place, from_position=first, lineage=lineage_text(parts), created_at=run.items[0].created_at
            )
        )
        self.heads[number] = Lineage(parts, last)
        return Spot(number, first)

    def spot(self, after: Spot | NewSpot) -> Spot:
        """Where something is, once its run was placed."""
        if isinstance(after, Spot):
            return after
        first = self.spots[after.run]
        return Spot(first.branch, first.position + after.offset)

    def _add_items(self, run: Run, spot: Spot, number: int) -> int:
        """Make the rows of a run and of its responses, from that number on; return the next one."""
        position, before = spot.position, self.spot(run.after).position
        for (answer, _), group in groupby(run.items, lambda item: (item.answer, item.turn)):
            items = list(group)
            is_turn = answer is not None or items[0].turn is not None
            place = self.ref.columns(branch=spot.branch, seen=None if answer is None else before)
            for index, item in enumerate(items):
                row = item.record.row(place, position + index, position if is_turn else None)
                row["created_at"] = item.created_at
                self._items.append(row)
            if answer is not None:
                self._add_response(answer, items[0].created_at, number, (spot.branch, before, position, len(items)))
                number += 1
            before, position = position + len(items) - 1, position + len(items)
        return number

    def _add_response(self, answer: NewAnswer, at: datetime, number: int, place: tuple[int, int, int, int]) -> None:
        branch, before, position, count = place
        row = _NO_RESPONSE | response_columns(answer.response, answer.format) | {
            "number": number, "branch": branch, "input_to": before, "from_position": position,
            "to_position": position + count - 1, "created_at": at,
            "config_hash": self.taken.config_hash, "tool_set_hash": self.taken.tool_set_hash,
        }  # fmt: skip
        self._responses.append(row | self.ref.columns())
        if answer.attempt is not None:
            hash_ = row["response_hash"] or short_hash(answer.name) or b""
            self._attempts.append(_NewAttempt(answer.attempt, at, number, hash_))

    def _write_attempts(self) -> None:
        """Write the rows of the ledger, but for responses that are counted there already, here or elsewhere."""
        counted = _counted(self.connection, self.ref, {new.hash for new in self._attempts})
        rows: Rows = []
        for attempt, at, number, hash_ in self._attempts:
            if hash_ in counted:
                continue
            counted.add(hash_)
            columns = {
                "id": _ledger_key(hash_), "user_id": self.taken.user_id, "tool_set_hash": self.taken.tool_set_hash,
                "response": number,
            }  # fmt: skip
            rows.append(self.ref.columns(**attempt_columns(attempt, at) | columns))
        days = {row["day"] for row in rows} - {datetime.now(UTC).date()}
        if days:
            invalidate(self.connection, self.ref.scope.tenant, *days)
        insert_rows(self.connection, [(tables.usage_records, rows)])
        self.attempts = len(rows)

    def _change(self, spot: Spot, last: int, now: datetime) -> dict[str, Any]:
        return change_row(
            self.ref.scope.tenant, self.ref.key, self.ref.public_bytes, APPENDED, now,
            branch=spot.branch, from_position=spot.position, to_position=last,
        )  # fmt: skip


def _heads_of(connection: Connection, ref: BranchRef) -> dict[int, Lineage]:
    """The branches of a conversation: what they are made of, and where they end."""
    heads = {0: root_lineage(get_row(connection, ref))}
    for branch in connection.execute(branches_of(), ref.parameters(after=0, limit=MAX_NUMBER)):
        heads[branch.number] = lineage_from(branch)
    return heads


def _counted(connection: Connection, ref: BranchRef, hashes: Iterable[bytes]) -> set[bytes]:
    """Which of these responses the tenant has already, or had: their usage is not counted twice."""
    responses, ledger, rest = tables.responses.c, tables.usage_records.c, iter(sorted(hashes))
    counted: set[bytes] = set()
    while batch := list(islice(rest, _BATCH)):
        keys = {_ledger_key(hash_): hash_ for hash_ in batch}
        here = [responses.tenant_id == ref.scope.tenant, responses.response_hash.in_(batch)]
        used = [ledger.tenant_id == ref.scope.tenant, ledger.id.in_(keys)]
        counted.update(map(bytes, connection.execute(select(responses.response_hash).where(*here)).scalars()))
        counted.update(keys[key] for key in connection.execute(select(ledger.id).where(*used)).scalars())
    return counted


def _ledger_key(hash_: bytes) -> int:
    """The key of the row that counts a response: always the same one, so that no other import can count it, too.

    The ledger outlives conversations, so a response counts once even if its conversation is deleted and imported again.
    """
    return int.from_bytes(hash_[:8], "big") >> 1
