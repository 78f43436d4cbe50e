"""What drivers refuse, and why: which of their errors say that nothing was written, and that work can be repeated."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

# PostgreSQL: serialization_failure, deadlock_detected, lock_not_available
_TRANSIENT_STATES: Final = frozenset({"40001", "40P01", "55P03"})
# PostgreSQL: invalid_sql_statement_name, duplicate_prepared_statement; protocol_violation may be something else, too
_STALE_STATES: Final = frozenset({"26000", "42P05"})
_VIOLATION: Final = "08P01"
# MySQL/MariaDB: lock wait timeout, deadlock, record changed since last read
_LOCK_TIMEOUT: Final = 1205
_TRANSIENT_NUMBERS: Final = frozenset({_LOCK_TIMEOUT, 1213, 1020})
# PostgreSQL: read_only_sql_transaction. MariaDB: "WSREP has not yet prepared node for application use", and "running
# with the --read-only option"
_READ_ONLY_STATE: Final = "25006"
_READ_ONLY_NUMBERS: Final = frozenset({1047, 1290})
# SQLite: SQLITE_BUSY, SQLITE_LOCKED (the low byte of extended codes)
_TRANSIENT_CODES: Final = frozenset({5, 6})

# PostgreSQL: foreign_key_violation; MySQL/MariaDB: no such parent row; SQLite: SQLITE_CONSTRAINT_FOREIGNKEY
_UNMET_REFERENCES: Final = frozenset({"23503", 1452, 1216, 787})

# SQLite's code for a file that is no database, SQLITE_NOTADB
_NO_DATABASE: Final = 26

# PostgreSQL: admin_shutdown, crash_shutdown
_ENDED_STATES: Final = frozenset({"57P01", "57P02"})

PSYCOPG: Final = frozenset({"psycopg", "psycopg_async"})


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


def is_held(error: DBAPIError) -> bool:
    """Whether MySQL or MariaDB has waited in vain for a lock of another transaction."""
    arguments: tuple[Any, ...] = getattr(error.orig, "args", ())
    return arguments[:1] == (_LOCK_TIMEOUT,)


def is_unmet_reference(error: DBAPIError) -> bool:
    """Whether a foreign key of a row that was written refers to nothing."""
    cause: Any = error.orig
    arguments: tuple[Any, ...] = getattr(cause, "args", ())
    codes = getattr(cause, "sqlstate", None), getattr(cause, "sqlite_errorcode", None), *arguments[:1]
    return not _UNMET_REFERENCES.isdisjoint(code for code in codes if isinstance(code, str | int))


def is_unopened(error: DBAPIError) -> bool:
    """Whether there is no connection, or the file of SQLite is none of a database, which its first statement shows."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    return code == _NO_DATABASE or (isinstance(error, OperationalError) and error.statement is None)


def is_taken_back(error: DBAPIError) -> bool:
    """Whether the server ended the connection, or refused to write, and said so: nothing was committed."""
    return getattr(error.orig, "sqlstate", None) in _ENDED_STATES or is_read_only(error.orig)


def is_lost(connection: Connection, error: BaseException) -> bool:
    """Whether a driver's error says that its connection was lost."""
    dialect: Any = connection.dialect
    if not isinstance(error, dialect.loaded_dbapi.Error):
        return False
    return bool(dialect.is_disconnect(error, connection.connection.dbapi_connection, None))


def is_read_only(error: BaseException | None) -> bool:
    """Whether a driver's error says that a server cannot be written to, because another one has taken its place."""
    if (state := getattr(error, "sqlstate", None)) is not None:
        return bool(state == _READ_ONLY_STATE)
    arguments: tuple[Any, ...] = getattr(error, "args", ())
    return bool(arguments) and arguments[0] in _READ_ONLY_NUMBERS
