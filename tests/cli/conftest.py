"""Fixtures of the command line's tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.cli.bodies import SESSION
from tests.cli.runs import Cli
from tests.conftest import upgraded
from tests.databases import Databases
from threadkeep import Session


@pytest.fixture
def cli(databases: Databases) -> Iterator[Cli]:
    """The command line on a new SQLite database with the schema."""
    database = databases.prepared("sqlite", upgraded)
    yield Cli(database.url)
    databases.drop(database)


@pytest.fixture
def stored(cli: Cli) -> str:
    """A conversation that waits for an answer."""
    with cli.store() as store:
        return store.save(Session.from_dict(SESSION), user_id="ada", title="Capitals", labels={"app": "quiz"}).id


@pytest.fixture
def with_interrupts() -> Iterator[None]:
    """Programs that are started react to SIGINT, even if these tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
