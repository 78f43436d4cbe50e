"""Writers to a SQLite file: one after the other, and those that wait at the same time in one transaction.

A transaction ends with a sync of the file, which mostly takes longer than all that is written before it. So what
threads want to write while another one commits is committed together, by the thread that came first: it runs
the work of the others, each in a savepoint. A writer that is alone waits for nothing, and has no savepoint.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]
from sqlalchemy import Connection, text

from threadkeep.db import backends, driver
from threadkeep.store.work import connections, units

if TYPE_CHECKING:
    from threadkeep.store.work.transactions import EngineTransactions

T = TypeVar("T")
Lend = Callable[[], AbstractContextManager[Connection]]
Outcome: TypeAlias = tuple[Any, BaseException | None]  # what a call returns, or raises

TURN_SECONDS: Final = 5.0  # how long a writer to SQLite waits for its turn before it tries the database's own lock
MAX_MEMBERS: Final = 64  # of a group
GROUP_SECONDS: Final = 0.05  # after which it takes no more members: what they have written waits for its COMMIT
_SAVE, _KEEP, _TAKE_BACK = (
    driver.Statement(text(f"{begin} threadkeep_member")) for begin in ("SAVEPOINT", "RELEASE", "ROLLBACK TO")
)


class WriterQueue:
    """Lets the threads of a process write to a SQLite database one after the other, or together.

    SQLite's own lock is polled, ever less often, so that a writer sleeps while the database is free. Others that have
    this lock for long, such as a unit of work that stays open, are waited for as other processes are: by SQLite.

    The members of a group are led by the first one of the queue. Nothing is returned to any of them before the COMMIT.
    What fails is taken back to its savepoint, and raised to its caller alone. If the group itself cannot go on, it is
    rolled back, and each member leads a transaction that it has for itself, whose failure is its own.
    """

    def __init__(self) -> None:
        self._turn, self._lock = Lock(), Lock()
        self._waiting: deque[_Member[Any]] = deque()
        self._is_led = False  # whether a member leads, or was woken to do so

    def has(self, waiting: int) -> bool:
        """Whether a writer leads, and so many wait behind it."""
        with self._lock:
            return self._is_led and len(self._waiting) == waiting

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until the others have written."""
        has_turn = self._turn.acquire(timeout=TURN_SECONDS)
        try:
            yield
        finally:
            if has_turn:
                self._turn.release()

    def write(self, work: Callable[[Connection], T], lend: Lend, retries: connections.Retries) -> T:
        """Run work in a transaction, maybe with others' work, on a connection that is lent to the leader.

        The work may be run by another thread, with the context variables of this one, and again after a rollback.
        """
        member, current = _Member(work, retries), getcurrent()
        if isinstance(current, _Call):
            current.parent.switch(self, lend, member)  # which returns when it is done
        else:
            self.write_all([member], lend)
        if member.error is not None:
            raise member.error
        return member.result

    def write_all(self, members: Sequence[_Member[Any]], lend: Lend) -> None:
        """Run the work of the members of a thread, until all of it is done."""
        woken = SimpleQueue[None]()
        while left := [member for member in members if not member.is_done]:
            with self._lock:
                for member in left:
                    self._join(member, woken)
            leader = next((member for member in left if member.leads), None)
            if leader is None:
                self._wait(left, woken)
            else:
                leader.leads = False
                self._lead(leader, lend)

    def _join(self, member: _Member[Any], woken: SimpleQueue[None]) -> None:
        """Have a member lead, or wait behind others, unless it does."""
        if not member.is_new:
            return
        member.is_new, member.woken = False, woken
        if self._is_led:
            self._waiting.append(member)
        else:
            self._is_led = member.leads = True

    def _wait(self, members: Sequence[_Member[Any]], woken: SimpleQueue[None]) -> None:
        """Wait until others have written, or have led one of the members, or it is to lead."""
        is_woken = False
        try:
            with suppress(Empty):
                woken.get(timeout=TURN_SECONDS)
                is_woken = True
        finally:
            if not is_woken:
                with self._lock:
                    for member in [member for member in members if member in self._waiting]:
                        self._waiting.remove(member)  # interrupted; or it leads now, unasked, and …
                        member.leads = True  # … waits for SQLite's own lock

    def _lead(self, leader: _Member[Any], lend: Lend) -> None:
        """Write what a member has to write, and what those behind it have."""
        until, others = time.monotonic() + GROUP_SECONDS, list[_Member[Any]]()
        leader.retries.is_committing = False
        try:
            with self.turn(), lend() as connection:
                connection.begin()
                backends.backend_of(connection).begin(connection, is_checked=False)
                leader.run(connection)
                while not leader.is_alone and (member := self._next(len(others), until)) is not None:
                    others.append(member)
                    member.run_in_savepoint(connection)
                leader.retries.is_committing = True
                connection.commit()
        except connections.Replay as replay:  # its own: there are no others yet
            leader.result = replay.result
        except BaseException as error:  # noqa: BLE001 - it is raised to its caller
            leader.error = error
        failed = leader.error is not None and bool(others)
        is_interrupted = not isinstance(leader.error, Exception)
        for member in (leader, *others):
            member.settle(is_lost=failed and not (member is leader and is_interrupted))
        self._pass_on()
        for member in others:
            member.woken.put(None)

    def _next(self, count: int, until: float) -> _Member[Any] | None:
        """Take the next member of a group that has so many others."""
        with self._lock:
            is_full = count >= MAX_MEMBERS - 1 or time.monotonic() > until
            return None if is_full or not self._waiting or self._waiting[0].is_alone else self._waiting.popleft()

    def _pass_on(self) -> None:
        """Let the next member lead."""
        with self._lock:
            self._is_led = bool(self._waiting)
            if self._waiting:
                member = self._waiting.popleft()
                member.leads = True
                member.woken.put(None)


class _Member(Generic[T]):
    """What a thread wants to write, and what has become of it."""

    result: T
    woken: SimpleQueue[None]  # of its thread

    def __init__(self, work: Callable[[Connection], T], retries: connections.Retries) -> None:
        self._work, self.retries, self._context = work, retries, copy_context()
        self.error: BaseException | None = None
        self.is_done = self.is_alone = self.leads = False
        self.is_new = True  # whether it neither waits nor leads yet

    def settle(self, *, is_lost: bool) -> None:
        """Be done, or be run once more, alone: the group was rolled back."""
        self.is_done, self.is_alone, self.is_new = not is_lost, is_lost, is_lost
        if is_lost:
            self.error = None

    def run(self, connection: Connection) -> None:
        """Run the work with the context variables of its caller, which is not always the one who runs it."""
        self.result = self._context.run(self._work, connection)

    def run_in_savepoint(self, connection: Connection) -> None:
        """Run the work; what fails is taken back, and is the member's own failure."""
        _SAVE.execute(connection, {})
        try:
            self.run(connection)
        except connections.Replay as replay:
            self.result = replay.result
        except KeyboardInterrupt:  # of the thread that leads
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised to its caller
            connections.hide_parameters(error)
            self.error = error
        else:
            _KEEP.execute(connection, {})
            return
        _TAKE_BACK.execute(connection, {})  # fails where SQLite has rolled back everything
        _KEEP.execute(connection, {})


class _Call(greenlet):  # type: ignore[misc]
    """A call of a batch: what it returns or raises."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._function = function

    def run(self) -> Outcome:
        try:
            return self._function(), None
        except BaseException as error:  # noqa: BLE001 - it is raised to who waits for the call
            return None, error


def run_calls(functions: Sequence[Callable[[], Any]]) -> list[Outcome]:
    """Run calls in one thread, each in a greenlet: all go on until they write, write together, and go on."""
    calls = [_Call(function) for function in functions]
    results: dict[_Call, Outcome] = {}
    while left := [call for call in calls if call not in results]:
        waiting: dict[WriterQueue, tuple[Lend, list[_Member[Any]]]] = {}
        for call in left:
            found = call.switch()
            if call.dead:
                results[call] = found
            else:
                queue, lend, member = found
                waiting.setdefault(queue, (lend, []))[1].append(member)
        for queue, (lend, members) in waiting.items():
            queue.write_all(members, lend)
    return [results[call] for call in calls]


def run_units(transactions: EngineTransactions, works: Sequence[units.Work[Any]]) -> list[Outcome]:
    """Run short units of work one after the other in one transaction.

    They have no savepoints, which take a sixth of the time of a call that is recorded. So where one fails, everything
    is rolled back, and each is run in a transaction of its own.
    """
    tried: list[list[units.Result[Any]]] = [[] for _ in works]  # those that may have been committed

    def run(connection: Connection) -> None:
        for work, begun in zip(works, tried, strict=True):
            unit = transactions.within(connection, has_savepoints=False)
            with unit.open():
                begun.append((unit, work(unit)))

    def run_alone(work: units.Work[Any], begun: Sequence[units.Result[Any]]) -> Outcome:
        try:
            return transactions.run_unit(work, is_short=True, tried=begun), None
        except Exception as error:  # noqa: BLE001 - it is raised to its caller
            return None, error

    if transactions.is_grouping and len(works) > 1:
        with suppress(Exception, units.SavepointsNeeded):
            transactions.write_together(run, connections.Retries(is_repeatable=True))
            for begun in tried:
                transactions.end_unit(begun[-1][0])
            return [(begun[-1][1], None) for begun in tried]
    return list(map(run_alone, works, tried))
