"""What no file of the project may contain."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = (".ci", ".devcontainer", ".github", "benchmarks", "docs", "examples", "migrations", "src", "tests")
SUFFIXES = {"", ".css", ".ini", ".json", ".jsonl", ".mako", ".md", ".py", ".toml", ".txt", ".yml"}
FILES = sorted(
    path
    for path in chain(ROOT.glob("[!.]*"), *(ROOT.joinpath(folder).rglob("*") for folder in FOLDERS))
    if path.is_file() and path.suffix in SUFFIXES and path != Path(__file__)
)
MACHINE = re.compile(
    r"(?<![\w.])/(?:work|home|root|(?-i:Users))/"  # paths of somebody's machine
    r"|(?:extra-)?index-url|PIP_(?:EXTRA_)?INDEX|/simple/|pythonhosted|pypi\.org/(?!project/)|npmjs\.org",
    re.IGNORECASE,
)


@pytest.mark.parametrize("text", ["cd /home/me/x", "--index-url https://x", "https://pypi.org/simple/x"])
def test_machines_and_registries_are_recognized(text: str) -> None:
    assert MACHINE.search(text)


def test_files_name_no_machine_and_no_registry() -> None:
    assert len(FILES) > 100
    lines = ((path, line) for path in FILES for line in path.read_text().splitlines())
    assert [(path.name, line) for path, line in lines if MACHINE.search(line)] == []
