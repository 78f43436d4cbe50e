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
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sqlalchemy import Connection, text

from threadkeep.db import backends, driver
from threadkeep.store.work import connections, units

if TYPE_CHECKING:
    from threadkeep.store.work.transactions import EngineTransactions

T = TypeVar("T")
Lend = Callable[[], AbstractContextManager[Connection]]

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
        member = _Member(work, retries)
        while not member.is_done:
            if self._leads(member):
                self._lead(member, lend)
        if member.error is not None:
            raise member.error
        return member.result

    def _leads(self, member: _Member[Any]) -> bool:
        """Wait until others have written, or have led the member; return whether it has to lead."""
        with self._lock:
            if not self._is_led:
                self._is_led = True
                return True
            member.wait_behind(self._waiting)
        is_woken = False
        try:
            is_woken = member.woken.acquire(timeout=TURN_SECONDS)
        finally:
            with self._lock:
                if member in self._waiting:  # interrupted; or it leads now, unasked, and waits for SQLite's own lock
                    self._waiting.remove(member)
                    member.leads = True
        if not is_woken and not member.leads:
            member.woken.acquire()
        return member.leads

    def _lead(self, leader: _Member[Any], lend: Lend) -> None:
        """Write what a member has to write, and what those behind it have."""
        until, others = time.monotonic() + GROUP_SECONDS, list[_Member[Any]]()
        leader.retries.is_committing = False
        try:
            with self.turn(), lend() as connection:
                connection.begin()
                backends.backend_of(connection).begin(connection, is_checked=False)
                leader.result = leader.work(connection)
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
            member.woken.release()

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
                member.woken.release()


class _Member(Generic[T]):
    """What a thread wants to write, and what has become of it."""

    result: T
    woken: Lock

    def __init__(self, work: Callable[[Connection], T], retries: connections.Retries) -> None:
        self.work, self.retries, self._context = work, retries, copy_context()
        self.error: BaseException | None = None
        self.is_done = self.is_alone = self.leads = False

    def wait_behind(self, waiting: deque[_Member[Any]]) -> None:
        """Join a queue."""
        self.woken, self.leads = Lock(), False
        self.woken.acquire()
        waiting.append(self)

    def settle(self, *, is_lost: bool) -> None:
        """Be done, or be run once more, alone: the group was rolled back."""
        self.is_done, self.is_alone = not is_lost, is_lost
        if is_lost:
            self.error = None

    def run_in_savepoint(self, connection: Connection) -> None:
        """Run the work; what fails is taken back, and is the member's own failure."""
        _SAVE.execute(connection, {})
        try:
            self.result = self._context.run(self.work, connection)
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


def run_units(transactions: EngineTransactions, works: Sequence[units.Work[T]]) -> list[T | Exception]:
    """Run short units of work one after the other in one transaction; return the result of each, or what it raises.

    They have no savepoints, which take a sixth of the time of a call that is recorded. So where one fails, everything
    is rolled back, and each is run in a transaction of its own.
    """
    tried: list[list[units.Result[T]]] = [[] for _ in works]  # those that may have been committed

    def run(connection: Connection) -> None:
        for work, begun in zip(works, tried, strict=True):
            unit = transactions.within(connection, has_savepoints=False)
            with unit.open():
                begun.append((unit, work(unit)))

    def run_alone(work: units.Work[T], begun: Sequence[units.Result[T]]) -> T | Exception:
        try:
            return transactions.run_unit(work, is_short=True, tried=begun)
        except Exception as error:  # noqa: BLE001 - it is raised to its caller
            return error

    if transactions.is_grouping and len(works) > 1:
        with suppress(Exception, units.SavepointsNeeded):
            transactions.write_together(run, connections.Retries(is_repeatable=True))
            for begun in tried:
                transactions.end_unit(begun[-1][0])
            return [begun[-1][1] for begun in tried]
    return list(map(run_alone, works, tried))
