"""The project as a whole: sizes, texts, pins and what the wheel holds."""

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
SOURCE = ROOT / "src" / "threadkeep"
MODULES = sorted(SOURCE.rglob("*.py"))
TEXTS = sorted(
    path
    for pattern in ("*.md", "*.toml", "*.ini", "*.txt", "Makefile", ".ci/*", "docs/**/*.md")
    for path in ROOT.glob(pattern)
)
PAGES = [path for path in TEXTS if path.suffix == ".md"]

MAX_LINES, MAX_LINES_OF_FORMATS = 400, 300
MACHINE = re.compile(
    r"(?<![\w.])/(?:work|home|root|Users)/"  # paths of somebody's machine
    r"|(?:extra-)?index-url|PIP_(?:EXTRA_)?INDEX|/simple/|pythonhosted|pypi\.org/(?!project/)|npmjs\.org",
    re.IGNORECASE,
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+")
NAME = re.compile(r"[A-Za-z0-9._-]+")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def requirements() -> dict[str, list[str]]:
    """The names of the packages that each extra asks for; those of the core under ''."""
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [canonical(line) for line in lines] for extra, lines in groups.items()}


def canonical(requirement: str) -> str:
    found = NAME.match(requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_files_are_short(module: Path) -> None:
    limit = MAX_LINES_OF_FORMATS if SOURCE / "formats" in module.parents else MAX_LINES
    assert len(module.read_text().splitlines()) < limit


@pytest.mark.parametrize("path", TEXTS, ids=relative)
def test_texts_name_no_machine_and_no_registry(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if MACHINE.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = {found["target"] for found in LINK.finditer(page.read_text())}
    assert [target for target in targets if "://" not in target and not page.parent.joinpath(target).exists()] == []


def test_constraints_are_plain_pins_of_every_requirement() -> None:
    lines = ROOT.joinpath("constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not PIN.fullmatch(pin)] == []
    assert {name for names in requirements().values() for name in names} <= {canonical(pin) for pin in pins}


def test_every_dependency_is_explained() -> None:
    text = ROOT.joinpath("docs/dependencies.md").read_text().lower()
    wanted = {name for names in requirements().values() for name in names}
    assert {name for name in wanted if f"| {name} |" not in text} == set()


@pytest.mark.packaging
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
    done = subprocess.run(
        [sys.executable, "-c", upgrade], check=True, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()).parent == package, "the test must not see the checkout"
    assert database.stat().st_size > 0
