"""The output of commands: tables and colours on a terminal, plain lines in a pipe.

Numbers as people read them: short figures, dollars, sizes, bars.

Files that commands read; ``-`` is stdin.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import typer

from threadkeep.domain.jsontext import dumps
from threadkeep.domain.printing import printable, printable_json
from threadkeep.errors import InvalidOption

UNKNOWN: Final = "-"
NANO: Final = 10**9
EXACT: Final = 100_000  # numbers below are written out
STEPS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
EIGHTHS: Final = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
SECOND_MS: Final = 1000
# From so many nano-dollars on -> decimals of a cost in dollars
DECIMALS: Final = ((NANO, 2), (NANO // 100, 4))


def short(value: float | None) -> str:
    """A number in a few characters: ``12,345``, ``123k``, ``1.23M``."""
    if value is None:
        return UNKNOWN
    if abs(value) < EXACT:
        return f"{value:,.0f}"
    factor, letter = next((factor, letter) for factor, letter in STEPS if abs(value) >= factor)
    scaled = value / factor
    return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{letter}"  # noqa: PLR2004 - three digits


def number_of(count: int, one: str, several: str | None = None) -> str:
    """How many there are of something: ``1 day``, ``2 days``, ``1,000 bodies``."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def dollars(nano: int | None, *, decimals: int | None = None, at_least: str = "") -> str:
    """A cost in dollars; without `decimals` with as many as say something. `at_least` marks one that may be higher."""
    if nano is None:
        return UNKNOWN
    decimals = cost_decimals(nano) if decimals is None else decimals
    smallest = 10 ** (9 - decimals)
    if 0 < nano < smallest // 2 and not at_least:
        return f"<{smallest / NANO:.{decimals}f}"
    return f"{at_least}{nano / NANO:,.{decimals}f}"


def cost_decimals(largest: int) -> int:
    """How many decimals the costs of a column have, by the largest of them."""
    return next((decimals for limit, decimals in DECIMALS if largest >= limit), 6)


def percent(ratio: float | None) -> str:
    """A ratio in percent."""
    return UNKNOWN if ratio is None else f"{ratio * 100:.0f}%"


def milliseconds(value: float | None) -> str:
    """A duration: milliseconds, from a second on seconds."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f} ms" if value < SECOND_MS else f"{value / SECOND_MS:,.1f} s"


def size(count: int | None) -> str:
    """A number of bytes."""
    if count is None:
        return UNKNOWN
    scaled: float = count
    for unit in ("B", "KiB", "MiB", "GiB"):
        if scaled < 1024:  # noqa: PLR2004 - the next unit
            return f"{scaled:,.0f} {unit}" if unit == "B" else f"{scaled:,.1f} {unit}"
        scaled /= 1024
    return f"{scaled:,.1f} TiB"


def bar(value: float | None, largest: float, width: int, *, is_plain: bool = False) -> str:
    """A bar of at most `width` characters; anything above zero shows."""
    if not value or not largest or width < 1:
        return ""
    eighths = max(round(value / largest * width * 8), 1)
    whole, rest = divmod(eighths, 8)
    return "#" * max(whole, 1) if is_plain else "█" * whole + EIGHTHS[rest]


def key_text(value: Any) -> str | None:
    """A key of a report as text: ISO 8601 for times."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="minutes")
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)


PIPE_WIDTH: Final = 200  # of aligned tables where there is no terminal
GAP: Final = 3  # between the columns of an aligned table
WRAPPED: Final = 16  # the least width of cells that may be broken into lines
WITHOUT_STYLES: Final = frozenset({"dumb", "unknown"})  # values of TERM


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    key: str = ""  # of its value in a record; without one it is the title
    is_number: bool = False  # the values stand at the right
    is_time: bool = False  # the values are times in ISO 8601
    is_duration: bool = False  # the values are milliseconds
    no_wrap: bool = False  # the values are never broken into lines; numbers never are
    drop_order: int = 0  # a terminal too narrow leaves out columns with 1 first, then those with 2 …; 0: never
    style: str = ""  # of the cells on a terminal, as Rich names it

    def value(self, record: Mapping[str, Any]) -> Any:
        """Return its value in a record."""
        return record[self.key or self.title]


def is_terminal() -> bool:
    """Return whether a person reads the output."""
    return sys.stdout.isatty()


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
    """Print a line about the output to stderr."""
    typer.echo(printable(text), err=True)


def print_json(value: Any) -> None:
    """Print JSON: indented on a terminal, else on one line, in UTF-8."""
    if is_terminal():
        typer.echo(printable_json(json.dumps(value, indent=2, ensure_ascii=False)))
    else:
        typer.echo(printable_json(dumps(value).decode()).encode())


def print_json_line(value: Any) -> None:
    """Print JSON on one line, also on a terminal, and at once."""
    typer.echo(printable_json(dumps(value).decode()).encode())


def print_tsv(titles: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table for programs: tab-separated, behind a line of titles."""
    typer.echo("\t".join(titles))
    for row in rows:
        cells = (printable(cell_text(value) or "") for value in row)
        typer.echo("\t".join(cell.replace("\t", "\\t").replace("\n", "\\n") for cell in cells))


def print_table(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> None:
    """Print a table: aligned on a terminal, with the columns that there is room for; else tab-separated."""
    if not is_terminal():
        print_tsv([column.title for column in columns], ([column.value(one) for column in columns] for one in records))
        return
    rows = [[_readable(column, column.value(record)) for column in columns] for record in records]
    width = shutil.get_terminal_size().columns
    widths = column_widths(columns, rows, is_wrapped=True)
    kept = columns_that_fit(columns, widths, width)
    # The terminal breaks lines that are too long; an id or a number that is cut would be a wrong one.
    width = max(width, sum(widths[index] for index in kept))
    draw_table([columns[index] for index in kept], [[row[index] for index in kept] for row in rows], width)


def column_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, is_wrapped: bool) -> list[int]:
    """How much room each column needs, with its gap, where long cells are broken into lines or not."""
    from rich.cells import cell_len

    cells = zip(*([column.title for column in columns], *rows), strict=True)
    widest = [max(map(cell_len, texts)) for texts in cells]
    return [
        (min(width, WRAPPED) if is_wrapped and not (column.no_wrap or column.is_number) else width) + GAP
        for column, width in zip(columns, widest, strict=True)
    ]


def columns_that_fit(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """The indexes of the columns that a line has room for."""
    kept = list(range(len(columns)))
    for index in sorted((index for index in kept if columns[index].drop_order), key=lambda i: columns[i].drop_order):
        if sum(widths[one] for one in kept) <= room:
            break
        kept.remove(index)
    return kept


def draw_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    sections: Collection[int] = (),
    total: Sequence[str] | None = None,
) -> None:
    """Print an aligned table, with a line between its `sections`, which begin with these rows, and a total below it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if is_terminal() else None, pad_edge=False, header_style="bold")
    for column in columns:
        no_wrap = column.no_wrap or column.is_number
        justify: Any = "right" if column.is_number else "left"
        table.add_column(column.title, justify=justify, no_wrap=no_wrap, overflow="fold", style=column.style)
    for number, row in enumerate(rows):
        if number and number in sections:
            table.add_section()
        table.add_row(*map(Text, row))
    if total is not None:
        table.add_section()
        table.add_row(*map(Text, total), style="bold")
    Console(highlight=False, width=width).print(table)


def iso(at: datetime) -> str:
    """A time for programs: ``2026-11-21T10:48:12Z``."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def record(source: object, *names: str) -> dict[str, Any]:
    """Attributes of an object by their names, for a table and as JSON: times are texts in ISO 8601."""
    values = ((name, getattr(source, name)) for name in names)
    return {name: iso(value) if isinstance(value, datetime) else value for name, value in values}


def clock(at: datetime) -> str:
    """A time for people, in UTC: ``2026-11-21 10:48``."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def cell_text(value: Any) -> str | None:
    """A value in a table: ``yes`` and ``no``, ``KEY=VALUE`` for labels; None where it is unknown or empty."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={text}" for key, text in sorted(value.items())) or None
    return None if value is None else str(value)


def _readable(column: Column, value: Any) -> str:
    if column.is_time and value is not None:
        return clock(datetime.fromisoformat(value))
    if column.is_duration:
        return milliseconds(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = cell_text(value)
    return UNKNOWN if text is None else printable(text)


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr where that is a terminal; gives a function to call with how many more are done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        task = bars.add_task(title, total=total)
        yield lambda done: bars.advance(task, done)


def progress_callback(advance: Callable[[int], None]) -> Callable[[str, int], None]:
    """Return a callback for the library, which reports totals by kind, for a progress bar that counts increments."""
    counts: dict[str, int] = {}

    def update(kind: str, count: int) -> None:
        advance(count - counts.get(kind, 0))
        counts[kind] = count

    return update


STDIN: Final = "-"


@contextmanager
def open_input(name: str, *, seekable: bool = False) -> Iterator[BinaryIO]:
    """An open file, or stdin; to be read twice (`seekable`) stdin and pipes are copied into a temporary file."""
    is_stdin = name == STDIN
    with nullcontext(sys.stdin.buffer) if is_stdin else _open(name) as file:
        if not seekable or (not is_stdin and file.seekable()):
            yield file
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(file, copy)
            copy.seek(0)
            yield copy


def _open(name: str) -> BinaryIO:
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - the caller closes it
        file.peek(1)  # a folder can be opened, but not read
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise InvalidOption(f"Cannot read {name!r}: {getattr(error, 'strerror', None) or error}.") from error
    return file
