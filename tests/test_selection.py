"""Which tests run: a quick run has SQLite and no slow tests, the whole matrix has all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each collects tests in a process of its own

ROOT = Path(__file__).parent.parent
FILES = (
    "tests/test_databases.py",
    "tests/server/hostile/test_frames.py",
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


@pytest.fixture(scope="module")
def rest() -> str:
    return collect("rest").stdout


def names_in(collected: str) -> set[str]:
    return {line for line in collected.splitlines() if "::" in line}


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


def test_the_vectors_run_through_one_face_everywhere_and_through_the_other_somewhere(
    quick: str, everything: str
) -> None:
    names = [line for line in everything.splitlines() if "test_vectors.py::" in line]
    assert len([line for line in quick.splitlines() if "test_vectors.py::" in line]) * 4 == len(names) > 0


def test_a_quick_run_has_a_share_of_the_cases_of_some_tests(quick: str, everything: str) -> None:
    """The first of three, and so on."""
    cases = [
        [line for line in found.splitlines() if "test_a_status_of_an_error_may_be_anything[" in line]
        for found in (quick, everything)
    ]
    assert cases[0] == cases[1][::3] != []


def test_what_knows_no_database_runs_on_sqlite(everything: str) -> None:
    lines = [line for line in everything.splitlines() if "test_frames.py::" in line]
    assert all("[sqlite" in line for line in lines if "[" in line)
    assert len(lines) > 20


def test_a_quick_run_and_the_rest_are_everything(quick: str, rest: str, everything: str) -> None:
    assert names_in(quick) | names_in(rest) == names_in(everything)
    assert names_in(quick) & names_in(rest) == set()


def test_the_rest_has_what_a_quick_run_takes_samples_of() -> None:
    """Other tests must not ask which run it is: they would run with less, and never with all."""
    asks = re.compile(r"^from tests\.(conftest import .*\bMATRIX\b|store\.filled import)", re.MULTILINE)
    files = {path: path.read_text() for path in ROOT.glob("tests/**/test_*.py")}
    asking = {path for path, text in files.items() if asks.search(text)}
    marked = re.compile(r"^pytestmark = (\[[^]]*|.*)mark\.sampled", re.MULTILINE)
    assert asking == {path for path, text in files.items() if marked.search(text)}
    assert len(asking) > 5


def test_another_matrix_is_refused() -> None:
    result = collect("some")
    assert result.returncode != 0
    assert "THREADKEEP_TEST_MATRIX must be" in result.stdout + result.stderr
