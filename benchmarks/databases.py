"""Databases for one run: made by `threadkeep.schema`, and dropped at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
import pymysql
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import OperationalError

import threadkeep
from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep import AsyncStore, Store

POSTGRES: Final = "THREADKEEP_TEST_POSTGRES"
DEFAULT_POSTGRES: Final = "postgresql://postgres@127.0.0.1:5432/test"
MARIADB: Final = "THREADKEEP_TEST_MARIADB"
DEFAULT_MARIADB: Final = "mariadb://root@127.0.0.1:3306/test"
BUSY_SECONDS: Final = 60
CHECKPOINT_PAGES: Final = 4_000

Row = Sequence[Any]


class Driver(Protocol):
    """The little that the floor needs of a driver, in one spelling; placeholders are written as ``%s``."""

    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def write(self, statement: str, values: Row) -> None: ...
    def write_returning(self, statement: str, values: Row) -> Row: ...
    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row], prefix: str = "threadkeep_") -> None: ...
    def read(self, statement: str, values: Row = ()) -> list[Any]: ...
    def close(self) -> None: ...


class SqliteDriver:
    """The module sqlite3, with the settings that threadkeep's own connections have."""

    def __init__(self, path: str, synchronous: str) -> None:
        self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        settings = "foreign_keys=ON", "journal_mode=WAL", f"synchronous={synchronous}"
        for setting in (*settings, f"wal_autocheckpoint={CHECKPOINT_PAGES}"):
            self._connection.execute(f"PRAGMA {setting}")
        self._spelled: dict[str, str] = {}

    def _sql(self, statement: str) -> str:
        found = self._spelled.get(statement)
        if found is None:
            found = self._spelled[statement] = statement.replace("%s", "?")
        return found

    def begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def write(self, statement: str, values: Row) -> None:
        self._connection.execute(self._sql(statement), values)

    def write_returning(self, statement: str, values: Row) -> Row:
        row: Row = self._connection.execute(self._sql(statement), values).fetchall()[0]
        return row

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row], prefix: str = "threadkeep_") -> None:
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {prefix}{table} ({', '.join(columns)}) VALUES ({marks})", rows)

    def read(self, statement: str, values: Row = ()) -> list[Any]:
        return self._connection.execute(self._sql(statement), values).fetchall()

    def close(self) -> None:
        self._connection.close()


class PostgresDriver:
    """psycopg: one connection that writes in transactions, one that reads in autocommit mode."""

    def __init__(self, url: str) -> None:
        self._writing = psycopg.connect(url)
        self._reading = psycopg.connect(url, autocommit=True)

    def begin(self) -> None:
        """psycopg begins by itself."""

    def commit(self) -> None:
        self._writing.commit()

    def write(self, statement: str, values: Row) -> None:
        self._writing.execute(statement.encode(), values)

    def write_returning(self, statement: str, values: Row) -> Row:
        row = self._writing.execute(statement.encode(), values).fetchone()
        assert row is not None
        return row

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row], prefix: str = "threadkeep_") -> None:
        copied = f"COPY {prefix}{table} ({', '.join(columns)}) FROM STDIN".encode()
        with self._writing.cursor() as cursor, cursor.copy(copied) as copy:
            for row in rows:
                copy.write_row(row)

    def read(self, statement: str, values: Row = ()) -> list[Any]:
        return self._reading.execute(statement.encode(), values or None).fetchall()

    def close(self) -> None:
        self._writing.close()
        self._reading.close()


class MariadbDriver(PostgresDriver):
    """PyMySQL, for what only fills a database: text is put together with ``||`` there, as elsewhere."""

    def __init__(self, url: str) -> None:
        where = make_url(url)
        self._writing, self._reading = (
            pymysql.connect(
                host=where.host, port=where.port or 3306, user=where.username, password=where.password or "",
                database=where.database, autocommit=is_reading, sql_mode="ANSI,STRICT_TRANS_TABLES",
            )
            for is_reading in (False, True)
        )  # fmt: skip

    def write(self, statement: str, values: Row) -> None:
        with self._writing.cursor() as cursor:
            cursor.execute(statement, values or None)

    def read(self, statement: str, values: Row = ()) -> list[Any]:
        with self._reading.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())


@dataclass(frozen=True, slots=True)
class Database:
    """A database with the schema: its kind, what to call it in the report, and its URL."""

    kind: str
    label: str
    url: str
    synchronous: str = "FULL"

    def store(self, **options: Any) -> Store:
        """A store without search, because the floor keeps no search documents."""
        return Store(self.url, **{"search": False, **options})

    def async_store(self) -> AsyncStore:
        return AsyncStore(self.url, search=False)

    def driver(self) -> Driver:
        if self.kind == "postgresql":
            return PostgresDriver(self.url)
        if self.kind == "mariadb":
            return MariadbDriver(self.url)
        return SqliteDriver(str(make_url(self.url).database), self.synchronous)


def sqlite_database(folder: Path, synchronous: str) -> Database:
    """A new SQLite file."""
    path = folder / f"{synchronous}_{secrets.token_hex(4)}.db"
    database = Database("sqlite", f"SQLite {synchronous}", f"sqlite:///{path}", synchronous)
    database.store().close()
    return database


def postgres_missing() -> str | None:
    """Why the PostgreSQL server cannot be used; None when it can."""
    try:
        psycopg.connect(_postgres_url(), connect_timeout=5).close()
    except psycopg.OperationalError as error:
        return str(error).partition("\n")[0]
    return None


@event.listens_for(Engine, "connect")
def _set_synchronous(connection: Any, _record: object) -> None:
    """Give the library's own connections the setting that the name of the file begins with."""
    if isinstance(connection, sqlite3.Connection):
        _, _, path = connection.execute("PRAGMA database_list").fetchone()
        if path:  # not of the one in memory of which the schema is read
            connection.execute(f"PRAGMA synchronous={Path(path).name.partition('_')[0]}")


@contextlib.contextmanager
def postgres_database(*, is_empty: bool = False, **options: Any) -> Iterator[Database]:
    """A new database on the PostgreSQL server, with the schema unless it `is_empty`; `options` of `schema.upgrade`."""
    name = f"threadkeep_bench_{os.getpid()}_{secrets.token_hex(4)}"
    server = _postgres_url()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'".encode())
        try:
            url = make_url(server).set(database=name).render_as_string(hide_password=False)
            if not is_empty:
                engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
                threadkeep.schema.upgrade(engine, **options)
                engine.dispose()
            yield Database("postgresql", "PostgreSQL", url)
        finally:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


@contextlib.contextmanager
def mariadb_database() -> Iterator[Database | None]:
    """A new database on the MariaDB server; None where that does not answer."""
    name = f"threadkeep_bench_{os.getpid()}_{secrets.token_hex(4)}"
    given = make_url(os.environ.get(MARIADB, DEFAULT_MARIADB)).set(drivername="mariadb+pymysql")
    server, url = create_engine(given), given.set(database=name)
    try:
        with server.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    except OperationalError as error:
        print(f"SKIPPED: MariaDB. {error.orig} (another server: {MARIADB})")
        yield None
        return
    try:
        engine = create_engine(url)
        threadkeep.schema.upgrade(engine)
        engine.dispose()
        written = url.set(drivername="mariadb").render_as_string(hide_password=False)
        yield Database("mariadb", "MariaDB", written)
    finally:
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name}")
        server.dispose()


@contextlib.contextmanager
def each_database(folder: Path, *synchronous: str) -> Iterator[list[Database]]:
    """A database of each kind: SQLite with each of these settings, and PostgreSQL where it answers."""
    with contextlib.ExitStack() as stack:
        found = [sqlite_database(folder, setting) for setting in synchronous]
        if postgres_missing() is None:
            found.append(stack.enter_context(postgres_database()))
        yield found


def on_each_database(
    *synchronous: str,
) -> Callable[[Callable[[Database, Scale], list[Line]]], Callable[[Scale], list[Line]]]:
    """Make a benchmark of what measures one database: on a database of each kind, as `each_database` makes them."""

    def benchmark_of(measure: Callable[[Database, Scale], list[Line]]) -> Callable[[Scale], list[Line]]:
        def run(scale: Scale) -> list[Line]:
            with each_database(scale.folder, *synchronous) as databases:
                return [line for database in databases for line in measure(database, scale)]

        return run

    return benchmark_of


def _postgres_url() -> str:
    return os.environ.get(POSTGRES, DEFAULT_POSTGRES)
