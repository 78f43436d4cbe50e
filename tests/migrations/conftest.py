"""Databases with the schema, empty and filled."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from tests.databases import Database
from tests.migrations.upgrading import fill
from threadkeep import schema


@pytest.fixture
def engine(empty_database: Database) -> Engine:
    made = empty_database.engine()
    schema.upgrade(made)
    return made


@pytest.fixture
def filled(empty_database: Database, engine: Engine) -> list[str]:
    """The ids of conversations that have rows in every table."""
    return fill(empty_database.url, engine)
