"""Runs the Python examples of README.md and docs/ as tests, each page in an empty folder of its own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser


def enter_folder(namespace: dict[str, Any]) -> None:
    """Files that the examples make go to a temporary folder."""
    namespace["_folder"] = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    namespace["_before"] = Path.cwd()
    os.chdir(namespace["_folder"].name)


def leave_folder(namespace: dict[str, Any]) -> None:
    """Back to where the tests run."""
    os.chdir(namespace["_before"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/reference/*.md"],
    setup=enter_folder,
    teardown=leave_folder,
).pytest()
