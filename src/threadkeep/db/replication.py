"""Positions in what a server replicates: whether a replica has what was committed on the primary.

On PostgreSQL that is a place in the write-ahead log (LSN), on MariaDB a global transaction id (GTID) for each
replication domain. Both only grow. SQLite has no replicas, and MySQL's own GTIDs are another thing: no positions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, text

from threadkeep.db.backends import Connected, backend_of
from threadkeep.errors import InvalidOption, shown

_POSTGRESQL: Final = "pg"
_MARIADB: Final = "gtid"
_SERVERS: Final = {_POSTGRESQL: "PostgreSQL", _MARIADB: "MariaDB"}
_TEXT: Final = re.compile(r"(?P<server>pg|gtid)(?P<reached>(?:-[0-9]{1,10}\.[0-9]{1,20}){1,64})")

# The insert position is behind each commit, also of one that did not wait for the disk. A promoted replica has it, too.
_LSN: Final = text(
    "SELECT CAST((CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END)"
    " - '0/0'::pg_lsn AS text)"
)
_GTID: Final = text("SELECT @@gtid_current_pos")


@dataclass(frozen=True, slots=True)
class Position:
    """How far a server is: in each replication domain (PostgreSQL has one), the number of what came last."""

    server: str = ""
    reached: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.server + "".join(f"-{domain}.{number}" for domain, number in sorted(self.reached.items()))

    def includes(self, other: Position) -> bool:
        """Whether a server that is here has everything up to another position."""
        return all(self.reached.get(domain, -1) >= number for domain, number in other.reached.items())

    def joined(self, other: Position) -> Position:
        """The position that includes both."""
        if not other.reached:
            return self
        domains = {*self.reached, *other.reached}
        reached = {domain: max(self.reached.get(domain, -1), other.reached.get(domain, -1)) for domain in domains}
        return Position(other.server, reached)


START: Final = Position()  # included by every other


def parse_position(given: object, connected: Connected) -> Position:
    """Return a position from its text; none is the start, and so is any on SQLite, which has no replicas.

    Raises:
        InvalidOption: it is not a position, or one of another kind of database.
    """
    if given is None or given == "":
        return START
    found = _TEXT.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        problem = f"is not a position: {shown(given)}."
        raise InvalidOption(problem, argument="token", hint="Pass what position() has returned.")
    backend = backend_of(connected)
    if not backend.has_replicas:
        return START
    server = _MARIADB if backend.name == "mysql" else _POSTGRESQL
    if found["server"] != server:
        problem = f"is one of {_SERVERS[found['server']]}; this store is on {_SERVERS[server]}."
        raise InvalidOption(problem, argument="token", hint="Pass what position() of this store has returned.")
    pairs = (pair.split(".") for pair in found["reached"][1:].split("-"))
    return Position(server, {int(domain): int(number) for domain, number in pairs})


def read_position(connection: Connection) -> Position:
    """How far a server is: the primary with what was committed there, a replica with what it shows of that.

    The start, if the server does not say: SQLite, MySQL, and MariaDB without a binary log.
    """
    if connection.dialect.name == "postgresql":
        number = connection.execute(_LSN).scalar_one()
        return START if number is None else Position(_POSTGRESQL, {0: int(number)})
    if not getattr(connection.dialect, "is_mariadb", False):
        return START
    reached: dict[int, int] = {}
    for one in filter(None, str(connection.execute(_GTID).scalar_one()).split(",")):
        domain, _, number = one.strip().split("-")
        reached[int(domain)] = max(int(number), reached.get(int(domain), -1))
    return Position(_MARIADB, reached) if reached else START
