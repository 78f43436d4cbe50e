"""The row of a conversation, and the lineage of its branches: which ranges of positions each of them is made of."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.dialects import is_mysql
from threadkeep.db.driver import LazyRow
from threadkeep.db.queries.conversations import CONVERSATION_READER, branch_of, conversation_by
from threadkeep.domain import rendering
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.jsontext import JsonObject, dumps, loads_stored
from threadkeep.errors import DamagedRow, InvalidOption, NotFound
from threadkeep.store.refs import BranchRef, ConfigHashes, ConversationRef, Scope

REMOVED: Final = -1  # stands for the branch of a part whose positions were removed
# Removed positions that a statement reads along, at most, so that scattered ones do not take a statement each
READ_ALONG: Final = 1_000
MAX_RANGES: Final = 100  # of a branch with gaps, in one statement


class Part(NamedTuple):
    """A part of a lineage: the positions up to `last` are those of a branch, or were removed.

    `known_to`: responses below this number may have been given when what was removed was still there.
    """

    branch: int
    last: int
    known_to: int = 0

    @classmethod
    def of(cls, value: Sequence[int]) -> Part:
        """The part of its stored form."""
        return cls(*value)

    def stored(self) -> list[int]:
        """Its stored form, JSON."""
        return list(self if self.branch == REMOVED else self[:2])


_LAST: Final = attrgetter("last")


class Span(NamedTuple):
    """Positions that are read together: those of one branch after one and up to another; `surplus` are removed."""

    branch: int
    after: int
    upto: int
    surplus: int = 0


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a branch is made of: the parts before its own items, and where it ends."""

    parts: tuple[Part, ...]
    head: int

    def ranges(self, branch: int, after: int, upto: int) -> list[tuple[int, int, int]]:
        """The parts as (branch, after, up to), cut to the positions asked for; without what was removed."""
        ranges, start = [], -1
        for number, end, _ in (*self.parts, Part(branch, upto)):
            low, high = max(start, after), min(end, upto)
            if low < high and number != REMOVED:
                ranges.append((number, low, high))
            start = max(start, end)
        return ranges

    def spans(self, branch: int, after: int, upto: int) -> list[Span]:
        """The same in fewer pieces: what was removed in between is read along, and has to be left out with `keeps`."""
        spans: list[Span] = []
        for number, low, high in self.ranges(branch, after, upto):
            last = spans[-1] if spans else Span(REMOVED, low, low)
            surplus = last.surplus + low - last.upto
            if last.branch == number and surplus <= READ_ALONG:
                spans[-1] = Span(number, last.after, high, surplus)
            else:
                spans.append(Span(number, low, high))
        return spans

    def includes(self, branch: int, position: int, item_branch: int) -> bool:
        """Whether the item at a position, stored on `item_branch`, belongs to this one."""
        if not 0 <= position <= self.head or item_branch == REMOVED:
            return False
        index = bisect_left(self.parts, position, key=_LAST)
        return item_branch == (branch if index == len(self.parts) else self.parts[index].branch)

    def keeps(self) -> Callable[[int], bool]:
        """A function that says of positions in the spans whether they were not removed."""
        ends = [part.last for part in self.parts]
        removed = [part.branch == REMOVED for part in self.parts]
        return lambda position: (index := bisect_left(ends, position)) == len(ends) or not removed[index]

    def knew_more(self, response: int, upto: int) -> bool:
        """Whether a response may have been given when something was still there before or at a position."""
        start = -1
        for part in self.parts:
            if part.branch == REMOVED and response < part.known_to and start < upto:
                return True
            start = part.last
        return False

    def upto(self, branch: int, position: int) -> tuple[Part, ...]:
        """The parts of what a new branch shares, up to a position."""
        parts: list[Part] = []
        start = -1
        for number, end, known_to in (*self.parts, Part(branch, position)):
            if start < min(end, position):
                parts.append(Part(number, min(end, position), known_to))
            start = max(start, end)
        return tuple(parts)

    def without(self, branch: int, before: int, position: int, next_response: int) -> tuple[Part, ...]:
        """The parts without the positions behind `before` and up to another."""
        parts = list(self.upto(branch, before))
        gap = Part(REMOVED, position, next_response)
        for part in (gap, *(part for part in self.parts if part.last > position)):
            if parts and part.branch == parts[-1].branch == REMOVED:
                part = part._replace(known_to=max(part.known_to, parts.pop().known_to))  # noqa: PLW2901
            parts.append(part)
        return tuple(parts)


def range_parameters(ranges: Sequence[tuple[int, int, int]]) -> tuple[int, dict[str, int]]:
    """Parameters of a statement on ranges, with the number that it is made for: one, or `MAX_RANGES`."""
    count = 1 if len(ranges) == 1 else MAX_RANGES
    parameters: dict[str, int] = {}
    for number in range(count):
        branch, after, upto = ranges[min(number, len(ranges) - 1)]
        parameters |= {f"branch_{number}": branch, f"after_{number}": after, f"upto_{number}": upto}
    return count, parameters


def lineage_text(parts: Sequence[Part]) -> str:
    """Parts as a row has them."""
    return dumps([part.stored() for part in parts]).decode()


@dataclass(slots=True)
class ConversationState:
    """A conversation as it was read: its row, options and tools, on one branch; no items."""

    scope: Scope
    row: LazyRow
    settings: JsonObject
    tools: list[JsonObject]
    branch: int
    fork: Lineage | None = None  # of a branch that was forked off
    format_cache: dict[str, Any] = field(default_factory=dict)  # what formats remember of these options and tools
    is_outdated: bool = False  # whether something may have been removed of what was read of its items
    hashes: ConfigHashes = field(init=False)
    _root: Lineage | None = field(init=False, default=None)
    _ref: BranchRef | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        tools = self.row.tool_set_hash
        self.hashes = ConfigHashes(bytes(self.row.config_hash), None if tools is None else bytes(tools))

    @property
    def imported(self) -> rendering.ImportInfo | None:
        """Where the conversation came from, when it was imported."""
        imported = self.settings.get("imported")
        try:
            return None if imported is None else rendering.ImportInfo.from_dict(imported)
        except InvalidOption as error:
            raise DamagedRow("configs", f"hash {self.hashes.config.hex()}", error) from error

    @property
    def lineage(self) -> Lineage:
        """What the branch is made of."""
        lineage = self.fork or self._root
        if lineage is None:
            lineage = self._root = root_lineage(self.row)
        return lineage

    def ref(self) -> BranchRef:
        """Where it is."""
        ref = self._ref
        if ref is None:
            row = self.row
            ref = self._ref = BranchRef(self.scope, row.id, public_id_text(bytes(row.public_id)), self.branch)
        return ref


def find_row(
    connection: Connection, scope: Scope, column: str, value: Any, *, is_locked: bool = False
) -> LazyRow | None:
    """The row of a conversation by id, public_id or external_id; None when this scope has none.

    `is_locked`: it is not changed or hidden before the end of the transaction.
    """
    statement = conversation_by(column, scoped=scope.user is not None, locked=is_locked)
    rows = statement.fetch_all(connection, scope.parameters(value=value))
    return CONVERSATION_READER.read(connection.dialect, rows)[0] if rows else None


def get_row(connection: Connection, ref: ConversationRef, *, is_locked: bool = False) -> LazyRow:
    """The row of a conversation; NotFound when it is gone, or not for this scope. `is_locked` as in `find_row`."""
    row = find_row(connection, ref.scope, "id", ref.key, is_locked=is_locked)
    if row is None:
        raise ref.not_found()
    return row


def get_lineage(connection: Connection, ref: BranchRef, row: LazyRow, *, is_latest: bool = False) -> Lineage:
    """The lineage of a branch of a conversation whose row was read; NotFound when it has no such branch.

    `is_latest`: for work that has locked the row. The caller's transaction may see the past of other rows, on MySQL.
    """
    if ref.branch == 0:
        return root_lineage(row)
    statement = branch_of(is_shared=is_latest and is_mysql(connection.dialect))
    branch = connection.execute(statement, ref.parameters(number=ref.branch)).one_or_none()
    if branch is None:
        raise branch_not_found(ref)
    return lineage_from(branch)


def lock_lineage(connection: Connection, ref: BranchRef) -> Lineage:
    """The lineage of a branch as it is now; the conversation is locked as by `find_row`."""
    return get_lineage(connection, ref, get_row(connection, ref, is_locked=True), is_latest=True)


def lineage_from(branch: Any) -> Lineage:
    """The lineage that the row of a branch holds."""
    parts = loads_stored(branch.lineage, "branches", f"number {branch.number}")
    return Lineage(tuple(map(Part.of, parts)), branch.head_position)


def root_lineage(row: LazyRow) -> Lineage:
    """The lineage of branch 0, which the row of the conversation holds."""
    text = row.lineage
    parts = () if text is None else loads_stored(text, "conversations", f"id {row.id}")
    return Lineage(tuple(map(Part.of, parts)), row.head_position)


def branch_not_found(ref: BranchRef) -> NotFound:
    """The error for a branch that a conversation does not have."""
    return NotFound(
        f"The conversation {ref.public_id} has no branch {ref.branch}.", hint="branches() lists the branches it has."
    )


def position_not_found(ref: BranchRef, position: int, head: int) -> NotFound:
    """The error for a position at which a branch has no item."""
    if head < 0:
        return NotFound(f"Branch {ref.branch} of {ref.public_id} has no items.")
    where = f"it ends at {head}" if not 0 <= position <= head else "it is on another branch, or was removed"
    return NotFound(f"Branch {ref.branch} of {ref.public_id} has no item at position {position}; {where}.")
