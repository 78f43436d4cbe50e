"""The types that applications see, checked as they would check them.

The files beside this one hold what must be accepted, as `assert_type`, and what must be refused, as `type: ignore` with
the code of the error: mypy also reports those that it does not need.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is in the extra dev")

ROOT = Path(__file__).parents[2]
CASES = [path.relative_to(ROOT) for path in sorted(Path(__file__).parent.glob("*.py")) if path != Path(__file__)]


@pytest.mark.slow  # and part of make lint
def test_type_checkers_know_the_public_types() -> None:
    assert CASES
    options = ["--config-file", "tests/typing/mypy.ini", "--cache-dir", ".mypy_cache/typing"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, CASES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Success: "), done.stdout + done.stderr
