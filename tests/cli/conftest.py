"""Fixtures of the command line's tests."""

from __future__ import annotations

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
