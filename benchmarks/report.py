"""What was measured, beside the goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from benchmarks.timing import Case, difference, ratio

Unit = Literal["s", "turns/s", "calls/s"]

_COLUMNS: Final = ("what", "database", "floor", "threadkeep", "ratio", "CPU", "must", "")
_STEPS: Final = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (0.0, "us", 1e6))  # from this many seconds on, unit, factor
_HUNDRED: Final = 100

# Lines of the server that the chart shows, too. They are named here since a process that imports `benchmarks.databases`
# gives each of its connections to SQLite a setting, and the tests draw the chart.
ITEMS: Final = 200  # of a conversation before it goes on
ANSWERS: Final = "answers in new conversations"
CONTINUED: Final = f"answers in conversations of {ITEMS} items"
RECORDER: Final = "recorder: calls passed"
STORED: Final = "recorder: calls stored meanwhile"


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison: `ours` against `floor` in `unit`, the ratio of CPU times, and the goal for the ratio.

    `figure` and `figure_unit` stand in for the ratio where the goal is about a difference.
    """

    what: str
    database: str
    floor: float
    ours: float
    must: float | None = None  # None: shown, not judged
    cpu_ratio: float | None = None
    unit: Unit = "s"
    is_difference: bool = False  # the goal is for ours - floor, in milliseconds
    is_least: bool = False  # the goal is the least, not the most
    measured: float | None = None  # the value that is judged, where the two medians do not give it

    @classmethod
    def of(
        cls, what: str, database: str, ours: Case, base: Case, must: float | None = None, *, is_difference: bool = False
    ) -> Line:
        """Two cases that ran in the same rounds."""
        found = difference(ours.walls, base.walls) * 1e3 if is_difference else ratio(ours.walls, base.walls)
        cpu = ratio(ours.cpus, base.cpus)
        return cls(what, database, base.wall, ours.wall, must, cpu, is_difference=is_difference, measured=found)

    @property
    def value(self) -> float:
        if self.measured is not None:
            return self.measured
        return (self.ours - self.floor) * 1e3 if self.is_difference else self.ours / self.floor

    @property
    def holds(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.must is None:
            return None
        return self.value >= self.must if self.is_least else self.value <= self.must

    def cells(self) -> tuple[str, ...]:
        sign = ">=" if self.is_least else "<="
        kind = "+{:.2f} ms" if self.is_difference else "{:.2f}x"
        return (
            self.what,
            self.database,
            shown(self.floor, self.unit),
            shown(self.ours, self.unit),
            kind.format(self.value),
            "" if self.cpu_ratio is None else f"{self.cpu_ratio:.2f}x",
            "" if self.must is None else f"{sign} {kind.format(self.must)}",
            {True: "holds", False: "MISSED", None: ""}[self.holds],
        )

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "value": self.value, "holds": self.holds}


def shown(value: float, unit: Unit) -> str:
    if unit != "s":
        return f"{value:,.0f}/s"
    _, name, factor = next(step for step in _STEPS if value >= step[0])
    scaled = value * factor
    return f"{scaled:.0f} {name}" if scaled >= _HUNDRED else f"{scaled:.3g} {name}"


def table(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table with aligned columns."""
    rows = [_COLUMNS, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    numbers = range(2, 7)

    def written(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return f"| {' | '.join(cells)} |"

    rules = ["-" * (width - 1) + ":" if column in numbers else "-" * width for column, width in enumerate(widths)]
    return "\n".join([written(rows[0]), f"| {' | '.join(rules)} |", *(written(row) for row in rows[1:])])
