"""The few places where the databases differ."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any

import psycopg.errors
import pymysql.err
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from tests.databases import Database
from threadkeep.db.backends import MAX_VALUE, backend_of, check_sizes
from threadkeep.db.models import blobs, tenants
from threadkeep.db.refusals import is_transient
from threadkeep.errors import TooLarge


def busy(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = code
    return error


TRANSIENT = [
    psycopg.errors.SerializationFailure(),
    psycopg.errors.DeadlockDetected(),
    psycopg.errors.LockNotAvailable(),
    pymysql.err.OperationalError(1213, "Deadlock found"),
    pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"),
    pymysql.err.OperationalError(1020, "Record has changed since last read"),
    busy(sqlite3.SQLITE_BUSY),
    busy(sqlite3.SQLITE_BUSY_SNAPSHOT),
    busy(sqlite3.SQLITE_LOCKED),
]
LASTING = [
    psycopg.errors.UniqueViolation(),
    psycopg.errors.UndefinedTable(),
    pymysql.err.IntegrityError(1062, "Duplicate entry"),
    pymysql.err.OperationalError(2013, "Lost connection"),
    pymysql.err.InterfaceError(),
    busy(sqlite3.SQLITE_CANTOPEN),
    sqlite3.IntegrityError("UNIQUE constraint failed"),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=range(len(TRANSIENT)))
def test_what_is_gone_when_it_is_repeated(error: Exception) -> None:
    assert is_transient(DBAPIError("SELECT 1", {}, error))


@pytest.mark.parametrize("error", LASTING, ids=range(len(LASTING)))
def test_what_stays(error: Exception) -> None:
    assert not is_transient(DBAPIError("SELECT 1", {}, error))


def test_which_database_is_which(database: Database) -> None:
    backend = backend_of(database.engine())
    assert backend.name == {"mariadb": "mysql"}.get(database.kind, database.kind)
    assert backend.has_returning == (database.kind != "mariadb")


def test_what_is_there_already_stays(database: Database) -> None:
    now = datetime.now(UTC)
    rows = [
        {"tenant_id": 1, "hash": bytes([number]) * 32, "content": b"x", "size": 1, "created_at": now}
        for number in range(3)
    ]
    with database.engine().connect() as connection:
        connection.execute(tenants.insert(), {"id": 1, "name": "t", "created_at": now})
        connection.execute(backend_of(connection).insert_missing(blobs), rows[:2])
        changed = [{**row, "content": b"y"} for row in rows]
        connection.execute(backend_of(connection).insert_missing(blobs), changed)
        found = connection.execute(select(blobs.c.content).order_by(blobs.c.hash)).scalars()
        assert [bytes(content) for content in found] == [b"x", b"x", b"y"]


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@pytest.mark.parametrize("column", ["payload", "body"])
@pytest.mark.parametrize("letter", ["x", "'", "\\", "é", "👩"])
def test_rows_fit_into_a_packet(database: Database, column: str, letter: str) -> None:
    """A row just under the limit is taken by the server, one just over it is refused before it is sent."""
    with database.engine().connect() as connection:
        limit = int(connection.execute(text("SELECT @@max_allowed_packet")).scalar_one())
        value: Any = letter if column == "payload" else letter.encode()
        width = len(letter.encode()) + (letter in "'\\") if column == "payload" else 2 * len(letter.encode())
        fits = value * ((limit - 70_000) // width)
        check_sizes(connection, [{"id": 1, column: fits}], "an item", [column])
        connection.execute(
            text("CREATE TEMPORARY TABLE big (id integer, payload longtext CHARACTER SET utf8mb4, body longblob)")
        )
        connection.execute(text(f"INSERT INTO big (id, {column}) VALUES (1, :value)"), {"value": fits})
        with pytest.raises(TooLarge, match="max_allowed_packet"):
            check_sizes(connection, [{"id": 1, column: value * (limit // width + 1)}], "an item", [column])


def test_values_have_a_limit_everywhere(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadkeep.db.backends.MAX_VALUE", 300_000)
    with database.engine().connect() as connection:
        check_sizes(connection, [{"text": "x" * 300_000, "none": None}], "an item", ["text", "none"])
        with pytest.raises(TooLarge, match="300,001 bytes; at most 300,000"):
            check_sizes(connection, [{"text": "x"}, {"text": "x" * 300_001}], "an item", ["text"])
    assert MAX_VALUE == 2**28


def test_odd_texts_are_measured_too(database: Database) -> None:
    """Columns that are escaped when they are written hold lone surrogates before."""
    with database.engine().connect() as connection:
        check_sizes(connection, [{"payload": "x" * 300_000, "call_id": "\ud800"}], "an item", ["payload", "call_id"])
