"""Databases for the tests: SQLite files, and databases of their own on PostgreSQL and MariaDB servers.

Every test process makes databases under names of its own and drops them when it ends; what a killed run left behind is
dropped by a later run, after a day. ``python -m tests.databases mariadb`` says whether that server answers.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg
import pymysql
from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.pool import NullPool

from threadkeep.db.hosts import share_context

Upgrade = Callable[[Engine], object]

DATABASES = ("sqlite", "postgresql", "mariadb")

SERVERS = {
    # kind          environment variable        without it
    "postgresql": ("THREADKEEP_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test"),
    "mariadb": ("THREADKEEP_TEST_MARIADB", "mariadb://root@127.0.0.1:3306/test"),
}
DRIVERS = {
    # as users write it   with its driver, for SQLAlchemy
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mariadb": "mariadb+pymysql",
}

MEMORY = Path("/dev/shm")  # a file system in memory, on Linux
MEMORY_BYTES = 2 * 1024**3  # that must be free there
CONNECT_SECONDS = 5
DAY_SECONDS = 86_400
NAME = re.compile(r"threadkeep_test_(?P<made_at>[0-9a-f]{8})_[0-9]+_[a-z0-9]+_[0-9a-f]{6}")


class NotAtHand(Exception):
    """A database server that does not answer; the text says which one and why."""


@dataclass(frozen=True, slots=True)
class Database:
    """A database that exists: its kind, and its URL as a user would give it to a store."""

    kind: str
    url: str

    def engine(self) -> Engine:
        """An engine for the test itself; it keeps no connection open, so there is nothing to dispose of."""
        url = make_url(self.url)
        engine = create_engine(url.set(drivername=DRIVERS[url.drivername]), poolclass=NullPool)
        share_context(engine)
        return engine


class Server(Protocol):
    """Where databases of one kind are made; names come from `Databases`."""

    def url(self, name: str) -> str: ...
    def create(self, name: str) -> None: ...
    def copy(self, source: str, target: str) -> None: ...
    def drop(self, name: str) -> None: ...
    def names(self) -> list[str]: ...
    def close(self) -> None: ...


class SqliteFolder:
    """SQLite files in a folder of the test run; pytest removes old folders itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url(self, name: str) -> str:
        return f"sqlite:///{self._path(name)}"

    def create(self, name: str) -> None:
        """Nothing: an empty SQLite database is a file that does not exist yet."""

    def copy(self, source: str, target: str) -> None:
        shutil.copyfile(self._path(source), self._path(target))

    def drop(self, name: str) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._folder.joinpath(f"{name}.db{suffix}").unlink(missing_ok=True)

    def names(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing: no connection is held."""

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.db"


@contextlib.contextmanager
def fast_folder() -> Iterator[Path | None]:
    """A folder in memory, so that commits on SQLite wait for no disk; None where there is no room for one."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES):
        yield None
        return
    for left in MEMORY.glob("threadkeep_test_*"):  # by a killed run
        if time.time() - left.stat().st_mtime > DAY_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="threadkeep_test_", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class PostgresServer:
    """Databases on a PostgreSQL server, made over one connection of our own."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._connection = psycopg.connect(
            host=url.host,
            port=url.port,
            user=url.username,
            password=url.password,
            dbname=url.database,
            connect_timeout=CONNECT_SECONDS,
            autocommit=True,
        )

    def url(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def create(self, name: str) -> None:
        self._run(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")

    def copy(self, source: str, target: str) -> None:
        self._run(f"CREATE DATABASE {target} TEMPLATE {source}")

    def drop(self, name: str) -> None:
        self._run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def names(self) -> list[str]:
        return [row[0] for row in self._connection.execute("SELECT datname FROM pg_database")]

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str) -> None:
        self._connection.execute(statement.encode())


class MariadbServer:
    """Databases on a MariaDB or MySQL server, made over one connection of our own."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._connection = pymysql.connect(
            host=url.host,
            port=url.port or 3306,
            user=url.username,
            password=url.password or "",
            charset="utf8mb4",
            connect_timeout=CONNECT_SECONDS,
            autocommit=True,
            init_command="SET SESSION lock_wait_timeout = 30",
        )

    def url(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def create(self, name: str) -> None:
        self._run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")

    def copy(self, source: str, target: str) -> None:
        """Make the tables and views again from the server's own description of them, and copy the few rows."""
        self.create(target)
        found = self._run(
            "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = %s", source
        )
        self._run("SET SESSION foreign_key_checks = 0")
        for table, kind in sorted(found, key=lambda row: str(row[1])):  # tables stand before views
            shown = "VIEW" if kind == "VIEW" else "TABLE"
            description = self._run(f"SHOW CREATE {shown} `{source}`.`{table}`")[0][1]
            self._run(f"USE {target}")
            self._run(str(description).replace(f"`{source}`.", ""))
            if shown == "TABLE":
                written = self._run(
                    "SELECT group_concat(concat('`', column_name, '`')) FROM information_schema.columns "
                    "WHERE table_schema = %s AND table_name = %s AND extra NOT LIKE '%%GENERATED'", source, table
                )[0][0]  # fmt: skip
                self._run(f"INSERT INTO `{target}`.`{table}` ({written}) SELECT {written} FROM `{source}`.`{table}`")
        self._run("SET SESSION foreign_key_checks = 1")
        self._run("USE information_schema")  # so that a test may end all connections to its database

    def drop(self, name: str) -> None:
        connections = "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> connection_id()"
        for (connection,) in self._run(connections, name):
            with contextlib.suppress(pymysql.MySQLError):  # it may have ended meanwhile
                self._run(f"KILL {connection}")
        self._run(f"DROP DATABASE IF EXISTS {name}")

    def names(self) -> list[str]:
        return [str(row[0]) for row in self._run("SHOW DATABASES")]

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())


class Databases:
    """The databases of this process: made on demand, dropped by `close`."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._folder, self._worker = folder, worker
        self._servers: dict[str, Server] = {}
        self._refusals: dict[str, NotAtHand] = {}
        self._made: dict[str, str] = {}
        self._prototypes: dict[tuple[str, Upgrade], str] = {}

    def empty(self, kind: str) -> Database:
        """A new database without any table.

        Raises:
            NotAtHand: the server does not answer.
        """
        server, name = self._server(kind), self._name(kind)
        server.create(name)
        return Database(kind, server.url(name))

    def prepared(self, kind: str, upgrade: Upgrade) -> Database:
        """A new database with the schema, copied from one that `upgrade` was run on once.

        Raises:
            NotAtHand: the server does not answer.
        """
        server = self._server(kind)
        if (kind, upgrade) not in self._prototypes:
            prototype = self.empty(kind)
            upgrade(prototype.engine())
            self._prototypes[kind, upgrade] = _name_in(prototype)
        name = self._name(kind)
        server.copy(self._prototypes[kind, upgrade], name)
        return Database(kind, server.url(name))

    def drop(self, database: Database) -> None:
        """Drop a database that `empty` or `prepared` made, and with it the connections that are left."""
        name = _name_in(database)
        self._servers[database.kind].drop(name)
        del self._made[name]

    def close(self) -> None:
        """Drop what is left, each of them even if another one cannot be dropped, and let go of the servers."""
        with contextlib.ExitStack() as last_to_first:
            for server in self._servers.values():
                last_to_first.callback(server.close)
            for name, kind in self._made.items():
                last_to_first.callback(self._servers[kind].drop, name)
        self._made.clear()

    def _server(self, kind: str) -> Server:
        if kind in self._refusals:
            raise self._refusals[kind]
        if kind not in self._servers:
            try:
                self._servers[kind] = connect(kind, self._folder)
            except NotAtHand as refusal:
                self._refusals[kind] = refusal  # so that the next test does not wait for it again
                raise
            if self._worker in {"master", "gw0"}:
                drop_leftovers(self._servers[kind], now=time.time())
        return self._servers[kind]

    def _name(self, kind: str) -> str:
        name = f"threadkeep_test_{int(time.time()):08x}_{os.getpid()}_{self._worker}_{secrets.token_hex(3)}"
        self._made[name] = kind
        return name


def connect(kind: str, folder: Path) -> Server:
    """Connect to the server of a kind, or take the folder for SQLite.

    Raises:
        NotAtHand: the server does not answer.
    """
    if kind == "sqlite":
        return SqliteFolder(folder)
    variable, default = SERVERS[kind]
    url = make_url(os.environ.get(variable, default))
    try:
        return PostgresServer(url) if kind == "postgresql" else MariadbServer(url)
    except (psycopg.OperationalError, pymysql.MySQLError) as error:
        reason = str(error).partition("\n")[0]
        raise NotAtHand(f"{kind}: {reason}; another server: {variable}") from error


def drop_leftovers(server: Server, *, now: float) -> None:
    """Drop the databases of test runs that began more than a day ago: they were killed before they could."""
    for name in server.names():
        found = NAME.fullmatch(name)
        if found and now - int(found["made_at"], 16) > DAY_SECONDS:
            server.drop(name)


def _name_in(database: Database) -> str:
    return str(make_url(database.url).database).rpartition("/")[2].removesuffix(".db")


def main(kind: str) -> None:
    """Exit with a reason and status 1 when the server of that kind does not answer."""
    try:
        connect(kind, Path()).close()
    except NotAtHand as refusal:
        sys.exit(str(refusal))


if __name__ == "__main__":
    main(sys.argv[1])
