"""Servers of our own for the tests of clusters: on loopback, in a folder that goes with them, ended with the tests."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pymysql

from tests.databases import CONNECT_SECONDS
from tests.waiting import wait_until

LOG = logging.getLogger("tests.cluster")
LOG.setLevel(logging.INFO)  # shown with failed tests

START_SECONDS = 60.0
RUN_SECONDS = 120.0  # of a program that ends
STATEMENT_SECONDS = 60
POSTGRES_BIN = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), Path("/usr/local/bin"))
MARIADBD = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MARIADB_INSTALL = shutil.which("mariadb-install-db")
GALERA = next((path for path in map(Path, ("/usr/lib/galera/libgalera_smm.so",)) if path.exists()), None)


@contextmanager
def folder_for(user: str) -> Iterator[Path]:
    """A folder that a server can use, which runs as that user if the tests run as root."""
    with TemporaryDirectory(prefix="threadkeep_cluster_") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.getuid() == 0:
            shutil.chown(folder, user)
        yield folder


def as_user(user: str) -> dict[str, Any]:
    """Options of subprocess: servers refuse to run as root."""
    if os.getuid() != 0:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@dataclass
class Server:
    """A server with its own folder and port; `process` is None while it is not running."""

    folder: Path
    port: int
    user: str = field(init=False)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> str:
        """What it said, for the message of a failed test; empty if it was never started."""
        log = self.folder / "log"
        return log.read_text(errors="replace")[-4000:] if log.exists() else ""

    def run(self, *command: str | Path) -> None:
        """Run a program that ends, as the user of the server."""
        done = subprocess.run(
            [str(part) for part in command], cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=RUN_SECONDS, **as_user(self.user),
        )  # fmt: skip
        assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"

    def launch(self, *command: str | Path) -> None:
        """Start the server, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                **as_user(self.user),
            )  # fmt: skip
        wait_until(lambda: self.has_ended or self.answers(), lambda: self.log, seconds=START_SECONDS)
        assert not self.has_ended, self.log  # something else may answer at this port

    def answers(self) -> bool:
        """Whether it can be used."""
        raise NotImplementedError

    @property
    def has_ended(self) -> bool:
        """Whether its program has ended, by itself or not."""
        return self.process is not None and self.process.poll() is not None

    def kill(self) -> None:
        """End it at once, as a power failure does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it, if it is running."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None


@dataclass
class Postgres(Server):
    """A PostgreSQL server that trusts whoever comes from this host."""

    user = "postgres"
    settings: list[str] = field(default_factory=list)
    programs: Path = POSTGRES_BIN

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def create(self) -> None:
        self.run(self.programs / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                 "--locale=C.UTF-8", "--no-sync")  # fmt: skip

    def copy(self, primary: Postgres, name: str) -> None:
        """Become a standby of a primary."""
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={name}"
        self.run(self.programs / "pg_basebackup", "-d", source, "-D", self.data, "-R", "-X", "stream",
                 "-c", "fast", "--no-sync")  # fmt: skip

    def start(self, *settings: str) -> None:
        options = [
            f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off",
            "shared_buffers=32MB", "max_connections=120", "wal_keep_size=64MB", "hot_standby=on", *settings,
        ]  # fmt: skip
        self.launch(self.programs / "postgres", "-D", self.data, *(part for one in options for part in ("-c", one)))

    def promote(self) -> None:
        self.run(self.programs / "pg_ctl", "-D", self.data, "-w", "promote")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        try:
            self.sql("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def sql(self, statement: str) -> list[Any]:
        """Run a statement, and return its rows."""
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname="postgres", autocommit=True,
            connect_timeout=CONNECT_SECONDS, options=f"-c statement_timeout={STATEMENT_SECONDS}s",
        ) as connection:  # fmt: skip
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        assert self.process is not None
        number = self.process.pid
        segments = (self.data / "postmaster.pid").read_text().splitlines()[6].split()
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        super().kill()
        for child in children:  # one that waits for another one would never end, nor its connection
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        subprocess.run(["ipcrm", "-m", segments[1]], check=False, capture_output=True)  # which nobody else removes

    def stop(self) -> None:
        self._end(signal.SIGQUIT)


@dataclass
class Mariadb(Server):
    """A MariaDB server that root enters without a password."""

    user = "mysql"
    number: int = 1

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def create(self) -> None:
        self.run(str(MARIADB_INSTALL), "--no-defaults", f"--datadir={self.data}", "--skip-test-db",
                 "--auth-root-authentication-method=normal")  # fmt: skip

    def start(self, *settings: str) -> None:
        self.launch(
            str(MARIADBD), "--no-defaults", f"--datadir={self.data}", f"--socket={self.folder}/socket",
            f"--pid-file={self.folder}/pid", f"--port={self.port}", "--bind-address=127.0.0.1",
            f"--server-id={self.number}", "--innodb-buffer-pool-size=48M", "--innodb-flush-log-at-trx-commit=0",
            "--skip-name-resolve", "--max-connections=200", "--binlog-format=ROW", *settings,
        )  # fmt: skip

    def url(self, database: str = "mysql") -> str:
        return f"mariadb://root@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        try:
            self.sql("SELECT 1")
        except pymysql.MySQLError:
            return False
        return True

    def sql(self, *statements: str, database: str | None = None) -> list[Any]:
        """Run statements, and return the rows of the last one."""
        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True,
            connect_timeout=CONNECT_SECONDS, read_timeout=STATEMENT_SECONDS, write_timeout=STATEMENT_SECONDS,
        )  # fmt: skip
        with closing(connection), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


@dataclass
class GaleraNode(Mariadb):
    """A node of a Galera cluster; `ports` are those of replication, of transfers of changes, and of states."""

    ports: list[int] = field(default_factory=list)

    def join(self, *others: GaleraNode) -> None:
        """Start as the first node, or join other nodes and get their state from one of them."""
        group, changes, state = self.ports
        provider = (
            f"base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{changes};"
            "gcache.size=16M"
        )
        addresses = ",".join(f"127.0.0.1:{node.ports[0]}" for node in (self, *others))
        self.start(
            "--wsrep-on=ON", f"--wsrep-provider={GALERA}", f"--wsrep-provider-options={provider}",
            f"--wsrep-cluster-address=gcomm://{addresses}", f"--wsrep-node-address=127.0.0.1:{group}",
            "--wsrep-sst-method=rsync", f"--wsrep-sst-receive-address=127.0.0.1:{state}",
            "--innodb-autoinc-lock-mode=2", *([] if others else ["--wsrep-new-cluster"]),
        )  # fmt: skip

    def status(self, name: str) -> str:
        """The value of a status variable."""
        return str(self.sql(f"SHOW STATUS LIKE '{name}'")[0][1])

    def catch_up(self, table: str) -> None:
        """Wait until it shows what another node has committed to a table, which it applies a moment later."""
        self.sql("SET wsrep_sync_wait = 1", f"SELECT 1 FROM {table} LIMIT 1")

    def answers(self) -> bool:
        """Whether it has the state of the cluster."""
        try:
            return bool(self.status("wsrep_local_state_comment") == "Synced")
        except (pymysql.MySQLError, IndexError):
            return False


@contextmanager
def running(*servers: Server) -> Iterator[None]:
    """End all of these servers at the end, whatever happens."""
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
        yield
        for server in servers:
            LOG.info("The server at port %s said:\n%s", server.port, server.log)
