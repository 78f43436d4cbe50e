"""The clients, as `make test-clients` has installed them, and homes of their own to run them in."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.server.scripts import Scripted
from tests.server.servers import running
from threadkeep import AsyncStore, Store
from threadkeep.http import RecordedUpstream, app, recorder_app
from threadkeep.server.site import site

FOLDER = os.environ.get("THREADKEEP_TEST_CLIENTS", "")
SECONDS = 120  # for a run of a client: its first start in a new home takes some
collect_ignore_glob = [] if FOLDER else ["test_*.py"]


def program(name: str) -> Path:
    """A client's program; the test is skipped if it is not installed, or does not start: that is no fault of ours."""
    found = Path(FOLDER).resolve() / "node_modules/.bin" / name
    if not found.exists():
        pytest.skip(f"{name} is not installed: make test-clients does that")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False)
    if version.returncode:
        pytest.skip(f"{name} does not start here: {version.stderr.strip() or version.stdout.strip()}")
    return found


@dataclass
class Home:
    """A home and a folder of work for a client, and what it printed."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        return self.path / "work"

    def run(self, *command: Any) -> list[Any]:
        """Run a program; return what it printed, of which each line is JSON, without what it logs beside that."""
        self.work.mkdir(exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.path), **self.environment}
        done = subprocess.run(
            [*map(str, command)], cwd=self.work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "home").mkdir()
    return Home(tmp_path / "home")


@dataclass
class Server:
    """A server with scripted upstreams, at a URL, and what it stores."""

    url: str
    store: Store
    upstream: Scripted
    connections: list[str] = field(default_factory=list)  # the type of each: lifespan, http or websocket


def noting(application: Any, connections: list[str]) -> Any:
    """An application of which is noted what comes to it."""

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        connections.append(scope["type"])
        await application(scope, receive, send)

    return noted


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server whose models are those of one scripted upstream."""
    with ExitStack() as stack:

        def start(format_: str, **options: Any) -> Server:
            url = f"sqlite:///{tmp_path}/chat.db"
            upstream = Scripted(format_)
            mine = AsyncStore(url)
            made = app(mine, prefix="", upstreams={"*": upstream.upstream}, **options)
            connections = list[str]()
            at = stack.enter_context(running(noting(site({"/v1": made}, store=mine), connections), mine))
            return Server(f"{at}/v1", stack.enter_context(Store(url)), upstream, connections)

        yield start


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Starts a recorder in front of a server of another store, which stands for the provider."""
    with ExitStack() as stack:

        def start(format_: str) -> Server:
            upstream = Scripted(format_)
            behind = AsyncStore(f"sqlite:///{tmp_path}/provider.db")
            provider = stack.enter_context(running(app(behind, prefix="", upstreams={"*": upstream.upstream}), behind))
            url = f"sqlite:///{tmp_path}/recorded.db"
            mine = AsyncStore(url)
            recorder = recorder_app(mine, [RecordedUpstream.named(f"provider=open_responses@{provider}")])
            connections = list[str]()
            at = stack.enter_context(running(noting(recorder, connections), mine))
            return Server(f"{at}/provider", stack.enter_context(Store(url)), upstream, connections)

        yield start
