"""Reserving positions: the one UPDATE that starts every append, response and fork, and what happens when it misses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, TypedDict, get_args

from sqlalchemy import Connection, Table, insert

from threadkeep.db import backends, driver, models
from threadkeep.db.driver import inserting
from threadkeep.db.queries import conversations, items, responses
from threadkeep.db.queries.conversations import reservation as reservation_statement
from threadkeep.domain.jsontext import JsonObject, canonical, mismatch
from threadkeep.errors import Conflict, HeadConflict, InvalidOption, ResponseInProgress
from threadkeep.store.changes.feed import record_change
from threadkeep.store.work import connections, erasures, refs, validation
from threadkeep.store.work.caches import HashedText
from threadkeep.store.work.idempotency import IdempotencyKey, idempotent
from threadkeep.store.work.states import NewState, new_states, write_states

OnConflict = Literal["raise", "append", "branch"]
"""What happens when a branch does not end at `expected_head`."""
ON_CONFLICT: Final = get_args(OnConflict)
INCOMPLETE: Final = "incomplete"  # a response whose recorder has gone silent
CANCELLED: Final = "cancelled"  # a response that was ended on purpose


class AppendOptions(TypedDict, total=False):
    """Options of the methods that append.

    `idempotency_key`: a repeated call with the same key and content returns the first result and writes nothing.
    `expected_head`: the position where the branch must end (-1: it must be empty). `on_conflict`: if the branch ends
    elsewhere or a response is in progress on it, "raise" HeadConflict or ResponseInProgress, "append" anyway (which
    ends that response), or append to a new "branch". `states`: states by name, as values or `StateWrite`, which are
    written in the same transaction; if one of them has another version than expected, nothing is. `created_at`: when
    the items were created, for importers; an aware datetime. Their positions give their order, whatever it says.
    """

    idempotency_key: str | None
    expected_head: int | None
    on_conflict: OnConflict
    states: Mapping[str, Any] | None
    created_at: datetime | None


class HeadCheck(NamedTuple):
    """Where the caller expects the branch to end (None: anywhere), and what to do if it ends elsewhere.

    `states` are written once the conversation is locked. `at`: when what is appended was created, if not now.
    """

    expected_head: int | None = None
    on_conflict: str = "raise"
    states: Sequence[NewState] = ()
    at: datetime | None = None


NO_CHECK: Final = HeadCheck()


def head_check(options: AppendOptions) -> HeadCheck:
    """Return where the caller of an append expects the branch to end."""
    if not options:
        return NO_CHECK
    expected = options.get("expected_head")
    if expected is not None:
        expected = validation.whole_number("expected_head", expected, validation.MAX_POSITION)
        if expected < -1:
            raise mismatch(InvalidOption, "a position, or -1 for an empty branch", expected, "expected_head")
    on_conflict = options.get("on_conflict", "raise")
    if on_conflict not in ON_CONFLICT:
        raise mismatch(InvalidOption, f"one of {', '.join(ON_CONFLICT)}", on_conflict, "on_conflict")
    states, at = options.get("states"), options.get("created_at")
    at = None if at is None else validation.past_moment("created_at", at)
    return HeadCheck(expected, on_conflict, () if states is None else new_states(states), at)


def idempotency_key(options: AppendOptions, method: str, content: Any) -> IdempotencyKey | None:
    """Return the key of an append with the hash of the content, or None if there is no key."""
    key = options.get("idempotency_key")
    if key is None:
        return None
    at = validation.past_moment("created_at", options.get("created_at"))
    once = IdempotencyKey.of(key, method, content if at is None else [content, at.isoformat()])
    if once is None or not (states := new_states(options.get("states"))):
        return once
    texts = {state.name: state.text for state in states}
    whole = sha256(once.request_hash + canonical(texts)).digest()
    return IdempotencyKey(once.key, whole, sha256(once.request_hash).digest())


@dataclass(slots=True)
class Reservation:
    """The numbers that a write got, on the branch it got them for, and what it needs to know of the conversation."""

    first: int  # position of its first item
    count: int
    response: int
    branch: int
    revision: int
    next_branch: int
    user_id: str | None
    config_hash: bytes
    tool_set_hash: bytes | None

    @classmethod
    def of_row(cls, connection: Connection, ref: refs.BranchRef, counts: Counts, row: driver.Row) -> Reservation:
        """What the UPDATE returned."""
        position, response, branch, revision, *known = conversations.COUNTER_READER.values(connection, row)
        return cls(position - counts.items, counts.items, response - 1, ref.branch, revision, branch, *known)

    @property
    def last(self) -> int:
        """Position of its last item; before `first` when it has none."""
        return self.first + self.count - 1

    def taken(self) -> dict[str, Any]:
        """The parameters of the rows that are written at these numbers."""
        return {
            "branch": self.branch, "taken_first": self.first, "taken_response": self.response,
            "taken_user_id": self.user_id, "taken_config_hash": self.config_hash,
            "taken_tool_set_hash": self.tool_set_hash,
        }  # fmt: skip


@dataclass(slots=True)
class Counts:
    """How many numbers of each kind are reserved; `streams` counts the responses in progress, up or down.

    `is_dated`: they are for something that was created before, which may not be the last activity. `is_idle`: they are
    for nothing, which is no activity.
    """

    items: int = 0
    responses: int = 0
    branches: int = 0
    streams: int = 0
    is_dated: bool = False
    is_idle: bool = False

    def reversed(self) -> Counts:
        """What gives them back."""
        return Counts(-self.items, -self.responses, -self.branches, -self.streams, self.is_dated, self.is_idle)


@dataclass(slots=True)
class UnwrittenConversation:
    """A new conversation whose rows are not written yet, so that more of it can be written with them.

    Attributes:
        settings: its options.
        row: its own.
        rows: all of them, by tables.
    """

    scope: refs.Scope
    settings: HashedText
    row: dict[str, Any]
    rows: list[tuple[Table | inserting.Insertion, Sequence[Mapping[str, Any]]]]

    @property
    def is_statement(self) -> bool:
        """Whether one statement of PostgreSQL writes it."""
        is_checked = self.scope.since is not None and self.row["user_id"] is not None
        return not is_checked and sum(len(rows) for _, rows in self.rows) <= inserting.MAX_ROWS

    def start_response(self, now: datetime) -> Reservation:
        """Have a response in progress that nobody knows of yet."""
        row = self.row
        first, search_from = row["next_position"], row["search_from"]
        row.update(next_response=1, streams=1, last_activity_at=now)
        row["search_from"] = first if search_from is None else search_from
        return Reservation(
            first, 0, 0, 0, row["revision"], row["next_branch"], row["user_id"], row["config_hash"], None
        )

    def write(self, connection: Connection) -> None:
        """Write all rows."""
        inserting.insert_rows(connection, self.rows)
        erasures.check_users(connection, self.scope, [self.row["user_id"]])


NOTHING: Final = Counts()
IDLE: Final = Counts(is_idle=True)
_LONG_AGO: Final = datetime(1000, 1, 1, tzinfo=UTC)  # before any activity; MySQL knows no earlier years


def reserve_once(
    connection: Connection,
    ref: refs.BranchRef,
    check: HeadCheck,
    now: datetime,
    counts: Counts,
    key: IdempotencyKey | None,
    decode: Callable[[JsonObject], Any],
) -> Reservation:
    """Like `reserve`; where the key was used before, the transaction ends with what `decode` makes of that.

    Writes the states of the check, too.
    """
    try:
        reservation = reserve(connection, ref, check, now, counts)
    except (Conflict, connections.StreamBlocksWrite):
        idempotent(connection, ref, key, decode)  # a retry finds its own first attempt at the end of the branch
        raise
    if key is not None:
        idempotent(connection, ref, key, decode)
    if check.states:
        write_states(connection, ref, check.states, now)
    return reservation


def reserve(
    connection: Connection, ref: refs.BranchRef, check: HeadCheck, now: datetime, counts: Counts
) -> Reservation:
    """Reserve positions for items and a number for a response on a branch; locks the conversation.

    Raises:
        NotFound: the conversation or branch does not exist.
        HeadConflict: the branch does not end where expected and on_conflict is "raise". The conversation is locked
            then, too, so that the caller can write down the attempt.
        ResponseInProgress: the branch has one, and on_conflict is "raise". As above.
        StreamBlocksWrite: the branch has one that is to be ended first.
    """
    expected = check.expected_head
    if check.at is not None:
        counts = replace(counts, is_dated=True)
    reservation = _update(connection, ref, counts, now, expected, is_free=True)
    if reservation is not None and ref.branch and not _move_head(connection, ref, reservation, expected):
        _update(connection, ref, counts.reversed(), now, is_elsewhere=True)
        reservation = None
    return _reserve_slowly(connection, ref, check, now, counts) if reservation is None else reservation


def reserve_anywhere(connection: Connection, ref: refs.BranchRef, now: datetime, counts: Counts) -> Reservation | None:
    """Reserve numbers at the end of a branch, wherever that is; None when the conversation is gone."""
    reservation = _update(connection, ref, counts, now)
    if reservation is not None and ref.branch:
        _move_head(connection, ref, reservation, None)
    return reservation


def take(connection: Connection, ref: refs.BranchRef, now: datetime, counts: Counts) -> Reservation | None:
    """Take numbers for what the caller places on branches, whose heads it moves; locks the conversation.

    None where it is gone, or a response is in progress.
    """
    return _update(connection, ref, counts, now, is_elsewhere=True, is_free=True)


def lock(connection: Connection, ref: refs.BranchRef, now: datetime) -> bool:
    """Make the other writers of a conversation wait; False when it does not exist."""
    return _update(connection, ref, NOTHING, now) is not None


def _reserve_slowly(
    connection: Connection, ref: refs.BranchRef, check: HeadCheck, now: datetime, counts: Counts
) -> Reservation:
    """What is done when the first UPDATE met no row: the branch ends elsewhere, or a response is in progress."""
    if _update(connection, ref, Counts(is_dated=counts.is_dated, is_idle=counts.is_idle), now) is None:
        raise ref.not_found()
    lineage = refs.lock_lineage(connection, ref)
    stream = _find_stream(connection, ref)
    expected = lineage.head if check.expected_head is None else check.expected_head
    if check.on_conflict == "raise":
        if expected != lineage.head:
            raise HeadConflict(expected, lineage.head)
        if stream is not None:
            raise stream
    if check.on_conflict == "branch" and (expected != lineage.head or stream is not None):
        return _reserve_on_new_branch(connection, ref, lineage, expected, now, counts)
    if stream is not None:
        raise connections.StreamBlocksWrite(ref, stream.number, CANCELLED)
    reservation = reserve_anywhere(connection, ref, now, counts)
    if reservation is None:
        raise ref.not_found()
    return reservation


def _find_stream(connection: Connection, ref: refs.BranchRef) -> ResponseInProgress | None:
    """The response in progress on a branch, as the error that it is to other writers."""
    row = connection.execute(responses.open_response_of(), ref.parameters(branch=ref.branch)).one_or_none()
    return None if row is None else in_progress(ref, row)


def in_progress(ref: refs.BranchRef, row: Any) -> ResponseInProgress:
    """The error that a response in progress is to other writers; StreamBlocksWrite if its lease is over."""
    if row.lease_until <= row.now:
        raise connections.StreamBlocksWrite(ref, row.number, INCOMPLETE)
    return ResponseInProgress(row.number, ref.branch, (row.lease_until - row.now).total_seconds())


def _reserve_on_new_branch(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, at: int, now: datetime, counts: Counts
) -> Reservation:
    """Numbers on a new branch that shares the items up to a position."""
    _check_position(connection, ref, lineage, at)
    reservation = _update(connection, ref, replace(counts, branches=1), now, is_elsewhere=True)
    if reservation is None:
        raise ref.not_found()
    text = refs.lineage_text(lineage.upto(ref.branch, at))
    head = reservation.last if reservation.count else at
    place = {"number": reservation.branch, "parent": ref.branch, "fork_position": at, "head_position": head}
    row = ref.columns(**place, from_position=reservation.first, lineage=text, created_at=now)
    connection.execute(insert(models.branches), row)
    if counts in (NOTHING, IDLE):  # else it is told with what is appended
        record_change(connection, ref, reservation.branch)
    return reservation


def fork(
    connection: Connection,
    ref: refs.BranchRef,
    at: int | None,
    now: datetime,
    *,
    is_before: bool = False,
    is_dated: bool = False,
) -> int:
    """Make a branch that shares the items up to a position (None: all of them), or before it; returns its number.

    The conversation is locked before its lineage is read: items that are being removed would be missing from it.
    """
    lineage = refs.lock_lineage(connection, ref)
    position = lineage.head if at is None else at
    if is_before:
        _check_position(connection, ref, lineage, position)
        return branch_before(connection, ref, lineage, position, now, NOTHING).branch
    counts = Counts(is_dated=is_dated)
    return _reserve_on_new_branch(connection, ref, lineage, position, now, counts).branch


def branch_before(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, position: int, now: datetime, counts: Counts
) -> Reservation:
    """Make a branch that shares the items before one of the branch's positions, and reserve numbers on it."""
    before = position_before(connection, ref, lineage, position)
    return _reserve_on_new_branch(connection, ref, lineage, before, now, counts)


def _check_position(connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, position: int) -> None:
    """Refuse to fork at a position that the branch does not have; -1 is its very beginning."""
    if position in {-1, lineage.head}:
        return
    for branch, after, upto in lineage.ranges(ref.branch, -1, lineage.head):
        if after < position <= upto:
            parameters = ref.parameters(branch=branch, position=position)
            if connection.execute(items.position_of(), parameters).one_or_none() is not None:
                return
    raise refs.position_not_found(ref, position, lineage.head)


def position_before(connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, position: int) -> int:
    """The position of the item before another one, -1 for none: positions are counted over all branches."""
    if position < 0:
        raise refs.position_not_found(ref, position, lineage.head)
    keeps, statement = lineage.keeps(), items.last_positions()
    for branch, after, upto, surplus in reversed(lineage.spans(ref.branch, -1, position - 1)):
        parameters = ref.parameters(branch=branch, after=after, upto=upto, limit=surplus + 1)
        found: int | None = next(filter(keeps, connection.execute(statement, parameters).scalars()), None)
        if found is not None:
            return found
    return -1


def _update(
    connection: Connection,
    ref: refs.BranchRef,
    counts: Counts,
    now: datetime,
    expected: int | None = None,
    *,
    is_elsewhere: bool = False,
    is_free: bool = False,
) -> Reservation | None:
    """Run the UPDATE; None when it met no row.

    `is_elsewhere`: the items are for a branch that is made now; `is_free`: no response may be in progress.
    """
    is_scoped = ref.scope.user is not None
    has_returning = backends.backend_of(connection).has_returning
    statement = reservation_statement(
        root=ref.branch == 0 and not is_elsewhere and counts.items > 0, scoped=is_scoped,
        expected=expected is not None and ref.branch == 0, returning=has_returning, free=is_free,
        streams=counts.streams != 0, dated=counts.is_dated or counts.is_idle,
    )  # fmt: skip
    parameters = reservation_parameters(ref, counts, _LONG_AGO if counts.is_idle else now, expected)
    if has_returning:
        rows = statement.fetch_all(connection, parameters)
    elif statement.execute(connection, parameters):
        rows = conversations.counters_of(scoped=is_scoped).fetch_all(connection, ref.scope.parameters(key=ref.key))
    else:
        rows = ()
    if not rows:
        return None
    found = Reservation.of_row(connection, ref, counts, rows[0])
    if is_elsewhere:
        found.branch = found.next_branch - 1
    return found


def reservation_parameters(ref: refs.BranchRef, counts: Counts, now: datetime, expected: int | None) -> dict[str, Any]:
    """The parameters of the UPDATE."""
    return {
        "tenant": ref.scope.tenant, "user": ref.scope.user, "key": ref.key, "now": now, "head": expected,
        "items": counts.items, "responses": counts.responses, "branches": counts.branches, "streams": counts.streams,
    }  # fmt: skip


def _move_head(connection: Connection, ref: refs.BranchRef, reservation: Reservation, expected: int | None) -> bool:
    """Move the head of a forked branch; False when it is not where it was expected."""
    parameters = ref.parameters(branch=ref.branch, count=reservation.count, last=reservation.last)
    if expected is not None:
        parameters["head"] = expected
    moved = conversations.branch_head(expected=expected is not None).execute(connection, parameters)
    if not moved and expected is None:
        raise refs.branch_not_found(ref)
    return bool(moved)
