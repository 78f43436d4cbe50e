"""Fixtures for all tests: databases, the two faces of the store, and how many examples Hypothesis makes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine

from tests.databases import DATABASES, Database, Databases, NotAtHand

FACES = ("sync", "async")

settings.register_profile("default", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None, print_blob=True)
settings.register_profile("long", settings.get_profile("default"), max_examples=2000)


def is_set(variable: str) -> bool:
    """Whether an environment variable is set to anything but nothing or 0."""
    return os.environ.get(variable, "0") not in {"", "0"}


if is_set("THREADKEEP_LONG"):
    settings.load_profile("long")
elif is_set("CI"):
    settings.load_profile("ci")
else:
    settings.load_profile("default")


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Makes databases for this test process and drops them at its end, whatever happened to the tests."""
    made = Databases(tmp_path_factory.mktemp("databases"), os.environ.get("PYTEST_XDIST_WORKER", "master"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module", params=DATABASES)
def database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """A database with the schema for the tests of one module; tests keep apart by using tenants of their own.

    One kind only: ``@pytest.mark.parametrize("database", ["sqlite"], indirect=True)``.
    """
    try:
        made = databases.prepared(request.param, upgraded)
    except NotAtHand as refusal:
        not_at_hand(refusal)
    yield made
    databases.drop(made)


@pytest.fixture(params=DATABASES)
def empty_database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """A new database without any table, for one test: migrations, and tests that count rows or break things."""
    try:
        made = databases.empty(request.param)
    except NotAtHand as refusal:
        not_at_hand(refusal)
    yield made
    databases.drop(made)


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    """The face of the store that a test goes through: ``sync`` or ``async``."""
    return str(request.param)


def upgraded(engine: Engine) -> None:
    """Set up the schema. Imported here, so that tests of formats run without the database layers."""
    importlib.import_module("threadkeep.schema").upgrade(engine)


def not_at_hand(refusal: NotAtHand) -> NoReturn:
    """Skip the test, or fail it where all databases are required."""
    if is_set("THREADKEEP_REQUIRE_DATABASES"):
        raise pytest.fail.Exception(f"{refusal} (THREADKEEP_REQUIRE_DATABASES is set)", pytrace=False) from None
    pytest.skip(str(refusal))
