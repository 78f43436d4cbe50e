"""Usage reports as tables: short figures and bars for people; plain lines, CSV and Parquet for programs."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from threadkeep.cli import output
from threadkeep.cli.output import Column, is_terminal
from threadkeep.domain.printing import printable
from threadkeep.domain.reports import PERCENTILES

if TYPE_CHECKING:
    from threadkeep import UsageRow

COST: Final = "cost_nano"
COUNTS: Final = (
    "attempts", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
    "total_tokens", COST, "costs", "unknown_costs", "cache_known_tokens", "latency_ms", "latencies", "first_token_ms",
    "first_tokens",
)  # fmt: skip
DERIVED: Final = ("cost_usd", "mean_cost_usd", "cache_hit_ratio", "mean_latency_ms", "mean_first_token_ms")
PLAIN: Final = (*COUNTS[:9], *DERIVED[2:])
DAYS: Final = ("day", "week", "month")
FORMULA_STARTS: Final = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # the last ones are wide forms of the first
MIN_BAR, MAX_BAR = 8, 40
MAX_WIDTH: Final = 200


# The columns for people, and those of them that are shown even where no row has a figure
FIGURES: Final = tuple(
    Column(title, name, is_number=True, drop_order=drop_order)
    for name, title, drop_order in (
        ("attempts", "calls", 0), ("input_tokens", "input", 0), ("cache_hit_ratio", "cached", 4),
        ("cache_write_tokens", "cache write", 2), ("output_tokens", "output", 0), ("reasoning_tokens", "reasoning", 1),
        ("total_tokens", "total", 5), ("mean_latency_ms", "latency", 3),
        ("mean_first_token_ms", "first token", 2), ("p50_latency_ms", "p50", 4), ("p95_latency_ms", "p95", 5),
        ("p99_latency_ms", "p99", 3), ("p50_first_token_ms", "p50 first", 2), ("p95_first_token_ms", "p95 first", 2),
        ("p99_first_token_ms", "p99 first", 1), (COST, "cost, $", 0),
    )
)  # fmt: skip
ALWAYS_SHOWN: Final = frozenset({"attempts", "input_tokens", "output_tokens", "total_tokens"})
TEXTS: Final[dict[str, Callable[[Any], str]]] = {
    "cache_hit_ratio": output.percent,
    "mean_latency_ms": output.milliseconds,
    "mean_first_token_ms": output.milliseconds,
    **dict.fromkeys(PERCENTILES, output.milliseconds),
}


def print_usage(
    by: Sequence[str],
    rows: Sequence[UsageRow],
    total: UsageRow | None = None,
    *,
    is_aligned: bool | None = None,
    figure: str | None = None,
) -> None:
    """Print rows of a report: on a terminal (or aligned) short figures with bars, else exact ones between tabs.

    `figure` is what the bars show; without it the cost where it is known, else tokens. A total needs a key in `by`.
    """
    if is_terminal() if is_aligned is None else is_aligned:
        _print_readable(by, rows, total, figure or measure_of(rows))
        return
    names = [*PLAIN, *_percentiles(rows)]
    cells = (
        [*(output.key_text(row.keys[name]) for name in by), *(getattr(row, name) for name in names)] for row in rows
    )
    output.print_tsv([*by, *names], cells)


def _percentiles(rows: Sequence[UsageRow]) -> Sequence[str]:
    return PERCENTILES if any(row.percentiles is not None for row in rows) else ()


def measure_of(rows: Sequence[UsageRow]) -> str:
    """What a plot of a report shows: costs where most attempts have one, else tokens, else calls."""
    attempts, costs = sum(row.attempts for row in rows), sum(row.costs for row in rows)
    if costs * 2 > attempts and any(row.cost_nano for row in rows):
        return COST
    return "total_tokens" if any(row.total_tokens for row in rows) else "attempts"


def figures_of(rows: Sequence[UsageRow]) -> list[Column]:
    """The columns that say something about these rows."""
    return [one for one in FIGURES if one.key in ALWAYS_SHOWN or any(getattr(row, one.key) for row in rows)]


def figure_texts(row: UsageRow, figures: Sequence[Column], decimals: int) -> list[str]:
    """The figures of a row as texts, costs with so many decimals."""
    costs = {COST: partial(output.dollars, decimals=decimals, at_least=at_least() if is_partly_known(row) else "")}
    return [(TEXTS | costs).get(one.key, output.short)(getattr(row, one.key)) for one in figures]


def is_partly_known(row: UsageRow) -> bool:
    """Whether its cost leaves out attempts whose cost is unknown."""
    return row.cost_nano is not None and row.costs < row.attempts


def at_least() -> str:
    """The mark of such a cost."""
    return ">= " if _is_plain() else "≥ "


def decimals_of(rows: Sequence[UsageRow]) -> int:
    """How many decimals the costs of rows have."""
    return output.cost_decimals(max((row.cost_nano or 0 for row in rows), default=0))


def _print_readable(by: Sequence[str], rows: Sequence[UsageRow], total: UsageRow | None, measure: str) -> None:
    figures, decimals, starts = figures_of(rows), decimals_of(rows), _group_starts(by, rows)
    # What the bars show is bold, and never left out
    shown = [replace(one, style="bold", drop_order=0) if one.key == measure else one for one in figures]
    columns = [*(Column(name.removesuffix("_id").replace("_", " ")) for name in by), *shown]
    # The keys of each row as texts; the first key of a group stands in its first row only
    keys = []
    for number, row in enumerate(rows):
        texts = [output.key_text(row.keys[name]) for name in by]
        line = [output.UNKNOWN if text is None else printable(text) for text in texts]
        if starts and number not in starts:
            line[0] = ""
        keys.append(line)
    lines = [[*texts, *figure_texts(row, figures, decimals)] for texts, row in zip(keys, rows, strict=True)]
    if total is not None:
        lines.append(["total", *[""] * (len(by) - 1), *figure_texts(total, figures, decimals)])

    width = shutil.get_terminal_size().columns if is_terminal() else output.PIPE_WIDTH
    widths = output.column_widths(columns, lines, is_wrapped=False)
    kept = output.columns_that_fit(columns, widths, min(width, MAX_WIDTH) - output.GAP - MIN_BAR)
    columns, lines = [columns[index] for index in kept], [[line[index] for index in kept] for line in lines]
    # A figure that is cut would be a wrong one: a line is as long as it must be, with keys broken into lines.
    least_width = sum(output.column_widths(columns, lines, is_wrapped=True))
    last_line = None if total is None else lines.pop()
    bars = _bars([getattr(row, measure) for row in rows], width - sum(widths[index] for index in kept) - output.GAP)
    if bars is not None:
        columns.append(Column("", no_wrap=True, style="cyan"))
        lines = [[*line, drawn] for line, drawn in zip(lines, bars, strict=True)]
    output.draw_table(columns, lines, max(width, least_width), sections=starts, total=last_line)


def note_unknown_costs(rows: Sequence[UsageRow], total: UsageRow | None) -> None:
    """Explain the mark of costs on stderr, if a terminal shows one."""
    counted = rows if total is None else [total]
    if is_terminal() and any(map(is_partly_known, counted)):
        known, attempts = sum(row.costs for row in counted), sum(row.attempts for row in counted)
        of_calls = f"{known:,} of {output.number_of(attempts, 'call')}"
        output.note(f"threadkeep: {at_least().strip()}: the cost is known of {of_calls}")


def _group_starts(by: Sequence[str], rows: Sequence[UsageRow]) -> frozenset[int]:
    """The rows that begin a group of those with the same first key, where each group stands in one place."""
    first_keys = [row.keys[by[0]] for row in rows] if len(by) > 1 else []
    starts = [number for number, (one, other) in enumerate(pairwise(first_keys), 1) if one != other]
    is_grouped = len(starts) + 1 == len(set(first_keys)) < len(first_keys)  # and not a group for every row
    return frozenset((0, *starts)) if is_grouped else frozenset()


def _bars(values: Sequence[float | None], room: int) -> list[str] | None:
    """A bar for each value; None where there is no room, or nothing to compare."""
    largest = max((value for value in values if value), default=0)
    if not largest or room < MIN_BAR or len(values) < 2:  # noqa: PLR2004 - two can be compared
        return None
    return [output.bar(value, largest, min(room, MAX_BAR), is_plain=_is_plain()) for value in values]


def _is_plain() -> bool:
    """Return whether stdout is limited to ASCII."""
    return not (sys.stdout.encoding or "").lower().startswith("utf")


# Files


def csv_text(by: Sequence[str], rows: Sequence[UsageRow]) -> str:
    """The rows as CSV (RFC 4180) with a line of titles; what is unknown is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = [*COUNTS, *DERIVED, *_percentiles(rows)]
    writer.writerow([*by, *names])
    for row in rows:
        figures = [getattr(row, name) for name in names]
        writer.writerow([*(_csv_text(row.keys[name]) for name in by), *figures])
    return buffer.getvalue()


def _csv_text(key: Any) -> str | None:
    """Return a key that is neither a control sequence nor a spreadsheet formula."""
    text = output.key_text(key)
    if not isinstance(key, str) or text is None:
        return text
    return f"'{printable(text)}" if text.startswith(FORMULA_STARTS) else printable(text)


def write_parquet(path: Path, by: Sequence[str], rows: Sequence[UsageRow]) -> None:
    """Write the rows as a Parquet file, with hours in UTC."""
    from threadkeep.store.moving import usage_files as files

    kinds = {
        **dict.fromkeys(by, files.TEXT), **dict.fromkeys(DAYS, files.DATE),
        **dict.fromkeys(("response", *COUNTS), files.NUMBER), "hour": files.MOMENT, "cost_usd": files.MONEY,
        **dict.fromkeys((*DERIVED[1:], *PERCENTILES), files.RATIO),
    }  # fmt: skip
    names = (*COUNTS, *DERIVED, *_percentiles(rows))
    figures = [COST if name == "cost_usd" else name for name in names]
    lines = [(*(row.keys[name] for name in by), *(getattr(row, name) for name in figures)) for row in rows]
    files.write_parquet(path, {name: kinds[name] for name in (*by, *names)}, [lines], feature="--parquet")
