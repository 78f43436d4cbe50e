"""Install the libraries that are measured: ``python -m benchmarks.peers.install``.

Each file in `environments` is an environment in ``.venv-bench``, because their dependencies contradict one another and
threadkeep's pins. One that cannot be installed is noted, and its libraries are skipped with the reason.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from benchmarks.peers.processes import ENVIRONMENTS

PINS: Final = Path(__file__).parent / "environments"


def main() -> None:
    for pins in sorted(PINS.glob("*.txt")):
        _install(pins.stem, pins)


def _install(name: str, pins: Path) -> None:
    place, missing = ENVIRONMENTS / name, ENVIRONMENTS / f"{name}.missing"
    stamp = place / ".installed"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return
    print(f"Installing {place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place}")
    venv.create(place, with_pip=True)
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, "--requirement", str(pins)], check=False, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = f"pip could not install it. {errors[0] if errors else done.stderr.strip()[-200:]}"
        missing.write_text(reason + "\n")
        (place / "bin" / "python").unlink(missing_ok=True)
        print(f"{name}: {reason}", file=sys.stderr)
        return
    missing.unlink(missing_ok=True)
    stamp.write_text(pins.read_text())


if __name__ == "__main__":
    main()
