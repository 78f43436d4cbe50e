"""What is installed: pins, reasons for dependencies, and what the wheel holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+")
NAME = re.compile(r"[A-Za-z0-9._-]+")


def canonical(requirement: str) -> str:
    """The name of a package, spelled in one way."""
    name = NAME.match(requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


REQUIREMENTS = [
    line for lines in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()] for line in lines
]


def test_constraints_are_plain_pins_of_every_requirement() -> None:
    lines = ROOT.joinpath("constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not PIN.fullmatch(pin)] == []
    assert {canonical(line) for line in REQUIREMENTS} <= {canonical(pin) for pin in pins}


# the first releases without a known hole, by the advisories of GitHub and PyPI
SAFE = {"asyncmy": (0, 2, 12), "jinja2": (3, 1, 6), "orjson": (3, 11, 6)}
BOUND = re.compile(r">=([0-9]+(?:\.[0-9]+)*)")


def version(text: str) -> tuple[int, ...]:
    """The numbers of a release, for comparing."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", text))


def lower_bounds() -> dict[str, tuple[int, ...]]:
    """The oldest release of each package that may be installed; of several bounds the lowest."""
    bounds: dict[str, tuple[int, ...]] = {}
    for line in REQUIREMENTS:
        bound = BOUND.search(line)
        assert bound, line
        bounds[canonical(line)] = min(version(bound[1]), bounds.get(canonical(line), (1 << 30,)))
    return bounds


def test_no_release_with_a_known_hole_may_be_installed() -> None:
    bounds = lower_bounds()
    assert {name: bounds[name] for name, safe in SAFE.items() if bounds[name] < safe} == {}


def test_what_is_pinned_is_what_may_be_installed() -> None:
    lines = ROOT.joinpath("constraints.txt").read_text().splitlines()
    pins = {canonical(line): version(line.partition("==")[2]) for line in lines if "==" in line}
    assert {name: pins[name] for name, bound in lower_bounds().items() if pins[name] < bound} == {}


def test_every_dependency_is_explained() -> None:
    text = ROOT.joinpath("docs/dependencies.md").read_text().lower()
    assert [line for line in REQUIREMENTS if f"| {canonical(line)} |" not in text] == []


def test_the_oldest_sqlalchemy_is_tested() -> None:
    [tested] = re.findall(r"^OLDEST_SQLALCHEMY := (.+)$", ROOT.joinpath("Makefile").read_text(), re.MULTILINE)
    [requirement] = [line for line in PROJECT["dependencies"] if canonical(line) == "sqlalchemy"]
    assert f">={tested}," in requirement


@pytest.mark.slow
def test_the_wheel_brings_the_migrations(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    wheel, installed = next(tmp_path.glob("threadkeep-*.whl")), tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    package = installed / "threadkeep"
    revisions = {path.name for path in ROOT.glob("migrations/versions/*.py")}
    assert package.joinpath("py.typed").exists()
    assert package.joinpath("migrations", "env.py").exists()
    assert {path.name for path in package.glob("migrations/versions/*.py")} == revisions != set()

    database = tmp_path / "chat.db"
    upgrade = (
        "import sqlalchemy, threadkeep.schema;"
        f"threadkeep.schema.upgrade(sqlalchemy.create_engine('sqlite:///{database}'));"
        "print(threadkeep.__file__)"
    )
    environment = os.environ | {"PYTHONPATH": str(installed)}
    result = subprocess.run(
        [sys.executable, "-c", upgrade], check=True, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert Path(result.stdout.strip()).parent == package, "the test must not see the checkout"
    assert database.stat().st_size > 0
