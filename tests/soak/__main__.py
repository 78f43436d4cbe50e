"""Use a store for hours as many processes would, kill some of them, and look at what it has become.

``python -m tests.soak [sqlite] [postgresql] [mariadb]``, each for THREADKEEP_SOAK_SECONDS: two hours by default.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.databases import DATABASES, Databases, NotAtHand
from tests.processes import forked
from tests.soak.work import (
    SHARED,
    STOP,
    Counts,
    erase,
    keep_house,
    noted_by,
    opened,
    read,
    repeated,
    start_writers,
    unfaithful,
)
from tests.soak.work import write_until_killed as write
from threadkeep import Store, schema

VARIABLE: Final = "THREADKEEP_SOAK_SECONDS"
SECONDS: Final = 7_200.0
WARM_SECONDS: Final = 600.0  # of long runs; half of shorter ones
GROWTH: Final = 0.05
CHECKS: Final = 8  # at least, in runs of a few minutes
BETWEEN_CHECKS: Final = 60.0  # seconds, at most
BETWEEN_KILLS: Final = 15.0
BETWEEN_LOOKS: Final = 10.0  # at the memory: so that what is noted of it is not what grows
END_SECONDS: Final = 900.0  # that a check of a large database may take on a busy machine
FACES: Final = ("sync", "async", "sync")  # of the processes that are killed
GROUP: Final = 4  # writers in each of these processes, and in this one


@dataclass
class Run:
    """One database: who is at work, and what was found."""

    url: str
    folder: Path
    seconds: float
    counts: Counts = field(default_factory=Counts)
    memory: list[tuple[float, int]] = field(default_factory=list)  # seconds since the start, bytes
    kills: int = 0
    checks: int = 0

    @property
    def between_checks(self) -> float:
        """Seconds from the end of a check to the next one."""
        return min(self.seconds / CHECKS, BETWEEN_CHECKS)

    def names(self, group: int) -> list[str]:
        return [f"writer{group}{number}" for number in range(GROUP)]

    def run(self) -> None:
        """Everything at once, until the time is over."""
        with opened(self.url, "sync") as store:
            store.create_conversation(model="m", external_id=SHARED)
            threads = start_writers(self.url, self.names(0), "sync", self.folder, self.counts)
            threads += [
                repeated(lambda number: read(store, self.counts, number), self.counts, "reader", self.folder, 0.5),
                repeated(lambda number: read(store, self.counts, number), self.counts, "reader", self.folder, 0.5),
                repeated(lambda number: erase(store, self.counts, number), self.counts, "erasures", self.folder, 10),
                repeated(lambda number: keep_house(store, self.counts, number), self.counts, "house", self.folder, 10),
                repeated(lambda _: self._check(store), self.counts, "checks", self.folder, self.between_checks),
            ]
            self._disturb()
            for thread in threads:
                thread.join(END_SECONDS)
            if stuck := [thread.name for thread in threads if thread.is_alive()]:
                self.counts.fail(f"still at work after the end: {stuck}")
            self._check(store)
            for group in range(len(FACES) + 1):
                for problem in filter(None, (unfaithful(store, name, self.folder) for name in self.names(group))):
                    self.counts.fail(problem)
        for left in self.folder.glob("failures *"):
            self.counts.failures += left.read_text().splitlines()

    def _disturb(self) -> None:
        """Kill one process after the other."""
        begin = time.monotonic()
        processes = {group: self._start(group, face) for group, face in enumerate(FACES, 1)}
        try:
            self._kill(processes, begin)
        finally:
            (self.folder / STOP).touch()
            for process in processes.values():
                process.join(120)
                if process.exitcode != 0:
                    self.counts.fail(f"a process of writers ended with {process.exitcode}")
                    process.kill()

    def _kill(self, processes: dict[int, BaseProcess], begin: float) -> None:
        next_kill, next_look = self.seconds / CHECKS, 0.0
        while (now := time.monotonic() - begin) < self.seconds:
            if now >= next_look:
                self.memory.append((now, resident_bytes()))
                next_look = now + min(BETWEEN_LOOKS, self.seconds / 100)
            if now > next_kill:
                group = random.choice(list(processes))
                processes[group].kill()
                processes[group].join()
                processes[group] = self._start(group, FACES[group - 1])
                self.kills += 1
                next_kill = now + BETWEEN_KILLS
            time.sleep(1)
        self.memory.append((self.seconds, resident_bytes()))

    def _start(self, group: int, face: str) -> BaseProcess:
        return forked(write, self.url, self.names(group), face, str(self.folder))

    def _check(self, store: Store) -> None:
        report = store.check()
        self.checks += 1
        for finding in report.findings[:10]:
            self.counts.fail(f"doctor: {finding}")

    @property
    def growth(self) -> float:
        """How much the memory of this process, which is never killed, grows after it is warm."""
        warm = min(WARM_SECONDS, self.seconds / 2)
        rest = [size for at, size in self.memory if at >= warm]
        part = max(len(rest) // 10, 1)
        return statistics.median(rest[-part:]) / statistics.median(rest[:part]) - 1

    def report(self, kind: str) -> bool:
        """Print what was done and found; return whether everything holds."""
        first, last = self.memory[0][1], self.memory[-1][1]
        done = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.done.items()))
        turns = sum(len(noted_by(name, self.folder)) for name in self.all_names())
        print(
            f"\n{kind}, {self.seconds:,.0f} s: {turns:,} turns acknowledged, {self.kills} kills, {self.checks} checks"
        )
        print(f"  in the process that is not killed: {done}")
        print(
            f"  memory: {first / 2**20:.0f} MiB at the start, {last / 2**20:.0f} at the end; growth {self.growth:+.1%}"
        )
        is_small = self.growth < GROWTH
        if not is_small:
            print(f"  MISSED: memory grows by less than {GROWTH:.0%} after it is warm")
        for failure in self.counts.failures[:50]:
            print(f"  FAILED: {failure}")
        is_whole = not self.counts.failures
        print("  everything holds" if is_whole and is_small else "  something does not hold")
        return is_whole and is_small

    def all_names(self) -> list[str]:
        return [name for group in range(len(FACES) + 1) for name in self.names(group)]


def resident_bytes() -> int:
    """The memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def soak(kind: str, seconds: float) -> bool:
    """Run on a database of its own; returns whether everything holds."""
    with TemporaryDirectory(prefix="threadkeep_soak_") as name:
        folder = Path(name)
        databases = Databases(folder, "soak")
        try:
            database = databases.empty(kind)
            schema.upgrade(database.engine())
            (folder / "notes").mkdir()
            run = Run(database.url, folder / "notes", seconds)
            run.run()
            return run.report(kind)
        except NotAtHand as refusal:
            print(f"SKIPPED: {refusal}")
            return True
        finally:
            databases.close()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started ends, too
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="DATABASE", help=f"some of {', '.join(DATABASES)}; default: all")
    kinds = parser.parse_args().kinds or DATABASES
    if unknown := set(kinds) - set(DATABASES):
        parser.error(f"there is no database {', '.join(sorted(unknown))}")
    seconds = float(os.environ.get(VARIABLE, SECONDS))
    results = [soak(kind, seconds) for kind in kinds]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
