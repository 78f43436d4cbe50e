"""Measure other libraries beside threadkeep, and print what was found."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import secrets
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
from sqlalchemy import make_url

from benchmarks.databases import DEFAULT_POSTGRES, POSTGRES, postgres_missing
from benchmarks.peers import sizes, tables, writing
from benchmarks.peers.measure import Measurements, Table
from benchmarks.peers.processes import Peer, Process, Refused, start
from benchmarks.peers.registry import PEERS
from benchmarks.timing import fdatasync_seconds

CONNECTIONS: Final = 2  # that a writer opens at most, with some to spare for others
LABELS: Final = {"sqlite": "SQLite (WAL, synchronous=NORMAL)", "postgresql": "PostgreSQL"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes: whether everything works")
    size.add_argument("--full", action="store_true", help="more rounds and larger imports")
    parser.add_argument("--only", action="append", metavar="NAME", help="libraries whose names contain this")
    parser.add_argument("--database", choices=LABELS, action="append", help="one of the databases")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file, too")
    arguments = parser.parse_args()
    scale = sizes.QUICK if arguments.quick else sizes.FULL if arguments.full else sizes.Sizes()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="threadkeep_bench_") as name:
        folder = Path(name)
        synced = fdatasync_seconds(folder)
        print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores", end="")
        print(f", load {os.getloadavg()[0]:.1f}, 4 KiB append + fdatasync: {synced * 1e6:.0f} us")
        for database in arguments.database or LABELS:
            wanted = [peer for peer in PEERS if peer.database == database and _is_wanted(peer, arguments.only)]
            found[database] = _on(database, wanted, folder, scale)
    print(f"\nload after the run: {os.getloadavg()[0]:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


def _is_wanted(peer: Peer, only: Sequence[str] | None) -> bool:
    return only is None or peer.name == "threadkeep" or any(part in peer.name for part in only)


def _on(database: str, peers: Sequence[Peer], folder: Path, scale: sizes.Sizes) -> dict[str, Any]:
    print(f"\n## {LABELS[database]}\n")
    if database == "postgresql" and (missing := postgres_missing()) is not None:
        print(f"SKIPPED: {missing} (another server: {POSTGRES})")
        return {}
    with contextlib.ExitStack() as stack:
        urls = {peer: stack.enter_context(_database(database, folder)) for peer in peers}
        processes = _started(stack, urls, folder)
        made = _measured(database, processes, urls, folder, scale)
        for table in made:
            print(f"\n{tables.written(table)}")
        rates = _rates(processes, urls, folder, scale)
    print(f"\n{tables.rates(rates)}")
    print(f"\n{tables.goals(made)}")
    return {
        "versions": {process.peer.name: process.version for process in processes},
        "tables": [tables.to_dict(table) for table in made],
        "writers": tables.rates_to_dict(rates),
    }


def _started(stack: contextlib.ExitStack, urls: dict[Peer, str], folder: Path) -> list[Process]:
    """A process for each library; those that are missing are named."""
    processes = []
    for peer, url in urls.items():
        if peer.missing is not None:
            print(f"SKIPPED: {peer.name}: {peer.missing}")
            continue
        try:
            (process,) = start({peer: url}, folder)
        except Refused as error:
            print(f"SKIPPED: {peer.name}: {error}")
            continue
        stack.callback(process.stop)
        processes.append(process)
        print(f"- {peer.name}{f' {process.version}' if process.version else ''}: {process.ask('note')}")
    return processes


def _measured(
    database: str, processes: Sequence[Process], urls: dict[Peer, str], folder: Path, scale: sizes.Sizes
) -> list[Table]:
    measurements = Measurements(database, processes, scale)
    formats = {process.peer.name: process.ask("formats") for process in processes}
    able = [process for process in processes if process.ask("searches")]

    def refreshed() -> Table:
        with contextlib.ExitStack() as stack:
            peers = {process.peer: urls[process.peer] for process in processes}
            others = start(peers, folder)
            for other in others:
                stack.callback(other.stop)
            return measurements.refresh({other.peer.name: other for other in others})

    searched = _reported("search", lambda: measurements.search(able))  # first, so that there is nothing else
    _reported("filled", measurements.fill)
    measurements.check()
    made = [_reported("append", measurements.append), *_reported("resume", measurements.resume)]
    made.append(_reported("render", lambda: measurements.render(formats)))
    made.append(_reported("refresh", refreshed))
    made.append(_reported("import", measurements.load))
    return [table for table in (*made, searched) if table.columns]


def _rates(
    processes: Sequence[Process], urls: dict[Peer, str], folder: Path, scale: sizes.Sizes
) -> dict[str, dict[str, writing.Outcome | str]]:
    """Turns a second of many writers, by library."""
    begun = time.perf_counter()
    cases = {"16 writers, one conversation": (16, False)}
    cases |= {f"{writers} writers, one each": (writers, True) for writers in scale.writers}
    found: dict[str, dict[str, writing.Outcome | str]] = {}
    for peer in (process.peer for process in processes):
        cells: dict[str, writing.Outcome | str] = {}
        with contextlib.ExitStack() as stack:
            several = [one for _ in range(writing.PROCESSES) for one in start({peer: urls[peer]}, folder)]
            for process in several:
                stack.callback(process.stop)
            for what, (writers, spread) in cases.items():
                if peer.database == "postgresql" and _free_connections() < CONNECTIONS * writers:
                    cells[what] = "too few connections"
                    continue
                try:
                    cells[what] = writing.write(several, writers, scale.turns, spread=spread)
                except Refused as error:
                    cells[what] = str(error)
                    break  # its threads may still be waiting
        found[peer.name] = cells
    print(f"writers: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return found


def _reported(name: str, measure: Any) -> Any:
    begun = time.perf_counter()
    made = measure()
    print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return made


def _free_connections() -> int:
    """How many more connections the PostgreSQL server allows."""
    with psycopg.connect(os.environ.get(POSTGRES, DEFAULT_POSTGRES)) as connection:
        count = "SELECT current_setting('max_connections')::int - count(*) FROM pg_stat_activity"
        return int(connection.execute(count).fetchall()[0][0])


@contextlib.contextmanager
def _database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a new database without tables."""
    name = f"threadkeep_bench_{os.getpid()}_{secrets.token_hex(4)}"
    if kind == "sqlite":
        yield f"sqlite:///{folder / name}.db"
        return
    server = os.environ.get(POSTGRES, DEFAULT_POSTGRES)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'".encode())
        try:
            yield make_url(server).set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


if __name__ == "__main__":
    main()
