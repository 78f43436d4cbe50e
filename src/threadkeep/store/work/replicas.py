"""Reading from a replica, and when not to: where it may lack what the reader has written, or does not answer.

What only shows something is read with `EngineTransactions.read_any`, and may come from here. What prepares a write, or
must be complete (an export, say), is read from the primary.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, ProgrammingError

from threadkeep.db.engines import LOCK, Inheritable, isolation_levels, replica_for, shown_url
from threadkeep.db.refusals import is_transient
from threadkeep.db.replication import START, Position, read_position
from threadkeep.store.work.connections import give_up
from threadkeep.store.work.transactions import Connections

T = TypeVar("T")
LOG: Final = logging.getLogger("threadkeep.replicas")

PAUSE_SECONDS: Final = 5.0  # how long a replica that did not answer is left alone

_REACHED: Final = "threadkeep_position"


class Behind(Exception):
    """The replica lacks something that must be seen."""


class Replica(Inheritable):
    """A server that follows the primary."""

    def __init__(self, engine: Engine, *, is_owned: bool) -> None:
        super().__init__()
        self._engine, self._is_owned = engine, is_owned
        reading, _ = isolation_levels(engine, is_owned=is_owned)
        self._connections = Connections(engine, keeps=False, waits=False, isolation=reading, is_hosts=not is_owned)
        self._away_until = 0.0

    @property
    def is_away(self) -> bool:
        """Whether it did not answer a moment ago."""
        return time.monotonic() < self._away_until

    def run(self, work: Callable[[Connection], T], needed: Position) -> T:
        """Run work on a connection to it; raise Behind if it is not at that position yet."""

        def check_and_work(connection: Connection) -> T:
            if not connection.info.get(_REACHED, START).includes(needed):
                reached = connection.info[_REACHED] = read_position(connection)
                if not reached.includes(needed):
                    raise Behind
            return work(connection)

        return self._connections.run(check_and_work)

    def note(self, error: Exception) -> None:
        """Leave it alone for a while, if it is the server that has failed, and not this reading alone."""
        if isinstance(error, OperationalError | InterfaceError) and not is_transient(error):
            self._leave_alone("does not answer", error)

    def note_refusal(self, error: Exception) -> None:
        """Leave it alone for a while, if it has refused what the primary then did, such as without the rights."""
        if isinstance(error, ProgrammingError):
            self._leave_alone("refuses what the primary does", error)

    def _leave_alone(self, reason: str, error: DBAPIError) -> None:
        self._away_until = time.monotonic() + PAUSE_SECONDS
        name = type(error.orig).__name__  # the text of the driver may have a password in it
        if error.orig is not None and error.orig.args and isinstance(error.orig.args[0], int):
            name += f" {error.orig.args[0]}"  # MariaDB's number
        url = self._engine.url
        where = shown_url(url.set(drivername=url.get_backend_name()))
        LOG.warning("The replica %s %s (%s); the primary is read instead.", where, reason, name)

    def close(self) -> None:
        """Close the connections that were opened."""
        if self._is_owned:
            self._engine.dispose()

    def give_up(self) -> None:
        """Let the process that was forked have its connections."""
        give_up(self._engine)


def replica_reads(read_url: Any, primary: Engine, *, is_async: bool = False) -> ReplicaReads | None:
    """The reads of a new store; None if it has no replica.

    Raises:
        InvalidOption, MissingExtra: the URL cannot be used, or not with this primary.
    """
    if read_url is None:
        return None
    is_owned = isinstance(read_url, str | URL)
    return ReplicaReads(Replica(replica_for(read_url, primary, is_async=is_async), is_owned=is_owned))


class ReplicaReads:
    """The reads of a store, or of a session of it, on a replica: they see whatever was written in that session.

    Nothing is asked after a write. The next read goes to the primary and brings its position along; from then on, the
    replica is read once it has got there.
    """

    def __init__(self, replica: Replica, needed: Position = START) -> None:
        self.replica = replica
        self._needed = needed
        self._writes = 0  # that have ended, however
        self._covered = 0  # of these: seen by whoever sees the position

    def from_position(self, needed: Position) -> ReplicaReads:
        """The reads of a session that sees at least what was written up to a position."""
        return ReplicaReads(self.replica, needed)

    def note_write(self) -> None:
        """Something was written, or found to have been written by another process."""
        with LOCK:
            self._writes += 1

    def find_position(self, read_primary: Callable[[Callable[[Connection], Position]], Position]) -> Position:
        """What must be seen; asked for only if something was written, perhaps in a transaction of the caller's."""
        writes = self._writes
        if not writes:
            return self._needed
        position = read_primary(read_position)
        self._cover(writes, position)
        return self._needed.joined(position)

    def read(self, work: Callable[[Connection], T], read_primary: Callable[[Callable[[Connection], Any]], Any]) -> T:
        """Run work on the replica, if that has all that must be seen, else on the primary.

        An error of the replica is not the caller's: it may be because of what is not there yet.
        """
        writes = self._writes
        if writes != self._covered:
            result, position = read_primary(lambda connection: (work(connection), read_position(connection)))
            self._cover(writes, position)
            return cast("T", result)
        refused: Exception | None = None
        if not self.replica.is_away:
            try:
                return self.replica.run(work, self._needed)
            except Behind:
                pass
            except Exception as error:  # noqa: BLE001 - the primary tells what is wrong
                self.replica.note(error)
                refused = error
        result = cast("T", read_primary(work))
        if refused is not None:
            self.replica.note_refusal(refused)
        return result

    def _cover(self, writes: int, position: Position) -> None:
        """So many writes are in a position; a server that says none is read again and again."""
        with LOCK:
            if position is not START and writes > self._covered:
                self._needed, self._covered = self._needed.joined(position), writes
