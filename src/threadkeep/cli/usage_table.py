"""The table of ``threadkeep usage``: short figures and bars for people, plain lines for programs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from threadkeep.cli.figures import bar, cost_decimals, dollars, key_text, milliseconds, percent, short
from threadkeep.cli.output import FOLDED, GAP, PIPE_WIDTH, UNKNOWN, is_terminal, printable

if TYPE_CHECKING:
    from threadkeep.domain.usage import UsageRow

COST: Final = "cost_nano"
PLAIN: Final = (
    "attempts", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
    "total_tokens", COST, "costs", "cache_hit_ratio", "mean_latency_ms",
)  # fmt: skip
BAR_WIDTHS: Final = (8, 40)
WIDEST: Final = 200
# Columns that go first where a line is too narrow
EXPENDABLE: Final = ("reasoning_tokens", "cache_write_tokens", "mean_latency_ms", "cache_hit_ratio", "total_tokens")


class Figure(NamedTuple):
    """A column for people; one that is not `always` shown is left out where it has nothing to tell."""

    name: str
    title: str
    shown: Callable[[Any], str]
    always: bool = False


FIGURES: Final = (
    Figure("attempts", "calls", short, always=True),
    Figure("input_tokens", "input", short, always=True),
    Figure("cache_hit_ratio", "cached", percent),
    Figure("cache_write_tokens", "cache write", short),
    Figure("output_tokens", "output", short, always=True),
    Figure("reasoning_tokens", "reasoning", short),
    Figure("total_tokens", "total", short, always=True),
    Figure("mean_latency_ms", "latency", milliseconds),
    Figure(COST, "cost, $", dollars),
)


def print_usage(
    by: Sequence[str],
    rows: Sequence[UsageRow],
    total: UsageRow | None = None,
    *,
    is_aligned: bool | None = None,
    figure: str | None = None,
) -> None:
    """Print rows of a report: on a terminal (or aligned) short figures with bars, else exact ones between tabs.

    `figure` is what the bars show; without it the cost where it is known, else tokens.
    """
    if is_aligned or (is_aligned is None and is_terminal()):
        _print_readable(by, rows, total, figure or measure_of(rows))
    else:
        typer.echo("\t".join([*by, *PLAIN]))
        for row in rows:
            keys = [_plain(key_text(row.keys[name])) for name in by]
            typer.echo("\t".join([*keys, *(_plain(getattr(row, name)) for name in PLAIN)]))


def measure_of(rows: Sequence[UsageRow]) -> str:
    """What a picture of a report shows: costs where most attempts have one, else tokens, else calls."""
    attempts, costs = sum(row.attempts for row in rows), sum(row.costs for row in rows)
    if costs * 2 > attempts and any(row.cost_nano for row in rows):
        return COST
    return "total_tokens" if any(row.total_tokens for row in rows) else "attempts"


def _plain(value: object) -> str:
    return "" if value is None else printable(str(value)).replace("\t", "\\t").replace("\n", "\\n")


def _print_readable(by: Sequence[str], rows: Sequence[UsageRow], total: UsageRow | None, measure: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    sheet = Sheet(by, rows, total, measure)
    width = shutil.get_terminal_size().columns if is_terminal() else PIPE_WIDTH
    sheet.fit(min(width, WIDEST))
    table = Table(box=box.SIMPLE_HEAD if is_terminal() else None, pad_edge=False, header_style="bold")
    for name in by:
        table.add_column(_title(name), overflow="fold")
    for one in sheet.figures:
        table.add_column(one.title, justify="right", no_wrap=True, style="bold" if one.name == measure else "")
    bars = sheet.bars(width)
    if bars is not None:
        table.add_column("", no_wrap=True, style="cyan")
    for number, line in enumerate(sheet.lines()):
        if number and sheet.is_new_group(number):
            table.add_section()
        table.add_row(*map(Text, line), *([] if bars is None else [bars[number]]))
    if total is not None:
        table.add_section()
        table.add_row(*(Text(cell, style="bold") for cell in sheet.last_line()))
    Console(highlight=False, width=max(width, sheet.least_width())).print(table)


def _title(name: str) -> str:
    return name.removesuffix("_id").replace("_", " ")


class Sheet:
    """The cells of a table, and what of it fits into a line."""

    def __init__(self, by: Sequence[str], rows: Sequence[UsageRow], total: UsageRow | None, measure: str) -> None:
        self._by, self._rows, self._total, self._measure = by, rows, total, measure
        self.figures = [one for one in FIGURES if one.always or any(getattr(row, one.name) for row in rows)]
        self._decimals = cost_decimals(max((row.cost_nano or 0 for row in rows), default=0))
        first = [row.keys[by[0]] for row in rows] if by else []
        changes = sum(one != other for one, other in pairwise(first))
        # Rows belong together by their first key: each in one place, and not a group for every row
        self._is_grouped = len(by) > 1 and changes + 1 == len(set(first)) < len(first)

    def fit(self, width: int) -> None:
        """Leave out what a narrow line has no room for, until there is some for bars."""
        for name in EXPENDABLE:
            if self._width() + GAP + BAR_WIDTHS[0] <= width:
                return
            self.figures = [one for one in self.figures if one.name not in {name} - {self._measure}]

    def is_new_group(self, number: int) -> bool:
        """Whether a row begins a group."""
        return self._is_grouped and not self._is_like_above(number, self._by[0])

    def lines(self) -> list[list[str]]:
        """The cells of all rows; keys of a group are told once."""
        return [[*self._keys(number), *self._cells(row)] for number, row in enumerate(self._rows)]

    def last_line(self) -> list[str]:
        """The cells of the total."""
        keys = ["total" if place == 0 else "" for place in range(len(self._by))]
        return keys if self._total is None else [*keys, *self._cells(self._total)]

    def bars(self, width: int) -> list[str] | None:
        """A bar for each row; None where there is no room, or nothing to compare."""
        values = [getattr(row, self._measure) for row in self._rows]
        largest = max((value for value in values if value), default=0)
        room = min(width - self._width() - GAP, BAR_WIDTHS[1])
        if not largest or room < BAR_WIDTHS[0] or len(values) < 2:  # noqa: PLR2004 - two can be compared
            return None
        is_plain = not (sys.stdout.encoding or "").lower().startswith("utf")
        return [bar(value, largest, room, is_plain=is_plain) for value in values]

    def least_width(self) -> int:
        """How much room the keys, broken into lines, and the figures need: one that is cut would be a wrong one."""
        keys, figures = self._widths()[: len(self._by)], self._widths()[len(self._by) :]
        return sum(min(width, FOLDED) + GAP for width in keys) + sum(width + GAP for width in figures)

    def _width(self) -> int:
        return sum(width + GAP for width in self._widths())

    def _widths(self) -> list[int]:
        """How wide each column is where nothing is broken into lines."""
        from rich.cells import cell_len

        lines = self.lines() + ([] if self._total is None else [self.last_line()])
        titles = [*map(_title, self._by), *(one.title for one in self.figures)]
        return [max(map(cell_len, column)) for column in zip(titles, *lines, strict=True)]

    def _is_like_above(self, number: int, name: str) -> bool:
        return number > 0 and self._rows[number].keys[name] == self._rows[number - 1].keys[name]

    def _keys(self, number: int) -> list[str]:
        texts = [key_text(self._rows[number].keys[name]) for name in self._by]
        found = [UNKNOWN if text is None else printable(text) for text in texts]
        if self._is_grouped and self._is_like_above(number, self._by[0]):
            found[0] = ""
        return found

    def _cells(self, row: UsageRow) -> list[str]:
        return [
            dollars(row.cost_nano, decimals=self._decimals) if one.name == COST else one.shown(getattr(row, one.name))
            for one in self.figures
        ]
