"""Which tests run: a quick run has SQLite and no slow tests, the whole matrix has all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each collects tests in a process of its own

ROOT = Path(__file__).parent.parent
FILES = (
    "tests/test_databases.py",
    "tests/store/test_killed_writers.py",
    "tests/store/test_vectors.py",
    "tests/store/test_within.py",
)


def collect(matrix: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "THREADKEEP_TEST_MATRIX"}
    if matrix is not None:
        environment["THREADKEEP_TEST_MATRIX"] = matrix
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *FILES]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def quick() -> str:
    return collect(None).stdout


@pytest.fixture(scope="module")
def everything() -> str:
    return collect("all").stdout


@pytest.mark.parametrize("name", ["test_the_prepared_database_has_the_schema", "test_an_empty_database_has_no_tables"])
def test_a_quick_run_has_sqlite_only(quick: str, everything: str, name: str) -> None:
    assert [kind for kind in ("sqlite", "postgresql", "mariadb") if f"{name}[{kind}]" in quick] == ["sqlite"]
    assert all(f"{name}[{kind}]" in everything for kind in ("sqlite", "postgresql", "mariadb"))
    assert "[postgresql" not in quick
    assert "[postgresql sync" in everything


def test_a_quick_run_has_no_slow_tests(quick: str, everything: str) -> None:
    name = "test_a_killed_writer_leaves_no_part_of_a_turn[sqlite]"
    assert name not in quick
    assert name in everything


def test_a_quick_run_has_the_vectors_once(quick: str, everything: str) -> None:
    names = [line for line in everything.splitlines() if "test_vectors.py::" in line]
    assert len([line for line in quick.splitlines() if "test_vectors.py::" in line]) * 6 == len(names) > 0


def test_another_matrix_is_refused() -> None:
    result = collect("some")
    assert result.returncode != 0
    assert "THREADKEEP_TEST_MATRIX must be" in result.stdout + result.stderr
