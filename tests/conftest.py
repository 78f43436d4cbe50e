"""Fixtures of all tests, and which tests a quick run has."""

from __future__ import annotations

import gc
import importlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine

from tests.databases import DATABASES, SERVERS, Database, Databases, NotAtHand, Upgrade, fast_folder

FACES = ("sync", "async")
OTHER_FACES = {"async", "rest"}  # which a quick run of tests that are marked one_face does not have
KINDS = {"database", "empty_database", "kind", "place", "server"}  # parameters of tests that name a kind of database

# "quick": SQLite, and no slow tests, which is what contributors wait for; "all": the whole matrix; "rest": the whole
# matrix without what a quick run has of it; "cluster": only tests of servers that are started for them, which none of
# the others has
MATRICES = ("quick", "all", "rest", "cluster")
MATRIX = os.environ.get("THREADKEEP_TEST_MATRIX", "quick")
if MATRIX not in MATRICES:
    raise pytest.UsageError(f"THREADKEEP_TEST_MATRIX must be one of {', '.join(MATRICES)}, not {MATRIX!r}")

# What a quick run has no test of need not be imported
collect_ignore = ["viewer/browser"] if MATRIX == "quick" else []

# The kinds of databases for which fixtures make tests: a quick run need not collect what it leaves out
KINDS_HERE = ("sqlite",) if MATRIX == "quick" else DATABASES

# How many partitions the tables have in tests on PostgreSQL that do not create them themselves
PARTITIONS = int(os.environ.get("THREADKEEP_TEST_PARTITIONS", "0")) or None
# Whether raw bodies have partitions of months in these tests
MONTHS = os.environ.get("THREADKEEP_TEST_MONTHS", "0") != "0"

# Tests speak to this machine alone, but each client reads all certificates that it trusts, which takes longer than what
# is tested; here it trusts one, whose key nobody has
if not os.environ.get("THREADKEEP_TEST_PEERS"):
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("certificate.pem"))

settings.register_profile(
    "default", max_examples=10 if MATRIX == "quick" else 50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without looking for garbage, never look at what was collected again, and look seldom from then on.

    What was collected lives as long as the run, and a test leaves little garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the matrix does not have, before the others are put in order by their fixtures."""
    quick, repeated = quick_tests(items), repeated_faces(items)
    selected = {item for item in items if item not in repeated and is_selected(item, is_quick=item in quick)}
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = [item for item in items if item in selected]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that there is more to run."""
    if MATRIX == "quick":
        terminalreporter.write_line("SQLite only, without slow tests; all of them: make test-all")


def is_selected(item: pytest.Item, *, is_quick: bool) -> bool:
    """Whether a test is part of this run."""
    if (item.get_closest_marker("cluster") is not None) != (MATRIX == "cluster"):
        return False
    if item.get_closest_marker("one_database") is not None and needs_server(item):
        return False
    if MATRIX == "rest":
        return not is_quick or is_sampled(item)
    return MATRIX != "quick" or is_quick


def quick_tests(items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests of a quick run; of a test that is marked `share`, the first of so many cases, and so on."""
    found: set[pytest.Item] = set()
    cases: Counter[str] = Counter()
    for item in filter(may_be_quick, items):
        name, share = item.nodeid.partition("[")[0], item.get_closest_marker("share")
        if share is None or cases[name] % share.args[0] == 0:
            found.add(item)
        cases[name] += 1
    return found


def repeated_faces(items: list[pytest.Item]) -> set[pytest.Item]:
    """Tests of another face that are marked `one_face`, on all databases but one, which differs from case to case."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in filter(is_of_another_face, items):
        cases[re.sub("|".join(DATABASES), "", item.nodeid)].append(item)
    kept = {case[crc32(name.encode()) % len(case)] for name, case in cases.items()}
    return {item for case in cases.values() for item in case if item not in kept}


def may_be_quick(item: pytest.Item) -> bool:
    """Whether a test is not slow, needs no database server and does not repeat another."""
    return item.get_closest_marker("slow") is None and not needs_server(item) and not is_of_another_face(item)


def is_of_another_face(item: pytest.Item) -> bool:
    """Whether a test repeats, through another face, one that is marked `one_face`."""
    return parameters_of(item).get("face") in OTHER_FACES and item.get_closest_marker("one_face") is not None


def needs_server(item: pytest.Item) -> bool:
    """Whether a test is about a database that has a server."""
    values = [value for name, value in parameters_of(item).items() if name in KINDS]
    return any((value[0] if isinstance(value, tuple) else value) in SERVERS for value in values)


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    """The values of a test's parameters, by their names."""
    return getattr(getattr(item, "callspec", None), "params", {})


def is_sampled(item: pytest.Item) -> bool:
    """Whether a quick run has less of a test: it goes through fewer samples, or generates fewer examples."""
    is_generated = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return is_generated or item.get_closest_marker("sampled") is not None


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(report: pytest.TestReport | pytest.CollectReport) -> Generator[None, Any, Any]:
    """Escape what UTF-8 cannot encode, which would end the run where pytest-xdist sends the report of a failure."""
    data = yield
    return escaped(data) if report.failed else data


def escaped(value: Any) -> Any:
    """A JSON-like value whose texts can be encoded: lone surrogates become ``\\ud800``."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {key: escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Makes databases for this test process and drops them at its end, whatever happened to the tests."""
    with fast_folder() as memory:
        folder = memory or tmp_path_factory.mktemp("databases")
        made = Databases(folder, os.environ.get("PYTEST_XDIST_WORKER", "master"))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module", params=KINDS_HERE)
def database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """A database with the schema for the tests of one module; tests keep apart by using tenants of their own.

    One kind only: ``@pytest.mark.parametrize("database", ["sqlite"], indirect=True)``.
    """
    yield from provided(databases, request.param, upgraded)


@pytest.fixture(params=KINDS_HERE)
def empty_database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """A new database without any table, for one test: migrations, and tests that count rows or break things."""
    yield from provided(databases, request.param)


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    """The face of the store that a test goes through: ``sync`` or ``async``."""
    return str(request.param)


def provided(databases: Databases, kind: str, upgrade: Upgrade | None = None) -> Iterator[Database]:
    """A new database, with what `upgrade` makes in it, for a fixture; dropped at the end."""
    try:
        made = databases.prepared(kind, upgrade) if upgrade else databases.empty(kind)
    except NotAtHand as refusal:
        not_at_hand(refusal)
    yield made
    databases.drop(made)


def upgraded(engine: Engine) -> None:
    """Set up the schema. Imported here, so that tests of formats run without the database layers."""
    options: dict[str, Any] = {}
    if engine.dialect.name == "postgresql":
        months = datetime.now(UTC).date() if MONTHS else None
        options = {"partitions": PARTITIONS, "monthly_bodies": months}
    importlib.import_module("threadkeep.schema").upgrade(engine, **options)


def not_at_hand(refusal: NotAtHand) -> NoReturn:
    """Skip the test, or fail it where all databases are required."""
    if is_set("THREADKEEP_REQUIRE_DATABASES"):
        raise pytest.fail.Exception(f"{refusal} (THREADKEEP_REQUIRE_DATABASES is set)", pytrace=False) from None
    pytest.skip(str(refusal))
