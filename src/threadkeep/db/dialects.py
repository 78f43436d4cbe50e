"""The few places where SQLite, PostgreSQL and MySQL/MariaDB differ, and the time of the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from typing import Any, Final

from sqlalchemy import BindParameter, ColumnElement, Connection, Float, Insert, Table, bindparam, select, text
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from threadkeep.db.types import MYSQL, UtcDateTime
from threadkeep.errors import TooLarge

MAX_VALUE: Final = 256 * 1024 * 1024  # bytes of one row, on every database

# PostgreSQL: serialization_failure, deadlock_detected, lock_not_available
_TRANSIENT_STATES: Final = frozenset({"40001", "40P01", "55P03"})
# PostgreSQL: invalid_sql_statement_name, duplicate_prepared_statement; protocol_violation may be something else, too
_STALE_STATES: Final = frozenset({"26000", "42P05"})
_VIOLATION: Final = "08P01"
# MySQL/MariaDB: lock wait timeout, deadlock, record changed since last read
_TRANSIENT_NUMBERS: Final = frozenset({1205, 1213, 1020})
# PostgreSQL: read_only_sql_transaction. MariaDB: "WSREP has not yet prepared node for application use", and "running
# with the --read-only option"
_READ_ONLY_STATE: Final = "25006"
_READ_ONLY_NUMBERS: Final = frozenset({1047, 1290})
# SQLite: SQLITE_BUSY, SQLITE_LOCKED (the low byte of extended codes)
_TRANSIENT_CODES: Final = frozenset({5, 6})

# PostgreSQL: foreign_key_violation; MySQL/MariaDB: no such parent row; SQLite: SQLITE_CONSTRAINT_FOREIGNKEY
_UNMET_REFERENCES: Final = frozenset({"23503", 1452, 1216, 787})

# PostgreSQL: admin_shutdown, crash_shutdown
_ENDED_STATES: Final = frozenset({"57P01", "57P02"})

PSYCOPG: Final = frozenset({"psycopg", "psycopg_async"})

_PACKET: Final = "threadkeep_packet"
_PACKET_HEADROOM: Final = 64 * 1024
LARGE: Final = 256 * 1024  # bytes of a row; what is smaller fits every packet, however it is written
_QUOTED: Final = b"\\'\"\x00\n\r\x1a"  # what the MySQL drivers write as two bytes


def is_mysql(dialect: Dialect) -> bool:
    """Whether it is MySQL or MariaDB."""
    return dialect.name in MYSQL


def returns_updates(dialect: Dialect) -> bool:
    """Whether UPDATE … RETURNING exists."""
    return dialect.name not in MYSQL


def sees_commits(connection: Connection) -> bool:
    """Whether its next statement sees what was committed before it; the transaction may be the caller's."""
    levels = "READ COMMITTED", "READ UNCOMMITTED", "AUTOCOMMIT"
    return connection.dialect.name == "sqlite" or connection.get_isolation_level() in levels


def is_stale(error: DBAPIError) -> bool:
    """Whether a prepared statement was not there, or was another client's: PostgreSQL behind a pooler."""
    state = getattr(error.orig, "sqlstate", None)
    return state in _STALE_STATES or (state == _VIOLATION and "prepared statement" in str(error.orig))


def is_transient(error: DBAPIError) -> bool:
    """Whether the server rolled the transaction back for a reason that will not recur when it is repeated."""
    cause: Any = error.orig
    if getattr(cause, "sqlstate", None) in _TRANSIENT_STATES or is_stale(error):
        return True
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _TRANSIENT_CODES
    arguments: tuple[Any, ...] = getattr(cause, "args", ())
    return bool(arguments) and arguments[0] in _TRANSIENT_NUMBERS


def is_unmet_reference(error: DBAPIError) -> bool:
    """Whether a foreign key of a row that was written refers to nothing."""
    cause: Any = error.orig
    arguments: tuple[Any, ...] = getattr(cause, "args", ())
    codes = getattr(cause, "sqlstate", None), getattr(cause, "sqlite_errorcode", None), *arguments[:1]
    return not _UNMET_REFERENCES.isdisjoint(code for code in codes if isinstance(code, str | int))


def is_taken_back(error: DBAPIError) -> bool:
    """Whether the server ended the connection, or refused to write, and said so: nothing was committed."""
    return getattr(error.orig, "sqlstate", None) in _ENDED_STATES or is_read_only(error.orig)


def is_read_only(error: BaseException | None) -> bool:
    """Whether a driver's error says that a server cannot be written to, because another one has taken its place."""
    if (state := getattr(error, "sqlstate", None)) is not None:
        return bool(state == _READ_ONLY_STATE)
    arguments: tuple[Any, ...] = getattr(error, "args", ())
    return bool(arguments) and arguments[0] in _READ_ONLY_NUMBERS


@contextmanager
def planned_for_values(connection: Connection) -> Iterator[None]:
    """Let PostgreSQL plan the statements of this block for their values.

    psycopg prepares a statement that it has sent a few times, and PostgreSQL then makes one plan for any values: in a
    search, a plan for words that are in every text.
    """
    if connection.dialect.driver not in PSYCOPG:
        yield
        return
    driver: Any = connection.connection.driver_connection
    before, driver.prepare_threshold = driver.prepare_threshold, None
    try:
        yield
    finally:
        driver.prepare_threshold = before


def constructs_of(dialect: str) -> Any:
    """SQLAlchemy's package of a dialect, with the statements and operators that other databases do not have.

    It is loaded when it is needed, because those of all dialects take long.
    """
    return import_module(f"sqlalchemy.dialects.{'mysql' if dialect in MYSQL else dialect}")


def insert_missing(connection: Connection, table: Table) -> Insert:
    """An INSERT of rows whose keys are hashes of their content: one that exists already stays as it is."""
    if is_mysql(connection.dialect):
        return insert_or_replace(connection, table, "tenant_id")
    upsert: Insert = constructs_of(connection.dialect.name).insert(table).on_conflict_do_nothing()
    return upsert


def insert_or_replace(
    connection: Connection, table: Table, *columns: str, where: ColumnElement[bool] | None = None
) -> Insert:
    """An INSERT that sets these columns of a row that exists already; either way the row is locked.

    `where`: which rows have other values than these, so that the others need not be written (not on MySQL).
    """
    new = constructs_of(connection.dialect.name).insert(table)
    upsert: Insert
    if is_mysql(connection.dialect):
        upsert = new.on_duplicate_key_update({name: new.inserted[name] for name in columns})
    else:
        upsert = new.on_conflict_do_update(
            index_elements=list(table.primary_key.columns),
            set_={name: new.excluded[name] for name in columns},
            where=where,
        )
    return upsert


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
        if is_mysql(connection.dialect) and (needed := _wire_size(row)) > (limit := _packet_limit(connection)):
            raise TooLarge(
                f"The row of {where} needs {needed:,} bytes on the wire, the server takes {limit:,}.",
                hint="Raise max_allowed_packet, or store less text at once.",
            )


def _packet_limit(connection: Connection) -> int:
    if _PACKET not in connection.info:
        size = connection.execute(text("SELECT @@max_allowed_packet")).scalar_one()
        connection.info[_PACKET] = int(size) - _PACKET_HEADROOM
    limit: int = connection.info[_PACKET]
    return limit


def _wire_size(row: Mapping[str, Any]) -> int:
    total = 0
    for value in row.values():
        if isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")  # columns that are escaped later may hold surrogates
            total += len(data) + sum(data.count(byte) for byte in _QUOTED)
        elif isinstance(value, bytes):
            total += 2 * len(value)  # PyMySQL writes bytes in hexadecimal
    return total


# Time


class from_now(FunctionElement[datetime]):  # noqa: N801 - reads as the SQL function that it is
    """The moment at which the database looks at it, or so many seconds later.

    Leases run by this time, because hosts do not agree about theirs. On SQLite it is that of the host, of which a file
    has one.
    """

    name = "from_now"
    type = UtcDateTime()
    inherit_cache = True


def seconds(name: str) -> BindParameter[float]:
    """A parameter of `from_now`."""
    return bindparam(name, type_=Float())


def read_clock(connection: Connection) -> datetime:
    """The time of the database."""
    now: datetime = connection.execute(_CLOCK).scalar_one()
    return now


_CLOCK: Final = select(from_now())


@compiles(from_now, "sqlite")
def _sqlite(element: from_now, compiler: SQLCompiler, **options: Any) -> str:
    """The text that `UtcDateTime` writes, of milliseconds."""
    later = compiler.process(element.clauses, **options)
    modifier = f", printf('%+f seconds', {later})" if later else ""
    return f"(strftime('%Y-%m-%d %H:%M:%f', 'now'{modifier}) || '000')"


@compiles(from_now, "postgresql")
def _postgresql(element: from_now, compiler: SQLCompiler, **options: Any) -> str:
    later = compiler.process(element.clauses, **options)
    return f"(clock_timestamp() + {later} * interval '1 second')" if later else "clock_timestamp()"


@compiles(from_now, "mysql")
@compiles(from_now, "mariadb")
def _mysql(element: from_now, compiler: SQLCompiler, **options: Any) -> str:
    later = compiler.process(element.clauses, **options)
    now = "utc_timestamp(6)"
    return f"timestampadd(microsecond, round({later} * 1000000), {now})" if later else now
