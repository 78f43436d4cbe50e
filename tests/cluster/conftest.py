"""Servers that replicate, for the tests of a module."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import NullPool

from tests.cluster.servers import (
    MARIADB_INSTALL,
    MARIADBD,
    POSTGRES_BIN,
    STATEMENT_SECONDS,
    Mariadb,
    Postgres,
    Server,
    folder_for,
)
from tests.cluster.servers import running as running_servers
from tests.databases import DRIVERS
from tests.ports import free_ports
from tests.store.faces import opening
from tests.waiting import wait_until
from threadkeep import schema

CATCH_UP_SECONDS = 60.0


@dataclass
class Pair:
    """A primary and its replica, whose replay can be paused: what is written then is not there until it goes on."""

    url: str
    read_url: str
    replica: Any
    pause: Callable[[], object]
    resume: Callable[[], object]
    reached: Callable[[], bool]
    restart: Callable[[], None]

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.catch_up()
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def catch_up(self) -> None:
        wait_for_servers(self.reached, self.replica)


def wait_for_servers(is_reached: Callable[[], bool], *servers: Server) -> None:
    """Wait for what servers do in a moment; if it takes long, fail with what they have logged."""
    wait_until(is_reached, lambda: "\n".join(server.log for server in servers), seconds=CATCH_UP_SECONDS)


def set_up(url: str) -> None:
    """The schema, in a database that exists."""
    target = make_url(url)
    seconds = STATEMENT_SECONDS
    limits = {
        "postgresql": {"options": f"-c statement_timeout={seconds}s"},
        "mariadb": {"read_timeout": seconds, "write_timeout": seconds},
    }[target.drivername]
    engine = create_engine(target.set(drivername=DRIVERS[target.drivername]), poolclass=NullPool, connect_args=limits)
    schema.upgrade(engine)


@contextmanager
def postgres_servers() -> Iterator[tuple[Postgres, Postgres]]:
    """A primary with the schema, and a replica, both running."""
    if not (POSTGRES_BIN / "initdb").exists():
        pytest.skip("PostgreSQL is not installed: initdb is missing")
    with folder_for("postgres") as folder:
        primary, replica = (
            Postgres(folder / name, port) for name, port in zip(("primary", "replica"), free_ports(2), strict=True)
        )
        prepare(primary, replica)
        with running_servers(primary, replica):
            primary.create()
            primary.start()
            replica.copy(primary, "replica")
            replica.start()
            set_up(primary.url())
            yield primary, replica


@contextmanager
def postgres_pair() -> Iterator[Pair]:
    with postgres_servers() as (primary, replica):

        def reached() -> bool:
            ((end,),) = primary.sql("SELECT pg_current_wal_insert_lsn()")
            return bool(replica.sql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn")[0][0])

        yield Pair(
            primary.url(), replica.url(), replica,
            lambda: replica.sql("SELECT pg_wal_replay_pause()"),
            lambda: replica.sql("SELECT pg_wal_replay_resume()"),
            reached, replica.start,
        )  # fmt: skip


@contextmanager
def mariadb_pair() -> Iterator[Pair]:
    if not (MARIADBD and MARIADB_INSTALL):
        pytest.skip("MariaDB is not installed: mariadbd is missing")
    with folder_for("mysql") as folder:
        primary, replica = (Mariadb(folder / f"{number}", port, number) for number, port in enumerate(free_ports(2), 1))
        prepare(primary, replica)
        with running_servers(primary, replica):
            for server in (primary, replica):
                server.create()
                server.start("--log-bin=binlog")
            primary.sql("CREATE DATABASE chat", "CREATE USER follower@'127.0.0.1'",
                        "GRANT REPLICATION SLAVE ON *.* TO follower@'127.0.0.1'")  # fmt: skip
            replica.sql(
                f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, master_user='follower', "
                "master_use_gtid=slave_pos, master_connect_retry=1",
                "START SLAVE",
            )
            set_up(primary.url("chat"))

            def reached() -> bool:
                ((end,),) = primary.sql("SELECT @@gtid_binlog_pos")
                return bool(replica.sql(f"SELECT master_gtid_wait('{end}', 0.01)")[0][0] == 0)

            yield Pair(
                primary.url("chat"), replica.url("chat"), replica,
                lambda: replica.sql("STOP SLAVE SQL_THREAD"), lambda: replica.sql("START SLAVE SQL_THREAD"),
                reached, partial(replica.start, "--log-bin=binlog"),
            )  # fmt: skip


def prepare(*servers: Any) -> None:
    for server in servers:
        own_folder(server.folder, server.user)


def own_folder(folder: Path, user: str) -> None:
    """A folder for a server, of the user that it runs as if the tests run as root."""
    folder.mkdir()
    if os.getuid() == 0:
        shutil.chown(folder, user)


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A primary with the schema, and a replica."""
    with {"postgresql": postgres_pair, "mariadb": mariadb_pair}[request.param]() as made:
        yield made


@pytest.fixture
def opened(face: str) -> Iterator[Callable[..., Any]]:
    """Opens stores of a face, which are closed at the end."""
    with opening(face) as open_store:
        yield open_store
