"""What commands print: tables and colours on a terminal, plain lines in a pipe."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import typer

Cell = str | int | datetime | None

UNKNOWN: Final = "-"
PIPE_WIDTH: Final = 200  # of aligned tables where there is no terminal
GAP: Final = 3  # between the columns of an aligned table
FOLDED: Final = 16  # the least width of cells that may be broken into lines
WITHOUT_STYLES: Final = frozenset({"dumb", "unknown"})  # values of TERM
# Control characters that a terminal would obey; stored texts come from anywhere.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BREAKS: Final = {"\t": "\\t", "\n": "\\n"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers stand at the right, and a kept cell is never broken into lines.

    Where a terminal is too narrow those with an `exit` are left out, the lowest first.
    """

    title: str
    is_number: bool = False
    is_kept: bool = False
    exit: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether its cells stay on one line."""
        return self.is_kept or self.is_number


def is_terminal() -> bool:
    """Whether a person reads the output."""
    return sys.stdout.isatty()


def printable(text: str) -> str:
    """A text with its control characters, except line breaks and tabs, written as escapes."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def styled(text: str, *, is_bold: bool = False, is_dim: bool = False, colour: str | None = None) -> str:
    """A text with styles where a terminal has them, and colours unless NO_COLOR is set."""
    fg = None if os.environ.get("NO_COLOR") else colour
    has_style = is_bold or is_dim or fg is not None
    if not has_style or not is_terminal() or os.environ.get("TERM") in WITHOUT_STYLES:
        return text
    return typer.style(text, bold=is_bold or None, dim=is_dim or None, fg=fg)


def print_text(text: str, *, is_bold: bool = False, is_dim: bool = False, colour: str | None = None) -> None:
    """Print lines; styles are for terminals only."""
    typer.echo(styled(printable(text), is_bold=is_bold, is_dim=is_dim, colour=colour))


def note(text: str) -> None:
    """Print a line about the output, beside it: on stderr."""
    typer.echo(printable(text), err=True)


def print_json(value: Any) -> None:
    """Print JSON: indented on a terminal, else on one line, in UTF-8."""
    from threadkeep.domain.jsontext import dumps

    if not is_terminal():
        typer.echo(dumps(value))
        return
    text = json.dumps(value, indent=2, ensure_ascii=False)
    typer.echo(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Print a table: aligned on a terminal, with what there is room for; else tab-separated with a line of titles."""
    if not is_terminal():
        typer.echo("\t".join(column.title for column in columns))
        for row in rows:
            typer.echo("\t".join(_plain(cell) for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[_readable(cell) for cell in row] for row in rows]
    width = shutil.get_terminal_size().columns
    least = [_least_width(column, [row[place] for row in cells]) for place, column in enumerate(columns)]
    places = _with_room(columns, least, width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in (columns[place] for place in places):
        justify: Literal["right", "left"] = "right" if column.is_number else "left"
        table.add_column(column.title, justify=justify, no_wrap=column.is_whole, overflow="fold")
    for row in cells:
        table.add_row(*(Text(row[place]) for place in places))
    # Lines that are too long are broken by the terminal; an id or a number that is cut would be a wrong one.
    Console(highlight=False, width=max(width, sum(least[place] for place in places))).print(table)


def _least_width(column: Column, cells: Sequence[str]) -> int:
    """How much room a column needs, with the gap beside it."""
    from rich.cells import cell_len

    widest = max(map(cell_len, [column.title, *cells]))
    return (widest if column.is_whole else min(widest, FOLDED)) + GAP


def _with_room(columns: Sequence[Column], least: Sequence[int], width: int) -> list[int]:
    """The places of the columns that a line has room for."""
    places = list(range(len(columns)))
    for place in sorted((place for place in places if columns[place].exit), key=lambda place: columns[place].exit):
        if sum(least[one] for one in places) <= width:
            break
        places.remove(place)
    return places


def iso(at: datetime) -> str:
    """A time for programs: ``2026-11-21T10:48:12Z``."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def clock(at: datetime) -> str:
    """A time for people, in UTC: ``2026-11-21 10:48``."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _plain(cell: Cell) -> str:
    if cell is None:
        return ""
    text = iso(cell) if isinstance(cell, datetime) else str(cell)
    return printable(re.sub(r"[\t\n]", lambda found: _BREAKS[found[0]], text))


def _readable(cell: Cell) -> str:
    if cell is None:
        return UNKNOWN
    if isinstance(cell, int):
        return f"{cell:,}"
    return clock(cell) if isinstance(cell, datetime) else printable(cell)


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr where that is a terminal; gives the function to call with each number of things done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        task = bars.add_task(title, total=total)
        yield lambda done: bars.advance(task, done)
