"""The clients, as `make test-clients` has installed them, and homes of their own to run them in."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.clients.clients import PATH, SECONDS, Home
from tests.server.scripts import Scripted
from tests.server.servers import running
from threadkeep import AsyncStore, Store
from threadkeep.http import RecordedUpstream, app, recorder_app
from threadkeep.server.site import site

collect_ignore_glob = [] if os.environ.get("THREADKEEP_TEST_CLIENTS") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each run of a client may take its time, of which a test has several: one that takes longer is told apart."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(5 * SECONDS))


@cache
def program(path: Path) -> Path:
    """A client's program; the test is skipped if it is not installed, or does not start: that is no fault of ours."""
    if not path.exists():
        pytest.skip(f"{path.name} is not installed: make test-clients does that, where there is a registry")
    try:
        version = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False,
            env={**os.environ, "PATH": PATH},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip(f"{path.name} does not start here within {SECONDS} seconds")
    if version.returncode:
        pytest.skip(f"{path.name} does not start here: {version.stderr.strip() or version.stdout.strip()}")
    return path


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
