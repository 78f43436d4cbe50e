"""Tests of other projects, fetched when they run: only `make test-peers` runs them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conftest import is_set

collect_ignore_glob = [] if is_set("THREADKEEP_TEST_PEERS") else ["test_*.py"]


@pytest.fixture(scope="session")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Downloads the source of a package, in the version that is installed, and returns where it is unpacked."""

    def fetch(package: str) -> Path:
        folder = tmp_path_factory.mktemp(package)
        wanted = f"{package}=={version(package)}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "--no-build-isolation", "--dest", str(folder), wanted], check=True, timeout=300)
        [archive] = folder.glob("*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(folder, filter="data")
        [unpacked] = (path for path in folder.iterdir() if path.is_dir())
        return unpacked

    return fetch
