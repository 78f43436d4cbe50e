"""A library in a process of its own, with the interpreter of the environment that it is installed in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = ROOT / ".venv-bench"
START_SECONDS: Final = 120
_NUMBERS: Final = count()
OWN: Final = "threadkeep"  # the environment that the benchmarks run in


class Refused(Exception):
    """What a library, or its installation, answered instead."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A library on a database: the module of its adapter, the environment it is installed in, and the kind."""

    module: str
    environment: str
    database: str
    name: str = ""

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.environment == OWN else ENVIRONMENTS / self.environment / "bin" / "python"

    @property
    def missing(self) -> str | None:
        """Why its environment cannot be used."""
        if self.python.exists():
            return None
        reason = ENVIRONMENTS / f"{self.environment}.missing"
        return reason.read_text().strip() if reason.exists() else "is not installed: make bench-peers installs it"


@dataclass(slots=True)
class Process:
    """A running worker."""

    peer: Peer
    version: str | None
    _connection: Connection[Any, Any]
    _process: subprocess.Popen[bytes] = field(repr=False)

    def ask(self, action: str, *arguments: Any) -> Any:
        """Let it do something.

        Raises:
            Refused: it failed, and says why.
        """
        self.begin(action, *arguments)
        return self.result()

    def begin(self, action: str, *arguments: Any) -> None:
        self._connection.send((action, *arguments))

    def result(self) -> Any:
        try:
            is_done, result = self._connection.recv()
        except EOFError:
            raise Refused("The process ended.") from None
        if not is_done:
            raise Refused(result)
        return result

    def stop(self) -> None:
        """End it; what the library has not closed is closed by the system."""
        try:
            self._connection.send(None)
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._connection.close()


def start(peers: Mapping[Peer, str], folder: Path) -> list[Process]:
    """Start processes at once, on databases by URL.

    Raises:
        Refused: one of them cannot be used, and says why.
    """
    started: list[Process] = []
    begun = [_begin(peer, url, folder) for peer, url in peers.items()]
    try:
        for peer, listener, process, log in begun:
            started.append(_accept(peer, listener, process, log))
    except Refused:
        for running in started:
            running.stop()
        raise
    finally:
        for _, listener, _, _ in begun:
            listener.close()
    return started


def _begin(peer: Peer, url: str, folder: Path) -> tuple[Peer, Listener, subprocess.Popen[bytes], Path]:
    number = next(_NUMBERS)
    address = folder / f"{number}.socket"
    listener = Listener(str(address), "AF_UNIX")
    listener._listener._socket.settimeout(1)  # type: ignore[attr-defined]  # noqa: SLF001 - it has no other way
    log = folder / f"{peer.module.rpartition('.')[2]}_{peer.database}_{number}.log"
    command = [str(peer.python), "-m", "benchmarks.peers.worker", str(address), peer.module, url]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "ANONYMIZED_TELEMETRY": "false"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    return peer, listener, process, log


def _accept(peer: Peer, listener: Listener, process: subprocess.Popen[bytes], log: Path) -> Process:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            connection = listener.accept()
            break
        except TimeoutError:
            if process.poll() is None and time.monotonic() < deadline:
                continue
            process.kill()
            lines = log.read_text(errors="replace").strip().splitlines() or ["It did not start, and did not say why."]
            raise Refused(lines[-1]) from None
    running = Process(peer, None, connection, process)
    running.version = running.result()
    return running
