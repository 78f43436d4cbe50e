"""The server: its calls a second, and what it adds to the time of a stream, one at a time and 500 at once."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from benchmarks import calls
from benchmarks.databases import Database, each_database
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.streaming import ANSWERS, PATHS, Pace, Timings, at_once, memory_mib, one_by_one, percentile, running

PATHS_OF: Final = {"answers": ANSWERS, "recorder": PATHS["recorder"]}
SINGLE: Final = Pace(50, 0.004)
MANY: Final = Pace(20, 0.5)
MUST: Final = {"answers": (3.0, 0.15), "recorder": (1.5, 0.1)}  # milliseconds: of the first byte, and of each event
PROCESSES: Final = 2


def run(scale: Scale) -> list[Line]:
    with each_database(scale.folder, "NORMAL") as databases:
        found = [*calls.run(databases, scale)]
        return found + [line for database in databases for line in _on(database, scale)]


def _on(database: Database, scale: Scale) -> list[Line]:
    label = "SQLite" if database.kind == "sqlite" else database.label
    lines: list[Line] = []
    with running(database.url, PROCESSES) as (provider, port, process_ids):
        for face, path in PATHS_OF.items():
            count = 4 * scale.rounds
            direct = asyncio.run(one_by_one(provider, PATHS["direct"], SINGLE, count))
            through = asyncio.run(one_by_one(port, path, SINGLE, count))
            lines += _lines(f"{face}, one stream", label, direct, through, MUST[face])
        for face, path in PATHS_OF.items():
            before = memory_mib(process_ids)
            direct = asyncio.run(at_once(provider, PATHS["direct"], MANY, scale.streams))
            through = asyncio.run(at_once(port, path, MANY, scale.streams))
            lines += _lines(f"{face}, {scale.streams} streams at once", label, direct, through)
            after = memory_mib(process_ids)
            print(
                f"serving: {face} on {label}: {through.lost} of {scale.streams * MANY.events} events lost, "
                f"memory of a process {before:.0f} to {after:.0f} MiB",
                file=sys.stderr,
            )
    return lines


def _lines(
    what: str, label: str, direct: Timings, through: Timings, musts: tuple[float, float] | None = None
) -> list[Line]:  # fmt: skip
    """`musts`: goals for the medians of the first byte and of each event."""
    lines = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        first, each = musts if musts is not None and name == "p50" else (None, None)
        for part, one, other, must in (
            ("first byte", direct.first, through.first, first),
            ("event", direct.events, through.events, each),
        ):
            lines.append(
                Line(
                    f"{what}: {part}, {name}",
                    label,
                    percentile(one, share),
                    percentile(other, share),
                    must,
                    is_difference=True,
                )
            )
    return lines
