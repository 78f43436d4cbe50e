"""What commands print: tables and colours on a terminal, plain lines in a pipe."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import typer

Cell = str | int | datetime | None

UNKNOWN: Final = "-"
PIPE_WIDTH: Final = 200  # of aligned tables where there is no terminal
# Control characters that a terminal would obey; stored texts come from anywhere.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BREAKS: Final = {"\t": "\\t", "\n": "\\n"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers stand at the right, and a kept cell is never broken into lines."""

    title: str
    is_number: bool = False
    is_kept: bool = False


def is_terminal() -> bool:
    """Whether a person reads the output."""
    return sys.stdout.isatty()


def printable(text: str) -> str:
    """A text with its control characters, except line breaks and tabs, written as escapes."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_text(text: str, *, is_bold: bool = False, is_dim: bool = False, colour: str | None = None) -> None:
    """Print lines; styles are for terminals only."""
    shown = printable(text)
    typer.echo(typer.style(shown, bold=is_bold or None, dim=is_dim or None, fg=colour) if is_terminal() else shown)


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


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    total: Sequence[Cell] | None = None,
    *,
    is_aligned: bool | None = None,
) -> None:
    """Print a table: aligned (by default on a terminal), else tab-separated with a line of titles and no `total`."""
    if not (is_terminal() if is_aligned is None else is_aligned):
        typer.echo("\t".join(column.title for column in columns))
        for row in rows:
            typer.echo("\t".join(_plain(cell) for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if is_terminal() else None, pad_edge=False, header_style="bold")
    for column in columns:
        is_whole = column.is_kept or column.is_number
        table.add_column(
            column.title, justify="right" if column.is_number else "left", no_wrap=is_whole, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(_readable(cell)) for cell in row))
    if total is not None:
        table.add_section()
        table.add_row(*(Text(_readable(cell), style="bold") for cell in total))
    Console(highlight=False, width=None if is_terminal() else PIPE_WIDTH).print(table)


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
