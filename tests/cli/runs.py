"""Ways to run the command line in tests."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from threadkeep import Store
from threadkeep.cli import app

PROGRAM = [sys.executable, "-m", "threadkeep"]


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        """The lines of a tab-separated table, by its titles."""
        titles, *lines = [line.split("\t") for line in self.out.splitlines()]
        return [dict(zip(titles, line, strict=True)) for line in lines]


@dataclass(frozen=True)
class Cli:
    """The command line on a database."""

    url: str

    def __call__(self, *args: str, input: str | bytes | None = None, code: int = 0) -> Result:
        """Run it in this process; it must end with that exit code."""
        done = CliRunner().invoke(
            app, list(args), input=input, env={"THREADKEEP_URL": self.url}, prog_name="threadkeep"
        )
        assert done.exit_code == code, (done.exit_code, done.stdout, done.stderr, done.exception)
        return Result(done.exit_code, done.stdout, done.stderr)

    def spawn(self, *args: str, input: str | None = None, code: int = 0, cwd: Path | None = None) -> Result:
        """Run it in a process of its own."""
        done = subprocess.run(
            [*PROGRAM, *args], input=input, env=self.environment(), capture_output=True, text=True, check=False, cwd=cwd
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return Result(done.returncode, done.stdout, done.stderr)

    def on_terminal(self, *args: str, code: int = 0, **variables: str) -> str:
        """Run it in this process where a person reads, with more variables; returns what stdout and stderr show."""
        environment = self.environment() | variables
        encoding = environment.get("PYTHONIOENCODING", "utf-8")
        ours, theirs = pty.openpty()
        with (
            ThreadPoolExecutor(1) as reader,
            os.fdopen(theirs, "w", encoding=encoding, buffering=1) as terminal,
            pytest.MonkeyPatch.context() as patched,
            patch.dict(os.environ, environment, clear=True),  # in place, for Rich keeps hold of it
        ):
            shown = reader.submit(_read_all, ours)
            patched.setattr(sys, "stdout", terminal)
            patched.setattr(sys, "stderr", terminal)
            with pytest.raises(SystemExit) as ended:
                app(list(args), prog_name="threadkeep")
        os.close(ours)
        assert ended.value.code == code, shown.result()
        return b"".join(shown.result()).decode().replace("\r\n", "\n")

    def spawn_on_terminal(self, *args: str) -> str:
        """Run it in a process of its own where a person reads; returns what stdout and stderr show."""
        ours, theirs = pty.openpty()
        with subprocess.Popen([*PROGRAM, *args], stdout=theirs, stderr=theirs, env=self.environment()) as process:
            os.close(theirs)
            shown = b"".join(_read_all(ours))
        os.close(ours)
        assert process.returncode == 0, shown
        return shown.decode().replace("\r\n", "\n")

    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
        return {**plain, "THREADKEEP_URL": self.url, "TERM": "xterm-256color", "COLUMNS": "140"}

    def store(self) -> Store:
        return Store(self.url)


def _read_all(descriptor: int) -> Sequence[bytes]:
    chunks = []
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not data:
            break
        chunks.append(data)
    return chunks
