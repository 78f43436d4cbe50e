"""The row of a conversation, and the lineage of its branches: which ranges of positions each of them is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from threadkeep.db.driver import LazyRow
from threadkeep.db.queries.conversations import CONVERSATION_READER, branch_of, conversation_by
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.domain.rendering import ImportInfo
from threadkeep.errors import NotFound
from threadkeep.store.refs import BranchRef, ConfigHashes, ConversationRef, Scope


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a branch is made of: (branch, last position) for each part before its own items, and where it ends."""

    parts: tuple[tuple[int, int], ...]
    head: int

    def ranges(self, branch: int, after: int, upto: int) -> list[tuple[int, int, int]]:
        """The parts as (branch, after, up to), cut to the positions asked for."""
        ranges, start = [], -1
        for number, end in (*self.parts, (branch, upto)):
            low, high = max(start, after), min(end, upto)
            if low < high:
                ranges.append((number, low, high))
            start = max(start, end)
        return ranges

    def includes(self, branch: int, position: int, item_branch: int) -> bool:
        """Whether the item at a position, stored on `item_branch`, belongs to this one."""
        return any(
            number == item_branch and after < position <= upto
            for number, after, upto in self.ranges(branch, -1, self.head)
        )


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
    hashes: ConfigHashes = field(init=False)

    def __post_init__(self) -> None:
        tools = self.row.tool_set_hash
        self.hashes = ConfigHashes(bytes(self.row.config_hash), None if tools is None else bytes(tools))

    @property
    def imported(self) -> ImportInfo | None:
        """Where the conversation came from, when it was imported."""
        imported = self.settings.get("imported")
        return None if imported is None else ImportInfo(**imported)

    @property
    def lineage(self) -> Lineage:
        """What the branch is made of."""
        return Lineage((), self.row.head_position) if self.fork is None else self.fork

    def ref(self) -> BranchRef:
        """Where it is."""
        return BranchRef(self.scope, self.row.id, public_id_text(bytes(self.row.public_id)), self.branch)


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


def get_lineage(connection: Connection, ref: BranchRef, row: LazyRow) -> Lineage:
    """The lineage of a branch of a conversation whose row was read; NotFound when it has no such branch."""
    if ref.branch == 0:
        return Lineage((), row.head_position)
    branch = connection.execute(branch_of(), ref.parameters(number=ref.branch)).one_or_none()
    if branch is None:
        raise branch_not_found(ref)
    return lineage_from(branch)


def lineage_from(branch: Any) -> Lineage:
    """The lineage that the row of a branch holds."""
    parts = loads_stored(branch.lineage, "branches", f"number {branch.number}")
    return Lineage(tuple((number, end) for number, end in parts), branch.head_position)


def branch_not_found(ref: BranchRef) -> NotFound:
    """The error for a branch that a conversation does not have."""
    return NotFound(
        f"The conversation {ref.public_id} has no branch {ref.branch}.", hint="branches() lists the branches it has."
    )


def position_not_found(ref: BranchRef, position: int, head: int) -> NotFound:
    """The error for a position at which a branch has no item."""
    return NotFound(f"Branch {ref.branch} of {ref.public_id} has no item at position {position}; it ends at {head}.")
