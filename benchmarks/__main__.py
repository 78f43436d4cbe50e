"""Run the benchmarks and print what they found beside the goals."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks import report, scale, timing
from benchmarks.databases import postgres_missing

# name on the command line -> module with run(scale)
BENCHMARKS: Final = {
    name: f"benchmarks.{module}"
    for name, module in {
        "append": "append",
        "resume": "resume",
        "refresh": "refresh",
        "import": "importing",
        "import-against": "moving_in",
        "list": "listing",
        "async": "asynchronous",
        "writers": "writers",
        "pooling": "pooling",
        "search": "searching",
        "search-growth": "search_growth",
        "usage": "usage",
        "spend": "spending",
        "start": "starting",
        "viewer": "viewing",
        "growth": "growth",
        "housekeeping": "housekeeping",
        "months": "months",
        "smallest": "smallest",
        "serving": "serving",
    }.items()
}
SLOW_DISK: Final = 1e-3  # seconds of an fdatasync: from here on the disk hides what is compared


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds: about a minute")
    parser.add_argument(
        "--only", choices=BENCHMARKS, action="append", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}"
    )
    parser.add_argument("--ledger", type=int, metavar="N", help="attempts in the ledger that reports are about")
    parser.add_argument("--listed", type=int, metavar="N", help="conversations that are listed")
    parser.add_argument("--documents", type=int, metavar="N", help="documents that are searched, against 20,000")
    parser.add_argument("--items", type=int, metavar="N", help="items of the large store that appends are compared in")
    parser.add_argument(
        "--against", metavar="GIT_REV", help="another build beside which the server's calls and imports are measured"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="threadkeep_bench_") as name:
        sizes = scale.quick(Path(name)) if arguments.quick else scale.Scale(Path(name))
        if arguments.ledger:
            sizes = replace(sizes, ledger=arguments.ledger)
        if arguments.listed:
            sizes = replace(sizes, listed=arguments.listed)
        if arguments.documents:
            sizes = replace(sizes, documents=(sizes.documents[0], arguments.documents))
        if arguments.items:
            sizes = replace(sizes, items=arguments.items)
        if arguments.against:
            sizes = replace(sizes, against=_sources(arguments.against, Path(name)))
        machine = _machine(Path(name))
        lines = [line for one in arguments.only or BENCHMARKS for line in _run(one, sizes)]
        machine["fdatasync_us_after"] = round(timing.fdatasync_seconds(Path(name)) * 1e6)
    print()
    print(report.table(lines))
    print(f"\nfdatasync after the run: {machine['fdatasync_us_after']} us")
    if arguments.json:
        found = {"machine": machine, "lines": [line.to_dict() for line in lines]}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


def _sources(revision: str, folder: Path) -> Path:
    """The sources of a revision of this repository, in a folder."""
    archive = subprocess.run(["git", "archive", revision, "src", "migrations"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder / "against", filter="data")
    return folder / "against" / "src"


def _run(name: str, sizes: scale.Scale) -> list[report.Line]:
    begin = time.perf_counter()
    lines: list[report.Line] = importlib.import_module(BENCHMARKS[name]).run(sizes)
    print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return lines


def _machine(folder: Path) -> dict[str, object]:
    synced = timing.fdatasync_seconds(folder)
    missing = postgres_missing()
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}", end="")
    print(f", {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"4 KiB append + fdatasync: {synced * 1e6:.0f} us", end="")
    print(" - too slow to compare appends with a disk wait, look at the CPU column" if synced > SLOW_DISK else "")
    if missing is not None:
        print(f"SKIPPED: everything on PostgreSQL. {missing} (another server: THREADKEEP_TEST_POSTGRES)")
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "fdatasync_us": round(synced * 1e6),
        "postgresql": missing is None,
    }


if __name__ == "__main__":
    main()
