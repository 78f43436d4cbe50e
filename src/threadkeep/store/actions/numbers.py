"""Taking numbers: the one UPDATE that starts every append, response and fork, and what happens when it misses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, insert

from threadkeep.db.dialects import returns_updates
from threadkeep.db.queries.conversations import TAKEN_READER, branch_head, reservation, taken
from threadkeep.db.queries.items import position_of
from threadkeep.db.tables import branches
from threadkeep.domain.jsontext import dumps
from threadkeep.errors import HeadConflict, InvalidOption, NotFound
from threadkeep.store.actions.entries import Lineage, facts_at, lineage_of
from threadkeep.store.place import Place

ON_CONFLICT: Final = ("raise", "append", "branch")


@dataclass(frozen=True, slots=True)
class Guard:
    """Where the caller expects the branch to end (None: anywhere), and what to do when it does not end there."""

    expected_head: int | None = None
    on_conflict: str = "raise"

    def __post_init__(self) -> None:
        if self.on_conflict not in ON_CONFLICT:
            raise InvalidOption(f"on_conflict is one of {', '.join(ON_CONFLICT)}, not {self.on_conflict!r}.")


ANYWHERE: Final = Guard()


@dataclass(frozen=True, slots=True)
class Taken:
    """The numbers of a use case."""

    first: int  # position of its first item
    count: int
    response: int
    branch: int
    revision: int
    user_id: str | None
    config_hash: bytes
    tool_set_hash: bytes | None

    @property
    def last(self) -> int:
        """Position of its last item; before `first` when it has none."""
        return self.first + self.count - 1


def take(
    connection: Connection, place: Place, guard: Guard, now: datetime, *, items: int = 0, responses: int = 0
) -> Taken:
    """Take positions for items and a number for a response on the branch at a place; locks the conversation.

    Raises:
        NotFound: the conversation or branch is not there.
        HeadConflict: the branch does not end where expected and on_conflict is "raise". The conversation is locked
            then, too, so that the caller can write down the attempt.
    """
    expected = guard.expected_head
    amounts = {"items": items, "responses": responses, "branches": 0}
    found = _reserve(connection, place, amounts, now, expected)
    if found is not None and place.branch and not _move_head(connection, place, found, expected):
        _reserve(connection, place, {name: -count for name, count in amounts.items()}, now, is_elsewhere=True)
        found = None
    if found is not None:
        return found
    if expected is None or _reserve(connection, place, dict.fromkeys(amounts, 0), now) is None:
        raise place.missing()
    return _take_elsewhere(connection, place, guard, now, amounts)


def _take_elsewhere(
    connection: Connection, place: Place, guard: Guard, now: datetime, amounts: dict[str, int]
) -> Taken:
    """What `on_conflict` says for a branch that does not end where expected; the conversation is locked."""
    expected = -1 if guard.expected_head is None else guard.expected_head
    lineage = lineage_of(connection, place, facts_at(connection, place))
    if guard.on_conflict == "raise":
        raise HeadConflict(expected, lineage.head)
    if guard.on_conflict == "append":
        return take(connection, place, ANYWHERE, now, items=amounts["items"], responses=amounts["responses"])
    _check_position(connection, place, lineage, expected)
    found = _reserve(connection, place, {**amounts, "branches": 1}, now, is_elsewhere=True)
    if found is None:
        raise place.missing()
    add_branch(connection, place, found.branch, lineage, expected, now, head=found.last if found.count else expected)
    return found


def fork(connection: Connection, place: Place, at: int | None, now: datetime) -> int:
    """Make a branch that shares the items up to a position; returns its number.

    Raises:
        NotFound: the conversation or branch is not there, or the branch has no item at that position.
    """
    facts = facts_at(connection, place)
    lineage = lineage_of(connection, place, facts)
    position = lineage.head if at is None else at
    _check_position(connection, place, lineage, position)
    amounts = {"items": 0, "responses": 0, "branches": 1}
    found = _reserve(connection, place, amounts, now, is_elsewhere=True)
    if found is None:
        raise place.missing()
    add_branch(connection, place, found.branch, lineage, position, now, head=position)
    return found.branch


def add_branch(
    connection: Connection, place: Place, number: int, lineage: Lineage, at: int, now: datetime, *, head: int
) -> None:
    """The row of a new branch."""
    parts = [[branch, min(end, at)] for branch, _, end in lineage.ranges(place.branch, -1, at)]
    connection.execute(
        insert(branches),
        {
            "tenant_id": place.scope.tenant,
            "conversation_id": place.key,
            "number": number,
            "parent": place.branch,
            "fork_position": at,
            "head_position": head,
            "lineage": dumps(parts).decode(),
            "created_at": now,
        },
    )


def _check_position(connection: Connection, place: Place, lineage: Lineage, position: int) -> None:
    """Refuse to fork at a position that the branch does not have; -1 is its very beginning."""
    if position in {-1, lineage.head}:
        return
    for branch, after, upto in lineage.ranges(place.branch, -1, lineage.head):
        if after < position <= upto:
            parameters = {"tenant": place.scope.tenant, "key": place.key, "branch": branch, "position": position}
            if connection.execute(position_of(), parameters).one_or_none() is not None:
                return
    raise NotFound(
        f"Branch {place.branch} of {place.public_id} has no item at position {position}; it ends at {lineage.head}."
    )


def _reserve(
    connection: Connection,
    place: Place,
    amounts: dict[str, int],
    now: datetime,
    expected: int | None = None,
    *,
    is_elsewhere: bool = False,
) -> Taken | None:
    """Run the UPDATE; None when it met no row. `is_elsewhere`: the items are for a branch that is made now."""
    scope, dialect = place.scope, connection.dialect
    is_root = place.branch == 0 and not is_elsewhere and amounts["items"] > 0
    is_expected = expected is not None and place.branch == 0
    has_returning = returns_updates(dialect)
    statement = reservation(root=is_root, scoped=scope.is_scoped, expected=is_expected, returning=has_returning)
    parameters = scope.bound(key=place.key, now=now, **amounts)
    if is_expected:
        parameters["head"] = expected
    if has_returning:
        rows = statement.rows(connection, parameters)
    elif statement.execute(connection, parameters):
        rows = taken(scoped=scope.is_scoped).rows(connection, scope.bound(key=place.key))
    else:
        rows = ()
    if not rows:
        return None
    row = TAKEN_READER.records(dialect, rows)[0]
    branch = row.next_branch - 1 if is_elsewhere else place.branch
    return Taken(
        row.next_position - amounts["items"], amounts["items"], row.next_response - 1, branch, row.revision,
        row.user_id, row.config_hash, row.tool_set_hash,
    )  # fmt: skip


def _move_head(connection: Connection, place: Place, found: Taken, expected: int | None) -> bool:
    """Move the head of a forked branch; False when it is not where it was expected."""
    parameters = {
        "tenant": place.scope.tenant, "key": place.key, "branch": place.branch,
        "count": found.count, "last": found.last,
    }  # fmt: skip
    if expected is not None:
        parameters["head"] = expected
    moved = branch_head(expected=expected is not None).execute(connection, parameters)
    if not moved and expected is None:
        raise NotFound(f"The conversation {place.public_id} has no branch {place.branch}. branches() lists them.")
    return bool(moved)
