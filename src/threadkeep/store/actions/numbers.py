"""Taking numbers: the one UPDATE that starts every append, response and fork, and what happens when it misses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, insert

from threadkeep.db.dialects import returns_updates
from threadkeep.db.queries.conversations import TAKEN_READER, branch_head, reservation, taken
from threadkeep.db.queries.items import position_of
from threadkeep.db.queries.streams import open_response_of
from threadkeep.db.tables import branches
from threadkeep.domain.jsontext import dumps
from threadkeep.errors import HeadConflict, InvalidOption, NotFound, ResponseInProgress
from threadkeep.store.actions.entries import Lineage, facts_at, lineage_of
from threadkeep.store.place import Place

ON_CONFLICT: Final = ("raise", "append", "branch")
INCOMPLETE: Final = "incomplete"  # a response whose recorder was not heard of any more
CANCELLED: Final = "cancelled"  # one that somebody ended


@dataclass(frozen=True, slots=True)
class Guard:
    """Where the caller expects the branch to end (None: anywhere), and what to do when it does not end there."""

    expected_head: int | None = None
    on_conflict: str = "raise"

    def __post_init__(self) -> None:
        if self.on_conflict not in ON_CONFLICT:
            raise InvalidOption(f"on_conflict is one of {', '.join(ON_CONFLICT)}, not {self.on_conflict!r}.")


ANYWHERE: Final = Guard()


@dataclass(slots=True)
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


class Unfinished(Exception):
    """Raised inside an action that must wait for the end of a response in progress.

    That response is to be ended, in a transaction of its own (`actions.streams.settle`), and the use case begun anew:
    were it ended in this one, a use case that fails afterwards would take the end back.
    """

    def __init__(self, place: Place, number: int, status: str) -> None:
        self.place, self.number, self.status = place, number, status


@dataclass(slots=True)
class Amounts:
    """How many numbers of each kind are taken; `streams` counts the responses in progress, up or down."""

    items: int = 0
    responses: int = 0
    branches: int = 0
    streams: int = 0

    def back(self) -> Amounts:
        """What gives them back."""
        return Amounts(-self.items, -self.responses, -self.branches, -self.streams)


NONE: Final = Amounts()


def take(connection: Connection, place: Place, guard: Guard, now: datetime, amounts: Amounts) -> Taken:
    """Take positions for items and a number for a response on the branch at a place; locks the conversation.

    Raises:
        NotFound: the conversation or branch is not there.
        HeadConflict: the branch does not end where expected and on_conflict is "raise". The conversation is locked
            then, too, so that the caller can write down the attempt.
        ResponseInProgress: the branch has one, and on_conflict is "raise". As above.
        Unfinished: the branch has one that is to be ended first.
    """
    expected = guard.expected_head
    found = _reserve(connection, place, amounts, now, expected, is_free=True)
    if found is not None and place.branch and not _move_head(connection, place, found, expected):
        _reserve(connection, place, amounts.back(), now, is_elsewhere=True)
        found = None
    return _take_slowly(connection, place, guard, now, amounts) if found is None else found


def take_back(connection: Connection, place: Place, now: datetime, items: int) -> Taken | None:
    """Take positions for the items of a response that was in progress; None when the conversation is gone."""
    found = _reserve(connection, place, Amounts(items=items, streams=-1), now)
    if found is not None and place.branch:
        _move_head(connection, place, found, None)
    return found


def lock(connection: Connection, place: Place, now: datetime) -> bool:
    """Make the other writers of a conversation wait; False when it is not there."""
    return _reserve(connection, place, NONE, now) is not None


def _take_slowly(connection: Connection, place: Place, guard: Guard, now: datetime, amounts: Amounts) -> Taken:
    """What is done when the first UPDATE met no row: the branch ends elsewhere, or a response is in progress."""
    if not lock(connection, place, now):
        raise place.missing()
    lineage = lineage_of(connection, place, facts_at(connection, place))
    stream = _open_response(connection, place, now)
    expected, is_elsewhere = guard.expected_head, guard.expected_head not in {None, lineage.head}
    if is_elsewhere and guard.on_conflict == "raise":
        raise HeadConflict(-1 if expected is None else expected, lineage.head)
    if stream is not None and guard.on_conflict == "raise":
        raise ResponseInProgress(stream, place.branch)
    if guard.on_conflict == "branch" and (is_elsewhere or stream is not None):
        return _take_branch(connection, place, lineage, lineage.head if expected is None else expected, now, amounts)
    if stream is not None:
        raise Unfinished(place, stream, CANCELLED)
    found = _reserve(connection, place, amounts, now)
    if found is None:
        raise place.missing()
    if place.branch:
        _move_head(connection, place, found, None)
    return found


def _open_response(connection: Connection, place: Place, now: datetime) -> int | None:
    """The number of the response in progress on a branch.

    Raises:
        Unfinished: its lease is over.
    """
    parameters = {"tenant": place.scope.tenant, "key": place.key, "branch": place.branch}
    row = connection.execute(open_response_of(), parameters).one_or_none()
    if row is None:
        return None
    if row.lease_until <= now:
        raise Unfinished(place, row.number, INCOMPLETE)
    number: int = row.number
    return number


def _take_branch(
    connection: Connection, place: Place, lineage: Lineage, at: int, now: datetime, amounts: Amounts
) -> Taken:
    """Numbers on a new branch that shares the items up to a position."""
    _check_position(connection, place, lineage, at)
    found = _reserve(connection, place, replace(amounts, branches=1), now, is_elsewhere=True)
    if found is None:
        raise place.missing()
    add_branch(connection, place, found.branch, lineage, at, now, head=found.last if found.count else at)
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
    found = _reserve(connection, place, Amounts(branches=1), now, is_elsewhere=True)
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
    amounts: Amounts,
    now: datetime,
    expected: int | None = None,
    *,
    is_elsewhere: bool = False,
    is_free: bool = False,
) -> Taken | None:
    """Run the UPDATE; None when it met no row.

    `is_elsewhere`: the items are for a branch that is made now; `is_free`: no response may be in progress.
    """
    scope, dialect = place.scope, connection.dialect
    is_root = place.branch == 0 and not is_elsewhere and amounts.items > 0
    is_expected = expected is not None and place.branch == 0
    has_returning = returns_updates(dialect)
    statement = reservation(
        root=is_root, scoped=scope.is_scoped, expected=is_expected, returning=has_returning,
        free=is_free, streams=amounts.streams != 0,
    )  # fmt: skip
    parameters = scope.bound(
        key=place.key, now=now, items=amounts.items, responses=amounts.responses, branches=amounts.branches
    )
    if amounts.streams:
        parameters["streams"] = amounts.streams
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
    position, response, branch, revision, user_id, config, tools = TAKEN_READER.values(dialect, rows[0])
    return Taken(
        position - amounts.items, amounts.items, response - 1, branch - 1 if is_elsewhere else place.branch, revision,
        user_id, config, tools,
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
