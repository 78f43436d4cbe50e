"""Where a transaction begins and ends on a connection: BEGIN and COMMIT, a savepoint, or a single statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, text

from threadkeep.db.dialects import PSYCOPG
from threadkeep.db.driver import Statement
from threadkeep.errors import InvalidOption
from threadkeep.store.connections import has_unread, savepoint
from threadkeep.store.retries import Replay, Retries

T = TypeVar("T")

# Takes the write lock at once: a read transaction that wants to write later is refused as "locked".
BEGIN_IMMEDIATE: Final = Statement(text("BEGIN IMMEDIATE"))
BEGIN: Final = Statement(text("BEGIN ISOLATION LEVEL READ COMMITTED"))


def run_in_transaction(work: Callable[[Connection], T], retries: Retries, connection: Connection) -> T:
    """Run work from BEGIN to COMMIT."""
    retries.is_committing = False
    connection.begin()
    if connection.dialect.name == "sqlite":
        BEGIN_IMMEDIATE.execute(connection, {})
    elif _is_autocommitting(connection):
        BEGIN.execute(connection, {})
    try:
        result = work(connection)
    except Replay as replay:
        connection.rollback()
        earlier: T = replay.result
        return earlier
    retries.is_committing = True
    connection.commit()
    return result


def run_at_once(
    at_once: Callable[[Connection], T | None],
    transaction: Callable[[Connection], T],
    retries: Retries,
    connection: Connection,
) -> T:
    """Run a statement that commits itself; the transaction where it did nothing, or was refused before.

    The transaction, too, on a connection that the server has ended meanwhile: it notices that before it writes.
    """
    if not retries.failures and _is_autocommitting(connection) and not has_unread(connection):
        retries.is_committing = True
        result = at_once(connection)
        if result is not None:
            return result
        if connection.in_transaction():  # SQLAlchemy's own, which it begins where an application listens to its events
            connection.rollback()
    return transaction(connection)


def run_in_savepoint(connection: Connection, work: Callable[[Connection], T]) -> T:
    """Run work inside the caller's transaction, whole or not at all."""
    if _is_autocommitting(connection) and not _has_begun(connection):
        raise InvalidOption("`within` needs a transaction; this connection is in AUTOCOMMIT mode, which has none.")
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite" and not driver.in_transaction:
        # The driver has not begun the caller's transaction yet, and releasing an outermost savepoint would commit.
        BEGIN_IMMEDIATE.execute(connection, {})
    with savepoint(connection) as point:
        try:
            return work(connection)
        except Replay as replay:
            point.rollback()
            earlier: T = replay.result
            return earlier


def _is_autocommitting(connection: Connection) -> bool:
    """Whether it is psycopg's, in autocommit mode; what it is told to commit, it commits there, too."""
    if connection.dialect.driver not in PSYCOPG:
        return False
    driver: Any = connection.connection.dbapi_connection
    return bool(driver.autocommit)


def _has_begun(connection: Connection) -> bool:
    """Whether psycopg was told to begin a transaction, as `run_in_transaction` does in autocommit mode."""
    driver: Any = connection.connection.driver_connection
    return bool(driver.info.transaction_status)  # 0: idle
