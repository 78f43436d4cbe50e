"""The measurements: in every round all libraries take turns, in another order each time."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from benchmarks.peers.processes import Process, Refused
from benchmarks.peers.sizes import Sizes
from benchmarks.peers.worker import Timed
from benchmarks.timing import CALLS

BASE: Final = "threadkeep"  # whose ratios are shown
AT_ONCE: Final = {20: 4, 200: 2}  # turns in one call
SLOW: Final = 0.1  # seconds, from which on one timed call is enough
LONGEST_NEW: Final = 20  # items up to which each round appends to a conversation of its own
REPEATED: Final = {20: 10, 200: 4}  # resumes in one call: short ones are repeated
SHORT: Final = 20  # items of imported and searched conversations, and of those that writers begin with
TRIED: Final = 5  # conversations that are imported to learn how long it takes
WORD: Final = "temperature"  # is in most texts
RENDERED: Final = 200  # items of the conversation that is rendered in all formats
FORMATS: Final = ("open_responses", "chat_completion", "messages", "gemini", "converse")


@dataclass(slots=True)
class Result:
    """What was measured of one library: seconds of wall clock and CPU time of an operation, by round."""

    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    refusal: str | None = None

    @property
    def wall(self) -> float:
        return statistics.median(self.walls)

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpus)

    def over(self, base: Result) -> float:
        """The median of the ratios that the rounds show."""
        return statistics.median(a / b for a, b in zip(self.walls, base.walls, strict=True))

    def cpu_over(self, base: Result) -> float:
        return statistics.median(a / b for a, b in zip(self.cpus, base.cpus, strict=True))


@dataclass(slots=True)
class Table:
    """One measurement of all libraries on one database: `columns` of results by library."""

    what: str
    database: str
    columns: dict[str, dict[str, Result]] = field(default_factory=dict)

    def rows(self) -> list[str]:
        return list({name: None for column in self.columns.values() for name in column})


class Measurements:
    """All measurements on one database."""

    def __init__(self, database: str, processes: Sequence[Process], sizes: Sizes) -> None:
        self._database, self._processes, self._sizes = database, processes, sizes
        self._numbers = count(50_000_000, 1_000)  # turns that no conversation has yet
        self._shuffle = random.Random(len(processes))

    def _rounds(
        self,
        action: Callable[[Process], Timed],
        begin: Callable[[Process, int], object] = lambda _process, _round: None,
        among: Sequence[Process] | None = None,
    ) -> dict[str, Result]:
        """The results of an action: once untimed and some times timed in each round, after `begin`."""
        order = list(self._processes if among is None else among)
        results = {process.peer.name: Result() for process in order}
        for number in range(self._sizes.rounds):
            self._shuffle.shuffle(order)
            for process in list(order):
                result = results[process.peer.name]
                try:
                    begin(process, number)
                    first, _ = action(process)
                    times = [action(process) for _ in range(CALLS if first < SLOW else 1)]
                except Refused as error:
                    result.refusal = str(error)
                    order.remove(process)
                    continue
                result.walls.append(statistics.median(wall for wall, _ in times))
                result.cpus.append(statistics.median(cpu for _, cpu in times))
        return results

    def _new(self, turns: int) -> list[int]:
        first = next(self._numbers)
        return list(range(first, first + turns))

    def fill(self) -> None:
        """Conversations of each size, to be read."""
        for process in self._processes:
            for seed, size in enumerate(self._sizes.items):
                process.ask("load", [f"read-{size}"], seed, size)
                process.ask("hold", f"read-{size}")  # checks that it can be read

    def check(self) -> None:
        """What was imported is there."""
        size = self._sizes.items[0]
        expected = self._processes[0].ask("texts", f"read-{size}")
        for process in self._processes:
            if process.ask("texts", f"read-{size}") != expected:
                raise AssertionError(f"{process.peer.name} does not give back what was stored.")

    def append(self) -> Table:
        table, loaded = Table("Append a turn", self._database), set[tuple[str, str]]()
        for size in self._sizes.items:

            def begin(process: Process, number: int, size: int = size) -> None:
                number = number if size <= LONGEST_NEW else 0
                name = f"append-{size}-{number}"
                if (process.peer.name, name) not in loaded:
                    loaded.add((process.peer.name, name))
                    process.ask("load", [name], number, size)
                process.ask("hold", name)

            def call(process: Process, turns: int = AT_ONCE.get(size, 1)) -> Timed:
                times: Timed = process.ask("append", self._new(turns))
                return times

            table.columns[f"N={size:,}"] = self._rounds(call, begin)
        return table

    def resume(self) -> list[Table]:
        tables = []
        for action, what in (("cold", "Resume, nothing in memory"), ("warm", "Resume again in the same process")):
            table = Table(what, self._database)
            for size in self._sizes.items:
                repeated = REPEATED.get(size, 1)

                def read(process: Process, action: str = action, size: int = size, repeated: int = repeated) -> Timed:
                    times: Timed = process.ask(action, f"read-{size}", repeated)
                    return times

                table.columns[f"N={size:,}"] = self._rounds(read)
            tables.append(table)
        return tables

    def render(self, formats: dict[str, tuple[str, ...]]) -> Table:
        """The formats that a library can render; `formats` by its name."""
        table = Table(f"Render, nothing in memory, N={RENDERED}", self._database)
        for wire in FORMATS:
            able = [process for process in self._processes if wire in formats[process.peer.name]]

            def read(process: Process, wire: str = wire) -> Timed:
                times: Timed = process.ask("render", f"read-{RENDERED}", wire, REPEATED[RENDERED])
                return times

            if able:
                table.columns[wire] = self._rounds(read, among=able)
        return table

    def refresh(self, others: dict[str, Process]) -> Table:
        """A conversation that is kept, to which another process (by name of the library) has appended a turn."""
        table = Table("Refresh after another process appended", self._database)
        able = [process for process in self._processes if process.peer.name in others]
        for size in self._sizes.items:
            name = f"refresh-{size}"
            for seed, process in enumerate(able):
                process.ask("load", [name], seed, size)
                others[process.peer.name].ask("hold", name)

            def again(process: Process) -> Timed:
                others[process.peer.name].ask("append", self._new(1))
                times: Timed = process.ask("again")
                return times

            def begin(process: Process, _number: int, name: str = name) -> None:
                process.ask("hold", name)

            table.columns[f"N={size:,}"] = self._rounds(again, begin, able)
        return table

    def load(self) -> Table:
        """Import, in seconds of an item."""
        names = (f"import-{number}" for number in count())
        counts: dict[str, int] = {}
        for process in self._processes:
            process.ask("load", list(_some(names, TRIED)), 1, SHORT)
            wall, _ = process.ask("load", list(_some(names, TRIED)), 1, SHORT)
            fitting = int(self._sizes.import_seconds / wall * TRIED)
            counts[process.peer.name] = max(TRIED, min(self._sizes.imported, fitting))

        def once(process: Process) -> Timed:
            conversations = counts[process.peer.name]
            wall, cpu = process.ask("load", list(_some(names, conversations)), 1, SHORT)
            return wall / conversations / SHORT, cpu / conversations / SHORT

        rounds, self._sizes = self._sizes, _of_rounds(self._sizes, 2)
        table = Table(f"Import conversations of {SHORT} items, an item", self._database, {"": self._rounds(once)})
        self._sizes = rounds
        return table

    def search(self, able: Sequence[Process]) -> Table:
        names = [f"search-{number}" for number in range(self._sizes.searched)]
        for process in able:
            process.ask("load", names, 2, 2)
            for name in names:
                process.ask("hold", name)
                process.ask("append", self._new(SHORT // 2 - 1))
        found = self._rounds(lambda process: process.ask("search", WORD, 3), among=able)
        items = self._sizes.searched * SHORT
        return Table(f"Search a common word in {items:,} items", self._database, {"": found})


def _some(names: Iterator[str], wanted: int) -> Iterator[str]:
    return (next(names) for _ in range(wanted))


def _of_rounds(sizes: Sizes, rounds: int) -> Sizes:
    return Sizes(rounds, sizes.items, sizes.imported, sizes.import_seconds, sizes.searched, sizes.writers, sizes.turns)
