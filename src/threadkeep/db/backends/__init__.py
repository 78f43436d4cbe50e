"""What SQLite, PostgreSQL and MySQL/MariaDB do differently: one object for each, which nothing else asks for its name.

What they only spell differently is in `db.functions`. Their full-text indexes are in `db.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

from sqlalchemy import URL, Column, ColumnElement, Connection, Delete, Engine, Insert, Select, Table, Update, bindparam
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import IsolationLevel

from threadkeep.errors import InvalidOption, TooLarge

BUSY_SECONDS: Final = 60  # how long to wait for a lock on a file, or for a connection of a pool
MAX_VALUE: Final = 256 * 1024 * 1024  # bytes of one row, on every database
LARGE: Final = 256 * 1024  # bytes of a row; what is smaller fits every packet, however it is written
NAMES: Final = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}

Change = TypeVar("Change", Delete, Update)
Places = Sequence[tuple[int, int]]
Condition = ColumnElement[bool]


class Connected(Protocol):
    """A connection or an engine."""

    @property
    def dialect(self) -> Dialect:
        """SQLAlchemy's dialect."""


class Backend:
    """A kind of database; what is here is what servers do unless they say otherwise.

    Attributes:
        name: what it is called in cursors of the change feed.
        drivers: what SQLAlchemy calls its drivers, blocking and with asyncio; "" for Python's own.
        extra: the extra of the package that installs these.
        host_isolation: the isolation levels of reading and writing on an engine of an application, where they are not
            what it does anyway.
        is_server: whether other processes write at the same time, and connections can be lost.
        has_replicas: whether a server can follow another one.
        has_returning: whether UPDATE … RETURNING exists.
        writes_together: whether one statement can write rows of several tables, which servers do in one round trip.
        locks_what_exists: whether an INSERT locks the row that exists already.
        sees_locked: whether a transaction that sees the past sees with locks what is committed.
        seeks_by_subquery: whether an index is used for a bound that is a subquery.
        gives_names_as_bytes: whether short columns are returned as bytes, and long ones as text; else the other way.
        checks_types: whether the values of a column are all of its type.
        new_insert: makes an INSERT of SQLAlchemy's dialect, which can say what happens to rows that exist already.
        packing: how the packed columns of many items are read (`db.queries.histories`); None where they are not there.
        notifies: whether connections can tell each other of commits.
    """

    name: str
    drivers: tuple[str, str]
    extra: str
    new_insert: Callable[[Table], Any]
    packing: Literal["joined", "rows"] | None = None
    host_isolation: tuple[IsolationLevel | None, IsolationLevel | None] = (None, None)
    is_server = has_replicas = has_returning = seeks_by_subquery = checks_types = locks_what_exists = True
    writes_together = sees_locked = gives_names_as_bytes = notifies = False

    # Engines

    def checked_url(self, url: URL) -> URL:
        """A URL with what a store needs; InvalidOption where it says something else."""
        raise NotImplementedError

    def engine_options(self, url: URL) -> dict[str, Any]:
        """The options of an engine made here."""
        del url
        return {"pool_recycle": 3600, "pool_size": 10, "max_overflow": 20, "pool_timeout": BUSY_SECONDS}

    def make_engine(self, url: URL, create: Callable[..., Engine]) -> Engine:
        """An engine whose connections have what a store needs; `create` takes the URL and options."""
        raise NotImplementedError

    def adopt_engine(self, engine: Engine) -> None:
        """Let the connections of an engine of an application have what a store needs; they may be open already."""
        raise NotImplementedError

    def keeps_connections(self, engine: Engine) -> bool:
        """Whether transactions keep connections of an engine that was made here."""
        del engine
        return False

    def is_file(self, url: URL) -> bool:
        """Whether a URL names a file, where connections cost next to nothing."""
        del url
        return False

    def is_in_memory(self, url: URL) -> bool:
        """Whether a URL names a database that ends with its connection."""
        del url
        return False

    def is_same(self, one: URL, other: URL) -> bool:
        """Whether two URLs of this kind name one database, as far as they tell: a host can have several names."""
        return (one.host, one.port, one.database) == (other.host, other.port, other.database)

    def notification_connection(self, engine: Engine, seconds: int) -> Any:
        """A connection of the driver itself that listens and notifies; where `notifies`."""
        raise NotImplementedError

    # Transactions

    def begin(self, connection: Connection, *, is_checked: bool) -> None:
        """Begin to write on a connection whose transaction has begun for SQLAlchemy.

        `is_checked`: with a statement in any case, which a lost connection fails.
        """
        if is_checked:
            connection.exec_driver_sql("SELECT 1")

    def begin_snapshot(self, connection: Connection) -> None:
        """Let all that is read until the end of the transaction be of one moment."""
        raise NotImplementedError

    def refuse_writes(self, connection: Connection) -> None:
        """Let nothing be written on a connection to a server; what is read next is of one moment, where that can be."""

    def begin_savepoint(self, connection: Connection) -> None:
        """Let the caller's transaction begin where the driver has not begun it yet."""

    def is_autocommitting(self, connection: Connection) -> bool:
        """Whether the driver commits each statement; it commits there, too, when asked."""
        del connection
        return False

    def sees_commits(self, connection: Connection) -> bool:
        """Whether its next statement sees what was committed before it; the transaction may be the caller's."""
        return connection.get_isolation_level() in {"READ COMMITTED", "READ UNCOMMITTED", "AUTOCOMMIT"}

    def open_writers(self, connection: Connection, rows: Sequence[Select[Any]]) -> frozenset[str]:
        """Names of open transactions that may have written some of these rows, counted by a statement for each table.

        A read that waits for them returns none. SQLite has none while another transaction begins.
        """
        del connection, rows
        return frozenset()

    # Statements

    def insert_missing(self, table: Table) -> Insert:
        """An INSERT of rows whose keys are hashes of their content: one that exists already stays as it is."""
        found: Insert = self.new_insert(table).on_conflict_do_nothing()
        return found

    def insert_or_replace(self, table: Table, *columns: str, where: Condition | None = None) -> Insert:
        """An INSERT that sets these columns of a row that exists already; either way the row is locked.

        `where`: which rows have other values than these, so that the others need not be written (not on MySQL).
        """
        new = self.new_insert(table)
        key, values = list(table.primary_key.columns), {name: new.excluded[name] for name in columns}
        found: Insert = new.on_conflict_do_update(index_elements=key, set_=values, where=where)
        return found

    def by_keys(self, statement: Select[Any], key: Column[int], keys: Sequence[int]) -> Select[Any]:
        """A statement about rows of a tenant, for those with some keys: one look into the primary key for each.

        It is spelled so that no planner reads what else the tenant has. `key` follows the tenant in the primary key.
        """
        return statement.where(key.in_(keys))

    def change_places(
        self, connection: Connection, statement: Change, column: Column[Any], tenant: int, places: Places
    ) -> int:
        """Run an UPDATE or DELETE on the rows at some places, each found by its key; return how many there were.

        `places` are keys of conversations, with the numbers that `column` holds. One statement, spelled so that each
        database uses the key: SQLite reads the whole table for pairs in a list, MariaDB for a list of one pair, and
        PostgreSQL plans each of them on its own.
        """
        columns = column.table.c.conversation_id, column
        of_tenant, these = statement.where(column.table.c.tenant_id == tenant), self.are_at(columns, places)
        if these is not None:
            return connection.execute(of_tenant.where(these)).rowcount
        each = of_tenant.where(columns[0] == bindparam("place_key"), column == bindparam("place_number"))
        return connection.execute(each, [{"place_key": key, "place_number": number} for key, number in places]).rowcount

    def are_at(self, columns: Sequence[Column[Any]], places: Places) -> Condition | None:
        """A condition for rows at some places, with which the key is used; None where each place is looked up alone."""
        del columns, places
        return None

    def row_limit(self, connection: Connection) -> int | None:
        """How many bytes a row may have on the wire; None without a limit."""
        del connection
        return None

    def wire_size(self, row: Mapping[str, Any]) -> int:
        """How many bytes a row has on the wire; where it has a limit."""
        raise NotImplementedError

    # Upkeep

    def analyze_grown(self, connection: Connection) -> list[str]:
        """Count the rows of our tables that have grown much since they were counted; return their names."""
        del connection
        return []

    def integrity_of(self, connection: Connection, table: str) -> Iterable[str]:
        """What is wrong with a table and its indexes in the file; nothing where the server sees to that."""
        del connection, table
        return ()

    def index_names(self, connection: Connection, table: str) -> Sequence[str]:
        """The indexes of a table in a file, those of its keys included."""
        raise NotImplementedError

    def remake_index(self, connection: Connection, name: str) -> None:
        """Make an index of a file anew."""
        raise NotImplementedError

    def scrub(self, connection: Connection, merge: Callable[[Connection], bool], *, vacuum: bool) -> bool | None:
        """Remove what deleted rows leave behind in files; return True if none of it is left in them.

        `merge` merges the full-text index. Servers decide themselves when to do this: None.
        """
        del connection, merge, vacuum
        return None

    def backup(self, connection: Connection, path: Path, progress: Callable[[int], object]) -> None:
        """Copy the database into a new file; `progress` is called with the number of pages that are copied."""
        del connection, path, progress
        hint = "Use the server's own backup, such as pg_dump or mariadb-dump, or `threadkeep copy` to a SQLite file."
        raise InvalidOption("Only SQLite databases can be backed up this way.", hint=hint)


@cache
def backend_named(name: str) -> Backend:
    """The backend of a dialect of SQLAlchemy. Its module is loaded when it is needed; KeyError for other dialects."""
    found: Backend = import_module(f"{__name__}.{NAMES[name]}").BACKEND
    return found


def backend_of(connected: Connected) -> Backend:
    """The backend of a connection or an engine."""
    return backend_named(connected.dialect.name)


def check_sizes(connection: Connection, rows: Sequence[Mapping[str, Any]], where: str, columns: Sequence[str]) -> None:
    """Refuse rows that the server would refuse, before anything is sent; `columns` are those without a fixed limit.

    Raises:
        TooLarge: a value is over MAX_VALUE, or a row over the server's packet limit (MySQL's max_allowed_packet).
    """
    for row in rows:
        size = 0
        for name in columns:
            if (value := row[name]) is not None:
                size += len(value)
        if size < LARGE:
            continue
        if size > MAX_VALUE:
            raise TooLarge(f"The row of {where} has {size:,} bytes; at most {MAX_VALUE:,} can be stored.")
        backend = backend_of(connection)
        limit = backend.row_limit(connection)
        if limit is not None and (needed := backend.wire_size(row)) > limit:
            raise TooLarge(
                f"The row of {where} needs {needed:,} bytes on the wire, the server takes {limit:,}.",
                hint="Raise max_allowed_packet, or store less text at once.",
            )


def not_a_url(reason: str, hint: str) -> InvalidOption:
    """The error for a URL with which no engine can be made."""
    return InvalidOption(f"is not a database URL: {reason}.", argument="url", hint=hint)
